"""The rows blob: for each ordinal of a shard its locator, and its identity where that is kept.

Apart from the graph, so that rows which moved to another file cost a new rows blob and no new
graph. Locators are written in sorted order, delta-encoded; where ordinals are not in that order
(but in that of cells, or after a remap) a permutation says which is which.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs import cells as cell_starts
from puffin_ann.blobs.cells import CellStarts
from puffin_ann.blobs.encoding import blocks
from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter, Sink
from puffin_ann.blobs.encoding.varints import MAX_BYTES, MESSAGES
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
BLOCK_ROWS = 1 << 16
MAX_BLOCK_ROWS = 1 << 20
MAX_ROWS = 1 << 32

SORTED, PERMUTED = 0, 1

NOWHERE = (1 << 32) - 1
"""File id of deleted rows that were set aside; no file ever gets it."""

IdentityKind = Literal["hash", "lineage"]
_IDENTITY_KINDS: tuple[IdentityKind, ...] = ("hash", "lineage")
_NO_IDENTITY = len(_IDENTITY_KINDS)
_CELLS = "cell"

Columns = tuple[NDArray[np.uint32], ...]
"""Three columns of equal length: file ids, row groups, offsets."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Where the rows of a shard are, by ordinal.

    Attributes:
        file_ids: `(n,) uint32`, the coverage blob's file ids.
        row_groups: `(n,) uint32`, row group within the file.
        offsets: `(n,) uint32`, row within the row group.
        identities: `(n, 2) uint64`, or None: the two halves of a 128-bit hash, or `_row_id` and
            `_last_updated_sequence_number`.
        identity_kind: which of the two.
        cells: where each cell's rows begin, of the leading rows; None if that is not known.
    """

    file_ids: NDArray[np.uint32]
    row_groups: NDArray[np.uint32]
    offsets: NDArray[np.uint32]
    identities: NDArray[np.uint64] | None = None
    identity_kind: IdentityKind = "hash"
    cells: CellStarts | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.file_ids)

    @property
    def in_order(self) -> bool:
        """Tell whether ordinals are in the order of locators; then no two rows have one locator."""
        return _ascending(self.file_ids, self.row_groups, self.offsets)

    def take(self, ordinals: NDArray[np.int64]) -> "Rows":
        """Return some rows, in the order given, of which it is not told where cells begin."""
        return Rows(
            self.file_ids[ordinals],
            self.row_groups[ordinals],
            self.offsets[ordinals],
            None if self.identities is None else self.identities[ordinals],
            self.identity_kind,
        )

    def followed_by(self, others: "Rows") -> "Rows":
        """Return these rows and then others, without identities if either has none.

        The cells are those of these rows: the others are in no order behind them.
        """
        identities = None
        if self.identities is not None and others.identities is not None:
            identities = np.concatenate([self.identities, others.identities])
        return Rows(
            np.concatenate([self.file_ids, others.file_ids]),
            np.concatenate([self.row_groups, others.row_groups]),
            np.concatenate([self.offsets, others.offsets]),
            identities,
            self.identity_kind,
            self.cells,
        )


def set_aside(rows: Rows, deleted: NDArray[np.int64]) -> Rows:
    """Return rows of which deleted ones have no place in any file.

    A restored row (a rollback brought its file's row back) may be in the same shard as a deleted
    one that was in its place, and no two rows of a blob may have one locator.

    Args:
        rows: of a shard.
        deleted: (m,) int64, ordinals.
    """
    file_ids, groups, offsets = (
        np.array(column) for column in (rows.file_ids, rows.row_groups, rows.offsets)
    )
    file_ids[deleted], groups[deleted], offsets[deleted] = NOWHERE, 0, deleted
    return replace(rows, file_ids=file_ids, row_groups=groups, offsets=offsets)


def write(rows: Rows, out: Sink) -> int:
    """Write the blob and return its length in bytes; arrays may be memory-mapped.

    Raises:
        BlobFormatError: Two ordinals have one locator, arrays differ in length, or cells are not
            those of so many rows.
    """
    count = len(rows)
    lengths = {len(rows.file_ids), len(rows.row_groups), len(rows.offsets)}
    if rows.identities is not None:
        lengths.add(len(rows.identities))
    if lengths != {count} or count >= MAX_ROWS:
        raise BlobFormatError(f"{KIND} blob: columns of different or excessive length {lengths}")
    if rows.cells is not None:
        cell_starts.check(rows.cells, count, f"{KIND} blob")
    order = _order(rows)
    head = np.zeros((), HEAD)
    head["rows"] = count
    head["block_rows"] = BLOCK_ROWS
    head["order"] = SORTED if order is None else PERMUTED
    head["identity"] = (
        _NO_IDENTITY if rows.identities is None else _IDENTITY_KINDS.index(rows.identity_kind)
    )
    writer = ContainerWriter(out, KIND, by_ranges=True)
    writer.put("head", head)
    blocks.write(writer, "locs", "loct", _locator_blocks(rows, order))
    if order is not None:
        blocks.write(writer, "perm", "pert", permutation_blocks(order))
    if rows.identities is not None:
        with writer.section("iden") as sink:
            sink.write_array(rows.identities.astype("<u8", copy=False))
    if rows.cells is not None:
        writer.put(_CELLS, cell_starts.encode(rows.cells))
    return writer.finish()


def read(source: BinaryIO, rows: int | None = None) -> Rows:
    """Return the rows; typed errors for anything not as it should be.

    The result takes 12 bytes a row, and 16 more with identities. Those are backed by bytes of the
    blob, but very few bytes can hold the locators of many rows.

    Args:
        source: the blob.
        rows: how many there must be, by what has the bytes to show for it; any number, if None.
    """
    reader = ContainerReader(source, KIND)
    head = reader.record("head", HEAD)
    count, block_rows = int(head["rows"]), int(head["block_rows"])
    if not 0 < block_rows <= MAX_BLOCK_ROWS or count >= MAX_ROWS:
        raise BlobFormatError(f"{KIND} blob: {count} rows in blocks of {block_rows}")
    if rows is not None and count != rows:
        raise BlobFormatError(f"{KIND} blob: {count} rows, {rows} by the routing blob")
    if int(head["order"]) not in (SORTED, PERMUTED) or int(head["identity"]) > _NO_IDENTITY:
        raise BlobFormatError(f"{KIND} blob: unknown order or kind of identity")
    if int(head["order"]) == SORTED and "perm" in reader:
        raise BlobFormatError(f"{KIND} blob: has a permutation, and says that it has none")
    if int(head["identity"]) == _NO_IDENTITY and "iden" in reader:
        raise BlobFormatError(f"{KIND} blob: has identities, and says that it has none")
    columns = _read_locators(reader, count, block_rows)
    if int(head["order"]) == PERMUTED:
        ordinals = _read_permutation(reader, count, block_rows)
        columns = tuple(_scatter(column, ordinals) for column in columns)
    identities = None
    identity = int(head["identity"])
    if identity != _NO_IDENTITY:
        identities = reader.array("iden", "<u8", (count, 2))
    return Rows(
        file_ids=columns[0],
        row_groups=columns[1],
        offsets=columns[2],
        identities=identities,
        identity_kind=_IDENTITY_KINDS[identity % _NO_IDENTITY],
        cells=read_cells(reader, count),
    )


def read_cells(reader: ContainerReader, rows: int) -> CellStarts | None:
    """Return where cells begin in a blob of so many rows; None where it does not say.

    Raises:
        BlobFormatError, ChecksumError: the section is not sound; memory is taken for it only if it
            is no longer than such rows need.
    """
    if _CELLS not in reader:
        return None
    where = f"{reader.kind} blob, section {_CELLS}"
    length = reader.section_length(_CELLS)
    if length > cell_starts.longest(rows):
        raise BlobFormatError(f"{where}: {length} bytes are more than {rows} rows have cells for")
    return cell_starts.decode(reader.read(_CELLS), rows, where)


def _order(rows: Rows) -> NDArray[np.int64] | None:
    """Return the ordinals in locator order, or None if they are in it already."""
    file_ids, groups, offsets = rows.file_ids, rows.row_groups, rows.offsets
    if _ascending(file_ids, groups, offsets):
        return None
    order = np.lexsort((offsets, groups, file_ids))
    if not _ascending(file_ids[order], groups[order], offsets[order]):
        raise BlobFormatError(f"{KIND} blob: two rows have one locator")
    return order


def _ascending(
    file_ids: NDArray[np.uint32], groups: NDArray[np.uint32], offsets: NDArray[np.uint32]
) -> bool:
    same_file = file_ids[1:] == file_ids[:-1]
    same_group = groups[1:] == groups[:-1]
    later = np.where(same_group, offsets[1:] > offsets[:-1], groups[1:] > groups[:-1])
    return bool(np.where(same_file, later, file_ids[1:] > file_ids[:-1]).all())


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
        yield _pack(np.concatenate([file_steps, group_steps, offset_steps]))


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
        columns = _undo_steps(_unpack(data, 3 * size, reader.kind).reshape(3, size))
        first = tuple(columns[:, 0].tolist())
        if first <= before:
            raise BlobFormatError(f"{KIND} blob: locators do not ascend from block to block")
        before = tuple(columns[:, -1].tolist())
        parts.append(columns.astype(np.uint32))
    return tuple(np.concatenate(parts, axis=1))


def _undo_steps(steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Undo `_locator_blocks` for one block: `(3, b)` steps to as many values."""
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


def permutation_blocks(order: NDArray[np.int64]) -> Iterator[memoryview]:
    """Give the ordinals in locator order as zigzag differences, beginning at 0 in each block."""
    for start in range(0, len(order), BLOCK_ROWS):
        steps = np.diff(order[start : start + BLOCK_ROWS], prepend=0)
        yield _pack((steps << 1) ^ (steps >> 63))


def _read_permutation(reader: ContainerReader, count: int, block_rows: int) -> NDArray[np.int64]:
    parts = []
    left = count
    limit = MAX_BYTES * block_rows
    for data in blocks.read(reader, "perm", "pert", blocks.count(count, block_rows), limit):
        size = min(left, block_rows)
        left -= size
        zigzag = _unpack(data, size, reader.kind)
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


def _pack(values: NDArray[np.int64]) -> memoryview:
    from puffin_ann.blobs.encoding.kernels import put_varints

    out = np.empty(MAX_BYTES * len(values), np.uint8)
    return out[: put_varints(values, out)].data


def _unpack(data: NDArray[np.uint8], count: int, kind: str) -> NDArray[np.int64]:
    from puffin_ann.blobs.encoding.kernels import get_varints

    if count > len(data):
        raise BlobFormatError(f"{kind} blob: {len(data)} bytes cannot hold {count} varints")
    values = np.empty(count, np.int64)
    status = get_varints(data, values)
    if status:
        raise BlobFormatError(f"{kind} blob: {MESSAGES[status]}")
    return values
