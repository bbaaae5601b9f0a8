"""The difference by differing manifests equals that of all files, whatever was done to them."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from puffin_ann.errors import UnsupportedTableError
from puffin_ann.lake.read.coverage_diff import Covered, CoveredColumns, Difference, difference
from puffin_ann.lake.read.live_files import files_of
from puffin_ann.lake.read.manifest_diff import changes
from tests.support.manifest_history import STEPS, Life


def covered_at(life: Life, number: int, seed: int = 0) -> list[Covered]:
    """What an index built on a snapshot covers; some rows cannot be indexed."""
    random = Random(seed)
    files = files_of(life.at(number))
    deleted = life.deleted(None, files)
    return [
        Covered(
            3 * place,
            file.path,
            file.size,
            file.sequence_number,
            file.rows,
            deleted.get(file.path, BitMap()),
            BitMap(at for at in range(file.rows) if random.random() < 0.2),
        )
        for place, file in enumerate(files)
    ]


def quick(life: Life, covered: list[Covered], base: int, at: int) -> Difference | None:
    manifests = life.manifests(life.snapshots[base])
    return changes(life.at(at), CoveredColumns.of(covered), manifests)


def full(life: Life, covered: list[Covered], at: int) -> Difference:
    files = files_of(life.at(at))
    return difference(covered, files, life.deleted(None, files))


def life_at(life: Life, at: int) -> list[tuple[str, int, int, BitMap]]:
    """Every live file with what is deleted from it."""
    files = files_of(life.at(at))
    deleted = life.deleted(None, files)
    return [
        (one.path, one.size, one.sequence_number, deleted.get(one.path, BitMap())) for one in files
    ]


def live_now(covered: list[Covered], found: Difference) -> list[tuple[str, int, int, BitMap]]:
    """The same, of covered files and what is known to be different: what a refresh covers."""
    kept = [
        (one.path, one.size, one.sequence_number, found.dead.get(place, one.deleted))
        for place, one in enumerate(covered)
        if place not in found.removed
    ]
    added = [(one.path, one.size, one.sequence_number, dead) for one, dead in found.added]
    return sorted([*kept, *added], key=lambda one: one[0])


lives = st.tuples(
    st.sampled_from([(0,), (0,), (0, 1), (1,)]),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 2**16)), max_size=12),
    st.sets(st.integers(1, 30)),
)


def lived(specs: tuple[int, ...], vectors: bool, steps: list[tuple[str, int]]) -> Life:
    life = Life(specs=specs, vectors=vectors)
    for seed in range(4):
        life.append(Random(seed))
    for name, seed in steps:
        STEPS[name](life, Random(seed))
    return life


@settings(max_examples=300)
@given(lives)
def test_what_differing_manifests_tell_is_what_all_manifests_tell(case) -> None:
    specs, vectors, steps, lost = case
    life = lived(specs, vectors, steps)
    life.lost = {f"manifest-{number:03}" for number in lost}
    numbers = range(len(life.snapshots))
    with life.readable():
        for base in numbers:
            try:
                covered = covered_at(life, base, base)
            except UnsupportedTableError:
                continue
            for at in numbers:
                try:
                    expected = full(life, covered, at)
                except UnsupportedTableError:
                    assert refused_or_unsure(life, covered, base, at)
                    continue
                found = quick(life, covered, base, at)
                assert found in (None, expected), (base, at)
                if found is not None:
                    assert live_now(covered, found) == life_at(life, at), (base, at)


def refused_or_unsure(life: Life, covered: list[Covered], base: int, at: int) -> bool:
    try:
        return quick(life, covered, base, at) is None
    except UnsupportedTableError:
        return True


USUAL = {
    "append": {},
    "append_and_merge": {"seed": 3},
    "overwrite": {"seed": 5},
    "delete": {"seed": 5},
    "compact": {"seed": 5},
    "put_in_place": {"seed": 5},
    "rewrite_delete_manifests": {},
    "delete_rows": {},
    "merge_deletes": {},
}


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("name", USUAL)
def test_after_usual_commits_only_what_differs_is_read(name: str, vectors: bool) -> None:
    life = lived((0,), vectors, [("append", 9)] * 4)
    base = len(life.snapshots) - 1
    life.delete_rows(Random(8))
    life.delete_rows(Random(9))
    base += 2
    STEPS[name](life, Random(USUAL[name].get("seed", 1)))
    at = len(life.snapshots) - 1
    with life.readable():
        covered = covered_at(life, base)
        found = quick(life, covered, base, at)
        assert found is not None
        assert found == full(life, covered, at)


def after(*steps: str) -> tuple[Life, list[Covered], int]:
    """A life with steps after a base, what is covered at the base, and its number."""
    life = lived((0,), False, [("append", 9)] * 4)
    base = len(life.snapshots) - 1
    for seed, name in enumerate(steps):
        STEPS[name](life, Random(seed))
    with life.readable():
        return life, covered_at(life, base), base


def test_a_file_listed_twice_is_not_taken_for_one() -> None:
    life, covered, base = after("append")
    entry = life.entries[life.head.data[0]][0]
    life._commit(data=(*life.head.data, life._new([entry])))
    with life.readable():
        assert quick(life, covered, base, base + 2) is None


@pytest.mark.parametrize("step", ["append", "delete", "overwrite", "append_and_merge"])
def test_coverage_of_other_files_than_those_of_the_base_is_found_out(step: str) -> None:
    life, covered, base = after(step)
    more = Covered(99, "another", 1, 1, 3)
    longer = [*covered[:-1], replace(covered[-1], rows=covered[-1].rows + 1)]
    other = [*covered[:-1], replace(covered[-1], path="another")]
    with life.readable():
        assert quick(life, covered, base, base + 1) is not None
        for wrong in (covered[1:], [*covered, more], longer, [*covered, covered[0]]):
            assert quick(life, wrong, base, base + 1) is None
        assert quick(life, other, base, base - 1) is None


def test_without_manifests_of_the_base_every_manifest_is_read() -> None:
    life, covered, base = after("append")
    with life.readable():
        assert changes(life.at(base + 1), CoveredColumns.of(covered), ()) is None


def test_a_manifest_list_without_counts_is_not_trusted() -> None:
    life, covered, base = after("append")
    name = life.head.data[0]
    life.listed[name] = replace(life.listed[name], files=None)
    with life.readable():
        assert quick(life, covered, base, base + 1) is None


def test_rows_alive_again_are_found_in_full_only() -> None:
    life, covered, base = after()
    life.append_and_delete(Random(1))
    life._commit(deletes=())
    with life.readable():
        covered = covered_at(life, base + 1)
        assert quick(life, covered, base + 1, base + 2) is None
        assert full(life, covered, base + 2).scanned_rows > 0


def test_an_empty_table_is_told_without_reading() -> None:
    life = Life()
    with life.readable():
        assert quick(life, [], 0, 0) == Difference({}, [], 0, 0, 0)


def test_deletes_numbered_before_a_file_was_added_need_its_entry() -> None:
    life, _, base = after()
    # A compaction keeps an older data sequence number: deletes committed since then apply.
    file = replace(life._file(Random(1)), rows=6, sequence_number=2)
    life._commit(data=(*life.head.data, life._new([file])))
    delete = replace(life._delete({file.path: {1}}, file, named=True), sequence_number=3)
    life._redelete([], [delete])
    with life.readable():
        covered = covered_at(life, base + 1)
        assert full(life, covered, base + 2).live_rows < full(life, covered, base + 1).live_rows
        assert quick(life, covered, base + 1, base + 2) is None


def test_deletes_of_a_new_files_own_commit_are_read_though_the_base_has_them() -> None:
    life, _, base = after("append_and_delete")
    [file] = [one for one in life._live() if one.sequence_number == base + 1]
    life._replace([file], [])
    with life.readable():
        covered = covered_at(life, base + 2)
        found = quick(life, covered, base + 2, base + 1)
        assert found == full(life, covered, base + 1)
        assert [positions for _, positions in found.scanned] == [BitMap([1, 3, 4, 5])]


def test_rows_deleted_since_add_to_those_deleted_at_the_base() -> None:
    life, _, base = after()
    file = life._live()[0]
    for number, dead in enumerate(({0}, {1, 2})):
        delete = life._delete({file.path: dead}, file, named=True)
        life._redelete([], [delete])
        assert life.head == life.snapshots[base + number + 1]
    with life.readable():
        covered = covered_at(life, base + 1)
        found = quick(life, covered, base + 1, base + 2)
        assert found is not None
        assert found == full(life, covered, base + 2)


def test_deletes_listed_in_other_manifests_are_not_read_again() -> None:
    life, _, base = after("delete_rows", "delete_rows", "rewrite_delete_manifests")
    with life.readable():
        covered = covered_at(life, base + 2)
        life.positions.clear()
        found = quick(life, covered, base + 2, base + 3)
    assert found is not None
    assert (found.masked, found.scanned) == ({}, [])


def test_of_two_vectors_of_a_file_the_newer_counts_whoever_lists_it() -> None:
    # Writers leave only one; reading everything takes the newer.
    life = lived((0,), True, [("append", 9)] * 4)
    base = len(life.snapshots) - 1
    file = replace(life._file(Random(1)), rows=6, sequence_number=2, file_sequence_number=2)
    life._commit(data=(*life.head.data, life._new([file])))
    life._redelete([], [life._delete({file.path: {1}}, file, named=True)])
    older = replace(life._delete({file.path: {1, 2}}, file, named=True), sequence_number=3)
    life._redelete([], [older])
    with life.readable():
        covered = covered_at(life, base + 2)
        found = quick(life, covered, base + 2, base + 3)
        assert found == full(life, covered, base + 3)
        assert found.masked == {}
