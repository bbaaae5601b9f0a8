"""What of a difference and a decision goes into the plan of a refresh."""

from types import SimpleNamespace

import pytest
from pyroaring import BitMap

from puffin_ann.blobs.version.coverage import Coverage, CoveredFile
from puffin_ann.lake.read.diff.coverage_diff import Difference
from puffin_ann.lake.read.files.live_files import LiveFile
from puffin_ann.lifecycle.policy.decision import Decision, DeltaAction, ShardAction
from puffin_ann.lifecycle.refresh.plan import Basis, deal_groups, plan_files

LOCATION = "file:///lake/words"


def covered(file_id: int, path: str, deleted=()) -> CoveredFile:
    return CoveredFile(
        file_id=file_id,
        path=path,
        size=10,
        sequence_number=1,
        rows=100,
        row_groups=(60, 40),
        deleted=BitMap(deleted),
        skipped=BitMap([99]),
    )


def live(path: str, rows: int = 100) -> LiveFile:
    return LiveFile(f"{LOCATION}/{path}", 20, 2, rows)


def basis(files, *, removed=(), deleted=None, added=(), scanned=(), properties=None) -> Basis:
    """A version of files, and how the table differs from it."""
    routing = SimpleNamespace(properties=properties or {})
    version = SimpleNamespace(coverage=Coverage(7, files, ()), routing=routing, path="v.puffin")
    changed = Difference(
        {},
        scanned,
        0,
        0,
        0,
        removed=frozenset(removed),
        deleted={place: BitMap(rows) for place, rows in (deleted or {}).items()},
        added=[(file, BitMap(rows)) for file, rows in added],
    )
    view = SimpleNamespace(changed=changed, scanned=scanned)
    return Basis(version, SimpleNamespace(), SimpleNamespace(), view)


def planned(given: Basis):
    files, read, next_id = plan_files(LOCATION, given)
    return (
        {file.file_id: file for file in files},
        {file.file_id: file.path for file in read},
        next_id,
    )


def test_of_an_unchanged_table_everything_is_taken_over_and_nothing_read():
    files = [covered(0, "a", deleted=[3]), covered(5, "b")]
    now, read, next_id = planned(basis(files))
    assert list(now.values()) == files
    assert (read, next_id) == ({}, 6)


def test_a_file_that_is_gone_is_left_out_and_its_id_is_not_given_again():
    now, _, next_id = planned(basis([covered(0, "a"), covered(5, "b")], removed=[1]))
    assert list(now) == [0]
    assert next_id == 6


def test_the_ids_of_files_that_were_gone_before_are_not_given_again_either():
    given = basis([covered(0, "a")], added=[(live("new"), [])], properties={"next-file-id": "9"})
    now, read, next_id = planned(given)
    assert list(now) == [0, 9]
    assert (read, next_id) == ({9: f"{LOCATION}/new"}, 10)


def test_a_file_with_more_deletes_keeps_all_else_and_is_not_read():
    given = basis([covered(0, "a", deleted=[3]), covered(1, "b")], deleted={0: [3, 4], 1: []})
    now, read, _ = planned(given)
    assert now[0].deleted == BitMap([3, 4])
    assert (now[0].row_groups, now[0].skipped) == ((60, 40), BitMap([99]))
    assert now[1] == covered(1, "b")
    assert read == {}


def test_a_covered_file_whose_rows_are_back_is_read_under_its_own_id():
    given = basis(
        [covered(4, "a", deleted=[3])], deleted={0: []}, scanned=[(live("a"), BitMap([3]))]
    )
    now, read, next_id = planned(given)
    assert now[4].deleted == BitMap()
    assert (read, next_id) == ({4: f"{LOCATION}/a"}, 5)


def test_new_files_get_ids_in_the_order_of_their_paths_whatever_the_manifests_order():
    given = basis([covered(0, "m")], added=[(live("z"), []), (live("b", rows=0), [1])])
    now, read, next_id = planned(given)
    assert read == {1: f"{LOCATION}/b", 2: f"{LOCATION}/z"}
    assert next_id == 3
    assert (now[1].path, now[1].deleted, now[1].row_groups) == ("b", BitMap([1]), ())
    assert (now[2].path, now[2].row_groups, now[2].sequence_number) == ("z", (100,), 2)


def test_a_file_outside_of_the_table_is_kept_by_its_whole_path():
    outside = LiveFile("file:///elsewhere/a", 20, 2, 100)
    now, _, _ = planned(basis([], added=[(outside, [])]))
    assert now[0].path == "file:///elsewhere/a"


def shard(shard_id: int, action: str, kind: str = "graph") -> ShardAction:
    return ShardAction(
        shard_id=shard_id,
        kind=kind,
        action=action,
        reason="",
        rows=1,
        bytes_written=1,
        bytes_copied=1,
        seconds=1.0,
    )


def decision(*shards: ShardAction, delta: int | None = None, merges: bool = False) -> Decision:
    new = None
    if delta is not None:
        new = DeltaAction(
            shard_id=delta, reason="", rows=1, absorbed=(), bytes_written=1, seconds=1.0
        )
    return Decision(action="refresh", reason="", shards=shards, delta=new, merges=merges)


def test_untouched_shards_and_deltas_that_are_taken_apart_have_no_group():
    decided = decision(shard(0, "none"), shard(1, "mask"), shard(2, "merge", "delta"), delta=3)
    assert deal_groups(decided, 4) == {"000": (1, 3)}


def test_light_work_is_one_group_however_many_shards_it_touches():
    decided = decision(*(shard(number, "remap") for number in range(6)))
    assert deal_groups(decided, 4) == {"000": tuple(range(6))}


@pytest.mark.parametrize("action", ["merge", "rebuild"])
def test_heavy_work_is_dealt_to_as_many_groups_as_are_allowed(action):
    decided = decision(*(shard(number, action) for number in range(4)), merges=action == "merge")
    assert deal_groups(decided, 2) == {"000": (0, 1), "001": (2, 3)}


def test_groups_name_shards_by_their_numbers_not_their_places():
    assert deal_groups(decision(shard(7, "rebuild"), shard(9, "rebuild")), 5) == {
        "000": (7,),
        "001": (9,),
    }


def test_where_no_shard_is_touched_there_is_a_group_of_none():
    assert deal_groups(decision(shard(0, "none")), 4) == {"000": ()}
