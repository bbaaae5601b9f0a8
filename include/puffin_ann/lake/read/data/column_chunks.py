"""Read columns of row groups of data files, and keep in memory what was read.

A data file's footer says where the column chunks of its row groups are. Footers that are not known
yet are read at once, one round trip on S3; then the chunks, at once as well. Footers and decoded
chunks are kept, those used longest ago leaving first, up to the setting `columns_max_bytes`.

A data file never changes once it is written. What is kept is known by its table, its location and
its length all the same, so that a file that was replaced by another is not answered from memory.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from puffin_ann.errors import DataFileError, FormatError, PuffinFormatError
from puffin_ann.lake.catalog.scope import scope_of
from puffin_ann.lake.read.errors import reading
from puffin_ann.lake.read.parquet_streams import StreamedParquetFile
from puffin_ann.lake.store.ranges import Range, read_ranges
from puffin_ann.lake.store.sparse_file import SparseFile
from puffin_ann.settings import MIB, settings

FOOTER_BYTES = 64 << 10
"""Read from the end of a file at first. A footer takes some 100 bytes for each column chunk."""

MAGIC = b"PAR1"
TAIL = len(MAGIC) + 4
"""Bytes at the end of a file: the length of its footer, and the format's name."""

DECODED_FOOTER = 8
"""Times its length that a footer takes in memory, at most."""

ROUND_BYTES = 128 * MIB
"""Bytes of column chunks that are read at once, at most, if they are more than one."""

WORTH_A_THREAD = MIB // 4
"""Bytes of column chunks that are decoded by several threads."""


class DataFile(NamedTuple):
    """A data file as the table's metadata tells it.

    Attributes:
        path: its location.
        size: its length in bytes.
    """

    path: str
    size: int


class RowGroup(NamedTuple):
    """A row group of a data file, by its number."""

    file: DataFile
    number: int


Columns = dict[str, pa.ChunkedArray]
"""Decoded column chunks of a row group, by their names in the file."""


@dataclass(frozen=True)
class Footer:
    """What a data file says of itself.

    Attributes:
        metadata: the footer.
        schema: Arrow's schema of the file.
        derived: what others made of it, kept as long as the footer is.
    """

    metadata: pq.FileMetaData
    schema: pa.Schema
    derived: dict[Any, Any] = field(default_factory=dict)

    def rows(self, row_group: int) -> int:
        """Return the number of rows of a row group."""
        return int(self.metadata.row_group(row_group).num_rows)


