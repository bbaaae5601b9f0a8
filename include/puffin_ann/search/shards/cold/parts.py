"""What a search by ranges reads of a shard: first where its rows are, then the rows of some cells.

Every range is verified alone, by the checksums of its blocks, and all of a shard is held to what
the version's small blobs say of it, as it is where a shard is read whole.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from puffin_ann.blobs.encoding import block_sums, metrics, stored_vectors
from puffin_ann.blobs.encoding.container import ContainerReader, fingerprint
from puffin_ann.blobs.encoding.container_layout import MAX_SECTIONS, SECTION, TRAILER
from puffin_ann.blobs.encoding.stored_vectors import ERRORS, NUMBER_BYTES, SCALES, VECTORS
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.shards.cells import CellStarts
from puffin_ann.blobs.shards.rows import LocatorBlocks, Rows
from puffin_ann.blobs.version import tombstones as tombstones_blob
from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.errors import BlobFormatError, ChecksumError, FormatError, PuffinFormatError
from puffin_ann.lake.store.ranges import Range
from puffin_ann.lake.store.sparse_file import SparseFile
from puffin_ann.puffin.reader import content_of
from puffin_ann.search.shards.emptied import left_of_cells
from puffin_ann.search.shards.opening.blobs import engine_of, least_bytes
from puffin_ann.search.version.consistency import check_cells, check_once, check_places
from puffin_ann.search.version.index_files import BlobPlace, VersionFiles
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.row_locators import Locators, are_among

HEAD = np.dtype([("rows", "<u8"), ("dimension", "<u4"), ("metric", "<u4")])
"""What the head of every engine's blob begins with."""

LOCATORS = "locs"
LEADING_BYTES = 256
"""Bytes from the start of a blob that have its header and its head."""
WHOLE_BYTES = 64 << 10
"""A blob of no more is read whole."""

Runs = Sequence[tuple[int, int, int]]
"""Of each run of rows its cell, -1 if it has none of its own, its first ordinal and the one behind
its last; ascending."""

Read = Callable[[Sequence[Range]], Sequence[memoryview]]
"""Reads ranges at once."""

First = Mapping[str, Sequence[tuple[int, memoryview]]]
"""By type of blob, where in it what was read of it begins, and that."""


