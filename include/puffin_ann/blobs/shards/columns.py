"""The columns blob: values of columns of the table, kept beside the rows of a shard.

A value is kept together with the locator that its row had when it was read. Data files never change
and file ids are never given twice: so a value is that of its row for as long as the row has this
locator, and says nothing of a row that has another one by now.

Values lie column by column in blocks of rows, each a zstd frame of what Arrow's arrays consist of.
So any block can be read and verified without the rest, and bounds tell which need not be.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np
import zstandard
from numpy.typing import NDArray

from puffin_ann.blobs.encoding import blocks, strings
from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter, Sink
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.shards.rows import LocatorBlocks, locator_blocks
from puffin_ann.blobs.shards.rows_v1 import Columns as LocatorColumns
from puffin_ann.errors import BlobFormatError

KIND = "cols"
TYPE = "puffin-ann-columns-v1"

HEAD = np.dtype([("rows", "<u8"), ("block_rows", "<u4"), ("columns", "<u4")])
COLUMN = np.dtype([("field_id", "<u4"), ("bits", "<u4")])
BLOCK = np.dtype([("nulls", "<u4"), ("nans", "<u4"), ("lower", "<u4"), ("upper", "<u4")])

BLOCK_ROWS = rows_blob.BLOCK_ROWS
MAX_COLUMNS = 256
MAX_BITS = 1 << 16
MAX_BLOCK_BYTES = 64 << 20
"""Bytes of a block's values; a writer leaves out blocks that have more."""
NO_BOUND = (1 << 32) - 1
LEVEL = 3

_OFFSET = np.dtype("<i4")
_ALIGNMENT = 8


@dataclass(frozen=True, eq=False)
class Values:
    """Values of one column of some rows, as Arrow lays them out.

    Attributes:
        valid: (n,) bool, those that are not null.
        data: of fixed width: n values, those of nulls 0, booleans a bit each, the lowest first;
            else the values end to end.
        offsets: (n + 1,) int32, where values of any width begin in `data`; None for others.
    """

    valid: NDArray[np.bool_]
    data: bytes | memoryview
    offsets: NDArray[np.int32] | None = None


@dataclass(frozen=True)
class Bounds:
    """What is told of the values of a block.

    Attributes:
        nulls: how many are null.
        nans: how many are NaN.
        lower, upper: no value but NaN is outside of them, in Iceberg's single-value form; None if
            they are not told.
    """

    nulls: int
    nans: int = 0
    lower: bytes | None = None
    upper: bytes | None = None


@dataclass(frozen=True, eq=False)
class IncludedColumn:
    """A column of a shard's rows.

    Attributes:
        field_id: of the column in the table.
        type: its type then, as Iceberg writes it.
        bits: of a value; 0: values are of any number of bytes.
        blocks: its values, `BLOCK_ROWS` rows each but for the last, with what is told of them; None
            where they are not kept.
    """

    field_id: int
    type: str
    bits: int
    blocks: Sequence[tuple[Values, Bounds] | None]


@dataclass(frozen=True, eq=False)
class ShardColumns:
    """Values of columns of a shard's rows.

    Attributes:
        locators: (3, n) uint32: file ids, row groups and offsets that rows had when their values
            were read, by ordinal; `rows.NOWHERE` as file id where no value is kept.
        columns: each with as many blocks as these rows fill.
    """

    locators: NDArray[np.uint32]
    columns: tuple[IncludedColumn, ...]


def write(values: ShardColumns, out: Sink) -> int:
    """Write the blob and return its length in bytes.

    Raises:
        BlobFormatError: too many columns, or a column of another number of blocks.
    """
    return write_sections(KIND, head_of(HEAD, values), values, out)


def read(source: BinaryIO, rows: int | None = None) -> ShardColumns:
    """Return all values of a blob; see `ColumnsReader`."""
    return ColumnsReader(source, rows).all()


def head_of(layout: np.dtype[np.void], values: ShardColumns) -> NDArray[np.void]:
    """Return a head that begins as `HEAD` does."""
    head = np.zeros((), layout)
    head["rows"], head["block_rows"] = values.locators.shape[1], BLOCK_ROWS
    head["columns"] = len(values.columns)
    return head


