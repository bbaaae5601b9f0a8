"""Refreshes of small tables, held to brute force after every one of them."""

import builds
import numpy as np
import pyarrow as pa
import pytest
from lake_tables import delete_positions

from puffin_ann import open_index
from puffin_ann.lifecycle.decision import DRIFT, NEXT_FILE_ID, RATES, Drift, Rates
from puffin_ann.lifecycle.refresh import refresh_in_process

QUERIES = np.random.default_rng(5).normal(size=(2, builds.DIMENSION)).astype(np.float32)
LIVES = (
    ("exact", "l2"),
    ("vamana", "cosine"),
    ("vamana", "ip"),
    ("hnsw", "ip"),
    ("ivf_pq", "l2"),
    ("centroid", "cosine"),
    ("centroid", "ip"),
)


@pytest.fixture(autouse=True)
def refreshed_not_built(monkeypatch):
    """To build some dozens of rows anew would be cheaper than nearly every refresh."""
    monkeypatch.setattr("puffin_ann.lifecycle.decide._why_dearer", lambda *_: "")


def declared(algorithm="exact", **changes):
    return builds.declaration(
        algorithm=algorithm,
        parameters=builds.PARAMETERS.get(algorithm, {}),
        recall_target=0.5,
        **changes,
    )


def refresh(table, declaration, run="refresh", **options):
    """Refresh, whatever is expected to be cheaper, and hold the index to brute force."""
    done = refresh_in_process(declaration, run_id=run, force=True, **options)
    table.refresh()
    if done["snapshot_id"] is not None:
        assert newest(table).coverage.base_snapshot_id in {
            one.snapshot_id for one in table.snapshots()
        }
    assert_right(table, declaration)
    return done


def newest(table):
    """Return the version that serves the head: published in mode `statistics` after a rollback it
    stands under an older snapshot than others."""
    return open_index(table, builds.INDEX).version


def assert_right(table, declaration, snapshot_id=None):
    head = snapshot_id or table.current_snapshot().snapshot_id
    index = open_index(table, builds.INDEX, head)
    rows = builds.live(table, head)
    for k in (3, len(rows[0]) + 2):
        builds.assert_answers_are(index, rows, QUERIES, k)
    builds.assert_within(index, rows, QUERIES, (0.2,))
    if snapshot_id is None:
        assert (index.view.rows_masked, index.view.rows_to_scan) == (0, 0)


def shards(table):
    return {one.shard_id: one for one in newest(table).routing.shards}


@pytest.fixture
def indexed(words):
    builds.build(declared(), "build")
    return words.refresh()


def test_rows_appended_become_a_delta(indexed):
    before = shards(indexed)
    indexed.append(builds.rows(range(60, 63)))
    done = refresh(indexed, declared(refresh={"delta_ratio": 1.0}))
    assert done["action"] == "refresh"
    after = shards(indexed)
    assert (after[2].kind, after[2].rows) == ("delta", 3)
    assert {number: after[number].rows for number in before} == {
        number: one.rows for number, one in before.items()
    }


def delete_merge_on_read(table, per_file):
    """Delete the first rows of each data file by position."""
    files = [task.file.file_path for task in table.scan().plan_files()]
    delete_positions(table, {path: list(range(per_file)) for path in files})
    table.refresh()


def compact(table):
    """Every live row into one new file, as rewrite_data_files does."""
    table.overwrite(table.scan().to_arrow())


def roll_back(table, snapshot_id):
    table.manage_snapshots().create_branch(
        snapshot_id=snapshot_id, branch_name=f"b{len(table.refs())}"
    ).commit()
    table.manage_snapshots().set_current_snapshot(snapshot_id=snapshot_id).commit()
    table.refresh()


@pytest.fixture
def build(words):
    """Build an index over the words by a declaration."""

    def make(declaration):
        builds.build(declaration, "build")
        return words.refresh()

    return make


