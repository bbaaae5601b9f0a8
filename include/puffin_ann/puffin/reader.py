"""Read a Puffin file: the footer by one or two range reads, then blobs by range.

Where something else than the footer says what blobs a file has, `BlobReader` does without it.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO

from puffin_ann.errors import OutputLimitError, PuffinFormatError
from puffin_ann.puffin import footer
from puffin_ann.puffin.codecs import codec, pieces
from puffin_ann.puffin.layout import MAGIC
from puffin_ann.puffin.limits import content_limit
from puffin_ann.puffin.metadata import BlobMetadata, FileMetadata
from puffin_ann.puffin.streams import (
    SMALLEST_FETCH,
    RangeSource,
    RangeView,
    ReadableStream,
    WritableStream,
)

LARGEST_GAP = 64 << 10
"""Bytes between two blobs that are read along rather than asking a store once more."""
LARGEST_READ = 64 << 20
"""Bytes of several blobs that are read at a time."""


class BlobReader:
    """Read blobs of a file whose places are known, from a seekable stream; nothing else is read.

    Methods may be called from several threads. The stream stays the caller's to close.

    Args:
        stream: Python binary file, pyarrow `NativeFile`, or anything with `read` and `seek`.
        name: how errors call the file.
        length: of the file in bytes.
    """

    length: int

    def __init__(self, stream: ReadableStream, *, name: str, length: int) -> None:
        self._source = RangeSource(stream, name)
        self._end = b""
        self.name = name
        self.length = length

    def read(self, blob: BlobMetadata, *, limit: int | None = None) -> bytes:
        """Return a blob's content.

        Raises `OutputLimitError` if it is more than `limit` bytes, by default than what a blob that
        is stored in so many bytes may hold (`content_limit`).
        """
        return self.read_all([blob], limit=limit)[0]

    def read_all(self, blobs: Sequence[BlobMetadata], *, limit: int | None = None) -> list[bytes]:
        """Return the contents of blobs, as `read` does, those near each other by one range read.

        What came along with the footer is not read again.
        """
        contents = [b""] * len(blobs)
        for group in _near(blobs):
            start = blobs[group[0]].offset
            length = max(blobs[place].offset + blobs[place].length for place in group) - start
            stored = memoryview(self._range(start, length)) if length <= LARGEST_READ else None
            for place in group:
                blob, data = blobs[place], None
                if stored is not None:
                    data = io.BytesIO(stored[blob.offset - start :][: blob.length])
                contents[place] = _joined(self._content(blob, limit, data))
        return contents

    def _range(self, offset: int, length: int) -> bytes:
        known = offset - (self.length - len(self._end))
        if known >= 0:
            return self._end[known : known + length]
        return self._source.read(offset, length)

    def open(self, blob: BlobMetadata) -> BinaryIO:
        """Return an uncompressed blob as a seekable file, without reading it.

        Raises:
            PuffinFormatError: The blob is compressed; use `extract`.
        """
        if blob.compression_codec is not None:
            raise PuffinFormatError(
                f"{self.name}: blob {blob.type} is compressed ({blob.compression_codec}) "
                "and cannot be read in place"
            )
        return self.open_stored(blob)

    def open_stored(self, blob: BlobMetadata) -> BinaryIO:
        """Return a blob's bytes as they are stored, compressed or not, as a seekable file."""
        return io.BufferedReader(RangeView(self._source, blob.offset, blob.length), SMALLEST_FETCH)

    def extract(self, blob: BlobMetadata, out: WritableStream, *, limit: int | None = None) -> int:
        """Write a blob's content to `out` a piece at a time and return how many bytes it has.

        Raises `OutputLimitError` as `read` does; `out` then holds a part, to be thrown away.
        """
        written = 0
        for piece in self._content(blob, limit):
            out.write(piece)
            written += len(piece)
        return written

    def _content(
        self, blob: BlobMetadata, limit: int | None, stored: BinaryIO | None = None
    ) -> Iterator[bytes]:
        stored = stored or self.open_stored(blob)
        if blob.compression_codec is not None:
            chosen = codec(blob.compression_codec, f"{self.name}: blob {blob.type}")
            most = content_limit(blob.length) if limit is None else limit
            return chosen.decompress(stored, blob.length, most)
        if limit is not None and blob.length > limit:
            raise OutputLimitError(
                f"{self.name}: blob {blob.type} has {blob.length} bytes, the limit is {limit}"
            )
        return pieces(stored, blob.length)


