"""The rows of the page of indexes: found by few threads, however many look, whoever is silent."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from airflow.api_fastapi.core_api.security import get_user
from pyiceberg import catalog as pyiceberg_catalog
from pyiceberg.utils.config import Config

from puffin_ann.airflow.page import application as application_module
from puffin_ann.airflow.page.rounds import (
    FRESH_SECONDS,
    PATIENCE_SECONDS,
    STILL_LOOKING,
    THREADS,
    Rounds,
)
from puffin_ann.airflow.page.rows import Row
from puffin_ann.settings import settings

SECONDS = 20
"""That a thread may take on a busy machine."""


class Clock:
    """A clock that stands until it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Looking:
    """Finds rows once it is let; counts how often and by how many at once."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gates: dict[str, threading.Event] = {}
        self.most = self._now = 0
        self._lock = threading.Lock()

    def __call__(self, path: Path) -> Row:
        with self._lock:
            self.asked.append(path.stem)
            self._now += 1
            self.most = max(self.most, self._now)
        if path.stem in self.gates:
            assert self.gates[path.stem].wait(SECONDS)
        with self._lock:
            self._now -= 1
        return Row(path.stem, {"state": f"look {self.asked.count(path.stem)}"})


@pytest.fixture
def folder(tmp_path) -> Path:
    for name in ("quick", "slow"):
        (tmp_path / f"{name}.yaml").touch()
    return tmp_path


@pytest.fixture
def looking() -> Iterator[Looking]:
    made = Looking()
    yield made
    for gate in made.gates.values():
        gate.set()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rounds(looking, clock) -> Rounds:
    return Rounds(looking, clock)


def ended() -> None:
    """Wait for the threads that look."""
    for thread in threading.enumerate():
        if thread.name.startswith("puffin-ann-rows"):
            thread.join(SECONDS)
            assert not thread.is_alive()


def states(found) -> list[str]:
    return [row.cells["state"] for row in found.rows()]


def test_who_asks_while_a_round_lasts_or_soon_after_shares_it(rounds, looking, folder, clock):
    looking.gates["slow"] = threading.Event()
    first = rounds.current([folder])
    assert rounds.current([folder]) is first
    looking.gates["slow"].set()
    ended()
    clock.now += FRESH_SECONDS - 1
    assert rounds.current([folder]) is first
    assert sorted(looking.asked) == ["quick", "slow"]
    clock.now += 1
    assert rounds.current([folder]) is not first
    ended()


def test_what_took_long_is_fresh_from_its_end_on(rounds, looking, folder, clock):
    looking.gates["slow"] = threading.Event()
    first = rounds.current([folder])
    clock.now += 10 * FRESH_SECONDS
    looking.gates["slow"].set()
    ended()
    clock.now += FRESH_SECONDS - 1
    assert rounds.current([folder]) is first


def test_a_page_is_not_kept_from_what_is_known_by_what_is_not(rounds, looking, folder):
    looking.gates["slow"] = threading.Event()
    found = rounds.current([folder])
    while states(found)[0] == STILL_LOOKING:
        assert found.is_worth_waiting_for()
    assert states(found) == ["look 1", STILL_LOOKING]
    assert found.is_worth_waiting_for()


def test_what_took_longer_than_a_page_waits_is_shown_as_before_meanwhile(
    rounds, looking, folder, clock
):
    looking.gates["slow"] = threading.Event()
    rounds.current([folder])
    while looking.asked != ["quick", "slow"]:
        pass
    clock.now += PATIENCE_SECONDS
    looking.gates["slow"].set()
    ended()
    clock.now += FRESH_SECONDS
    looking.gates["slow"].clear()
    again = rounds.current([folder])
    while states(again)[0] != "look 2":
        pass
    assert states(again) == ["look 2", "look 1"]
    assert not again.is_worth_waiting_for()


def test_however_much_is_declared_few_look(rounds, looking, tmp_path):
    names = [f"many_{number:03d}" for number in range(100)]
    looking.gates = {name: threading.Event() for name in names}
    for name in names:
        (tmp_path / f"{name}.yaml").touch()
    rounds.current([tmp_path])
    for gate in looking.gates.values():
        gate.set()
    ended()
    assert looking.most <= THREADS
    assert len(looking.asked) == 100


def test_an_unforeseen_error_ends_no_thread_and_is_not_shown(folder, caplog):
    def fail(path: Path) -> Row:
        raise RuntimeError("postgresql://user:secret@catalog")

    found = Rounds(fail).current([folder])
    ended()
    assert all(
        "secret" not in state and "log of the API server" in state for state in states(found)
    )
    assert "slow.yaml" in caplog.text


def test_a_folder_without_declarations_has_no_rows(rounds, tmp_path):
    assert rounds.current([tmp_path]).rows() == []


@pytest.fixture
def silent(tmp_path, monkeypatch) -> Iterator[Path]:
    """Nine declarations, each in a catalog that takes connections and never answers."""
    sockets = []
    (tmp_path / "indexes").mkdir()
    for number in range(9):
        listening = socket.create_server(("127.0.0.1", 0), backlog=100)
        sockets.append(listening)
        uri = f"http://127.0.0.1:{listening.getsockname()[1]}"
        monkeypatch.setenv(f"PYICEBERG_CATALOG__SILENT{number}__URI", uri)
        text = f"table: silent{number}.n.words\ncolumn: embedding\n"
        (tmp_path / "indexes" / f"silent{number}.yaml").write_text(text)
    monkeypatch.setattr(pyiceberg_catalog, "_ENV_CONFIG", Config())
    monkeypatch.setenv("PUFFIN_ANN_DECLARATIONS_DIR", str(tmp_path / "indexes"))
    monkeypatch.setenv("PUFFIN_ANN_CATALOG_SECONDS", "1")
    settings.cache_clear()
    yield tmp_path / "indexes"
    settings.cache_clear()
    for listening in sockets:
        listening.close()


@pytest.fixture
def application(silent, monkeypatch):
    """The page, for a user who may read all DAGs."""
    monkeypatch.setattr(application_module, "PATIENCE_SECONDS", 0.5)
    readable = {f"ann_build_silent{number}" for number in range(9)}
    manager = SimpleNamespace(get_authorized_dag_ids=lambda **_: readable)
    monkeypatch.setattr(application_module, "get_auth_manager", lambda: manager)
    application_module.application.cache_clear()
    made = application_module.application()
    made.dependency_overrides[get_user] = lambda: SimpleNamespace(name="reader")

    @made.get("/other")
    def other() -> str:
        return "done"

    yield made
    application_module.application.cache_clear()


def ours() -> list[threading.Thread]:
    names = ("puffin-ann-rows", "catalog-silent")
    return [thread for thread in threading.enumerate() if thread.name.startswith(names)]


def test_many_who_look_at_silent_catalogs_take_few_threads_and_hold_up_nobody(application):
    most = 0
    begun = asyncio.Event()

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(ours()))
            await asyncio.sleep(0.01)

    async def load(client: httpx.AsyncClient) -> httpx.Response:
        begun.set()
        return await client.get("/")

    async def visit() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=application)
        async with httpx.AsyncClient(transport=transport, base_url="http://page") as client:
            watching = asyncio.create_task(watch())
            loads = [asyncio.create_task(load(client)) for _ in range(45)]
            await begun.wait()
            other = await client.get("/other")
            assert other.json() == "done"
            assert not any(load.done() for load in loads)
            answers = await asyncio.gather(*loads)
            watching.cancel()
        return answers

    answers = asyncio.run(visit())
    assert {answer.status_code for answer in answers} == {200}
    assert all(answer.text.count(STILL_LOOKING) == 9 for answer in answers)
    assert most <= 3 * THREADS
    while left := ours():  # the last rows are looked for after the first
        left[0].join(SECONDS)
        assert not left[0].is_alive()
