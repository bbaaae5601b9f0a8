"""What a decision rests on, read from real tables: the state of a version, and the change since."""

import numpy as np
import pyarrow as pa
import pytest

from puffin_ann.blobs.shards import identities as identities_blob
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.errors import ColumnNotFoundError
from puffin_ann.lifecycle.report.plan import preview
from puffin_ann.lifecycle.runs.refresh import plan_refresh
from puffin_ann.lifecycle.versions.index_state import change_of, oldest_uncovered_ms, state_of
from puffin_ann.search.version.index_files import open_puffin
from puffin_ann.search.version.snapshot_view import live_state
from puffin_ann.search.version.versions import require_versions
from tests.support.lifecycle import builds


@pytest.fixture
def indexed(words):
    builds.build(builds.declaration(), "run")
    return words.refresh()


def newest(table):
    return require_versions(table, builds.INDEX)[0]


def change(table, **changes):
    live = live_state(table, table.current_snapshot().snapshot_id)
    return change_of(table, newest(table), live, builds.declaration(**changes))


def test_the_state_counts_every_byte_of_the_index_once(indexed):
    version = newest(indexed)
    state = state_of(indexed, version)
    with open_puffin(indexed.io, version.path) as reader:
        blobs = reader.metadata.blobs
        located = sum(blob.length for blob in reader.find(rows_blob.TYPE))
        identified = sum(blob.length for blob in reader.find(identities_blob.TYPE))
    assert sum(shard.rows for shard in state.shards) == state.rows == 60
    assert sum(shard.all_bytes for shard in state.shards) + state.other_bytes == sum(
        blob.length for blob in blobs
    )
    assert sum(shard.rows_bytes for shard in state.shards) == located
    assert sum(shard.identity_bytes for shard in state.shards) == identified >= 16 * state.rows
    assert (state.fingerprint, state.base_snapshot_id) == (
        builds.declaration().fingerprint(),
        version.coverage.base_snapshot_id,
    )
    assert state.drift.imbalance == pytest.approx(state.imbalance)
    assert state.cells == version.routing.cells.count


def test_a_build_records_how_far_rows_are_from_their_centroids(indexed):
    version = newest(indexed)
    ids, vectors = builds.live(indexed)
    distances = np.linalg.norm(vectors[:, None] - version.cells(indexed.io).centroids[None], axis=2)
    expected = distances.min(axis=1).sum() / len(ids)
    assert state_of(indexed, version).drift.built == pytest.approx(expected, rel=1e-5)


def test_an_unchanged_table_has_no_change(indexed):
    found = change(indexed)
    assert (found.rows, found.oldest_ms, found.live_rows, found.column) == (0, 0, 60, "")


def test_rows_appended_are_as_old_as_the_first_commit_that_added_some(indexed):
    indexed.append(builds.rows(range(100, 107)))
    first = indexed.current_snapshot().timestamp_ms
    indexed.append(builds.rows(range(200, 203)))
    found = change(indexed)
    assert (found.rows_added, found.files_added, found.rows_gone, found.live_rows) == (10, 2, 0, 70)
    assert found.oldest_ms == first


def test_a_delete_that_rewrites_a_file_leaves_its_rows_behind(indexed):
    indexed.delete("id < 5")
    found = change(indexed)
    assert (found.rows_added, found.rows_gone, found.rows_left_behind) == (25, 30, 30)
    assert (found.files_added, found.files_gone, found.live_rows) == (1, 1, 55)


def test_a_rollback_is_as_old_as_itself_and_not_as_the_snapshot_it_went_back_to(catalog, words):
    before = words.current_snapshot()
    words.append(builds.rows(range(100, 110)))
    builds.build(builds.declaration(), "run")
    words.refresh()
    published = words.current_snapshot().timestamp_ms
    with words.manage_snapshots() as manage:
        manage.rollback_to_snapshot(before.snapshot_id)
    words.refresh()
    found = change(words)
    assert (found.rows_added, found.rows_gone) == (0, 10)
    assert found.oldest_ms >= published > before.timestamp_ms


def test_the_age_of_changes_is_that_of_the_oldest_known_where_the_base_has_expired(indexed):
    indexed.append(builds.rows(range(100, 107)))
    version = newest(indexed)
    expired = version.coverage.base_snapshot_id
    indexed.append(builds.rows(range(200, 203)))
    indexed.maintenance.expire_snapshots().by_id(expired).commit()
    indexed.refresh()
    times = [snapshot.timestamp_ms for snapshot in indexed.snapshots()]
    assert min(times) <= oldest_uncovered_ms(indexed, version) <= max(times)


def test_a_table_of_another_width_says_so(catalog, indexed):
    wide = pa.array(np.ones((40, 5)).tolist(), pa.list_(pa.float32()))
    indexed.overwrite(builds.rows(range(40)).set_column(2, "embedding", wide))
    assert "vectors of 5 numbers now; indexed were 8" in change(indexed).column


def test_a_few_rows_of_another_width_are_not_another_column(indexed):
    wide = pa.array(np.ones((3, 5)).tolist(), pa.list_(pa.float32()))
    indexed.append(builds.rows(range(70, 73)).set_column(2, "embedding", wide))
    assert change(indexed).column == ""


def test_a_renamed_column_is_named_in_the_refusal(indexed):
    with indexed.update_schema() as update:
        update.rename_column("embedding", "vector")
    with pytest.raises(ColumnNotFoundError, match="called 'vector' now"):
        change(indexed)
    assert change(indexed, column="vector").column == ""


def test_a_renamed_key_column_is_named_when_a_run_is_planned(indexed):
    with indexed.update_schema() as update:
        update.rename_column("id", "number")
    renamed = "key of index 'words_index'.*no top-level column 'id'; it is called 'number' now"
    with pytest.raises(ColumnNotFoundError, match=renamed):
        preview(indexed, builds.declaration(key="id"))
    with pytest.raises(ColumnNotFoundError, match=renamed):
        plan_refresh(builds.declaration(key="id"), run_id="later")
    assert change(indexed, key="number").column == ""


def test_a_column_of_the_same_name_made_anew_is_another(indexed):
    with indexed.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("embedding")
    from pyiceberg.types import FloatType, ListType

    with indexed.update_schema() as update:
        update.add_column("embedding", ListType(100, FloatType(), element_required=False))
    assert "is not the one that was indexed" in change(indexed).column


def test_a_column_promoted_to_double_says_so(indexed):
    from pyiceberg.types import DoubleType

    with indexed.update_schema() as update:
        update.update_column("embedding.element", DoubleType())
    assert "holds double now; indexed were float" in change(indexed).column
