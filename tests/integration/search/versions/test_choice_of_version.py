"""Which of an index's versions answers for a snapshot.

The newest where the snapshot went on from it, else the one with the fewest rows to look at.
"""

import pyarrow as pa
import pytest
from pyiceberg.table.snapshots import ancestors_of

from puffin_ann.search import failover
from puffin_ann.search.open_index import open_index
from puffin_ann.search.version import versions as published
from puffin_ann.search.version.index_files import open_puffin
from puffin_ann.search.version.snapshot_view import live_state, view_of
from puffin_ann.search.version.versions import require_versions
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds

DECLARED = builds.declaration(bad_vectors="skip")


def without_vectors(ids) -> pa.Table:
    rows = builds.rows(ids)
    column = rows.schema.get_field_index("embedding")
    return rows.set_column(column, "embedding", pa.nulls(rows.num_rows, rows.schema[column].type))


@pytest.fixture
def looked(monkeypatch) -> list[str]:
    """The run ids of versions whose view was computed."""
    found: list[str] = []

    def look(table, version, live):
        found.append(version.run_id)
        return view_of(table, version, live)

    monkeypatch.setattr(failover, "view_of", look)
    return found


def assert_the_cheapest_answers(table) -> None:
    versions = require_versions(table, builds.INDEX)
    for snapshot in table.snapshots():
        live = live_state(table, snapshot.snapshot_id)
        views = [view_of(table, version, live) for version in versions]
        past = {before.snapshot_id for before in ancestors_of(snapshot, table.metadata)}
        goes_on = versions[0].coverage.base_snapshot_id in past
        best = min(range(len(views)), key=lambda place: place if goes_on else views[place].cost)
        index = open_index(table, builds.INDEX, snapshot.snapshot_id)
        assert (index.version.run_id, index.view.cost) == (versions[best].run_id, views[best].cost)


@pytest.mark.long
def test_whatever_was_done_the_fewest_rows_are_left_to_mask_and_scan(words):
    steps = [
        lambda: words.append(builds.rows(range(60, 75))),
        lambda: words.append(without_vectors(range(75, 95))),
        lambda: words.delete("id < 12"),
        lambda: words.overwrite(builds.rows(range(40, 75))),
        lambda: words.append(builds.rows(range(100, 103))),
        lambda: words.delete("id >= 60"),
    ]
    builds.build(DECLARED, "run")
    for number, step in enumerate(steps):
        step()
        assert_the_cheapest_answers(words.refresh())
        builds.build(DECLARED, f"run-{number}")
        assert_the_cheapest_answers(words.refresh())
    first = words.history()[0].snapshot_id
    words.manage_snapshots().rollback_to_snapshot(first).commit()
    words.append(builds.rows(range(200, 204)))
    assert_the_cheapest_answers(words.refresh())


def test_versions_of_a_table_that_grows_or_shrinks_are_told_apart_by_their_numbers(words, looked):
    for number in range(4):
        builds.build(DECLARED, f"run-{number}")
        words.append(builds.rows(range(100 + 10 * number, 105 + 10 * number)))
    looked.clear()
    open_index(words.refresh(), builds.INDEX)
    assert looked == ["run-3"]
    for number in range(4, 7):
        builds.build(DECLARED, f"run-{number}")
        first = min(words.refresh().inspect.data_files()["file_path"].to_pylist())
        delete_positions(words, {first: [number - 4]})
    looked.clear()
    open_index(words.refresh(), builds.INDEX)
    assert looked == ["run-6"]


def test_of_a_table_that_goes_on_the_newest_version_alone_is_read(words, monkeypatch):
    for number in range(4):
        builds.build(DECLARED, f"run-{number}", {"force": True})
        words.append(builds.rows(range(100 + 10 * number, 105 + 10 * number)))
    opened = []

    def counted(io, path, length=None, **options):
        opened.append(path)
        return open_puffin(io, path, length, **options)

    monkeypatch.setattr(published, "open_puffin", counted)
    index = open_index(words.refresh(), builds.INDEX)
    assert (index.version.run_id, len(opened)) == ("run-3", 1)
    first = words.history()[0].snapshot_id
    assert open_index(words, builds.INDEX, first).version.run_id == "run-0"
    assert len(opened) == 5