class PuffinReader(BlobReader):
    """Read blobs of a Puffin file from a seekable stream, which stays the caller's to close.

        with table.io.new_input(path).open() as stream:
            reader = PuffinReader(stream, name=path)
            routing = reader.read(reader.find("puffin-ann-routing-v1", index="words")[0])

    The magic at byte 0 is only looked at when the file is so short that the footer's read brings
    it along: Iceberg's own reader does not spend a request on it either. Methods may be called from
    several threads.

    Args:
        stream: Python binary file, pyarrow `NativeFile`, or anything with `read` and `seek`.
        length: length of the file in bytes if known; saves asking the stream.
        footer_size: size of the footer if known (`file-footer-size-in-bytes` of a statistics
            entry), or more; only a hint for how much to read first. Blobs in those bytes are not
            read again.
        name: how errors call the file.

    Raises:
        PuffinFormatError: The footer is broken, or a blob lies outside the space before it.
    """

    metadata: FileMetadata
    footer_size: int

    def __init__(
        self,
        stream: ReadableStream,
        *,
        length: int | None = None,
        footer_size: int | None = None,
        name: str = "<stream>",
    ) -> None:
        super().__init__(stream, name=name, length=0)
        self.length = self._source.length() if length is None else length
        self.metadata, self.footer_size, self._end = footer.read(
            self._source, self.length, footer_size
        )
        _check_ranges(self.metadata, self.length - self.footer_size, name)

    def came_along(self, blob: BlobMetadata) -> bool:
        """Tell whether a blob was read along with the footer."""
        return blob.offset >= self.length - len(self._end)

    def find(self, type: str, **properties: str) -> list[BlobMetadata]:
        """Return the blobs of a type that have all the given properties, in file order."""
        return [
            blob
            for blob in self.metadata.blobs
            if blob.type == type and properties.items() <= dict(blob.properties).items()
        ]

    def only(self, type: str, **properties: str) -> BlobMetadata:
        """Return the one blob of a type that has all the given properties.

        Raises:
            PuffinFormatError: there is none, or more than one.
        """
        found = self.find(type, **properties)
        if len(found) != 1:
            of = "".join(f", {name} {value!r}" for name, value in properties.items())
            raise PuffinFormatError(
                f"{self.name}: expected one blob of type {type}{of}; found {len(found)}"
            )
        return found[0]


def content_of(blob: BlobMetadata, stored: bytes, name: str) -> bytes:
    """Return a blob's content of its bytes as they are stored; raises as `BlobReader.read` does.

    Args:
        blob: says how it is compressed.
        stored: as many bytes as it has.
        name: how errors call its file.
    """
    reader = BlobReader(io.BytesIO(stored), name=name, length=len(stored))
    return reader.read(replace(blob, offset=0))


def _joined(pieces: Iterator[bytes]) -> bytes:
    """Join pieces without holding all of them beside what they are joined to."""
    out = io.BytesIO()
    for piece in pieces:
        out.write(piece)
    return out.getvalue()


def _near(blobs: Sequence[BlobMetadata]) -> Iterator[list[int]]:
    """Give the places of blobs in groups to be read at a time, in file order."""
    ranges = sorted((blob.offset, blob.offset + blob.length, at) for at, blob in enumerate(blobs))
    group: list[int] = []
    first, reached = 0, 0
    for start, stop, place in ranges:
        if group and (start - reached > LARGEST_GAP or stop - first > LARGEST_READ):
            yield group
            group = []
        first = first if group else start
        reached = stop
        group.append(place)
    if group:
        yield group


def _check_ranges(metadata: FileMetadata, end: int, name: str) -> None:
    """Refuse blobs outside `[4, end)` and blobs that share a part of their bytes.

    Two entries may name the very same range: that is one blob under two names, and harmless.
    """
    reached = len(MAGIC)
    for start, stop in sorted({(b.offset, b.offset + b.length) for b in metadata.blobs}):
        if start < reached:
            problem = "overlaps another" if start >= len(MAGIC) else "begins before byte 4"
            raise PuffinFormatError(f"{name}: blob at {start} {problem}")
        if stop > end:
            raise PuffinFormatError(f"{name}: blob at {start} ends at {stop}, in the footer")
        reached = stop