@pytest.mark.parametrize(("algorithm", "metric"), LIVES)
def test_a_life_of_refreshes_is_answered_right_after_every_one(build, algorithm, metric):
    declaration = declared(algorithm, metric=metric, refresh={"delta_ratio": 0.5})
    table = build(declaration)
    table.append(builds.rows(range(60, 66)))
    refresh(table, declaration, "append")
    before = table.current_snapshot().snapshot_id
    delete_merge_on_read(table, 2)
    refresh(table, declaration, "delete")
    assert_right(table, declaration, before)
    table.delete("id >= 20 and id < 24")
    refresh(table, declaration, "copy-on-write")
    compact(table)
    refresh(table, declaration, "compaction")
    table.append(builds.rows(range(70, 74)))
    table.append(builds.rows(range(80, 84)))
    refresh(table, declaration, "two snapshots")
    roll_back(table, before)
    refresh(table, declaration, "rollback")
    table.append(builds.rows(range(100, 160)))
    refresh(table, declaration, "merge")
    table.overwrite(builds.rows(range(150, 190)))
    refresh(table, declaration, "overwrite")
    assert_right(table, declaration, before)


@pytest.mark.parametrize("algorithm", ["exact", "vamana"])
def test_rows_deleted_merge_on_read_cost_tombstones_alone(build, algorithm):
    declaration = declared(algorithm)
    table = build(declaration)
    before, old = shards(table), table.current_snapshot().snapshot_id
    delete_merge_on_read(table, 3)
    done = refresh(table, declaration)
    after = shards(table)
    assert sum(one.tombstones for one in after.values()) == 6
    assert {n: (one.rows, one.bytes) for n, one in after.items()} == {
        n: (one.rows, one.bytes) for n, one in before.items()
    }
    assert done["bytes_copied"] > sum(one.bytes for one in before.values()) * 0.9
    assert_right(table, declaration, old)


def test_a_compaction_moves_rows_and_touches_no_graph(build):
    declaration = declared("vamana")
    table = build(declaration)
    before = shards(table)
    compact(table)
    refresh(table, declaration)
    after = shards(table)
    assert {n: (one.rows, one.tombstones) for n, one in after.items()} == {
        n: (one.rows, 0) for n, one in before.items()
    }


def test_rows_rewritten_by_a_delete_move_and_the_deleted_ones_are_tombstoned(build):
    declaration = declared("vamana")
    table = build(declaration)
    table.delete("id >= 10 and id < 15")
    refresh(table, declaration)
    after = shards(table)
    assert sum(one.rows for one in after.values()) == 60
    assert sum(one.tombstones for one in after.values()) == 5


def test_a_rollback_revives_the_tombstoned_rows(build):
    declaration = declared("vamana", refresh={"delta_ratio": 1.0})
    table = build(declaration)
    before = table.current_snapshot().snapshot_id
    delete_merge_on_read(table, 4)
    refresh(table, declaration, "delete")
    assert sum(one.tombstones for one in shards(table).values()) == 8
    roll_back(table, before)
    refresh(table, declaration, "rollback")
    after = shards(table)
    assert sum(one.tombstones for one in after.values()) == 0
    assert len(after) == 2


def test_equal_rows_are_matched_one_to_one(build):
    declaration = declared("exact", refresh={"delta_ratio": 1.0})
    table = build(declaration)
    twins = pa.concat_tables([builds.rows(range(60, 64))] * 3)
    table.append(twins.set_column(0, "id", pa.array(range(200, 212))))
    refresh(table, declaration, "append")
    before = table.current_snapshot().snapshot_id
    table.delete("id >= 200 and id < 205")
    refresh(table, declaration, "delete")
    compact(table)
    table.append(twins.set_column(0, "id", pa.array(range(300, 312))))
    refresh(table, declaration, "compaction and more of them")
    roll_back(table, before)
    refresh(table, declaration, "rollback")
    assert sum(one.rows - one.tombstones for one in shards(table).values()) == 72


