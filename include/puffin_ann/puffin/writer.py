"""Write a Puffin file to a stream, blob by blob, never holding one in memory."""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal, Self

from puffin_ann.errors import BadInputError
from puffin_ann.puffin import codecs, footer
from puffin_ann.puffin.layout import ALIGNMENT, MAGIC, MAX_JAVA_BLOB
from puffin_ann.puffin.limits import is_within
from puffin_ann.puffin.metadata import BlobMetadata, FileMetadata
from puffin_ann.puffin.reader import BlobReader, PuffinReader
from puffin_ann.puffin.streams import RangeSink, WritableStream

_NO_PROPERTIES: Mapping[str, str] = {}


@dataclass(frozen=True)
class FinishedFile:
    """A file that is written: its length, its footer's size (both bytes) and what it holds."""

    length: int
    footer_size: int
    metadata: FileMetadata


class PuffinWriter:
    """Append blobs to a stream and finish with the footer; the stream stays the caller's to close.

        with PuffinWriter(stream) as writer:
            writer.add("puffin-ann-graph-v1", path, fields=[7], snapshot_id=1, sequence_number=1)
            finished = writer.finish({"created-by": "puffin-ann 0.1.0"})

    The same calls give the same bytes. By default everything written can be read by Iceberg's Java
    code, which knows no LZ4, no compressed footer and no blob of 2 GiB: those must be asked for by
    name (`codec="lz4"`, `compress_footer=True`, `allow_large=True`). A footer of thousands of blobs
    is compressed in any case: every reader would have to take its megabytes first.

    Args:
        stream: takes the file from its first byte on.
        alignment: blobs begin at multiples of so many bytes, with zeros before and behind them;
            with 1 there are none, and the file has the bytes that Iceberg's Java code writes.
    """

    def __init__(self, stream: WritableStream, *, alignment: int = ALIGNMENT) -> None:
        self._stream = stream
        self._alignment = alignment
        self._blobs: list[BlobMetadata] = []
        self._finished = False
        self._position = 0
        self._copied_to: tuple[BlobReader, int] | None = None
        self._write(MAGIC)

    def __enter__(self) -> Self:  # noqa: D105
        return self

    def __exit__(  # noqa: D105
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and not self._finished:
            raise RuntimeError("a Puffin file without its footer cannot be read: call finish()")

    def add(
        self,
        type: str,
        data: bytes | BinaryIO | Path,
        *,
        fields: Sequence[int],
        snapshot_id: int,
        sequence_number: int,
        properties: Mapping[str, str] = _NO_PROPERTIES,
        codec: Literal["zstd", "lz4"] | None = None,
        allow_large: bool = False,
    ) -> BlobMetadata:
        """Append a blob from bytes, a seekable stream (from its position) or a file.

        Args:
            type: blob type name.
            data: the content; streamed, and compressed on the way if `codec` is given.
            fields: Iceberg field ids the blob was computed from.
            snapshot_id: snapshot the blob was computed from, or -1.
            sequence_number: that snapshot's sequence number, or -1.
            properties: free text, for the footer.
            codec: `"zstd"`, or `"lz4"` if no Java reader will ever need the blob. What would shrink
                so far that readers take it for a bomb (`content_limit`) is stored as it is.
            allow_large: accept a stored size of 2 GiB and more, which Java cannot read.

        Raises:
            BadInputError: The stored blob has 2 GiB or more and `allow_large` is not set. The
                stream then holds a part of it: throw the file away.
        """
        with _opened(data) as (source, size):
            if codec is not None and not _may_be_compressed(source, size, codec):
                codec = None
            chunks: Iterable[bytes] = codecs.pieces(source, size)
            if codec is not None:
                chunks = codecs.codec(codec, type).compress(chunks, size)
            elif not allow_large:
                _check_java_can_read(type, size)
            offset, length = self._append(type, chunks, allow_large)
        return self._record(
            BlobMetadata(
                type=type,
                fields=tuple(fields),
                snapshot_id=snapshot_id,
                sequence_number=sequence_number,
                offset=offset,
                length=length,
                compression_codec=codec,
                properties=dict(properties),
            )
        )

    def copy(
        self,
        reader: BlobReader,
        blob: BlobMetadata,
        *,
        properties: Mapping[str, str] | None = None,
        allow_large: bool = False,
    ) -> BlobMetadata:
        """Append a blob of another file byte for byte, compressed as it is there.

        All it says of itself is kept, but for `properties` if given. Nothing is read if the stream
        is a `RangeSink`: it is then told the reader's `name` and the range. The padding behind an
        aligned blob goes along, so that ranges adjoin without a byte between them that a store
        would have to be sent. So they do in files that were written without alignment: what
        adjoined there does so here, wherever that is.
        """
        if not allow_large:
            _check_java_can_read(blob.type, blob.length)
        offset = self._copy_stored(reader, blob)
        return self._record(
            BlobMetadata(
                type=blob.type,
                fields=blob.fields,
                snapshot_id=blob.snapshot_id,
                sequence_number=blob.sequence_number,
                offset=offset,
                length=blob.length,
                compression_codec=blob.compression_codec,
                properties=dict(blob.properties if properties is None else properties),
            )
        )

    def finish(
        self, properties: Mapping[str, str], *, compress_footer: bool | None = None
    ) -> FinishedFile:
        """Write the footer and say what was written; nothing can be added afterwards.

        Args:
            properties: of the file.
            compress_footer: default: if it has thousands of blobs, which few could read at once.
        """
        self._check_open()
        if self._blobs:
            self._align()
        metadata = FileMetadata(tuple(self._blobs), dict(properties))
        end = footer.encode(metadata, compress=compress_footer)
        self._write(end)
        self._finished = True
        return FinishedFile(self._position, len(end), metadata)

    def _append(self, type: str, chunks: Iterable[bytes], allow_large: bool) -> tuple[int, int]:
        self._check_open()
        self._align()
        start = self._position
        for chunk in chunks:
            self._write(chunk)
            if not allow_large:
                _check_java_can_read(type, self._position - start)
        return start, self._position - start

    def _copy_stored(self, reader: BlobReader, blob: BlobMetadata) -> int:
        self._check_open()
        is_aligned = blob.offset % self._alignment == 0
        if is_aligned or self._copied_to != (reader, blob.offset):
            self._align()
        start, stop = self._position, blob.offset + blob.length
        if isinstance(self._stream, RangeSink):
            taken = blob.length + (_padding(reader, stop, self._alignment) if is_aligned else 0)
            self._stream.write_range(reader.name, blob.offset, taken)
            self._position += taken
        else:
            for piece in codecs.pieces(reader.open_stored(blob), blob.length):
                self._write(piece)
        self._copied_to = reader, stop
        return start

    def _record(self, blob: BlobMetadata) -> BlobMetadata:
        self._blobs.append(blob)
        return blob

    def _align(self) -> None:
        self._write(bytes(-self._position % self._alignment))

    def _write(self, data: bytes) -> None:
        if data:
            self._copied_to = None
            self._stream.write(data)
            self._position += len(data)

    def _check_open(self) -> None:
        if self._finished:
            raise RuntimeError("this Puffin file is finished")


def _padding(reader: BlobReader, stop: int, alignment: int) -> int:
    """Return the bytes up to the next multiple if nothing stands there; else, or at one, 0.

    Of a file whose footer was not read that is not known.
    """
    if not isinstance(reader, PuffinReader):
        return 0
    padding = -stop % alignment
    free = reader.metadata.next_offset(stop, reader.length - reader.footer_size) - stop
    return padding if padding <= free else 0


@contextmanager
def _opened(data: bytes | BinaryIO | Path) -> Iterator[tuple[BinaryIO, int]]:
    """Give the content as a stream with its size in bytes, known before the first is read."""
    if isinstance(data, bytes | bytearray | memoryview):
        yield io.BytesIO(data), len(data)
    elif isinstance(data, Path):
        with data.open("rb") as source:
            yield source, data.stat().st_size
    else:
        start = data.tell()
        size = data.seek(0, io.SEEK_END) - start
        data.seek(start)
        yield data, size


def _may_be_compressed(source: BinaryIO, size: int, codec: str) -> bool:
    """Tell whether readers will unpack it; of small content they unpack any."""
    if is_within(size, stored=0):
        return True
    start = source.tell()
    compress = codecs.codec(codec, "blob").compress
    stored = sum(map(len, compress(codecs.pieces(source, size), size)))
    source.seek(start)
    return is_within(size, stored)


def _check_java_can_read(type: str, length: int) -> None:
    if length > MAX_JAVA_BLOB:
        raise BadInputError(
            f"blob {type} has {length} bytes or more; Iceberg's Java reader takes at most "
            f"{MAX_JAVA_BLOB} (allow_large=True writes it all the same; more shards avoid it)"
        )