@dataclass(frozen=True)
class ShardParts:
    """Where the blobs of a shard are, of which nothing is read yet.

    Attributes:
        entry: what the routing blob says of the shard.
        engine, rows: its blobs.
        tombstones: None if it has no such blob.
    """

    entry: ShardEntry
    engine: BlobPlace
    rows: BlobPlace
    tombstones: BlobPlace | None

    @classmethod
    def of(cls, files: VersionFiles, version: IndexVersion, entry: ShardEntry) -> "ShardParts":
        """Find the blobs of a shard; no file is opened whose blobs the version names.

        Raises:
            PuffinFormatError: one is missing or there twice, or too short for the shard's rows, or
                compressed where it is to be read in place.
        """
        number, file = entry.shard_id, entry.file
        found = {
            kind: files.places(types, number, file)
            for kind, types in (
                ("engine", engine_of(version, entry).blob_type),
                ("rows", rows_blob.TYPES),
                ("tombstones", tombstones_blob.TYPE),
            )
        }
        where = f"{file or version.path}: shard {number} of index {version.index!r}"
        for kind, places in found.items():
            if len(places) != 1 and (kind != "tombstones" or places):
                raise PuffinFormatError(f"{where}: {len(places)} {kind} blobs")
        (engine,), (rows,) = found["engine"], found["rows"]
        tombstones = found["tombstones"][0] if found["tombstones"] else None
        for place in (engine, rows):
            if place.metadata.compression_codec is not None:
                raise PuffinFormatError(
                    f"{where}: blob {place.metadata.type} is compressed, and is to be read in place"
                )
        needed = least_bytes(version, entry)
        if needed > engine.metadata.length:
            raise PuffinFormatError(
                f"{where} has {engine.metadata.length} bytes; {entry.rows} rows by the routing "
                f"blob need {needed}"
            )
        return cls(entry, engine, rows, tombstones)

    def first(
        self, cells: int, leading: int = LEADING_BYTES
    ) -> Iterator[tuple[BlobPlace, int, int]]:
        """Give what is read of each blob to know where its rows are: `[start, stop)` of it.

        Args:
            cells: of the index; no shard has its rows in many more runs.
            leading: bytes of the engine's blob that are read from its start.
        """
        blocks = -(-self.entry.rows // rows_blob.BLOCK_ROWS) + 1
        for place, tail, begin in (
            (self.engine, 0, leading),
            (self.rows, 8 * blocks + 16 * cells, LEADING_BYTES),
        ):
            length = place.metadata.length
            sums = block_sums.CHECKSUM.itemsize * block_sums.count_of(length) + 1024
            tail += sums + MAX_SECTIONS * SECTION.itemsize + TRAILER.itemsize
            if length <= max(WHOLE_BYTES, begin + tail):
                yield place, 0, length
            else:
                yield place, 0, begin
                yield place, length - tail, length
        if self.tombstones is not None:
            yield self.tombstones, 0, self.tombstones.metadata.length


class OpenShard:
    """A shard of which it is known where the rows of its cells are.

    Args:
        version: of the index.
        cells: of the version.
        parts: of the shard.
        first: what was read of each blob, as the parts say.
        read: reads whatever else is needed.

    Raises:
        FormatError: a blob is not sound, or says what another contradicts.
    """

    def __init__(
        self,
        version: IndexVersion,
        cells: Partitions,
        parts: ShardParts,
        first: First,
        read: Read,
    ) -> None:
        self._version, self._parts, self._read = version, parts, read
        self._lock = threading.Lock()  # the blobs are read as files are, at one place
        self.entry = parts.entry
        self._where = f"{version.file_of(parts.entry)}: shard {parts.entry.shard_id}"
        with self._naming():
            self._engine = self._opened(parts.engine, first, read)
            self._rows = self._opened(parts.rows, first, read)
            engine = ContainerReader(_file(self._engine), _kind(parts.engine))
            self._engine_reader = engine
            self._check_head(engine)
            self._rows_reader = rows_blob.open_reader(_file(self._rows))
            # Read now: threads that ask what to read do so at once, and without the lock.
            _ = engine.block_sums, self._rows_reader.block_sums
            self._blocks = LocatorBlocks.of(self._rows_reader, self.entry.rows)
            self._find_rows(cells)
            self._deleted = self._tombstones(first)

    def _find_rows(self, cells: Partitions) -> None:
        """Learn where the rows are that queries are compared with."""
        starts = rows_blob.read_cells(self._rows_reader, self.entry.rows)
        if starts is None or starts.ordered_rows != self.entry.rows:
            raise WholeShardError(f"{self._where}: not all rows are in the order of cells")
        self.starts: CellStarts = starts
        check_cells(self._where, cells.shards, self.entry, self.starts)

    def note_left(self, cells: Partitions, left: NDArray[np.float32]) -> None:
        """Write the share of rows without a tombstone that the shard's cells have, (c,) float32."""
        owned = np.flatnonzero(cells.shards == self.entry.shard_id)
        if len(owned):
            gone = np.diff(np.searchsorted(self._deleted, self.starts.starts))
            left[owned] = left_of_cells(cells, owned, self.starts, gone)

    def runs(self, wanted: NDArray[np.bool_]) -> list[tuple[int, int, int]]:
        """Return cell, first ordinal and the one behind the last, of cells marked in (c,) bool."""
        chosen = np.flatnonzero(wanted[self.starts.cells])
        bounds = self.starts.starts
        return [(int(self.starts.cells[at]), int(bounds[at]), int(bounds[at + 1])) for at in chosen]

    def ranges(self, runs: Runs) -> list[Range]:
        """Return what has to be read for some runs of rows."""
        with self._naming():
            return [part for _, start, stop in runs for _, part in self._of_run(start, stop)]

    def _of_run(self, start: int, stop: int) -> Iterator[tuple[SparseFile, Range]]:
        """Give what has to be read for a run of rows, and of which blob."""
        for kind, row_bytes in self._row_bytes.items():
            extent = self._engine_reader.extent(kind, start * row_bytes, stop * row_bytes)
            yield self._engine, self._parts.engine.range(*extent)
        extent = self._rows_reader.extent(LOCATORS, *self._blocks.range_of(start, stop))
        yield self._rows, self._parts.rows.range(*extent)

    def rows(self, runs: Runs, data: Sequence[memoryview]) -> "SomeRows":
        """Return the rows of some runs.

        Args:
            runs: at least one.
            data: of the ranges for them, in that order.

        Raises:
            FormatError: a range is not what was written, or contradicts the small blobs.
        """
        with self._lock, self._naming():
            put = self._put(runs, data)
            try:
                vectors, errors = self._vectors(runs)
                columns = np.concatenate(
                    [self._blocks.read(self._rows_reader, a, b) for _, a, b in runs], axis=1
                )
            finally:
                for blob, start in put:
                    blob.drop(start)
        ordinals = np.concatenate([np.arange(start, stop) for _, start, stop in runs])
        locators = Locators.of(Rows(*columns))
        deleted = are_among(self._deleted, ordinals)
        covered = self._version.covered
        check_places(self._where, covered, locators, deleted, ordinals)
        check_once(self._where, covered, locators, ~deleted)
        sizes = [stop - start for _, start, stop in runs]
        cells = np.repeat(np.array([cell for cell, _, _ in runs], np.int64), sizes)
        return SomeRows(cells, vectors, errors, locators, deleted, ordinals)

    def _put(self, runs: Runs, data: Sequence[memoryview]) -> list[tuple[SparseFile, int]]:
        """Add what was read to the blobs; return where each part begins."""
        begins = {
            self._engine: self._parts.engine.metadata.offset,
            self._rows: self._parts.rows.metadata.offset,
        }
        wanted = [part for _, start, stop in runs for part in self._of_run(start, stop)]
        put = []
        for (blob, part), content in zip(wanted, data, strict=True):
            put.append((blob, part.start - begins[blob]))
            blob.put(put[-1][1], content)
        return put

    def _vectors(self, runs: Runs) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """Return the vectors of runs of rows as they are stored, and by how much they err."""
        if self._form == "none":
            return np.empty((sum(b - a for _, a, b in runs), 0), np.float32), None
        reader, columns = self._engine_reader, {}
        for kind, row_bytes in self._row_bytes.items():
            parts = [reader.read_range(kind, a * row_bytes, b * row_bytes) for _, a, b in runs]
            columns[kind] = b"".join(parts)
        errors, scales = (
            stored_vectors.bounds(columns[kind], kind, reader.kind) if kind in columns else None
            for kind in (ERRORS, SCALES)
        )
        flat = stored_vectors.floats(columns[VECTORS], self._form, self._dimension, scales)
        if not np.isfinite(flat).all():
            raise BlobFormatError(f"{reader.kind} blob: a vector is not finite")
        return flat.reshape(-1, self._dimension), errors

    def _opened(self, place: BlobPlace, first: First, read: Read) -> SparseFile:
        fetch = partial(_fetch, place, read)
        blob = SparseFile(place.metadata.length, fetch)
        for start, data in first[place.metadata.type]:
            blob.put(start, data)
        if place.digest and fingerprint(_file(blob)) != place.digest:
            raise ChecksumError(
                f"{place.path}: blob {place.metadata.type} at {place.metadata.offset} is not the "
                "one that the index names"
            )
        return blob

    def _check_head(self, reader: ContainerReader) -> None:
        routing = self._version.routing
        head = reader.record("head", HEAD)
        has = int(head["rows"]), int(head["dimension"]), int(head["metric"])
        if has != (self.entry.rows, routing.dimension, metrics.code(routing.metric)):
            raise BlobFormatError(
                f"{reader.kind} blob: {has[0]} rows of {has[1]} dimensions; {self.entry.rows} of "
                f"{routing.dimension} for {routing.metric} by the routing blob"
            )
        # A shard may have its vectors as they are, whatever the form of its index.
        self._form = routing.vectors if stored_vectors.TOLD in reader else "float32"
        self._dimension = routing.dimension
        stored_vectors.expect(reader, self._form, self.entry.rows, routing.dimension)
        vectors = {VECTORS: NUMBER_BYTES[self._form] * routing.dimension}
        beside = {kind: 4 for kind in (ERRORS, SCALES) if kind in reader}
        self._row_bytes = {} if self._form == "none" else vectors | beside

    def _tombstones(self, first: First) -> NDArray[np.int64]:
        added = self._version.added_to(self.entry)
        found = BitMap(added)
        place = self._parts.tombstones
        if place is not None:
            ((_, stored),) = first[place.metadata.type]
            named = self.entry.tombstones - len(added)
            data = content_of(place.metadata, bytes(stored), place.path)
            found |= tombstones_blob.decode(data, self.entry.rows, named)
        if len(found) != self.entry.tombstones:
            raise BlobFormatError(
                f"{self._where} has {len(found)} tombstones, {self.entry.tombstones} by the "
                "routing blob"
            )
        return np.asarray(found.to_array(), np.int64)

    def _naming(self) -> "_Naming":
        return _Naming(self._where)


class WholeShardError(Exception):
    """A shard can only be searched whole: not by ranges."""


@dataclass(frozen=True, eq=False)
class SomeRows:
    """Rows of some cells of a shard.

    Attributes:
        cells: (m,) int64, of each.
        vectors: (m, d) float32, as stored; (m, 0) where none are.
        errors: (m,) float32, bounds of how far the table's are from those; None where they are the
            table's.
        locators: of them, by their places here.
        deleted: (m,) bool, those with a tombstone.
        ordinals: (m,) int64, in the shard.
    """

    cells: NDArray[np.int64]
    vectors: NDArray[np.float32]
    errors: NDArray[np.float32] | None
    locators: Locators
    deleted: NDArray[np.bool_]
    ordinals: NDArray[np.int64]

    def take(self, places: NDArray[np.int64]) -> "SomeRows":
        """Return some of them, (m,) int64, by their places here."""
        return SomeRows(
            self.cells[places],
            self.vectors[places],
            None if self.errors is None else self.errors[places],
            self.locators.take(places),
            self.deleted[places],
            self.ordinals[places],
        )


class _Naming:
    """Names the shard in what goes wrong."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None: ...

    def __exit__(self, _type: object, error: Any, _trace: object) -> None:
        if isinstance(error, FormatError) and not str(error).startswith(self._where):
            raise type(error)(f"{self._where}: {error}") from None


def _fetch(place: BlobPlace, read: Read, start: int, stop: int) -> bytes:
    return bytes(read([place.range(start, stop)])[0])


def _file(blob: SparseFile) -> BinaryIO:
    return cast(BinaryIO, blob)


def _kind(place: BlobPlace) -> str:
    return _KINDS[place.metadata.type]


def _kinds() -> dict[str, str]:
    from puffin_ann.blobs.shards import delta, graph, hnsw, ivf

    return {module.TYPE: module.KIND for module in (delta, graph, hnsw, ivf)}


_KINDS = _kinds()