def test_rows_that_share_a_locator_with_the_dead_can_be_merged(build):
    """Of equal rows one may come back in the place of another, and both go into one shard."""
    declaration = declared("exact", shards=1, refresh={"delta_ratio": 1.0})
    table = build(declaration)
    row = builds.rows([60])
    twins = pa.concat_tables([row, row, row])
    table.append(twins.set_column(0, "id", pa.array([60, 61, 62])))
    refresh(table, declaration, "append")
    for number in range(3):
        before = table.current_snapshot().snapshot_id
        path = sorted(task.file.file_path for task in table.scan().plan_files())
        of_row = [one for one in path if table.io.new_input(one).exists()]
        delete_positions(table, {one: [number] for one in of_row})
        table.refresh()
        refresh_in_process(declaration, run_id=f"delete-{number}", force=True)
        table.refresh()
        if number != 1:
            roll_back(table, before)
            refresh_in_process(declaration, run_id=f"back-{number}", force=True)
            table.refresh()
    merging = declared("exact", shards=1, refresh={"delta_ratio": 0.0})
    table.append(builds.rows(range(70, 75)))
    refresh_in_process(merging, run_id="merge", force=True)
    table.refresh()
    assert {one.kind for one in shards(table).values()} == {"graph"}


@pytest.mark.parametrize("algorithm", ["vamana", "centroid"])
def test_bad_vectors_are_left_out_and_counted(build, algorithm):
    declaration = declared(algorithm)
    table = build(declaration)
    bad = builds.rows(range(60, 66)).set_column(
        2,
        "embedding",
        pa.array(
            [None, [1.0] * 3, [float("nan")] * 8, *([[0.5 * n] * 8 for n in range(3)])],
            pa.list_(pa.float32()),
        ),
    )
    table.append(bad)
    refresh(table, declaration)
    assert sum(len(one.skipped) for one in newest(table).coverage.files) == 3
    delete_merge_on_read(table, 5)
    refresh(table, declaration, "delete some of them")


def test_bad_vectors_stop_a_refresh_that_refuses_them(build):
    from puffin_ann.errors import BadVectorsError

    declaration = declared(bad_vectors="refuse")
    table = build(declaration)
    bad = builds.rows([60]).set_column(
        2, "embedding", pa.array([[1.0, 2.0]], pa.list_(pa.float32()))
    )
    table.append(bad)
    with pytest.raises(BadVectorsError, match="of the rows that came 1"):
        refresh_in_process(declaration, run_id="refused", force=True)


def test_an_unchanged_table_publishes_nothing_and_says_so(indexed):
    head, metadata = indexed.current_snapshot().snapshot_id, indexed.metadata_location
    done = refresh_in_process(declared(), run_id="again", force=True)
    indexed.refresh()
    assert (done["action"], done["snapshot_id"]) == ("none", None)
    assert "nothing changed" in done["reason"]
    assert (indexed.current_snapshot().snapshot_id, indexed.metadata_location) == (head, metadata)


def test_few_changes_wait_unless_forced(indexed):
    indexed.append(builds.rows(range(60, 63)))
    done = refresh_in_process(declared(), run_id="early")
    assert done["action"] == "none"
    assert "min_rows" in done["reason"]


def test_a_table_emptied_is_masked_whole(build):
    declaration = declared("vamana")
    table = build(declaration)
    table.delete("id >= 0")
    refresh_in_process(declaration, run_id="empty", force=True)
    table.refresh()
    assert all(one.tombstones == one.rows for one in shards(table).values())
    table.append(builds.rows(range(100, 130)))
    refresh(table, declaration, "new life")


def test_small_deltas_are_absorbed_and_all_of_them_merged(build):
    declaration = declared("vamana", refresh={"delta_ratio": 0.4})
    table = build(declaration)
    kinds = []
    for number in range(8):
        table.append(builds.rows(range(100 + 4 * number, 104 + 4 * number)))
        refresh(table, declaration, f"append-{number}")
        kinds.append([one.kind for one in shards(table).values()])
    assert max(kind.count("delta") for kind in kinds) <= 3
    assert any(kind.count("delta") == 0 for kind in kinds), "never merged"
    assert sum(one.rows for one in shards(table).values()) == 92


