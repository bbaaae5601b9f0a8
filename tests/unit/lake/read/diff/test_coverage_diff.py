from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from puffin_ann.lake.read.diff.coverage_diff import ALL, Covered, Difference, Positions, difference
from puffin_ann.lake.read.files.live_files import LiveFile

PATHS = ("a", "b", "c")
ROWS = 6

POSITIONS = st.sets(st.integers(0, ROWS - 1)).map(BitMap)


def rows_of(path: str, size: int, sequence_number: int) -> int:
    """A file never changes, so path, size and sequence number say how many rows it has."""
    return (len(path) + size * 2 + sequence_number) % (ROWS + 1)


@st.composite
def tables(draw: st.DrawFn):
    keys = st.tuples(st.sampled_from(PATHS), st.integers(1, 2), st.integers(1, 2))
    inside = draw(st.lists(keys, unique=True))
    now = draw(st.lists(keys, unique_by=lambda key: key[0]))
    covered = [
        Covered(i * 3, *key, rows_of(*key), clip(draw(POSITIONS), key), clip(draw(POSITIONS), key))
        for i, key in enumerate(inside)
    ]
    live = [LiveFile(*key, rows_of(*key)) for key in now]
    deleted = {key[0]: clip(draw(POSITIONS), key) for key in now}
    return covered, live, {path: positions for path, positions in deleted.items() if positions}


def clip(positions: BitMap, key: tuple[str, int, int]) -> BitMap:
    return positions & BitMap(range(rows_of(*key)))


def places(positions: Positions, rows: int) -> set[int]:
    return set(range(rows)) if positions is ALL else set(positions)


Row = tuple[str, int, int, int]


def model(covered, live, deleted) -> dict[str, set[Row]]:
    """Rows as (path, size, sequence number, position), and plain set arithmetic."""
    indexed, known = set(), set()
    for file in covered:
        for at in range(file.rows):
            row = (file.path, file.size, file.sequence_number, at)
            if at in file.skipped:
                known.add(row)
            elif at not in file.deleted:
                indexed.add(row)
    live_rows = {
        (file.path, file.size, file.sequence_number, at)
        for file in live
        for at in range(file.rows)
        if at not in deleted.get(file.path, ())
    }
    return {
        "masked": indexed - live_rows,
        "scanned": live_rows - indexed - known,
        "covered": live_rows & (indexed | known),
        "live": live_rows,
    }


@given(tables())
def test_the_difference_is_that_of_the_sets_of_rows(case) -> None:
    covered, live, deleted = case
    found = difference(covered, live, deleted)
    expected = model(covered, live, deleted)
    by_id = {file.file_id: file for file in covered}
    masked = {
        (by_id[number].path, by_id[number].size, by_id[number].sequence_number, at)
        for number, positions in found.masked.items()
        for at in places(positions, by_id[number].rows)
        # ALL speaks of the indexed rows of the file; rows never indexed have no ordinal.
        if at not in by_id[number].deleted and at not in by_id[number].skipped
    }
    scanned = {
        (file.path, file.size, file.sequence_number, at)
        for file, positions in found.scanned
        for at in places(positions, file.rows)
    }
    assert masked == expected["masked"]
    assert scanned == expected["scanned"]
    assert found.masked_rows == len(masked)
    assert found.scanned_rows == len(scanned)
    assert found.live_rows == len(expected["live"])
    assert found.covered_rows == len(expected["covered"])


@given(tables())
def test_nothing_empty_is_reported(case) -> None:
    found = difference(*case)
    assert all(positions is ALL or positions for positions in found.masked.values())
    assert all(positions is ALL or positions for _, positions in found.scanned)
    assert 0 <= found.coverage <= 1


def test_a_file_unchanged_needs_neither_mask_nor_scan() -> None:
    found = difference([Covered(7, "a", 10, 1, 5)], [LiveFile("a", 10, 1, 5)], {})
    assert found == Difference({}, [], 5, 5, 0)
    assert found.coverage == 1


def test_an_empty_table_is_fully_covered() -> None:
    assert difference([], [], {}).coverage == 1


def test_rows_deleted_at_the_base_and_alive_now_are_scanned() -> None:
    # Time travel to before the delete.
    covered = [Covered(1, "a", 10, 1, 5, deleted=BitMap([2]))]
    live = LiveFile("a", 10, 1, 5)
    assert difference(covered, [live], {}).scanned == [(live, BitMap([2]))]


def test_a_path_used_again_by_another_file_is_another_file() -> None:
    covered = [Covered(1, "a", 10, 1, 5)]
    live = LiveFile("a", 10, 2, 5)
    found = difference(covered, [live], {})
    assert found.masked == {1: ALL}
    assert found.scanned == [(live, ALL)]


def test_skipped_rows_are_not_scanned_again() -> None:
    covered = [Covered(1, "a", 10, 1, 5, skipped=BitMap([0, 1]))]
    found = difference(covered, [LiveFile("a", 10, 1, 5)], {"a": BitMap([1, 2])})
    assert found.masked == {1: BitMap([2])}
    assert found.scanned == []
    assert (found.live_rows, found.covered_rows) == (3, 3)
