"""What starts runs: changed data does, published indexes do not, few changes once they waited."""

import asyncio
import time
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyiceberg.utils.config import Config

from puffin_ann.airflow.triggers import index as index_triggers
from puffin_ann.airflow.triggers import table as table_triggers
from puffin_ann.lake.commit.tagged_snapshot import TaggedSnapshot
from puffin_ann.lake.metadata.index_snapshots import data_snapshot
from puffin_ann.settings import settings
from tests.support.indexes.former_modes import commit_index_snapshot

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def table(tmp_path, monkeypatch) -> Table:
    monkeypatch.setenv("PYICEBERG_CATALOG__DEMO__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__DEMO__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__DEMO__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    settings.cache_clear()
    catalog = load_catalog("demo")
    catalog.create_namespace("glove")
    return catalog.create_table("glove.words", schema=ROWS.schema)


def publish_on_main(table: Table, index: str = "words") -> None:
    """Commit an index snapshot for the table's data as it is."""
    covered = data_snapshot(table.refresh()).snapshot_id
    commit_index_snapshot(table, {f"ann.{index}.base-snapshot-id": str(covered)})


def publish_by_tag(table: Table, index: str = "words") -> None:
    """Commit a tagged snapshot for the table's data as it is."""
    covered = data_snapshot(table.refresh()).snapshot_id
    summary = {f"ann.{index}.base-snapshot-id": str(covered)}
    made = TaggedSnapshot.write(table, f"{index}_{len(table.snapshots())}", summary)
    table.catalog.commit_table(table, (), made.updates)


@pytest.fixture(params=[publish_by_tag, publish_on_main])
def publish(request):
    """Each way in which a version is published by a snapshot of its own."""
    return request.param


class Store(dict):
    """Where Airflow keeps what a trigger has seen."""

    def set(self, key: str, value: object) -> None:
        self[key] = value


def changed(store: Store | None = None) -> table_triggers.DataSnapshotTrigger:
    made = table_triggers.DataSnapshotTrigger(
        table="glove.words", iceberg_conn_id="demo", branch="main", poll_interval=0.01
    )
    made.asset_state_store = store
    return made


def waited(store: Store | None = None, **lags: int) -> table_triggers.IndexLagTrigger:
    made = table_triggers.IndexLagTrigger(
        table="glove.words", iceberg_conn_id="demo", branch="main", poll_interval=0.01, lags=lags
    )
    made.asset_state_store = store
    return made


async def _events(trigger, count: int, between) -> list[dict]:
    found = []
    stream = trigger.run()
    for number in range(count):
        if number < len(between):
            between[number]()
        try:
            found.append((await asyncio.wait_for(anext(stream), 0.5)).payload)
        except TimeoutError:
            break
    await stream.aclose()
    return found


def events(trigger, count: int = 3, *between) -> list[dict]:
    """Return the first events of a trigger; before each, something may be done."""
    return asyncio.run(_events(trigger, count, between))


class TestDataSnapshot:
    def test_every_change_of_the_data_is_an_event_and_no_published_index_is(self, table, publish):
        def append() -> None:
            table.refresh().append(ROWS)

        def append_and_publish() -> None:
            append()
            publish(table)
            publish(table)

        found = events(changed(), 4, append, append_and_publish, append)
        data = [
            entry.snapshot_id
            for entry in table.refresh().history()
            if table.snapshot_by_id(entry.snapshot_id).summary.operation.value == "append"
        ]
        assert [event["snapshot_id"] for event in found] == data
        assert [event["previous_snapshot_id"] for event in found] == [None, *data[:-1]]

    def test_publishing_causes_no_event(self, table, publish):
        table.append(ROWS)
        store = Store()
        assert len(events(changed(store), 1)) == 1
        publish(table)
        assert events(changed(store), 1) == []

    def test_a_compaction_by_others_is_one_even_if_it_is_called_replace(self, table):
        table.append(ROWS)
        store = Store()
        events(changed(store), 1)
        commit_index_snapshot(table.refresh(), {"added-files-size": "1"})
        assert len(events(changed(store), 1)) == 1

    def test_a_rollback_is_one(self, table):
        table.append(ROWS)
        first = table.refresh().current_snapshot().snapshot_id
        table.append(ROWS)
        store = Store()
        events(changed(store), 1)
        table.refresh().manage_snapshots().rollback_to_snapshot(first).commit()
        assert [event["snapshot_id"] for event in events(changed(store), 1)] == [first]

    def test_what_is_not_there_yet_is_waited_for(self, table):
        table.catalog.drop_table("glove.words")
        assert changed()._head_snapshot_id() is None
        assert events(changed(), 1) == []

    def test_a_catalog_that_does_not_answer_is_asked_again(self, table, monkeypatch):
        from puffin_ann.errors import CatalogUnavailableError

        def silent(name: str) -> None:
            raise CatalogUnavailableError("no answer")

        table.append(ROWS)
        trigger = changed()
        with monkeypatch.context() as patch:
            patch.setattr("puffin_ann.lake.catalog.tables.load_table", silent)
            assert trigger._head_snapshot_id() is None
        assert len(events(trigger, 1)) == 1

    def test_what_keeps_it_from_looking_is_kept_for_the_page_until_it_can(self, table, monkeypatch):
        from puffin_ann.errors import BadInputError, CatalogUnavailableError

        def failing(error: Exception):
            def fail(name: str) -> None:
                raise error

            return fail

        table.append(ROWS)
        store = Store()
        events(changed(store), 1)
        assert "problem" not in store
        for error, told in (
            (CatalogUnavailableError("no answer from 10.0.0.1"), table_triggers.SILENT),
            (BadInputError("no catalog is called demo"), "no catalog is called demo"),
        ):
            with monkeypatch.context() as patch:
                patch.setattr("puffin_ann.lake.catalog.tables.load_table", failing(error))
                assert events(changed(store), 1) == []
            assert store["problem"] == told
        events(changed(store), 1)
        assert store["problem"] == ""


class TestLag:
    def test_changes_that_waited_long_enough_are_one_event(self, table):
        table.append(ROWS)
        store = Store()
        (one,) = events(waited(store, words=0), 2)
        assert one["waited"].endswith(": words")
        assert events(waited(store, words=0), 1) == []  # as after a restart of the triggerer

    def test_fresh_changes_are_none(self, table):
        table.append(ROWS)
        assert events(waited(words=3600), 1) == []

    def test_changes_that_are_published_are_none(self, table, publish):
        table.append(ROWS)
        publish(table)
        assert events(waited(words=0), 1) == []

    def test_each_index_waits_as_long_as_it_may(self, table, publish, monkeypatch):
        table.append(ROWS)
        publish(table, "covered")
        late = SimpleNamespace(time=lambda: time.time() + 600)
        monkeypatch.setattr(table_triggers, "time", late)
        (one,) = events(waited(patient=3600, words=300, covered=1), 1)
        assert one["waited"].endswith(": words")


class TestStale:
    def test_it_fires_once_when_the_index_is_stale(self, monkeypatch):
        found = iter([False, False, True])
        monkeypatch.setattr(
            "puffin_ann.lifecycle.report.staleness.staleness_of",
            lambda index: SimpleNamespace(is_stale=next(found), reason=f"{index} waits"),
        )
        made = index_triggers.IndexStaleTrigger(index="words", poll_interval=0.01)
        assert asyncio.run(_all(made)) == [{"reason": "words waits"}]

    def test_a_catalog_that_does_not_answer_is_asked_again(self, monkeypatch):
        from puffin_ann.errors import CatalogUnavailableError

        answers = iter([CatalogUnavailableError("no answer"), None])

        def answer(index: str) -> SimpleNamespace:
            if error := next(answers):
                raise error
            return SimpleNamespace(is_stale=True, reason="it waits")

        monkeypatch.setattr("puffin_ann.lifecycle.report.staleness.staleness_of", answer)
        made = index_triggers.IndexStaleTrigger(index="words", poll_interval=0.01)
        assert asyncio.run(_all(made)) == [{"reason": "it waits"}]


class TestTombstones:
    def test_it_fires_once_when_shards_are_due_by_the_ratio_it_was_given(self, monkeypatch):
        found, asked = iter([False, False, True]), []

        def tombstones_of(index: str, ratio: float | None) -> SimpleNamespace:
            asked.append((index, ratio))
            return SimpleNamespace(is_due=next(found), reason=f"{index} is due")

        monkeypatch.setattr("puffin_ann.lifecycle.report.staleness.tombstones_of", tombstones_of)
        made = index_triggers.IndexTombstoneTrigger(index="words", poll_interval=0.01, ratio=0.1)
        assert asyncio.run(_all(made)) == [{"reason": "words is due"}]
        assert asked == [("words", 0.1)] * 3


@pytest.mark.parametrize(
    "kind", [index_triggers.IndexStaleTrigger, index_triggers.IndexTombstoneTrigger]
)
class TestOnIndexes:
    def test_it_ends_with_the_error_where_waiting_is_of_no_use(self, kind, tmp_path, monkeypatch):
        monkeypatch.setenv("PUFFIN_ANN_DECLARATIONS_DIR", str(tmp_path))
        settings.cache_clear()
        (one,) = asyncio.run(_all(kind(index="words", poll_interval=0.01)))
        assert "'words'" in one["error"]
        settings.cache_clear()

    def test_the_triggerer_makes_it_of_what_is_stored(self, kind):
        path, arguments = kind(index="words", poll_interval=7).serialize()
        made = getattr(index_triggers, path.removeprefix("puffin_ann.airflow.triggers.index."))(
            **arguments
        )
        assert type(made) is kind
        assert made.serialize() == (path, arguments)


async def _all(trigger) -> list[dict]:
    return [event.payload async for event in trigger.run()]
