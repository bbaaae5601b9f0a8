"""Leases: one holder at a time, whoever comes, whoever dies."""

import json
import logging
import multiprocessing
import os
import threading
import time
from types import SimpleNamespace

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.errors import LeaseHeldError, StagingError
from puffin_ann.lake.store import leases
from puffin_ann.lake.store.leases import SKEW_MS, Lease
from puffin_ann.lake.store.staging import Staging
from puffin_ann.moments import now_ms

RACERS = 8
ROUNDS = 5


class Clock:
    """Milliseconds that pass when a test says so."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms

    def pass_by(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lease(tmp_path, clock) -> Lease:
    return lease_in(tmp_path, clock)


def lease_in(folder, clock=now_ms) -> Lease:
    place = folder / "metadata" / "_ann-staging" / "words"
    return Lease(PyArrowFileIO(), f"file://{place}", "index 'words'", clock=clock)


def test_nobody_else_gets_it_until_it_is_given_back(lease):
    first = lease.acquire("run-a", "build", 60)
    with pytest.raises(LeaseHeldError):
        lease.acquire("run-b", "refresh", 60)
    assert lease.release("run-a")
    second = lease.acquire("run-b", "refresh", 60)
    assert second.number > first.number


def test_who_is_refused_learns_who_has_it_doing_what_and_since_when(lease):
    lease.acquire("run-a", "build", 60)
    with pytest.raises(
        LeaseHeldError, match=r"'words'.*build \(run run-a\) since 2023-11-14 22:13:20 UTC"
    ):
        lease.acquire("run-b", "refresh", 60)


def test_the_same_run_goes_on_with_it_as_after_a_retry(lease, clock):
    first = lease.acquire("run-a", "build", 60)
    clock.pass_by(50)
    again = lease.acquire("run-a", "build", 60)
    assert again.number == first.number
    clock.pass_by(50)
    with pytest.raises(LeaseHeldError):
        lease.acquire("run-b", "refresh", 60)


def test_a_run_that_gives_no_sign_of_life_loses_it(lease, clock, caplog):
    first = lease.acquire("run-a", "build", 60)
    clock.pass_by(60 + SKEW_MS / 1000)
    with caplog.at_level(logging.WARNING, "puffin_ann"):
        second = lease.acquire("run-b", "refresh", 60)
    assert second.number == first.number + 1
    assert "run-a" in caplog.text
    assert not lease.renew("run-a", 60)
    assert not lease.release("run-a")
    with pytest.raises(LeaseHeldError, match="run-b"):
        lease.acquire("run-a", "build", 60)


def test_a_run_that_renews_keeps_it(lease, clock):
    lease.acquire("run-a", "build", 60)
    for _ in range(10):
        clock.pass_by(55)
        assert lease.renew("run-a", 60)
        with pytest.raises(LeaseHeldError):
            lease.acquire("run-b", "refresh", 60)


def test_a_renewal_may_shorten_it(lease, clock):
    lease.acquire("run-a", "build", 900)
    lease.renew("run-a", 60)
    clock.pass_by(60 + SKEW_MS / 1000)
    assert lease.acquire("run-b", "refresh", 60).claim.owner == "run-b"


def test_given_back_it_is_not_renewed_by_a_process_that_lives_on(lease):
    lease.acquire("run-a", "build", 60)
    lease.release("run-a")
    assert not lease.renew("run-a", 60)
    assert lease.acquire("run-b", "refresh", 60).claim.owner == "run-b"


def test_a_run_that_gave_it_back_can_have_it_again_with_a_new_number(lease):
    first = lease.acquire("run-a", "build", 60)
    lease.release("run-a")
    assert lease.acquire("run-a", "build", 60).number > first.number


def test_only_the_newest_claim_is_left_and_its_name_is_hidden_from_orphan_removal(tmp_path, lease):
    for number in range(5):
        lease.acquire(f"run-{number}", "build", 60)
        lease.renew(f"run-{number}", 60)
        lease.release(f"run-{number}")
    left = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["_lease-00000005", "_lease-00000005.beat", "_lease-00000005.released"]


@pytest.mark.parametrize("suffix", ["", ".beat"])
def test_corrupted_objects_keep_nobody_out_for_ever(tmp_path, lease, clock, suffix):
    lease.acquire("run-a", "build", 60)
    lease.renew("run-a", 60)
    (path,) = tmp_path.rglob(f"_lease-00000001{suffix}")
    path.write_bytes(b"{half")
    clock.pass_by(60 + SKEW_MS / 1000)
    assert lease.acquire("run-b", "refresh", 60).number == 2


def planted(folder, name: str, data: bytes) -> None:
    place = folder / "metadata" / "_ann-staging" / "words"
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_bytes(data)


def claim_of(**changed: object) -> bytes:
    claim = {"owner": "run-a", "purpose": "build", "since_ms": 0, "until_ms": 0, "token": "t"}
    return json.dumps(claim | changed).encode()


@pytest.mark.parametrize("number", [99_999_998, 99_999_999, 100_000_000, leases.LAST])
def test_whatever_number_somebody_made_the_next_run_gets_one(tmp_path, lease, number):
    planted(tmp_path, f"_lease-{number}", b"x")
    mine = lease.acquire("run-b", "refresh", 60)
    assert mine.number == (number + 1 if number < leases.LAST else 1)
    assert lease.look() == mine
    with pytest.raises(LeaseHeldError, match="run-b"):
        lease.acquire("run-c", "refresh", 60)


@pytest.mark.parametrize("name", ["_lease-9999999999", "_lease-٠٠٠٠٠٠٠٩", "_lease-000000002"])
def test_names_that_no_claim_has_do_not_count(tmp_path, lease, name):
    planted(tmp_path, name, claim_of(until_ms=now_ms() + 60_000))
    assert lease.look() is None
    assert lease.acquire("run-b", "refresh", 60).number == 1


ODD = {
    "ends in the year 126 million": {"until_ms": 4 * 10**18},
    "ends in the year 5000": {"until_ms": 95_617_584_000_000},
    "began in the year 31 million": {"since_ms": 10**18, "until_ms": 2 * 10**18},
    "began before 1970": {"since_ms": -1},
    "is of a run with an endless name": {"owner": "x" * 100_000},
}


@pytest.mark.parametrize("changed", ODD.values(), ids=ODD.keys())
def test_a_claim_that_no_run_makes_keeps_nobody_out_and_is_told(tmp_path, changed, caplog):
    lease = lease_in(tmp_path)
    planted(tmp_path, "_lease-00000001", claim_of(**changed))
    assert lease.look().oddity
    with caplog.at_level(logging.WARNING, "puffin_ann"):
        assert lease.acquire("run-b", "refresh", 60).number == 2
    assert "lost index 'words'" in caplog.text


def test_a_sign_of_life_that_no_run_gives_keeps_nobody_out(tmp_path):
    lease = lease_in(tmp_path)
    lease.acquire("run-a", "build", 60)
    planted(tmp_path, "_lease-00000001.beat", b'{"until_ms": 95617584000000}')
    assert "5000" in lease.look().oddity
    assert lease.acquire("run-b", "refresh", 60).number == 2


def test_an_object_too_large_for_a_claim_is_not_read(tmp_path, lease, monkeypatch):
    planted(tmp_path, "_lease-00000001", b" " * leases.MOST_BYTES + claim_of())
    monkeypatch.setattr(Staging, "read", lambda *_: pytest.fail("it was read"))
    assert lease.look().oddity


def test_what_stands_where_a_claim_should_is_told_rather_than_asked_for_for_ever(
    tmp_path, lease, monkeypatch
):
    waited: list[float] = []
    own_time = SimpleNamespace(sleep=waited.append, monotonic=time.monotonic)
    monkeypatch.setattr(leases, "time", own_time)  # other threads sleep, too
    (tmp_path / "metadata/_ann-staging/words/_lease-00000001").mkdir(parents=True)
    with pytest.raises(StagingError, match=r"'words'.*attempts"):
        lease.acquire("run-a", "build", 60)
    assert len(waited) == leases.ATTEMPTS - 1
    assert waited == sorted(set(waited))


def test_taken_away_it_is_free_and_its_run_learns_so(lease):
    assert lease.break_lease() is None
    lease.acquire("run-a", "build", 60)
    assert lease.break_lease().claim.owner == "run-a"
    assert not lease.renew("run-a", 60)
    assert lease.acquire("run-b", "refresh", 60).number == 2


def test_a_claim_that_was_decided_on_too_long_ago_does_not_count(lease, monkeypatch):
    """Its number was free when looked for, and taken, given back and cleared away since."""
    for owner in ("run-b", "run-c"):
        lease.acquire(owner, "build", 60)
        lease.release(owner)
    lease.acquire("run-d", "build", 60)
    assert lease._claim(2, "run-a", "build", 60, time.monotonic()) is None
    assert lease.look().claim.owner == "run-d"
    lease.release("run-d")
    long_ago = time.monotonic() - leases.STALE_LOOK_SECONDS - 1
    assert lease._claim(4, "run-a", "build", 60, long_ago) is None
    assert lease.look().number == 3


def test_of_threads_that_race_one_has_it_at_a_time(tmp_path):
    inside: list[str] = []
    most: list[int] = []
    numbers: list[int] = []

    def race(name: str) -> None:
        mine = lease_in(tmp_path)
        for _ in range(ROUNDS):
            numbers.append(acquired(mine, name))
            inside.append(name)
            most.append(len(inside))
            mine.look()  # some time in which others try
            inside.remove(name)
            mine.release(name)

    threads = [threading.Thread(target=race, args=(f"run-{n}",)) for n in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert len(set(numbers)) == len(numbers) == RACERS * ROUNDS


def acquired(lease: Lease, name: str) -> int:
    while True:
        try:
            return lease.acquire(name, "race", 60).number
        except LeaseHeldError:
            os.sched_yield()


def race_in_process(folder, name: str, journal) -> None:
    mine = lease_in(folder)
    for _ in range(ROUNDS):
        number = acquired(mine, name)
        with journal.open("a") as out:
            out.write(f"in {number}\n")
            out.flush()
            mine.look()  # some time in which others try
            out.write(f"out {number}\n")
        mine.release(name)


def test_of_processes_that_race_one_has_it_at_a_time(tmp_path):
    journal = tmp_path / "journal"
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=race_in_process, args=(tmp_path, f"run-{n}", journal))
        for n in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    lines = journal.read_text().splitlines()
    assert len(lines) == 2 * 4 * ROUNDS
    numbers = [line.split()[1] for line in lines[::2]]
    assert [line.split()[1] for line in lines[1::2]] == numbers
    assert sorted(map(int, numbers)) == list(map(int, numbers))


def test_a_lease_on_what_is_no_more_is_removed_unless_somebody_holds_it(lease):
    assert lease.remove()
    lease.acquire("one", "work", 60.0)
    assert not lease.remove()
    assert lease.look() is not None
    lease.release("one")
    assert lease.remove()
    assert lease.look() is None
    assert lease.acquire("two", "work", 60.0).number == 1


def test_a_claim_whose_file_is_from_years_ahead_keeps_nobody_out(tmp_path):
    lease = lease_in(tmp_path)
    years = 10 * 365 * 86_400
    planted(tmp_path, "_lease-00000001", claim_of(until_ms=now_ms() + years * 1000))
    (path,) = tmp_path.rglob("_lease-00000001")
    os.utime(path, (time.time() + years, time.time() + years))
    assert lease.look().oddity
    assert lease.acquire("run-b", "refresh", 60).number == 2


def test_a_claim_by_a_clock_that_is_hours_ahead_holds(tmp_path):
    lease = lease_in(tmp_path)
    planted(tmp_path, "_lease-00000001", claim_of(until_ms=now_ms() + 3 * 3_600_000))
    (path,) = tmp_path.rglob("_lease-00000001")
    os.utime(path, (time.time() + 7_200, time.time() + 7_200))
    with pytest.raises(LeaseHeldError):
        lease.acquire("run-b", "refresh", 60)
