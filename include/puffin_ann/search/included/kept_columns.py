"""The blobs of a version that keep values of columns: opened at once, and read by ranges."""

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, NamedTuple, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.io import FileIO
from pyiceberg.types import NestedField

from puffin_ann.blobs.changes import column_changes as column_changes_blob
from puffin_ann.blobs.changes.column_changes import ColumnChangesReader
from puffin_ann.blobs.encoding.container import fingerprint
from puffin_ann.blobs.shards import columns as columns_blob
from puffin_ann.blobs.shards.columns import ColumnsReader
from puffin_ann.blobs.shards.rows import NOWHERE
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.errors import ChecksumError, FormatError, ObjectMissingError, PuffinFormatError
from puffin_ann.lake.read.data.column_chunks import KEPT
from puffin_ann.lake.store.ranges import Range, read_ranges
from puffin_ann.lake.store.sparse_file import SparseFile
from puffin_ann.search.included.arrow_values import arrow_values
from puffin_ann.search.version.index_files import BlobPlace
from puffin_ann.search.version.index_version import IndexVersion

READERS: Mapping[str, type[ColumnsReader]] = {
    column_changes_blob.TYPE: ColumnChangesReader,
    columns_blob.TYPE: ColumnsReader,
}
"""By type of blob; of changes first, which are newer."""

WHOLE_BYTES = 64 << 10
"""A blob of no more is read whole."""
LEADING_BYTES = 256
"""Bytes from the start of a blob that have its header and its head."""
TAIL_SHARE = 64
"""The end of a blob says where its values are: less than this part of it, and 64 KiB."""

log = logging.getLogger("puffin_ann")


class Wanted(NamedTuple):
    """A block of a column of a blob, or of the locators of its rows.

    Attributes:
        column: number of the column in the blob; -1: the locators.
        block: number of the block.
        field: the column as it is wanted; None for the locators.
    """

    column: int
    block: int
    field: NestedField | None


LOCATORS = -1


def locators_at(block: int) -> Wanted:
    """Return what asks for the locators of a block."""
    return Wanted(LOCATORS, block, None)


