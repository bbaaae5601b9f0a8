"""Parts of a task are taken apart for threads without losing a row group, or reading one twice."""

from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.lifecycle.documents.run import AssignTask, PlannedFile
from puffin_ann.lifecycle.ingest.parts import PIECE_ROWS, PIECES_A_THREAD, _pieces


def row_groups(part: tuple[int, int, int], groups: list[int]) -> list[tuple[int, int]]:
    """Which row groups of which file a part stands for, as `open_row_groups` has it."""
    file, number, parts = part
    count = groups[file]
    return [
        (file, position)
        for position in range(count * number // parts, count * (number + 1) // parts)
    ]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 400_000)), min_size=1, max_size=6),
    st.integers(1, 5),
    st.integers(1, 16),
)
def test_pieces_are_the_row_groups_of_the_parts_in_order(files, parts, threads):
    planned = [
        PlannedFile(file_id=at, path=str(at), size=1, sequence_number=1, rows=rows)
        for at, (_, rows) in enumerate(files)
    ]
    groups = [count for count, _ in files]
    task = AssignTask(
        parts=tuple((at, number, parts) for at in range(len(files)) for number in range(parts))
    )
    pieces = _pieces(planned, task, threads)
    expected = [row_group for part in task.parts for row_group in row_groups(part, groups)]
    assert [row_group for piece in pieces for row_group in row_groups(piece, groups)] == expected
    assert len(pieces) <= max(len(task.parts), PIECES_A_THREAD * threads + len(task.parts))
    for file, _, count in pieces:
        assert count == parts or planned[file].rows / count >= PIECE_ROWS


def test_one_large_file_keeps_every_thread_busy():
    file = PlannedFile(file_id=0, path="a", size=1, sequence_number=1, rows=10 * PIECE_ROWS)
    task = AssignTask(parts=((0, 0, 1),))
    assert len(_pieces([file], task, 2)) == 2 * PIECES_A_THREAD
    assert _pieces([file], task, 1) == [(0, 0, 1)]