def test_maintenance_rebuilds_shards_of_many_tombstones(build):
    declaration = declared("vamana")
    table = build(declaration)
    delete_merge_on_read(table, 12)
    refresh(table, declaration, "delete")
    assert sum(one.tombstones for one in shards(table).values()) == 24
    done = refresh(table, declaration, "maintain", maintenance=True)
    assert "rebuild shard" in done["reason"]
    after = shards(table)
    assert sum(one.rows for one in after.values()) == 36
    assert sum(one.tombstones for one in after.values()) == 0


def test_file_ids_are_never_given_again(build):
    declaration = declared(refresh={"delta_ratio": 1.0})
    table = build(declaration)
    seen = {one.file_id for one in newest(table).coverage.files}
    for number in range(3):
        compact(table)
        refresh(table, declaration, f"compaction-{number}")
        version = newest(table)
        ids = {one.file_id for one in version.coverage.files}
        assert not ids & seen
        seen |= ids
        assert int(version.routing.properties[NEXT_FILE_ID]) > max(seen)


def test_rates_and_drift_are_recorded(build):
    declaration = declared("vamana", refresh={"delta_ratio": 1.0})
    table = build(declaration)
    properties = newest(table).routing.properties
    assert Drift.model_validate_json(properties[DRIFT]).built > 0
    table.append(builds.rows(range(60, 66)))
    refresh(table, declaration)
    properties = newest(table).routing.properties
    assert Rates.model_validate_json(properties[RATES])
    drift = Drift.model_validate_json(properties[DRIFT])
    assert drift.added > 0
    assert drift.largest_norm > 0


def test_rows_far_from_all_centroids_that_were_merged_at_once_are_seen_by_the_next_run(build):
    declaration = declared("vamana", refresh={"delta_ratio": 0.05})
    table = build(declaration)
    before = Drift.model_validate_json(newest(table).routing.properties[DRIFT])
    far = builds.rows(range(60, 72))
    vectors = 10 * np.array(far.column("embedding").to_pylist())
    column = far.schema.field("embedding")
    table.append(far.set_column(2, column, pa.array(vectors.tolist(), column.type)))
    assert "merge" in refresh(table, declaration, "append")["reason"]
    drift = Drift.model_validate_json(newest(table).routing.properties[DRIFT])
    assert drift.merged == 12
    assert drift.added > 4 * before.built
    done = refresh_in_process(declaration, run_id="next")
    assert (done["action"], "times as far from their centroids" in done["reason"]) == (
        "build",
        True,
    )


def test_rows_that_leave_and_come_keep_what_was_merged_apart_from_deltas(build):
    declaration = declared("vamana", refresh={"delta_ratio": 0.05})
    table = build(declaration)
    table.append(builds.rows(range(60, 72)))
    refresh(table, declaration, "append")
    merged = newest(table).routing.properties[DRIFT]
    delete_merge_on_read(table, 2)
    refresh(table, declaration, "delete")
    assert newest(table).routing.properties[DRIFT] == merged
    table.append(builds.rows(range(80, 82)))
    refresh(table, declaration, "append-2")
    drift = Drift.model_validate_json(newest(table).routing.properties[DRIFT])
    assert (drift.merged, drift.added > 0) == (0, True)


def test_partition_columns_and_keys(catalog):
    from pyiceberg.transforms import IdentityTransform

    table = catalog.create_table("demo.words", schema=builds.rows([]).schema)
    with table.update_spec() as update:
        update.add_field("word", IdentityTransform(), "word")
    table.append(builds.rows(range(12)))
    declaration = declared("vamana", key="id")
    builds.build(declaration, "build")
    table.refresh()
    table.append(builds.rows(range(12, 16)))
    refresh(table, declaration, "append")
    table.delete("word = 'w3'")
    compact(table)
    refresh(table, declaration, "compaction")
    assert sum(one.rows - one.tombstones for one in shards(table).values()) == 15
