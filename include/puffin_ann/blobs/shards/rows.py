"""The rows blob: for each ordinal of a shard its locator.

Apart from the graph, so that rows which moved to another file cost a new rows blob and no new
graph; and from `identities`, which stay what they were, too. Locators stand by ordinal, as steps
from row to row in small blocks: so those of a cell, whose rows are in the order of locators, take
few bytes, and can be read without the rest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding import blocks
from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter, Sink
from puffin_ann.blobs.encoding.varints import MAX_BYTES, pack_varints, unpack_steps
from puffin_ann.blobs.shards import cells as cell_starts
from puffin_ann.blobs.shards import identities as identities_blob
from puffin_ann.blobs.shards import rows_v1
from puffin_ann.blobs.shards.cells import CellStarts
from puffin_ann.blobs.shards.rows_v1 import Columns
from puffin_ann.errors import BlobFormatError

KIND = rows_v1.KIND
TYPE = "puffin-ann-rows-v2"
TYPES = (TYPE, rows_v1.TYPE)
"""The types that are read: that of each version of the format."""
MAJOR = 2
MINOR = 1
"""From 1 on a cell may have several runs of rows, and what says where they are stands last."""

HEAD = np.dtype([("rows", "<u8"), ("block_rows", "<u4"), ("identity", "<u4")])
BLOCK_ROWS = 1 << 12
MAX_BLOCK_ROWS = 1 << 20
MAX_ROWS = 1 << 32

NOWHERE = (1 << 32) - 1
"""File id of deleted rows that were set aside; no file ever gets it."""

_HASH, _NO_IDENTITY = 0, 2
"""Which identities a blob has: there is another kind between, by which nothing is found."""
_CELLS = "cell"


@dataclass(frozen=True, eq=False)
class Rows:
    """Where the rows of a shard are, by ordinal.

    Attributes:
        file_ids: `(n,) uint32`, the coverage blob's file ids.
        row_groups: `(n,) uint32`, row group within the file.
        offsets: `(n,) uint32`, row within the row group.
        identities: `(n, 2) uint64`, the two halves of a 128-bit hash; None if not read, or unknown.
        cells: where the rows of cells are, of the leading rows; None if that is not known.
    """

    file_ids: NDArray[np.uint32]
    row_groups: NDArray[np.uint32]
    offsets: NDArray[np.uint32]
    identities: NDArray[np.uint64] | None = None
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
        )

    def followed_by(self, others: "Rows") -> "Rows":
        """Return these rows and then others, without identities if either has none.

        Where either are not all in the order of cells, the cells told are those of these rows.
        """
        identities = None
        if self.identities is not None and others.identities is not None:
            identities = np.concatenate([self.identities, others.identities])
        cells = self.cells
        if cells is not None and others.cells is not None and cells.ordered_rows == len(self):
            cells = cells.followed_by(others.cells)
        return Rows(
            np.concatenate([self.file_ids, others.file_ids]),
            np.concatenate([self.row_groups, others.row_groups]),
            np.concatenate([self.offsets, others.offsets]),
            identities,
            cells,
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

    Identities are left to a blob of their own.

    Raises:
        BlobFormatError: arrays differ in length, or cells are not those of so many rows.
    """
    count = len(rows)
    lengths = {len(rows.file_ids), len(rows.row_groups), len(rows.offsets)}
    if lengths != {count} or count >= MAX_ROWS:
        raise BlobFormatError(f"{KIND} blob: columns of different or excessive length {lengths}")
    if rows.cells is not None:
        cell_starts.check(rows.cells, count, f"{KIND} blob")
    head = np.zeros((), HEAD)
    head["rows"] = count
    head["block_rows"] = BLOCK_ROWS
    head["identity"] = _NO_IDENTITY
    writer = ContainerWriter(out, KIND, major=MAJOR, minor=MINOR, by_ranges=True)
    writer.put("head", head)
    columns = (rows.file_ids, rows.row_groups, rows.offsets)
    offsets = blocks.write_frames(writer, "locs", locator_blocks(columns))
    # At the end, so that one range has all that says where the rows of a cell are.
    if rows.cells is not None:
        writer.put(_CELLS, cell_starts.encode(rows.cells))
    writer.put("loct", offsets)
    return writer.finish()


def open_reader(source: BinaryIO) -> ContainerReader:
    """Return the sections of a rows blob of any version of the format; errors as of `read`."""
    return ContainerReader(source, KIND, majors=(1, MAJOR))


def read(source: BinaryIO, rows: int | None = None, *, identities: bool = True) -> Rows:
    """Return the rows; typed errors for anything not as it should be.

    The result takes 12 bytes a row, and 16 more with identities. Those are backed by bytes of the
    blob, but very few bytes can hold the locators of many rows.

    Args:
        source: the blob.
        rows: how many there must be, by what has the bytes to show for it; any number, if None.
        identities: read them, if the blob has any: earlier releases wrote them there, and they are
            most of it then.
    """
    reader = open_reader(source)
    is_current = reader.major == MAJOR
    head = reader.record("head", HEAD if is_current else rows_v1.HEAD)
    count, block_rows = int(head["rows"]), int(head["block_rows"])
    if not 0 < block_rows <= MAX_BLOCK_ROWS or count >= MAX_ROWS:
        raise BlobFormatError(f"{KIND} blob: {count} rows in blocks of {block_rows}")
    if rows is not None and count != rows:
        raise BlobFormatError(f"{KIND} blob: {count} rows, {rows} by the routing blob")
    identity = int(head["identity"])
    if identity > _NO_IDENTITY:
        raise BlobFormatError(f"{KIND} blob: unknown kind of identity {identity}")
    if identity == _NO_IDENTITY and identities_blob.SECTION in reader:
        raise BlobFormatError(f"{KIND} blob: has identities, and says that it has none")
    read_columns = _read_columns if is_current else rows_v1.read_columns
    columns = read_columns(reader, count, block_rows)
    found = None
    if identity == _HASH and identities:
        found = identities_blob.read_all(reader, count)
    return Rows(
        file_ids=columns[0],
        row_groups=columns[1],
        offsets=columns[2],
        identities=found,
        cells=read_cells(reader, count),
    )


