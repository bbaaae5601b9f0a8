"""How indexes stand is kept as documents of a bounded size, and one silent catalog costs one."""

import threading
import time

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_ann.airflow.state import collect as collect_module
from puffin_ann.airflow.state import store, tell
from puffin_ann.airflow.state.collect import collect, document_of, look_at
from puffin_ann.airflow.state.document import MOST_BYTES, MOST_POINTS, POINT_MS
from puffin_ann.declaration import IndexDeclaration, load_declaration
from puffin_ann.errors import CatalogUnavailableError
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.settings import settings
from tests.support.cockpit.cockpit_rows import document

TEXT = """\
table: demo.glove.words
column: embedding
metric: l2
algorithm: exact
partitions_per_shard: 2
recall_target: 0.5
gate: {queries: 10, k: 1}
"""


def _rows(count: int) -> pa.Table:
    vectors = [[float(number), float(number % 7)] for number in range(count)]
    return pa.table({"embedding": pa.array(vectors, pa.list_(pa.float32()))})


@pytest.fixture
def declaration(tmp_path, monkeypatch) -> IndexDeclaration:
    """A declared index on a table of forty rows, not built yet."""
    made = SqlCatalog(
        "demo",
        uri=f"sqlite:///{tmp_path / 'catalog.db'}",
        warehouse=f"file://{tmp_path / 'warehouse'}",
    )
    monkeypatch.setattr("puffin_ann.lake.catalog.tables.load_catalog", lambda name, **_: made)
    made.create_namespace("glove")
    made.create_table("glove.words", schema=_rows(1).schema).append(_rows(40))
    (tmp_path / "words.yaml").write_text(TEXT)
    monkeypatch.setenv("PUFFIN_ANN_CACHE_DIR", str(tmp_path / "cache"))
    settings.cache_clear()
    yield load_declaration(tmp_path / "words.yaml")
    settings.cache_clear()


@pytest.fixture
def variables(monkeypatch) -> dict[str, str]:
    """Airflow's Variables, as the Task SDK reads and writes them."""
    kept: dict[str, str] = {}

    class Variable:
        get = staticmethod(lambda key, default=None: kept.get(key, default))
        set = staticmethod(lambda key, value, description=None: kept.update({key: value}))
        keys = staticmethod(lambda prefix: [key for key in kept if key.startswith(prefix)])
        delete = staticmethod(kept.pop)

    monkeypatch.setattr(store, "Variable", Variable)
    monkeypatch.setattr("airflow.sdk.Variable", Variable)
    return kept


def test_an_index_that_is_not_built_is_told_so(declaration):
    assert look_at(declaration).outcome == "not_built"


def test_what_is_published_is_told_with_what_is_due(declaration):
    refresh_in_process(declaration, run_id="test")
    found = look_at(declaration)
    assert found.outcome == "found"
    told = found.overview
    assert (told.figures.rows, told.figures.coverage) == (40, 1.0)
    assert told.next_run.action == "none"
    assert told.all_bytes > 0
    assert sum(shard.rows for shard in told.shards) == 40
    assert not told.notes
    assert len(found.as_text().encode()) <= MOST_BYTES


def test_a_table_that_is_not_there_is_a_problem_and_names_no_neighbour(declaration):
    found = look_at(declaration.model_copy(update={"table": "demo.glove.none"}))
    assert found.outcome == "problem"
    assert "glove.none" in found.problem
    assert "glove.words" not in found.problem


def test_what_a_catalog_says_of_itself_is_not_told(declaration, monkeypatch):
    def fail(_):
        raise CatalogUnavailableError("postgresql://svc:S3cretPw@db.internal is down")

    monkeypatch.setattr(collect_module, "overview", fail)
    found = look_at(declaration)
    assert found.outcome == "unreachable"
    assert "db.internal" not in found.as_text()


def fail_by_others(*_):
    raise OSError("refused by postgresql://svc:S3cretPw@db.internal/lake")


def test_what_others_say_of_themselves_is_logged_without_its_secrets(
    declaration, variables, monkeypatch, caplog
):
    monkeypatch.setattr(collect_module, "overview", fail_by_others)
    monkeypatch.setattr(collect_module, "undeclared", fail_by_others)
    assert look_at(declaration).outcome == "problem"
    monkeypatch.setattr(collect_module, "DEADLINE_SECONDS", 30.0)
    begun = time.monotonic()
    assert list(collect_module.collect_undeclared({declaration.table: ["words"]})) == []
    assert time.monotonic() - begun < 10, "it was not waited for"
    monkeypatch.setattr(store, "save", fail_by_others)
    tell.tell_state(declaration)
    assert caplog.text.count("OSError: refused by postgresql://***@db.internal/lake") == 4
    assert "S3cretPw" not in caplog.text + "".join(variables.values())


