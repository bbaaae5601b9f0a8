"""Write rows blobs of format version 1, as releases before version 2 did."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding import blocks
from puffin_ann.blobs.encoding.container import ContainerWriter, Sink
from puffin_ann.blobs.encoding.varints import pack_varints
from puffin_ann.blobs.shards import cells as cell_starts
from puffin_ann.blobs.shards.rows import KIND, Rows, read
from puffin_ann.blobs.shards.rows_v1 import HEAD, PERMUTED, SORTED

BLOCK_ROWS = 1 << 16
__all__ = ["read", "write"]


def write(rows: Rows, out: Sink) -> int:
    """Write the blob and return its length in bytes."""
    count = len(rows)
    order = _order(rows)
    head = np.zeros((), HEAD)
    head["rows"] = count
    head["block_rows"] = BLOCK_ROWS
    head["order"] = SORTED if order is None else PERMUTED
    has_identities = rows.identities is not None
    head["identity"] = 0 if has_identities else 2
    writer = ContainerWriter(out, KIND, by_ranges=True)
    writer.put("head", head)
    blocks.write(writer, "locs", "loct", _locator_blocks(rows, order))
    if order is not None:
        blocks.write(writer, "perm", "pert", permutation_blocks(order))
    if rows.identities is not None:
        with writer.section("iden") as sink:
            sink.write_array(rows.identities.astype("<u8", copy=False))
    if rows.cells is not None:
        writer.put("cell", cell_starts.encode(rows.cells))
    return writer.finish()


def _order(rows: Rows) -> NDArray[np.int64] | None:
    """Return the ordinals in locator order, or None if they are in it already."""
    file_ids, groups, offsets = rows.file_ids, rows.row_groups, rows.offsets
    if rows.in_order:
        return None
    order = np.lexsort((offsets, groups, file_ids))
    return order


def _locator_blocks(rows: Rows, order: NDArray[np.int64] | None) -> Iterator[memoryview]:
    """Give each block's three columns, one after the other, as varints.

    A column holds the difference to the row before while all columns to its left stay the same,
    and its own value otherwise; offsets, which must ascend then, lose one more. So files and row
    groups are runs of zeros, which zstd makes vanish, and offsets are small gaps.
    """
    for start in range(0, len(rows), BLOCK_ROWS):
        span = slice(start, start + BLOCK_ROWS)
        chosen = span if order is None else order[span]
        files, groups, offsets = (
            np.asarray(column[chosen]).astype(np.int64)
            for column in (rows.file_ids, rows.row_groups, rows.offsets)
        )
        file_steps = np.diff(files, prepend=0)
        new_file = _flags(file_steps)
        group_steps = np.where(new_file, groups, np.diff(groups, prepend=0))
        new_group = new_file | (group_steps != 0)
        offset_steps = np.where(new_group, offsets, np.diff(offsets, prepend=0) - 1)
        yield pack_varints(np.concatenate([file_steps, group_steps, offset_steps]))


def _flags(steps: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return where a column changes; a block's first row always counts as a change."""
    flags: NDArray[np.bool_] = steps != 0
    flags[:1] = True
    return flags


def permutation_blocks(order: NDArray[np.int64]) -> Iterator[memoryview]:
    """Give the ordinals in locator order as zigzag differences, beginning at 0 in each block."""
    for start in range(0, len(order), BLOCK_ROWS):
        steps = np.diff(order[start : start + BLOCK_ROWS], prepend=0)
        yield pack_varints((steps << 1) ^ (steps >> 63))
