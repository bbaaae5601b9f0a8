"""Rows blobs of format version 1, which are read and not written any more.

Locators stand in sorted order, by steps that begin again wherever the file or the row group
changes; where ordinals are not in that order a permutation says which is which.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding import blocks
from puffin_ann.blobs.encoding.container import ContainerReader
from puffin_ann.blobs.encoding.varints import MAX_BYTES, unpack_varints
from puffin_ann.errors import BlobFormatError

KIND = "rows"
TYPE = "puffin-ann-rows-v1"

HEAD = np.dtype(
    [
        ("rows", "<u8"),
        ("block_rows", "<u4"),
        ("order", "<u4"),
        ("identity", "<u4"),
        ("reserved", "<u4"),
    ]
)
SORTED, PERMUTED = 0, 1

Columns = tuple[NDArray[np.uint32], ...]
"""Three columns of equal length: file ids, row groups, offsets."""


def read_columns(reader: ContainerReader, count: int, block_rows: int) -> Columns:
    """Return the locators of so many rows, by ordinal.

    Raises:
        BlobFormatError: they are malformed, or the head says of the permutation what is not so.
    """
    order = int(reader.record("head", HEAD)["order"])
    if order not in (SORTED, PERMUTED):
        raise BlobFormatError(f"{KIND} blob: unknown order {order}")
    if order == SORTED and "perm" in reader:
        raise BlobFormatError(f"{KIND} blob: has a permutation, and says that it has none")
    columns = _read_locators(reader, count, block_rows)
    if order == PERMUTED:
        ordinals = _read_permutation(reader, count, block_rows)
        columns = tuple(_scatter(column, ordinals) for column in columns)
    return columns


def _flags(steps: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return where a column changes; a block's first row always counts as a change."""
    flags: NDArray[np.bool_] = steps != 0
    flags[:1] = True
    return flags


def _read_locators(reader: ContainerReader, count: int, block_rows: int) -> Columns:
    parts = [np.zeros((3, 0), np.uint32)]
    left = count
    before: tuple[int, ...] = (-1, -1, -1)
    limit = 3 * MAX_BYTES * block_rows
    for data in blocks.read(reader, "locs", "loct", blocks.count(count, block_rows), limit):
        size = min(left, block_rows)
        left -= size
        columns = _undo_steps(unpack_varints(data, 3 * size, KIND).reshape(3, size))
        first = tuple(columns[:, 0].tolist())
        if first <= before:
            raise BlobFormatError(f"{KIND} blob: locators do not ascend from block to block")
        before = tuple(columns[:, -1].tolist())
        parts.append(columns.astype(np.uint32))
    return tuple(np.concatenate(parts, axis=1))


def _undo_steps(steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the values of a block, `(3, b)`, of which each is told by its step."""
    files = np.cumsum(steps[0])
    new_file = _flags(steps[0])
    groups = _sum_since(new_file, steps[1])
    new_group = new_file | (steps[1] != 0)
    offsets = _sum_since(new_group, np.where(new_group, steps[2], steps[2] + 1))
    columns = np.stack([files, groups, offsets])
    if int(columns.max()) > 0xFFFFFFFF:
        raise BlobFormatError(f"{KIND} blob: a locator is beyond 32 bits")
    return columns


def _sum_since(restart: NDArray[np.bool_], steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return running sums that begin again wherever `restart` is set (it is at the first)."""
    sums = np.cumsum(steps)
    starts = np.flatnonzero(restart)
    bases = sums[starts] - steps[starts]
    result: NDArray[np.int64] = sums - np.repeat(bases, np.diff(starts, append=len(steps)))
    return result


def _read_permutation(reader: ContainerReader, count: int, block_rows: int) -> NDArray[np.int64]:
    parts = []
    left = count
    limit = MAX_BYTES * block_rows
    for data in blocks.read(reader, "perm", "pert", blocks.count(count, block_rows), limit):
        size = min(left, block_rows)
        left -= size
        zigzag = unpack_varints(data, size, KIND)
        parts.append(np.cumsum((zigzag >> 1) ^ -(zigzag & 1)))
    ordinals = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    seen = np.zeros(count, bool)
    seen[ordinals[(ordinals >= 0) & (ordinals < count)]] = True
    if not seen.all():
        raise BlobFormatError(f"{KIND} blob: the permutation leaves out an ordinal")
    return ordinals


def _scatter(column: NDArray[np.uint32], ordinals: NDArray[np.int64]) -> NDArray[np.uint32]:
    result = np.empty_like(column)
    result[ordinals] = column
    return result