SECRET = "Pl4ntedS3cret"


def test_nothing_that_is_kept_for_the_page_holds_a_declared_secret(declaration, variables):
    spark = {
        "conf": {"spark.hadoop.fs.s3a.secret.key": f"{SECRET}-conf"},
        "env": {"DB_PASSWORD": f"{SECRET}-env"},
        "files": [f"https://u:{SECRET}-file@host/a"],
        "applications": f"https://u:{SECRET}-apps@host/apps",
    }
    planted = IndexDeclaration.model_validate({**declaration.model_dump(), "spark": spark})
    told = list(tell.collect_all([planted]))
    told += variables.values()
    refresh_in_process(planted, run_id="test")
    told += tell.collect_all([planted])
    told += variables.values()
    outcomes = [found.outcome for text in told if (found := store.parse(text)) is not None]
    assert outcomes == ["not_built", "found"]
    assert "recall_target" in told[-1]
    assert SECRET not in "".join([*told, repr(planted)])  # which tracebacks and logs show


def test_a_silent_catalog_costs_its_own_row_alone(declaration):
    ever = threading.Event()
    several = [declaration.model_copy(update={"name": f"i{n}"}) for n in range(20)]

    def look(one):
        if int(one.name[1:]) % 4 == 0:
            ever.wait()
        return document_of(one, "not_built")

    found = {
        document.index: document.outcome for document in collect(several, look=look, deadline=0.2)
    }
    ever.set()
    assert len(found) == 20
    assert sum(outcome == "unreachable" for outcome in found.values()) == 5


def test_silent_catalogs_keep_no_place_that_others_wait_for(declaration, monkeypatch):
    monkeypatch.setattr(collect_module, "PATIENCE_SECONDS", 0.01)
    ever = threading.Event()
    silent = 5 * collect_module.AT_ONCE
    several = [declaration.model_copy(update={"name": f"i{n}"}) for n in range(silent + 4)]

    def look(one):
        if int(one.name[1:]) < silent:  # those that never answer come first
            ever.wait()
        return document_of(one, "not_built")

    found = collect(several, look=look, deadline=60.0)
    begun = time.monotonic()
    answered = {next(found).index for _ in range(4)}
    ever.set()
    assert answered == {f"i{silent + n}" for n in range(4)}
    assert time.monotonic() - begun < 30, "one deadline was waited for"


def test_while_a_catalog_is_silent_the_last_figures_stay_with_their_age():
    before = document("words")
    silent = document("words", "unreachable").model_copy(
        update={"overview": None, "looked_ms": before.looked_ms + 1}
    )
    kept = silent.after(before)
    assert kept.overview == before.overview
    assert kept.found_ms == before.found_ms < kept.looked_ms


def test_a_trend_is_a_ring_with_a_point_each_quarter_of_an_hour():
    kept = document("words")
    for number in range(2 * MOST_POINTS):
        later = document("words").model_copy(
            update={"looked_ms": kept.looked_ms + POINT_MS // 2 * (number > 0)}
        )
        kept = later.after(kept)
    assert len(kept.trend) <= MOST_POINTS
    times = [point.at_ms for point in kept.trend]
    assert times == sorted(times)


def test_a_document_has_a_size_that_nothing_exceeds():
    long = document("words")
    found = long.overview.model_copy(
        update={
            "shards": long.overview.shards * 200,
            "findings": long.overview.findings * 200,
            "declaration": {"column": "x" * 40_000},
        }
    )
    text = long.model_copy(update={"overview": found}).as_text()
    assert len(text.encode()) <= MOST_BYTES
    assert store.parse(text).overview.figures == long.overview.figures


@pytest.mark.parametrize("text", ["", "[]", '{"index": "x"}', "\x00"])
def test_what_somebody_else_wrote_is_no_document(text):
    assert store.parse(text) is None


def test_what_is_not_declared_any_more_is_forgotten_and_what_is_published_is_told(
    declaration, variables
):
    refresh_in_process(declaration, run_id="test")
    old = document("gone").model_copy(update={"looked_ms": 0})
    variables[store.key_of(old.table, old.index)] = old.as_text()
    other = declaration.model_copy(update={"name": "other"})
    told = list(tell.collect_all([other]))
    assert any("nothing declares it" in line for line in told)
    outcomes = {
        document.index: document.outcome for document in map(store.parse, variables.values())
    }
    assert outcomes == {"other": "not_built", "words": "orphaned"}


def test_a_task_does_not_fail_for_the_page(declaration, variables, monkeypatch):
    monkeypatch.setattr(store, "save", lambda _: 1 / 0)
    tell.tell_state(declaration)
    assert variables == {}