def read_identities(
    reader: ContainerReader, rows: int, ordinals: NDArray[np.int64]
) -> NDArray[np.uint64] | None:
    """Return the hashes of some rows that a blob has itself; None if it has none.

    Errors, arguments and what is returned are as of `identities.read_some`.
    """
    layout = HEAD if reader.major == MAJOR else rows_v1.HEAD
    if int(reader.record("head", layout)["identity"]) != _HASH:
        return None
    return identities_blob.read_some(reader, rows, ordinals)


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


@dataclass(frozen=True, eq=False)
class LocatorBlocks:
    """Where the locators of some rows are, in a blob of which not all is there.

    Attributes:
        count: rows of the blob.
        block_rows: rows of each block but the last.
        offsets: `(blocks + 1,) uint64`, where blocks begin in section `locs`.
    """

    count: int
    block_rows: int
    offsets: NDArray[np.uint64]

    @classmethod
    def of(cls, reader: ContainerReader, rows: int) -> "LocatorBlocks":
        """Read where blocks are; errors as of `read`, which a blob of version 1 raises, too."""
        if reader.major != MAJOR:
            raise BlobFormatError(f"{KIND} blob: version {reader.major} has no order of ordinals")
        head = reader.record("head", HEAD)
        count, block_rows = int(head["rows"]), int(head["block_rows"])
        if not 0 < block_rows <= MAX_BLOCK_ROWS or count != rows:
            raise BlobFormatError(
                f"{KIND} blob: {count} rows in blocks of {block_rows}, not {rows}"
            )
        number = blocks.count(count, block_rows)
        return cls(count, block_rows, blocks.offsets(reader, "locs", "loct", number))

    def range_of(self, start: int, stop: int) -> tuple[int, int]:
        """Return the bytes of section `locs` that have rows `[start, stop)`, at least one."""
        last = -(-stop // self.block_rows)
        return int(self.offsets[start // self.block_rows]), int(self.offsets[last])

    def read(self, reader: ContainerReader, start: int, stop: int) -> Columns:
        """Return file ids, row groups and offsets of rows `[start, stop)`; errors as of `read`."""
        first, last = start // self.block_rows, -(-stop // self.block_rows)
        data = memoryview(reader.read_range("locs", *self.range_of(start, stop)))
        at, parts = int(self.offsets[first]), []
        for block in range(first, last):
            begin, end = int(self.offsets[block]) - at, int(self.offsets[block + 1]) - at
            size = min(self.count - block * self.block_rows, self.block_rows)
            content = blocks.content(
                bytes(data[begin:end]), 3 * MAX_BYTES * size, f"{KIND} blob, block {block}"
            )
            parts.append(_locators(content, size))
        skipped = start - first * self.block_rows
        columns = np.concatenate(parts, axis=1)[:, skipped : skipped + stop - start]
        return tuple(columns)


def _ascending(
    file_ids: NDArray[np.uint32], groups: NDArray[np.uint32], offsets: NDArray[np.uint32]
) -> bool:
    same_file = file_ids[1:] == file_ids[:-1]
    same_group = groups[1:] == groups[:-1]
    later = np.where(same_group, offsets[1:] > offsets[:-1], groups[1:] > groups[:-1])
    return bool(np.where(same_file, later, file_ids[1:] > file_ids[:-1]).all())


def locator_blocks(columns: Sequence[NDArray[np.uint32]]) -> Iterator[memoryview]:
    """Give each block's columns, one after the other: zigzag varints of steps from row to row.

    They begin at 0 in each block. Rows of a cell are near each other in the table, if they are at
    all: files and row groups are mostly runs of zeros, which zstd makes vanish.
    """
    for start in range(0, len(columns[0]), BLOCK_ROWS):
        span = slice(start, start + BLOCK_ROWS)
        values = np.stack([column[span] for column in columns]).astype(np.int64)
        steps: NDArray[np.int64] = np.diff(values, axis=1, prepend=0)
        yield pack_varints(((steps << 1) ^ (steps >> 63)).ravel())


def _read_columns(reader: ContainerReader, count: int, block_rows: int) -> Columns:
    parts = [np.zeros((3, 0), np.uint32)]
    left = count
    limit = 3 * MAX_BYTES * block_rows
    for data in blocks.read(reader, "locs", "loct", blocks.count(count, block_rows), limit):
        size = min(left, block_rows)
        left -= size
        parts.append(_locators(data, size))
    return tuple(np.concatenate(parts, axis=1))


def _locators(data: NDArray[np.uint8], rows: int) -> NDArray[np.uint32]:
    """Return `(3, rows) uint32`, the columns of a block.

    Raises:
        BlobFormatError: the bytes are not those of so many rows.
    """
    values = np.empty((3, rows), np.uint32)
    unpack_steps(data, values, KIND)
    return values
