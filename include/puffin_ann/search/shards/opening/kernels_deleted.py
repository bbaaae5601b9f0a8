"""The loop over all locators of a shard, where a refresh of few deleted rows spends its time."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.numba_kernels import kernel


@kernel()
def mark_suspects(
    file_ids: NDArray[np.uint32],
    row_groups: NDArray[np.uint32],
    offsets: NDArray[np.uint32],
    covered: NDArray[np.int64],
    is_whole: NDArray[np.bool_],
    groups: NDArray[np.int64],
    first_group: NDArray[np.int64],
    group_rows: NDArray[np.uint32],
    group_starts: NDArray[np.int64],
    marks: NDArray[np.bool_],
    out: NDArray[np.bool_],
) -> None:
    """Mark the rows that may not be live: all but those in places of which that is known.

    Args:
        file_ids: `(n,) uint32`, of the rows.
        row_groups: `(n,) uint32`.
        offsets: `(n,) uint32`.
        covered: `(m,) int64`, ascending, ids of covered files.
        is_whole: `(m,) bool`, files of which every row is marked.
        groups: `(m,) int64`, row groups of each.
        first_group: `(m,) int64`, place of its first one in those below.
        group_rows: `(g,) uint32`.
        group_starts: `(g,) int64`, number of each row group's first row.
        marks: `(2^b,) bool`, the last bits of numbers of rows that are not live.
        out: `(n,) bool`, written.
    """
    last_bits = len(marks) - 1
    before, place = np.int64(-1), np.int64(-1)
    for i in range(len(file_ids)):
        file = np.int64(file_ids[i])
        if file != before:  # mostly the file of the row before
            before = file
            low, high = 0, len(covered)
            while low < high:
                middle = (low + high) // 2
                if covered[middle] < file:
                    low = middle + 1
                else:
                    high = middle
            place = np.int64(low if low < len(covered) and covered[low] == file else -1)
        if place < 0 or is_whole[place] or row_groups[i] >= groups[place]:
            out[i] = True
            continue
        group = first_group[place] + row_groups[i]
        if offsets[i] >= group_rows[group]:
            out[i] = True
            continue
        out[i] = marks[(group_starts[group] + offsets[i]) & last_bits]
