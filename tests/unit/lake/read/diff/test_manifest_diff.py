"""The difference by differing manifests equals that of all files, whatever was done to them."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from puffin_ann.lake.read.diff.coverage_diff import Covered, CoveredColumns, Difference, difference
from puffin_ann.lake.read.diff.manifest_diff import changes
from puffin_ann.lake.read.files.live_files import files_of
from tests.support.lake.manifest_history import STEPS, ManifestHistory


def covered_at(history: ManifestHistory, number: int, seed: int = 0) -> list[Covered]:
    """What an index built on a snapshot covers; some rows cannot be indexed."""
    random = Random(seed)
    files = files_of(history.at(number))
    deleted = history.deleted(None, files)
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


def quick(
    history: ManifestHistory, covered: list[Covered], base: int, at: int
) -> Difference | None:
    manifests = history.manifests(history.snapshots[base])
    return changes(history.at(at), CoveredColumns.of(covered), manifests)


def full(history: ManifestHistory, covered: list[Covered], at: int) -> Difference:
    files = files_of(history.at(at))
    return difference(covered, files, history.deleted(None, files))


def live_rows_at(history: ManifestHistory, at: int) -> list[tuple[str, int, int, BitMap]]:
    """Every live file with what is deleted from it."""
    files = files_of(history.at(at))
    deleted = history.deleted(None, files)
    return [
        (file.path, file.size, file.sequence_number, deleted.get(file.path, BitMap()))
        for file in files
    ]


def live_now(covered: list[Covered], found: Difference) -> list[tuple[str, int, int, BitMap]]:
    """The same, of covered files and what is known to be different: what a refresh covers."""
    kept = [
        (one.path, one.size, one.sequence_number, found.deleted.get(place, one.deleted))
        for place, one in enumerate(covered)
        if place not in found.removed
    ]
    added = [(file.path, file.size, file.sequence_number, deleted) for file, deleted in found.added]
    return sorted([*kept, *added], key=lambda file: file[0])


histories = st.tuples(
    st.sampled_from([(0,), (0,), (0, 1), (1,)]),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 2**16)), max_size=12),
    st.sets(st.integers(1, 30)),
)


def history_of(
    specs: tuple[int, ...], vectors: bool, steps: list[tuple[str, int]]
) -> ManifestHistory:
    history = ManifestHistory(specs=specs, vectors=vectors)
    for seed in range(4):
        history.append(Random(seed))
    for name, seed in steps:
        STEPS[name](history, Random(seed))
    return history


@settings(max_examples=100)
@given(histories)
def test_what_differing_manifests_tell_is_what_all_manifests_tell(case) -> None:
    specs, vectors, steps, lost = case
    history = history_of(specs, vectors, steps)
    history.lost = {f"manifest-{number:03}" for number in lost}
    numbers = range(len(history.snapshots))
    with history.readable():
        for base in numbers:
            covered = covered_at(history, base, base)
            for at in numbers:
                found = quick(history, covered, base, at)
                assert found in (None, full(history, covered, at)), (base, at)
                if found is not None:
                    assert live_now(covered, found) == live_rows_at(history, at), (base, at)


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
    history = history_of((0,), vectors, [("append", 9)] * 4)
    base = len(history.snapshots) - 1
    history.delete_rows(Random(8))
    history.delete_rows(Random(9))
    base += 2
    STEPS[name](history, Random(USUAL[name].get("seed", 1)))
    at = len(history.snapshots) - 1
    with history.readable():
        covered = covered_at(history, base)
        found = quick(history, covered, base, at)
        assert found is not None
        assert found == full(history, covered, at)


def after(*steps: str) -> tuple[ManifestHistory, list[Covered], int]:
    """A history with steps after a base, what is covered at the base, and its number."""
    history = history_of((0,), False, [("append", 9)] * 4)
    base = len(history.snapshots) - 1
    for seed, name in enumerate(steps):
        STEPS[name](history, Random(seed))
    with history.readable():
        return history, covered_at(history, base), base


def test_a_file_listed_twice_is_not_taken_for_one() -> None:
    history, covered, base = after("append")
    entry = history.entries[history.head.data[0]][0]
    history._commit(data=(*history.head.data, history._new([entry])))
    with history.readable():
        assert quick(history, covered, base, base + 2) is None


@pytest.mark.parametrize("step", ["append", "delete", "overwrite", "append_and_merge"])
def test_coverage_of_other_files_than_those_of_the_base_is_found_out(step: str) -> None:
    history, covered, base = after(step)
    more = Covered(99, "another", 1, 1, 3)
    longer = [*covered[:-1], replace(covered[-1], rows=covered[-1].rows + 1)]
    other = [*covered[:-1], replace(covered[-1], path="another")]
    with history.readable():
        assert quick(history, covered, base, base + 1) is not None
        for wrong in (covered[1:], [*covered, more], longer, [*covered, covered[0]]):
            assert quick(history, wrong, base, base + 1) is None
        assert quick(history, other, base, base - 1) is None


def test_without_manifests_of_the_base_every_manifest_is_read() -> None:
    history, covered, base = after("append")
    with history.readable():
        assert changes(history.at(base + 1), CoveredColumns.of(covered), ()) is None


def test_a_manifest_list_without_counts_is_not_trusted() -> None:
    history, covered, base = after("append")
    name = history.head.data[0]
    history.listed[name] = replace(history.listed[name], files=None)
    with history.readable():
        assert quick(history, covered, base, base + 1) is None


def test_rows_alive_again_are_found_in_full_only() -> None:
    history, covered, base = after()
    history.append_and_delete(Random(1))
    history._commit(deletes=())
    with history.readable():
        covered = covered_at(history, base + 1)
        assert quick(history, covered, base + 1, base + 2) is None
        assert full(history, covered, base + 2).scanned_rows > 0


def test_an_empty_table_is_told_without_reading() -> None:
    history = ManifestHistory()
    with history.readable():
        assert quick(history, [], 0, 0) == Difference({}, [], 0, 0, 0)


def test_deletes_numbered_before_a_file_was_added_need_its_entry() -> None:
    history, _, base = after()
    # A compaction keeps an older data sequence number: deletes committed since then apply.
    file = replace(history._file(Random(1)), rows=6, sequence_number=2)
    history._commit(data=(*history.head.data, history._new([file])))
    delete = replace(history._delete({file.path: {1}}, file, named=True), sequence_number=3)
    history._redelete([], [delete])
    with history.readable():
        covered = covered_at(history, base + 1)
        assert (
            full(history, covered, base + 2).live_rows < full(history, covered, base + 1).live_rows
        )
        assert quick(history, covered, base + 1, base + 2) is None


def test_deletes_of_a_new_files_own_commit_are_read_though_the_base_has_them() -> None:
    history, _, base = after("append_and_delete")
    [file] = [entry for entry in history._live() if entry.sequence_number == base + 1]
    history._replace([file], [])
    with history.readable():
        covered = covered_at(history, base + 2)
        found = quick(history, covered, base + 2, base + 1)
        assert found == full(history, covered, base + 1)
        assert [positions for _, positions in found.scanned] == [BitMap([1, 3, 4, 5])]


def test_rows_deleted_since_add_to_those_deleted_at_the_base() -> None:
    history, _, base = after()
    file = history._live()[0]
    for number, deleted in enumerate(({0}, {1, 2})):
        delete = history._delete({file.path: deleted}, file, named=True)
        history._redelete([], [delete])
        assert history.head == history.snapshots[base + number + 1]
    with history.readable():
        covered = covered_at(history, base + 1)
        found = quick(history, covered, base + 1, base + 2)
        assert found is not None
        assert found == full(history, covered, base + 2)


def test_deletes_listed_in_other_manifests_are_not_read_again() -> None:
    history, _, base = after("delete_rows", "delete_rows", "rewrite_delete_manifests")
    with history.readable():
        covered = covered_at(history, base + 2)
        history.positions.clear()
        found = quick(history, covered, base + 2, base + 3)
    assert found is not None
    assert (found.masked, found.scanned) == ({}, [])


def test_of_two_vectors_of_a_file_the_newer_counts_whoever_lists_it() -> None:
    # Writers leave only one; reading everything takes the newer.
    history = history_of((0,), True, [("append", 9)] * 4)
    base = len(history.snapshots) - 1
    file = replace(history._file(Random(1)), rows=6, sequence_number=2, file_sequence_number=2)
    history._commit(data=(*history.head.data, history._new([file])))
    history._redelete([], [history._delete({file.path: {1}}, file, named=True)])
    older = replace(history._delete({file.path: {1, 2}}, file, named=True), sequence_number=3)
    history._redelete([], [older])
    with history.readable():
        covered = covered_at(history, base + 2)
        found = quick(history, covered, base + 2, base + 3)
        assert found == full(history, covered, base + 3)
        assert found.masked == {}