class Kept:
    """Values in memory, those used longest ago leaving first; any number of threads use it.

    Args:
        most: returns the bytes that all values take at most.
    """

    def __init__(self, most: Callable[[], int]) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._values: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self.bytes = 0

    def get(self, key: Any) -> Any:
        """Return a value, None if it is not there."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: Any, value: Any, size: int) -> None:
        """Keep a value, unless it is larger than all may be together."""
        most = self._most()
        with self._lock:
            self.bytes -= self._values.pop(key, (None, 0))[1]
            if size > most:
                return
            self._values[key] = value, size
            self.bytes += size
            while self.bytes > most:
                self.bytes -= self._values.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._values.clear()
            self.bytes = 0


KEPT = Kept(lambda: settings().columns_max_bytes)
"""What this process keeps."""


class ChunkReader:
    """Reads footers and column chunks of data files of one table.

    Args:
        table: whose FileIO reads the files.

    Attributes:
        bytes_read: of the files, so far; those that were in memory do not count.
    """

    def __init__(self, table: Table) -> None:
        self._io: FileIO = table.io
        self._scope = scope_of(table)
        self._footers: dict[DataFile, Footer] = {}
        self.bytes_read = 0

    def footers(self, files: Sequence[DataFile]) -> list[Footer]:
        """Return the footers of files; those not in memory are read at once.

        Raises:
            DataFileError: a file is not Parquet, or ends too early.
            EnvironmentProblemError: a file is gone, or is not a file.
            StoreUnavailableError: a file's store does not answer.
        """
        missing = []
        for file in dict.fromkeys(files):
            if file in self._footers:
                continue
            kept = KEPT.get(self._key(file))
            if kept is None:
                missing.append(file)
            else:
                self._footers[file] = kept
        if missing:
            self._footers |= zip(missing, self._read_footers(missing), strict=True)
        return [self._footers[file] for file in files]

    def _read_footers(self, files: Sequence[DataFile]) -> list[Footer]:
        ends = self._ends(files, [FOOTER_BYTES] * len(files))
        lengths = [_footer_length(file, end) for file, end in zip(files, ends, strict=True)]
        longer = [at for at, length in enumerate(lengths) if length > len(ends[at])]
        if longer:
            again = self._ends([files[at] for at in longer], [lengths[at] for at in longer])
            for at, end in zip(longer, again, strict=True):
                ends[at] = end
        footers = []
        for file, end, length in zip(files, ends, lengths, strict=True):
            with reading(file.path):
                metadata = pq.read_metadata(pa.BufferReader(end[-length:]))
                footer = Footer(metadata, metadata.schema.to_arrow_schema())
            KEPT.put(self._key(file), footer, DECODED_FOOTER * length)
            footers.append(footer)
        return footers

    def _ends(self, files: Sequence[DataFile], lengths: Sequence[int]) -> list[memoryview]:
        return self._read(
            [
                Range(file.path, max(0, file.size - length), file.size)
                for file, length in zip(files, lengths, strict=True)
            ]
        )

    def columns(
        self, wanted: Sequence[tuple[RowGroup, Sequence[str]]]
    ) -> Iterator[tuple[RowGroup, Columns]]:
        """Give columns of row groups, decoded, in the order asked for.

        What is not in memory is read at once, as far as it is not very much.

        Args:
            wanted: row groups that are there, each once, and the names of top-level columns in
                their files.

        Raises:
            As `footers`.
        """
        round_: list[_Missing] = []
        size = 0
        for group, names in wanted:
            part = self._missing(group, names)
            length = sum(stop - start for start, stop in part.extents)
            if size + length > ROUND_BYTES and round_:
                yield from self._read_round(round_)
                round_, size = [], 0
            round_.append(part)
            size += length
        yield from self._read_round(round_)

    def _missing(self, group: RowGroup, names: Sequence[str]) -> "_Missing":
        there: Columns = {}
        for name in names:
            column = KEPT.get(self._key(group.file, group.number, name))
            if column is not None:
                there[name] = column
        missing = [name for name in names if name not in there]
        if not missing:
            return _Missing(group, there, [], [], None)
        (footer,) = self.footers([group.file])
        extents = _extents(group, footer.metadata, missing)
        return _Missing(group, there, missing, extents, footer.metadata)

    def _read_round(self, parts: Sequence["_Missing"]) -> Iterator[tuple[RowGroup, Columns]]:
        wanted = [Range(part.group.file.path, *extent) for part in parts for extent in part.extents]
        read = iter(self._read(wanted))
        data = [[next(read) for _ in part.extents] for part in parts]
        decoded = _side_by_side(self._decode, parts, data, sum(r.stop - r.start for r in wanted))
        for part, columns in zip(parts, decoded, strict=True):
            yield part.group, part.there | columns

    def _decode(self, part: "_Missing", data: Sequence[memoryview]) -> Columns:
        if not part.names:
            return {}
        file, number = part.group
        chunks = SparseFile(file.size, partial(self._fetch, file))
        for (start, _), content in zip(part.extents, data, strict=True):
            chunks.put(start, content)
        with reading(file.path):
            parquet = StreamedParquetFile(cast(BinaryIO, chunks), part.metadata)
            table = parquet.read_row_group(number, columns=part.names)
        found: Columns = {}
        for name in part.names:
            # A name selects by prefix of the leaf's path, which may take in others ("a", "a.b").
            found[name] = table.column(name)
            size = found[name].get_total_buffer_size()
            KEPT.put(self._key(file, number, name), found[name], size)
        return found

    def _fetch(self, file: DataFile, start: int, stop: int) -> bytes:
        return bytes(self._read([Range(file.path, start, stop)])[0])

    def _read(self, wanted: Sequence[Range]) -> list[memoryview]:
        if not wanted:
            return []
        self.bytes_read += sum(part.stop - part.start for part in wanted)
        return read_ranges(self._io, wanted, naming=_of_a_data_file)

    def _key(self, file: DataFile, *more: int | str) -> tuple[Any, ...]:
        return (self._scope, *file, *more)


class _Missing(NamedTuple):
    """What is there of a row group, and what has to be read of it.

    Attributes:
        group: the row group.
        there: columns in memory.
        names: of the others.
        extents: `[start, stop)` in the file of their column chunks.
        metadata: of the file; None where nothing has to be read.
    """

    group: RowGroup
    there: Columns
    names: list[str]
    extents: list[tuple[int, int]]
    metadata: pq.FileMetaData | None


def _side_by_side(
    decode: Callable[["_Missing", Sequence[memoryview]], Columns],
    parts: Sequence["_Missing"],
    data: Sequence[Sequence[memoryview]],
    length: int,
) -> list[Columns]:
    threads = min(settings().thread_count, sum(bool(part.names) for part in parts))
    if threads < 2 or length < WORTH_A_THREAD:
        return list(map(decode, parts, data))
    with ThreadPoolExecutor(threads, "decode column chunks") as pool:
        return list(pool.map(decode, parts, data))


def _footer_length(file: DataFile, end: memoryview) -> int:
    """Return the bytes of a footer and what follows it, as the file's last bytes say.

    Raises:
        DataFileError: they are no end of a Parquet file of that length.
    """
    if len(end) < TAIL or bytes(end[-len(MAGIC) :]) != MAGIC:
        raise DataFileError(
            f"{file.path} is not a readable Parquet file: its {file.size} bytes by the table's "
            f"metadata do not end in {MAGIC.decode()}"
        )
    length = int.from_bytes(end[-TAIL : -len(MAGIC)], "little") + TAIL
    if length + len(MAGIC) > file.size:
        raise DataFileError(
            f"{file.path} is not a readable Parquet file: a footer of {length} bytes does not fit "
            f"into its {file.size}"
        )
    return length


def _extents(
    group: RowGroup, metadata: pq.FileMetaData, names: Sequence[str]
) -> list[tuple[int, int]]:
    """Return where the chunks of columns are in a file.

    Raises:
        FormatError: there is no such row group.
        DataFileError: a chunk is not within the file.
    """
    file, number = group
    if not 0 <= number < metadata.num_row_groups:
        raise FormatError(f"{file.path} has no row group {number}")
    chunks = metadata.row_group(number)
    beginnings = tuple(f"{name}." for name in names)
    found = []
    for at in range(chunks.num_columns):
        chunk = chunks.column(at)
        path = chunk.path_in_schema
        if path not in names and not path.startswith(beginnings):
            continue
        start, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
        if dictionary:
            start = min(start, dictionary)
        stop = start + chunk.total_compressed_size
        if not 0 <= start <= stop <= file.size:
            raise DataFileError(
                f"{file.path} is not a readable Parquet file: row group {number} has column "
                f"{path!r} at bytes {start} to {stop} of {file.size}"
            )
        found.append((start, stop))
    return found


@contextmanager
def _of_a_data_file(path: str) -> Iterator[None]:
    with reading(path):
        try:
            yield
        except PuffinFormatError as error:
            raise DataFileError(f"{path} is not the file that the table names: {error}") from None
