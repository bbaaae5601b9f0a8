"""A store that fails at any request of any command: an outage is told, and nothing follows from it.

The table lies in a store whose requests all pass through `faulty_store`. Whatever befalls them, a
command does what it is for, or says that the store does not answer; the index stays as it was.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from pyiceberg.io import SCHEMA_TO_FILE_IO
from pyiceberg.utils.config import Config
from tenacity import wait_none

from puffin_ann import open_index
from puffin_ann.cli.app import app
from puffin_ann.cli.commands.reading.inspect import _describe as describe
from puffin_ann.cli.puffin_files import open_puffin
from puffin_ann.errors import (
    CatalogUnavailableError,
    DamagedIndexError,
    PuffinAnnError,
    StoreDeniedError,
    StoreUnavailableError,
    UnclearCommitError,
)
from puffin_ann.lake.catalog import timeouts
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lake.commit import commit_index_file, statistics_slots
from puffin_ann.lake.store import outages
from puffin_ann.lifecycle.declare.look import look_at
from puffin_ann.lifecycle.evaluate.stages import evaluate
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.clean_location import clean_location
from puffin_ann.lifecycle.maintain.drop import drop
from puffin_ann.lifecycle.maintain.gather import gather
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.maintain.rename import rename
from puffin_ann.lifecycle.report.history import history
from puffin_ann.lifecycle.report.list_tables import list_tables
from puffin_ann.lifecycle.report.plan import preview
from puffin_ann.lifecycle.report.status import status
from puffin_ann.lifecycle.runs.doctor import Diagnosis, doctor
from puffin_ann.lifecycle.runs.evaluate import plan_evaluation
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.lifecycle.runs.maintain import maintain
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.moments import now_ms
from puffin_ann.search.version.versions import find_versions
from puffin_ann.settings import settings
from tests.support.lake import table_events
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds
from tests.support.servers import faulty_store
from tests.support.servers.faulty_store import CUT, FAULTS, SCHEME, STORE, Request, Weather

DECLARED = builds.declaration(refresh={"min_rows": 1}, evaluate={"queries": 10})
OTHER = builds.declaration(name="second")
RENAMED = builds.declaration(name="renamed")
TABLE, INDEX = DECLARED.table, DECLARED.name
ROWS = 70


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """Two indexes, one of them refreshed once; ten rows have come since. Given back by `anew`."""
    with pytest.MonkeyPatch.context() as patch:
        yield from _lake(tmp_path_factory.mktemp("outages"), patch)


def _lake(folder: Path, patch: pytest.MonkeyPatch):
    live, kept = folder / "live", folder / "kept"
    for key, value in {
        "TYPE": "sql",
        "URI": f"sqlite:///{live}/catalog.db",
        "WAREHOUSE": f"{SCHEME}://{live}/warehouse",
        "PY_IO_IMPL": "tests.support.servers.faulty_store.StoreIO",
    }.items():
        patch.setenv(f"PYICEBERG_CATALOG__TEST__{key}", value)
    patch.setenv("PUFFIN_ANN_CACHE_DIR", f"{folder}/cache")
    patch.setenv("PUFFIN_ANN_STORE_SECONDS", "0.01")
    patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    patch.setitem(SCHEMA_TO_FILE_IO, SCHEME, ["tests.support.servers.faulty_store.StoreIO"])
    for place, name in ((outages, "FIRST_WAIT_SECONDS"), (outages, "LONGEST_WAIT_SECONDS")):
        patch.setattr(place, name, 0.001)
    for place in (commit_index_file, statistics_slots):
        patch.setattr(place, "WAIT_SECONDS", 0.001)
    patch.setattr(timeouts.ask_until_answered.retry, "wait", wait_none())
    settings.cache_clear()
    live.mkdir()
    catalog = load_catalog("test")
    catalog.create_namespace("demo")
    table = catalog.create_table("demo.words", schema=builds.rows([]).schema)
    table.append(builds.rows(range(50)))
    builds.build(DECLARED, "first")
    builds.build(OTHER, "first")
    table.refresh().append(builds.rows(range(50, 60)))
    assert refresh_in_process(DECLARED, run_id="second")["action"] == "refresh"
    table.refresh().append(builds.rows(range(60, ROWS)))
    catalog.engine.dispose()
    shutil.copytree(live, kept)

    def anew() -> None:
        for folder_ in (live, folder / "cache"):
            shutil.rmtree(folder_, ignore_errors=True)
        shutil.copytree(kept, live)

    yield anew
    settings.cache_clear()


@pytest.fixture
def patient(monkeypatch):
    """Stores are asked again for long enough."""
    with monkeypatch.context() as patch:
        patch.setenv("PUFFIN_ANN_STORE_SECONDS", "60")
        settings.cache_clear()
        yield
    settings.cache_clear()


def versions() -> dict[str, list[str]]:
    """The runs whose versions of each index can be read, the newest first."""
    table = load_table(TABLE)
    return {
        name: list(dict.fromkeys(version.run_id for version in find_versions(table, name).versions))
        for name in (INDEX, OTHER.name, RENAMED.name)
    }


def search():
    index = open_index(TABLE, INDEX)
    return index.search(table_events.QUERIES, 5)


def inspect():
    path = load_table(TABLE).metadata.statistics[-1].statistics_path
    with open_puffin(path) as reader:
        return describe(reader)


def evaluated():
    return evaluate(InProcess(), plan_evaluation(DECLARED, run_id="evaluation", queries=10))


def listed():
    (table,) = list_tables("test")
    if table.problem is not None:  # as the command ends
        raise StoreUnavailableError(table.problem)
    return table


READING: dict[str, Callable[[], object]] = {
    "list": listed,
    "init": lambda: look_at(load_table(TABLE)),
    "inspect": inspect,
    "status": lambda: status(load_table(TABLE)),
    "search": search,
    "warm": lambda: [open_index(TABLE, INDEX).warm()],
    "plan": lambda: preview(TABLE, DECLARED),
    "doctor": lambda: doctor(TABLE, [DECLARED, OTHER]),
    "history": lambda: history(TABLE, INDEX),
}
WRITING: dict[str, Callable[[], object]] = {
    "refresh": lambda: refresh_in_process(DECLARED, run_id="third"),
    "build": lambda: builds.build(OTHER, "third", {"force": True}),
    "evaluate": evaluated,
    "doctor --fix": lambda: doctor(TABLE, [DECLARED, OTHER], fix=True),
    "clean": lambda: clean(TABLE, [DECLARED, OTHER], grace="0s"),
    "guard": lambda: guard(TABLE, [DECLARED, OTHER]),
    "maintain": lambda: maintain([DECLARED, OTHER], run_id="third", runner=InProcess()),
    "drop": lambda: drop(TABLE, OTHER.name, force=True),
    "rename": lambda: rename(OTHER.name, RENAMED, [DECLARED, RENAMED]),
    "gather": lambda: gather(TABLE, INDEX),
}
COMMANDS = READING | WRITING
WITHOUT_A_STORE = {"quickstart", "check", "size", "compile"}
"""They look at nothing that others have: the first makes a table of its own."""

KINDS = (".puffin", ".avro", ".parquet", ".metadata.json", "/_ann-staging/", "/metadata")


@st.composite
def weathers(draw) -> Weather:
    """A fault, or any, that lasts, passes, comes and goes, or befalls one kind of object."""
    faults = draw(st.sampled_from([[fault] for fault in (*FAULTS, CUT)] + [[*FAULTS, CUT]]))
    first = draw(st.integers(0, 150))
    lasts = draw(st.sampled_from([1, 2, 10, 10_000]))
    share = draw(st.sampled_from([1.0, 1.0, 0.3, 0.05]))
    place = draw(st.sampled_from(["", "", *KINDS]))
    chance = random.Random(draw(st.integers(0, 1 << 16)))

    def weather(request: Request) -> str | None:
        befalls = first <= request.number < first + lasts and place in request.uri
        return chance.choice(faults) if befalls and chance.random() < share else None

    return weather


def carry_out(command: str | Callable[[], object], weather: Weather) -> Any:
    """Have a command meet a weather; returns what it does, None if it said what the matter is."""
    with STORE.under(weather):
        try:
            return COMMANDS[command]() if isinstance(command, str) else command()
        except UnclearCommitError:
            return None
        except PuffinAnnError as error:
            told = error
    assert told.exit_code == 6, repr(told)
    assert not isinstance(told, CatalogUnavailableError), told
    assert "store" in str(told)
    assert f"{SCHEME}://" in str(told)
    return None


CHANGED = {
    "refresh": (INDEX,),
    "build": (OTHER.name,),
    "maintain": (INDEX, OTHER.name),
    "drop": (OTHER.name,),
    "rename": (OTHER.name, RENAMED.name),
}
"""The indexes of which a command publishes another version, or takes away all."""


def assert_sound(name: str, done: Any, before: dict[str, list[str]]) -> None:
    """Hold the table to what it was, as far as the command was not to change it."""
    after = versions()
    changed = CHANGED.get(name, ())
    for index, found in after.items():
        if index not in changed:
            assert found[:1] == before[index][:1]
            assert set(found) <= set(before[index])
        if name not in WRITING:
            assert found == before[index]
    if done is not None and name == "refresh":
        assert done["action"] == "refresh", done["reason"]
    if name in ("refresh", "build"):
        # A commit may have landed before what is done after it failed.
        (index,) = changed
        assert after[index][0] in {"third", *(() if done is not None else before[index][:1])}
    if name == "maintain":
        assert all(after[index][0] in {"third", *before[index][:1]} for index in changed)
    if name == "rename":
        assert [bool(after[index]) for index in changed] in ([True, False], [False, True])
    table = load_table(TABLE)
    head = table.current_snapshot().snapshot_id
    builds.assert_answers(open_index(table, INDEX), table, head, table_events.QUERIES, 5)
    declared = [each for each in (DECLARED, OTHER, RENAMED) if after[each.name]]
    for diagnosis in [doctor(table, declared), *([done] if isinstance(done, Diagnosis) else [])]:
        for finding in diagnosis.findings:  # rows have come since, as many as make it stale
            assert not finding.is_problem or "rows that index" in finding.what, finding


def check(anew, name: str, weather: Weather) -> None:
    anew()
    before = versions()
    done = carry_out(name, weather)
    assert_sound(name, done, before)


def befalls(fault: str, kind: str = "") -> Weather:
    return lambda request: fault if kind in request.uri else None


EXAMPLES = hypothesis_settings(
    max_examples=3, suppress_health_check=list(HealthCheck), print_blob=True
)
MANY = hypothesis_settings(EXAMPLES, max_examples=30)


def test_every_command_that_asks_a_store_is_tried():
    tried = {name.partition(" ")[0] for name in COMMANDS}
    assert {str(command.name) for command in app.registered_commands} - tried == WITHOUT_A_STORE


@pytest.mark.parametrize("name", COMMANDS)
def test_an_outage_is_told_and_nothing_follows_from_it(lake, name):
    EXAMPLES(given(weathers())(lambda weather: check(lake, name, weather)))()


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_an_outage_is_told_and_nothing_follows_from_it_many_times(lake, name):
    MANY(given(weathers())(lambda weather: check(lake, name, weather)))()


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("fault", ["503", "403"])
def test_index_files_that_cannot_be_read_now_are_not_taken_for_missing(lake, name, fault):
    lake()
    before = versions()
    stored = []

    def weather(request: Request) -> str | None:
        if request.kind == "write" and "/_lease-" not in request.uri:
            stored.append(request.uri)
        return fault if ".puffin" in request.uri else None

    done = carry_out(name, weather)
    assert (done is not None) == (name == "init"), "which reads none of them"
    assert stored == [], "nothing is built, nor anything else made"
    assert versions() == before
    assert_sound(name, None, before)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_passes_in_time_is_not_even_seen(lake, name, patient):
    lake()
    before = versions()
    kinds = {"open", "read", "length", "list"}
    done = carry_out(
        name, lambda request: "503" if request.kind in kinds and request.number % 4 == 0 else None
    )
    assert done is not None
    assert_sound(name, done, before)


def cleaned(anew, weather: Weather) -> None:
    """Clear what a dropped table left; what is not ours stays, whatever befalls the store."""
    anew()
    table = load_table(TABLE)
    location, root = table.location(), Path(faulty_store.StoreIO().place(table.location()))
    table.catalog.drop_table("demo.words")
    before = {path for path in root.rglob("*") if path.is_file()}
    ours = {path for path in before if path.suffix == ".puffin" or "_ann-staging" in str(path)}
    done = carry_out(lambda: clean_location("test", location, at_ms=now_ms() + 10**10), weather)
    left = {path for path in before if path.exists()}
    assert left >= before - ours
    if done is not None:
        assert not done.kept
        assert len(left & ours) == len(done.failed)


def test_an_outage_is_told_where_what_a_dropped_table_left_is_cleared_away(lake):
    cleaned(lake, lambda request: None)
    hypothesis_settings(EXAMPLES, max_examples=6)(
        given(weathers())(lambda weather: cleaned(lake, weather))
    )()


def test_what_cannot_be_written_is_named_with_its_place(lake):
    lake()
    before = versions()
    for place in ("/snap-", ".puffin", "/_ann-staging/"):

        def weather(request: Request, place: str = place) -> str | None:
            return "500" if request.kind == "write" and place in request.uri else None

        assert carry_out("build", weather) is None
    assert versions() == before


def test_a_store_that_refuses_its_key_is_not_told_as_a_catalog_that_does_not_answer(lake):
    lake()
    with (
        STORE.under(befalls("403")),
        pytest.raises(
            StoreDeniedError,
            match=rf"refuses access to metadata file {SCHEME}://\S+\.metadata\.json",
        ),
    ):
        load_table(TABLE)


def test_an_index_that_cannot_be_read_now_is_not_said_to_be_none(lake):
    lake()
    with STORE.under(befalls("503", ".puffin")):
        for ask in (READING["status"], READING["search"], WRITING["drop"]):
            with pytest.raises(StoreUnavailableError, match=rf"{SCHEME}://\S+/ann-\S+\.puffin"):
                ask()


def test_an_index_file_that_is_definitely_gone_is_missing(lake):
    lake()
    for path in Path(faulty_store.StoreIO().place(load_table(TABLE).location())).rglob("*.puffin"):
        path.unlink()
    with pytest.raises(DamagedIndexError, match=r"/ann-\S+\.puffin is gone from the store"):
        READING["status"]()


@pytest.mark.parametrize("name", ["doctor", "doctor --fix", "status"])
@pytest.mark.parametrize("fault", ["500", "403", "timeout", CUT])
def test_deletes_and_data_that_cannot_be_read_now_are_told_as_an_outage(lake, name, fault):
    lake()
    table = load_table(TABLE)
    (first, *_) = (task.file.file_path for task in table.scan().plan_files())
    delete_positions(table, {first: [3]})
    done = carry_out(name, befalls(fault, ".parquet"))
    if isinstance(done, Diagnosis):  # it need not have read them
        assert not [
            finding
            for finding in done.findings
            if finding.is_problem and "rows that" not in finding.what
        ]