@dataclass(eq=False)
class KeptBlob:
    """A blob of values of a shard's rows, of which only what is asked for is read.

    Attributes:
        shard_id: of the shard.
        place: where the blob is.
        reader: of it.
        file: what was read of it.
        lock: held by who reads it: it is read as a file is, at one place.
    """

    shard_id: int
    place: BlobPlace
    reader: ColumnsReader
    file: SparseFile
    lock: threading.Lock = field(default_factory=threading.Lock)

    def key(self, wanted: Wanted) -> tuple[object, ...]:
        """Tell a block from all others; no file is written again."""
        metadata = self.place.metadata
        kind = () if wanted.field is None else (wanted.field.field_id, str(wanted.field.field_type))
        return (self.place.path, metadata.offset, metadata.length, wanted.block, *kind)

    def column_of(self, wanted: NestedField) -> int | None:
        """Return the number of a column; None if it is not kept."""
        ids = [column.field_id for column in self.reader.columns]
        return ids.index(wanted.field_id) if wanted.field_id in ids else None

    def rows_of(self, ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (n,) int64, the number of each of a shard's rows in the blob; -1: not there."""
        if not isinstance(self.reader, ColumnChangesReader):
            return ordinals
        named = self.reader.ordinals
        if not len(named):
            return np.full(len(ordinals), -1, np.int64)
        at = np.searchsorted(named, ordinals).clip(max=len(named) - 1)
        return np.where(named[at] == ordinals, at, -1)


class KeptColumns:
    """Values that a version keeps of its rows; any number of threads use it.

    What cannot be read, or is damaged, is not kept: the table has it. Damage is told.

    Args:
        io: reads the files.
        version: of the index.

    Attributes:
        damage: what is damaged, one sentence each.
        bytes_read: of the files, so far.
    """

    def __init__(self, io: FileIO, version: IndexVersion) -> None:
        self._io, self._version = io, version
        self._lock = threading.Lock()
        self._opened: dict[int, list[KeptBlob]] | None = None
        self.damage: list[str] = []
        self.bytes_read = 0

    @property
    def blobs(self) -> Mapping[int, Sequence[KeptBlob]]:
        """By shard, its blobs, the newest first; they are opened when first asked for.

        Raises:
            StoreUnavailableError: a file's store does not say.
        """
        with self._lock:
            if self._opened is None:
                self._opened = self._open_all()
            return self._opened

    def _open_all(self) -> dict[int, list[KeptBlob]]:
        places: list[tuple[ShardEntry, BlobPlace]] = []
        with self._version.files(self._io) as files, self._telling():
            # Of all blobs at once: an index may have very many, and none of these types.
            found: dict[tuple[str, str | None], BlobPlace] = {}
            for place in files.every_place(self._version.staged):
                if place.metadata.type in READERS:
                    shard_id = place.metadata.properties.get("shard")
                    found.setdefault((place.metadata.type, shard_id), place)
            for shard in self._version.routing.shards if found else ():
                keys = ((kind, str(shard.shard_id)) for kind in READERS)
                places += [(shard, found[key]) for key in keys if key in found]
        first = [_first(place) for _, place in places]
        read: Iterator[memoryview] = iter(())
        with self._telling():
            read = iter(self._read([part for parts in first for _, part in parts]))
        opened: dict[int, list[KeptBlob]] = {}
        for (shard, place), parts in zip(places, first, strict=True):
            data = [(start, next(read, None)) for start, _ in parts]
            if any(content is None for _, content in data):
                break
            with self._telling(place):
                blob = self._open(shard, place, data)
                opened.setdefault(shard.shard_id, []).append(blob)
        return opened

    def _open(
        self,
        shard: ShardEntry,
        place: BlobPlace,
        data: Sequence[tuple[int, memoryview | None]],
    ) -> KeptBlob:
        metadata = place.metadata
        if metadata.compression_codec is not None:
            raise PuffinFormatError(
                f"blob {metadata.type} is compressed, and is to be read in place"
            )
        file = SparseFile(metadata.length, partial(self._fetch, place))
        for start, content in data:
            if content is not None:
                file.put(start, content)
        stream = cast(BinaryIO, file)
        if place.digest and fingerprint(stream) != place.digest:
            raise ChecksumError(f"blob {metadata.type} is not the one that the index names")
        return KeptBlob(shard.shard_id, place, READERS[metadata.type](stream, shard.rows), file)

    @contextmanager
    def reading(self, wanted: Iterable[tuple[KeptBlob, Sequence[Wanted]]]) -> Iterator[None]:
        """Have blocks at hand in the body: those that are not in memory are read at once.

        What cannot be read is read again, and told of, when it is asked for.
        """
        ranges: list[Range] = []
        targets: list[tuple[KeptBlob, int]] = []
        for blob, blocks in wanted:
            missing = [block for block in blocks if KEPT.get(blob.key(block)) is None]
            with blob.lock, self._telling(blob.place):
                for start, stop in _extents(blob.reader, missing):
                    ranges.append(blob.place.range(start, stop))
                    targets.append((blob, start))
        with self._telling():
            for (blob, start), content in zip(targets, self._read(ranges), strict=True):
                with blob.lock:
                    blob.file.put(start, content)
        try:
            yield
        finally:
            for blob, start in targets:
                with blob.lock:
                    blob.file.drop(start)

    def are_at_hand(self, blob: KeptBlob, wanted: Iterable[Wanted]) -> bool:
        """Tell whether blocks of a blob are in memory, so that none is read."""
        return all(KEPT.get(blob.key(one)) is not None for one in wanted)

    def values(self, blob: KeptBlob, wanted: Wanted) -> pa.Array | None:
        """Return the values of a block in the type that the column has by now; None: not kept."""
        key, kind = blob.key(wanted), wanted.field
        found = KEPT.get(key)
        if found is None and kind is not None:
            with self._telling(blob.place), blob.lock:
                if blob.reader.bounds(wanted.column, wanted.block) is not None:
                    values = blob.reader.values(wanted.column, wanted.block)
                    kept = blob.reader.columns[wanted.column]
                    found = arrow_values(kept, values, kind.field_type)
            if found is not None:
                KEPT.put(key, found, found.get_total_buffer_size())
        return found

    def locators(self, blob: KeptBlob, block: int) -> NDArray[np.uint32] | None:
        """Return (3, n) uint32, file ids, row groups and offsets of a block; None: not kept."""
        key = blob.key(locators_at(block))
        found: NDArray[np.uint32] | None = KEPT.get(key)
        if found is None:
            with self._telling(blob.place), blob.lock:
                found = np.stack(blob.reader.locators(block))
                KEPT.put(key, found, found.nbytes)
        return found

    def _fetch(self, place: BlobPlace, start: int, stop: int) -> bytes:
        return bytes(self._read([place.range(start, stop)])[0])

    def _read(self, wanted: Sequence[Range]) -> list[memoryview]:
        if not wanted:
            return []
        self.bytes_read += sum(part.stop - part.start for part in wanted)
        return read_ranges(self._io, wanted)

    @contextmanager
    def _telling(self, place: BlobPlace | None = None) -> Iterator[None]:
        """Take what is damaged for not kept, and tell of it."""
        try:
            yield
        except (FormatError, ObjectMissingError) as error:
            where = "" if place is None else f"{place.path}: "
            said = str(error) if str(error).startswith(where) else f"{where}{error}"
            if said not in self.damage:
                log.error("values of columns of index %s: %s", self._version.index, said)
                self.damage.append(said)


def numbers_of(version: IndexVersion, locators: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return (n,) int64, rows numbered through all covered files as `CoveredRows` does; -1: none.

    Args:
        version: of the index.
        locators: (3, n) uint32; files may be covered no more.
    """
    covered = version.covered
    files, groups, offsets = locators.astype(np.int64)
    if not len(covered.file_ids):
        return np.full(len(files), -1, np.int64)
    at = np.searchsorted(covered.file_ids, files).clip(max=len(covered.file_ids) - 1)
    there = (covered.file_ids[at] == files) & (files != NOWHERE) & (groups < covered.groups[at])
    number = np.where(there, covered.first_group[at] + groups, 0)
    if not len(covered.group_rows):
        return np.full(len(files), -1, np.int64)
    there &= offsets < covered.group_rows[number]
    return np.where(there, covered.group_starts[number] + offsets, -1)


def _first(place: BlobPlace) -> list[tuple[int, Range]]:
    """Return what is read of a blob to know where its values are: where it begins, and that."""
    length = place.metadata.length
    tail = min(length, WHOLE_BYTES + length // TAIL_SHARE)
    if length <= tail + LEADING_BYTES:
        return [(0, place.range(0, length))]
    return [
        (0, place.range(0, LEADING_BYTES)),
        (length - tail, place.range(length - tail, length)),
    ]


def _extents(reader: ColumnsReader, blocks: Sequence[Wanted]) -> list[tuple[int, int]]:
    """Return the bytes of blocks; those of adjoining ones are one range."""
    found: list[tuple[int, int]] = []
    first = last = None
    for wanted in sorted(blocks, key=lambda block: block[:2]):
        if first is not None and last is not None:
            if wanted.column == last.column and wanted.block == last.block + 1:
                last = wanted
                continue
            found.append(_extent(reader, first, last))
        first = last = wanted
    if first is not None and last is not None:
        found.append(_extent(reader, first, last))
    return [(start, stop) for start, stop in found if stop > start]


def _extent(reader: ColumnsReader, first: Wanted, last: Wanted) -> tuple[int, int]:
    if first.column == LOCATORS:
        return reader.locator_extent(first.block, last.block + 1)
    return reader.extent(first.column, first.block, last.block + 1)