def write_sections(
    kind: str,
    head: NDArray[np.void],
    values: ShardColumns,
    out: Sink,
    ordinals: NDArray[np.uint32] | None = None,
) -> int:
    """Write a blob of values, as `write` does, of some ordinals or of all."""
    columns = values.columns
    number = blocks.count(values.locators.shape[1], BLOCK_ROWS)
    if len(columns) > MAX_COLUMNS or any(len(column.blocks) != number for column in columns):
        raise BlobFormatError(f"{kind} blob: {len(columns)} columns, not of {number} blocks each")
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_content_size=True)
    told, bounds, offsets = np.zeros(len(columns) * number, BLOCK), [], [0]
    told["lower"] = told["upper"] = NO_BOUND
    writer = ContainerWriter(out, kind, by_ranges=True)
    writer.put("head", head)
    with writer.section("colv") as sink:
        for place, block in enumerate(block for column in columns for block in column.blocks):
            if block is not None:
                content = _encoded(block[0])
                if len(content) <= MAX_BLOCK_BYTES:
                    sink.write(compressor.compress(content))
                    bounds += _note(told[place : place + 1], block[1])
            offsets.append(sink.length)
    # Behind the values and the locators stands all that says where they are.
    where = blocks.write_frames(writer, "locs", locator_blocks(tuple(values.locators)))
    described = np.zeros(len(columns), COLUMN)
    described["field_id"] = [column.field_id for column in columns]
    described["bits"] = [column.bits for column in columns]
    if ordinals is not None:
        writer.put("ordn", ordinals.astype("<u4", copy=False))
    writer.put("colh", described)
    writer.put("colt", strings.encode(column.type for column in columns))
    writer.put("stat", told)
    writer.put("bnds", b"".join(bounds))
    writer.put("loct", where)
    writer.put("colo", np.array(offsets, blocks.OFFSET))
    return writer.finish()


def _note(told: NDArray[np.void], bounds: Bounds) -> list[bytes]:
    told["nulls"], told["nans"] = bounds.nulls, bounds.nans
    if bounds.lower is None or bounds.upper is None:
        return []
    told["lower"], told["upper"] = len(bounds.lower), len(bounds.upper)
    return [bounds.lower, bounds.upper]


def _encoded(values: Values) -> bytes:
    parts = [_padded(np.packbits(values.valid, bitorder="little").tobytes())]
    if values.offsets is not None:
        parts.append(_padded(values.offsets.astype(_OFFSET, copy=False).tobytes()))
    return b"".join([*parts, bytes(values.data)])


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)


@dataclass(frozen=True)
class KeptColumn:
    """What a blob says of a column: field id, Iceberg's type, and bits of a value, 0 for any."""

    field_id: int
    type: str
    bits: int


