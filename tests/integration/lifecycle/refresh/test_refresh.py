"""Refreshes of small tables, held to brute force after every one of them."""

import numpy as np
import pyarrow as pa
import pytest

from puffin_ann.blobs.shards import graph as graph_blob
from puffin_ann.engines.vamana import VamanaEngine
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.runs import publish
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.lifecycle.runs.refresh import plan_refresh
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.lifecycle.runtime.workspace import Workspace
from puffin_ann.search.version.index_files import open_puffin
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds
from tests.support.lifecycle.refreshes import (
    assert_right,
    compact,
    declared,
    delete_merge_on_read,
    newest,
    refresh,
    roll_back,
    shards,
)

LIVES = (
    ("exact", "l2"),
    ("vamana", "cosine"),
    ("vamana", "ip"),
    ("hnsw", "ip"),
    ("ivf_pq", "l2"),
    ("centroid", "cosine"),
    ("centroid", "ip"),
)


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
    assert sum(shard.tombstones for shard in after.values()) == 6
    assert {n: (one.rows, one.bytes) for n, one in after.items()} == {
        n: (one.rows, one.bytes) for n, one in before.items()
    }
    assert done["bytes_copied"] > sum(shard.bytes for shard in before.values()) * 0.9
    assert_right(table, declaration, old)


def graphs(table):
    """The graph blobs of the newest version, by shard, as they are stored."""
    version = newest(table)
    with open_puffin(table.io, version.path) as reader:
        blobs = reader.find(graph_blob.TYPE, index=builds.INDEX)
        return {blob.properties["shard"]: reader.read(blob) for blob in blobs}


def test_a_compaction_moves_rows_and_copies_graphs_without_a_look_at_them(build, monkeypatch):
    declaration = declared("vamana")
    table = build(declaration)
    before, was = shards(table), graphs(table)
    compact(table)
    with monkeypatch.context() as patch:
        for name in ("build", "insert", "unpack"):
            patch.setattr(VamanaEngine, name, lambda *_, **__: pytest.fail("a graph was read"))
        done = refresh_in_process(declaration, run_id="compaction", force=True)
    assert done["action"] == "refresh"
    assert_right(table.refresh(), declaration)
    after = shards(table)
    assert {n: (one.rows, one.tombstones) for n, one in after.items()} == {
        n: (one.rows, 0) for n, one in before.items()
    }
    assert graphs(table) == was
    assert len(was) == 2


def test_rows_rewritten_by_a_delete_move_and_the_deleted_ones_are_tombstoned(build):
    declaration = declared("vamana")
    table = build(declaration)
    table.delete("id >= 10 and id < 15")
    refresh(table, declaration)
    after = shards(table)
    assert sum(shard.rows for shard in after.values()) == 60
    assert sum(shard.tombstones for shard in after.values()) == 5


def test_a_rollback_restores_the_tombstoned_rows(build):
    declaration = declared("vamana", refresh={"delta_ratio": 1.0})
    table = build(declaration)
    before = table.current_snapshot().snapshot_id
    delete_merge_on_read(table, 4)
    refresh(table, declaration, "delete")
    assert sum(shard.tombstones for shard in shards(table).values()) == 8
    roll_back(table, before)
    refresh(table, declaration, "rollback")
    after = shards(table)
    assert sum(shard.tombstones for shard in after.values()) == 0
    assert len(after) == 2


def test_equal_rows_are_matched_one_to_one(build):
    declaration = declared("exact", refresh={"delta_ratio": 1.0})
    table = build(declaration)
    copies = pa.concat_tables([builds.rows(range(60, 64))] * 3)
    table.append(copies.set_column(0, "id", pa.array(range(200, 212))))
    refresh(table, declaration, "append")
    before = table.current_snapshot().snapshot_id
    table.delete("id >= 200 and id < 205")
    refresh(table, declaration, "delete")
    compact(table)
    table.append(copies.set_column(0, "id", pa.array(range(300, 312))))
    refresh(table, declaration, "compaction and more of them")
    roll_back(table, before)
    refresh(table, declaration, "rollback")
    assert sum(shard.rows - shard.tombstones for shard in shards(table).values()) == 72


