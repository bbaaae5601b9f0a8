"""One writer per index: others wait, or are told who is at work; the dead do not block for long."""

import multiprocessing
import os
import signal
import threading
from functools import partial

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from puffin_ann.errors import LeaseHeldError
from puffin_ann.lake.store import leases as lake_leases
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.settings import settings
from tests.support.clock import Clock

LEASE_SECONDS = 30.0
IDLE_SECONDS = 600.0


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The time of every lease, heartbeat and wait."""
    monkeypatch.setenv("PUFFIN_ANN_LEASE_SECONDS", str(LEASE_SECONDS))
    monkeypatch.setenv("PUFFIN_ANN_LEASE_IDLE_SECONDS", str(IDLE_SECONDS))
    monkeypatch.setattr(lake_leases, "SKEW_MS", 0)
    clock = Clock()
    monkeypatch.setattr(leases, "Lease", partial(lake_leases.Lease, clock=clock.ms))
    monkeypatch.setattr(leases, "time", clock.time)
    monkeypatch.setattr(leases, "threading", clock.threading)
    settings.cache_clear()
    yield clock
    settings.cache_clear()


@pytest.fixture
def table(tmp_path) -> Table:
    catalog = load_catalog(
        "demo", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}"
    )
    catalog.create_namespace("glove")
    return catalog.create_table("glove.words", schema=pa.schema([("id", pa.int64())]))


def owner_of(table: Table, index: str = "words") -> str | None:
    held = leases.index_lease(table, index).look()
    return None if held is None or held.released else held.claim.owner


def test_without_waiting_a_second_run_is_refused_and_told_who_is_at_work(table):
    with leases.writing(table, "words", "run-a", "build"):
        with (
            pytest.raises(LeaseHeldError, match=r"'words' of demo\.glove\.words.*build.*run-a"),
            leases.writing(table, "words", "run-b", "refresh", wait=False),
        ):
            pytest.fail("two writers at once")
        assert owner_of(table) == "run-a"
    assert owner_of(table) is None


def test_indexes_of_one_table_do_not_wait_for_each_other(table):
    with (
        leases.writing(table, "words", "run-a", "build"),
        leases.writing(table, "names", "run-b", "build", wait=False),
    ):
        assert (owner_of(table), owner_of(table, "names")) == ("run-a", "run-b")


def test_but_they_do_to_publish(table, clock):
    began = clock.seconds
    with (
        leases.publishing(table, "run-a", "publish words"),
        pytest.raises(LeaseHeldError, match="publish words"),
        leases.publishing(table, "run-b", "publish names"),
    ):
        pytest.fail("two publications at once")
    assert clock.seconds - began >= leases.PATIENCE_SECONDS


def test_who_waits_is_told_once_and_comes_next(table, clock):
    told: list[str] = []
    is_for_terminal = threading.Event()
    order: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        is_for_terminal.set()

    def second() -> None:
        with leases.writing(table, "words", "run-b", "refresh", tell=tell):
            order.append("b")

    with leases.writing(table, "words", "run-a", "build"):
        thread = threading.Thread(target=second)
        thread.start()
        assert is_for_terminal.wait(30)
        clock.advance(2 * LEASE_SECONDS)  # longer than a lease lasts without a heartbeat
        order.append("a")
    while thread.is_alive():
        clock.advance(leases.POLL_SECONDS)
        thread.join(0.001)
    assert order == ["a", "b"]
    assert len(told) == 1
    assert "build (run run-a)" in told[0]


def test_nested_for_the_same_run_the_outermost_gives_it_back(table):
    with leases.writing(table, "words", "run-a", "maintain"):
        with leases.writing(table, "words", "run-a", "refresh", wait=False):
            pass
        assert owner_of(table) == "run-a"
    assert owner_of(table) is None


def test_it_is_given_back_when_the_work_fails(table):
    with pytest.raises(ZeroDivisionError), leases.writing(table, "words", "run-a", "build"):
        raise ZeroDivisionError
    with leases.writing(table, "words", "run-b", "build", wait=False):
        pass


def killed_at_work(table: Table) -> None:
    with leases.writing(table, "words", "run-a", "build"):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_blocks_others_no_longer_than_a_lease_lasts(table, clock):
    process = multiprocessing.get_context("fork").Process(target=killed_at_work, args=(table,))
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    assert owner_of(table) == "run-a"
    began = clock.seconds
    with leases.writing(table, "words", "run-b", "build"):
        assert clock.seconds - began <= LEASE_SECONDS + leases.POLL_SECONDS


def test_the_retry_of_a_killed_run_does_not_wait(table):
    process = multiprocessing.get_context("fork").Process(target=killed_at_work, args=(table,))
    process.start()
    process.join(30)
    with leases.writing(table, "words", "run-a", "build", wait=False):
        pass
    assert owner_of(table) is None


class TestStagesInOtherProcesses:
    def test_between_stages_the_lease_lasts_longer(self, table, clock):
        leases.begin(table, "words", "run-a", "build")
        with leases.keep_lease(table, "words", "run-a", "build"):
            pass
        clock.advance(2 * LEASE_SECONDS)
        with pytest.raises(LeaseHeldError):
            leases.begin(table, "words", "run-b", "refresh")
        assert leases.end(table, "words", "run-a")
        leases.begin(table, "words", "run-b", "refresh")

    def test_a_stage_longer_than_a_lease_keeps_it(self, table, clock):
        leases.begin(table, "words", "run-a", "build")
        with leases.keep_lease(table, "words", "run-a", "build"):
            clock.advance(3 * LEASE_SECONDS)
            with pytest.raises(LeaseHeldError):
                leases.begin(table, "words", "run-b", "refresh")

    def test_a_run_taken_for_dead_does_not_go_on_beside_another(self, table, clock):
        leases.begin(table, "words", "run-a", "build")
        clock.advance(IDLE_SECONDS + 1, step=60)
        leases.begin(table, "words", "run-b", "refresh")
        with (
            pytest.raises(LeaseHeldError, match="run-b"),
            leases.keep_lease(table, "words", "run-a", "build"),
        ):
            pytest.fail("two writers at once")
        assert not leases.end(table, "words", "run-a")
        assert owner_of(table) == "run-b"

    def test_a_run_taken_for_dead_goes_on_if_nobody_is_at_work(self, table, clock):
        leases.begin(table, "words", "run-a", "build")
        clock.advance(IDLE_SECONDS + 1, step=60)
        leases.begin(table, "words", "run-b", "refresh")
        leases.end(table, "words", "run-b")
        with leases.keep_lease(table, "words", "run-a", "build"):
            assert owner_of(table) == "run-a"


def test_a_store_that_fails_meanwhile_does_not_stop_the_work(table, monkeypatch, caplog, clock):
    def fail(*_: object) -> None:
        raise OSError("no answer")

    with leases.writing(table, "words", "run-a", "build"):
        monkeypatch.setattr(lake_leases.Lease, "renew", fail)
        monkeypatch.setattr(lake_leases.Lease, "release", fail)
        clock.advance(LEASE_SECONDS)
    assert "no heartbeat could be sent" in caplog.text
    assert "not released" in caplog.text