class ColumnsReader:
    """Reads values of some rows from a blob, of which not all need be there; for one thread.

    Args:
        source: the blob.
        rows: of the shard; None: any number.

    Attributes:
        rows: that have values here.
        columns: that there are.
        block_rows: rows of each block but the last.

    Raises:
        FormatError: the blob is malformed, or not of a shard of so many rows.
    """

    KIND = KIND
    HEAD = HEAD

    def __init__(self, source: BinaryIO, rows: int | None = None) -> None:
        self._reader = reader = ContainerReader(source, self.KIND)
        self.where = f"{self.KIND} blob"
        head = reader.record("head", self.HEAD)
        self.rows, self.block_rows = int(head["rows"]), int(head["block_rows"])
        count = int(head["columns"])
        self._check_rows(rows)
        if not 0 < self.block_rows <= rows_blob.MAX_BLOCK_ROWS or count > MAX_COLUMNS:
            raise BlobFormatError(
                f"{self.where}: {count} columns in blocks of {self.block_rows} rows"
            )
        self.blocks = blocks.count(self.rows, self.block_rows)
        self.columns = self._read_columns(count)
        self._told = reader.array("stat", BLOCK, (count * self.blocks,))
        self._bounds = self._read_bounds()
        self._offsets = reader.array("colo", blocks.OFFSET, (count * self.blocks + 1,))
        self._check_offsets()
        self._locators = LocatorBlocks(
            self.rows, self.block_rows, blocks.offsets(reader, "locs", "loct", self.blocks)
        )

    def _check_rows(self, rows: int | None) -> None:
        if rows is not None and self.rows != rows:
            raise BlobFormatError(f"{self.where}: {self.rows} rows, {rows} by the routing blob")

    def _read_columns(self, count: int) -> tuple[KeptColumn, ...]:
        described = self._reader.array("colh", COLUMN, (count,))
        types = strings.decode(self._reader.read("colt"), f"{self.where}, section colt")
        if len(types) != count or len({*described["field_id"].tolist()}) != count:
            raise BlobFormatError(f"{self.where}: {len(types)} types of {count} different columns")
        if count and int(described["bits"].max()) > MAX_BITS:
            raise BlobFormatError(f"{self.where}: a value of more than {MAX_BITS} bits")
        pairs = zip(described.tolist(), types, strict=True)
        return tuple(KeptColumn(field_id, kind, bits) for (field_id, bits), kind in pairs)

    def _read_bounds(self) -> tuple[bytes, NDArray[np.int64]]:
        """Return all bounds, and where those of each block begin."""
        data = self._reader.read("bnds")
        has = (self._told["lower"] != NO_BOUND) & (self._told["upper"] != NO_BOUND)
        lengths = self._told["lower"].astype(np.int64) + self._told["upper"]
        ends = np.cumsum(np.where(has, lengths, 0))
        if (int(ends[-1]) if len(ends) else 0) != len(data):
            raise BlobFormatError(f"{self.where}: lengths of bounds do not sum up to section bnds")
        return data, ends - np.where(has, lengths, 0)

    def _check_offsets(self) -> None:
        found = self._offsets
        ascends = int(found[0]) == 0 and not np.any(found[1:] < found[:-1])
        if not ascends or int(found[-1]) != self._reader.section_length("colv"):
            raise BlobFormatError(f"{self.where}: offsets of blocks are not those of section colv")

    def rows_of(self, block: int) -> int:
        """Return how many rows a block has."""
        return min(self.rows - block * self.block_rows, self.block_rows)

    def bounds(self, column: int, block: int) -> Bounds | None:
        """Return what is told of a block of a column; None if its values are not kept."""
        place = column * self.blocks + block
        if self._offsets[place] == self._offsets[place + 1]:
            return None
        told = self._told[place]
        nulls, nans, low, high = (int(told[name]) for name in BLOCK.names or ())
        if low == NO_BOUND or high == NO_BOUND:
            return Bounds(nulls, nans)
        start, data = int(self._bounds[1][place]), self._bounds[0]
        return Bounds(
            nulls, nans, data[start : start + low], data[start + low : start + low + high]
        )

    def extent(self, column: int, first: int, last: int) -> tuple[int, int]:
        """Return which bytes of the blob have to be there to read blocks `[first, last)`."""
        place = column * self.blocks
        start, stop = int(self._offsets[place + first]), int(self._offsets[place + last])
        return self._reader.extent("colv", start, stop)

    def locator_extent(self, first: int, last: int) -> tuple[int, int]:
        """Return which bytes of the blob have to be there to read locators of some blocks."""
        rows = first * self.block_rows, min(last * self.block_rows, self.rows)
        return self._reader.extent("locs", *self._locators.range_of(*rows))

    def values(self, column: int, block: int) -> Values:
        """Return the values of a block that are kept.

        Raises:
            FormatError: the bytes are not those written, or not of so many values.
        """
        place = column * self.blocks + block
        start, stop = int(self._offsets[place]), int(self._offsets[place + 1])
        where = f"{self.where}, column {self.columns[column].field_id}, block {block}"
        frame = self._reader.read_range("colv", start, stop)
        content = blocks.content(frame, MAX_BLOCK_BYTES, where)
        return _decoded(content.data, self.rows_of(block), self.columns[column].bits, where)

    def locators(self, block: int) -> LocatorColumns:
        """Return file ids, row groups and offsets that the rows of a block had."""
        start = block * self.block_rows
        return self._locators.read(self._reader, start, start + self.rows_of(block))

    def all(self) -> ShardColumns:
        """Read all values, and hold all of the blob to its checksums; raises as `values` does."""
        self._reader.verify()
        none = np.zeros((3, 0), np.uint32)
        locators = [np.stack(self.locators(block)) for block in range(self.blocks)]
        columns = tuple(
            IncludedColumn(
                column.field_id, column.type, column.bits, tuple(self._blocks_of(number))
            )
            for number, column in enumerate(self.columns)
        )
        return ShardColumns(np.concatenate([none, *locators], axis=1), columns)

    def _blocks_of(self, column: int) -> Iterator[tuple[Values, Bounds] | None]:
        for block in range(self.blocks):
            bounds = self.bounds(column, block)
            if bounds is None:
                yield None
                continue
            values = self.values(column, block)
            yield replace(values, data=bytes(values.data)), bounds


def _decoded(content: memoryview, rows: int, bits: int, where: str) -> Values:
    lengths = [-(-rows // 8)] + ([_OFFSET.itemsize * (rows + 1)] if bits == 0 else [])
    parts, at = [], 0
    for length in lengths:
        parts.append(content[at : at + length])
        at += length + -length % _ALIGNMENT
    data = content[at:]
    if at > len(content) or (bits and len(data) != -(-rows * bits // 8)):
        raise BlobFormatError(f"{where}: {len(content)} bytes are not {rows} values of {bits} bits")
    valid = np.unpackbits(np.frombuffer(parts[0], np.uint8), count=rows, bitorder="little")
    if bits:
        return Values(valid.view(np.bool_), data)
    offsets = np.frombuffer(parts[1], _OFFSET)
    if offsets[0] != 0 or int(offsets[-1]) != len(data) or np.any(offsets[1:] < offsets[:-1]):
        raise BlobFormatError(f"{where}: values do not end where their bytes do")
    return Values(valid.view(np.bool_), data, offsets)