def test_rows_that_share_a_locator_with_deleted_ones_can_be_merged(build):
    """Of equal rows one may come back in the place of another, and both go into one shard."""
    declaration = declared("exact", shards=1, refresh={"delta_ratio": 1.0})
    table = build(declaration)
    row = builds.rows([60])
    copies = pa.concat_tables([row, row, row])
    table.append(copies.set_column(0, "id", pa.array([60, 61, 62])))
    refresh(table, declaration, "append")
    for number in range(3):
        before = table.current_snapshot().snapshot_id
        path = sorted(task.file.file_path for task in table.scan().plan_files())
        of_row = [location for location in path if table.io.new_input(location).exists()]
        delete_positions(table, {location: [number] for location in of_row})
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
    assert {shard.kind for shard in shards(table).values()} == {"graph"}


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
    done = refresh(table, declaration)
    if algorithm != "centroid":
        assert (done["rows_added"], done["rows_gone"]) == (3, 0)
    assert sum(len(file.skipped) for file in newest(table).coverage.files) == 3
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
    with pytest.raises(BadVectorsError, match="of the added rows 1"):
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
    assert all(shard.tombstones == shard.rows for shard in shards(table).values())
    table.append(builds.rows(range(100, 130)))
    refresh(table, declaration, "new life")


def test_small_deltas_are_absorbed_and_all_of_them_merged(build):
    declaration = declared("vamana", refresh={"delta_ratio": 0.4})
    table = build(declaration)
    kinds = []
    for number in range(8):
        table.append(builds.rows(range(100 + 4 * number, 104 + 4 * number)))
        refresh(table, declaration, f"append-{number}")
        kinds.append([shard.kind for shard in shards(table).values()])
    assert max(kind.count("delta") for kind in kinds) <= 3
    assert any(kind.count("delta") == 0 for kind in kinds), "never merged"
    assert sum(shard.rows for shard in shards(table).values()) == 92


def test_maintenance_rebuilds_shards_of_many_tombstones(build):
    declaration = declared("vamana")
    table = build(declaration)
    delete_merge_on_read(table, 12)
    refresh(table, declaration, "delete")
    assert sum(shard.tombstones for shard in shards(table).values()) == 24
    done = refresh(table, declaration, "maintain", maintenance=True)
    assert "rebuild shard" in done["reason"]
    after = shards(table)
    assert sum(shard.rows for shard in after.values()) == 36
    assert sum(shard.tombstones for shard in after.values()) == 0


def test_only_touched_shards_are_dealt_to_tasks(build):
    declaration = declared("vamana", refresh={"delta_ratio": 1.0})
    table = build(declaration)

    def touched(declaration, **options):
        plan = plan_refresh(declaration, run_id="look", force=True, **options)
        groups = Workspace.open(RunRef.planned(plan)).plan.groups
        assert list(groups) == plan.groups
        publish.clear_staging(RunRef.planned(plan))
        return sorted(shard for group in groups.values() for shard in group)

    cells = newest(table).cells(table.io)
    ids, vectors = builds.live(table)
    apart = np.linalg.norm(vectors[:, None] - cells.centroids[None], axis=2)
    first = ids[cells.shards[apart.argmin(axis=1)] == 0]
    table.delete(f"id in ({', '.join(map(str, first[::3]))})")
    refresh(table, declaration, "delete")
    assert [shard.tombstones > 0 for shard in shards(table).values()] == [True, False]
    assert touched(declaration, maintenance=True) == [0]
    table.append(builds.rows(range(60, 63)))
    assert touched(declaration) == [2]
    merging = declared("vamana", refresh={"delta_ratio": 0.0})
    assert touched(merging) == [0, 1]
    dealt = []

    class Dealing(InProcess):
        def run(self, work, payloads):
            dealt.append(list(payloads))
            return super().run(work, payloads)

    refresh(table, merging, "merge", runner=Dealing())
    assert dealt[-2:] == [["0 [0]"], ["0 [1]"]], "a task for each, and of these alone"


def test_vectors_of_deleted_rows_are_in_the_file_until_their_shard_is_rebuilt(build):
    declaration = declared("vamana")
    table = build(declaration)
    _, every = builds.live(table)
    delete_merge_on_read(table, 12)
    live = {vector.tobytes() for vector in builds.live(table)[1]}
    gone = {vector.tobytes() for vector in every} - live

    def stored():
        held = b"".join(graphs(table).values())
        return {vector for vector in gone | live if vector in held}

    refresh(table, declaration, "delete")
    assert stored() == gone | live
    assert len(gone) > 20
    refresh(table, declaration, "maintain", maintenance=True)
    assert stored() == live


def test_file_ids_are_never_given_again(build):
    declaration = declared(refresh={"delta_ratio": 1.0})
    table = build(declaration)
    seen = {file.file_id for file in newest(table).coverage.files}
    for number in range(3):
        compact(table)
        refresh(table, declaration, f"compaction-{number}")
        version = newest(table)
        ids = {file.file_id for file in version.coverage.files}
        assert not ids & seen
        seen |= ids
        assert IndexProperties(version.routing.properties).next_file_id(version.path) > max(seen)


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
    assert sum(shard.rows - shard.tombstones for shard in shards(table).values()) == 15
