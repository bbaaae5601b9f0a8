"""The container all our blobs share: header, sections, section table, trailer.

The table is at the end, so a blob is written without seeking back and without knowing a
section's length before its last byte. Sections of unknown kind are skipped; an unknown major
version is refused. Layout and rules: `docs/format.md`, "Container".
"""

import hashlib
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from puffin_ann.errors import BlobFormatError, ChecksumError, UnsupportedVersionError

MAGIC = b"PANN"
MAJOR = 1
MINOR = 0

HEADER = np.dtype(
    [("magic", "S4"), ("kind", "S4"), ("major", "<u2"), ("minor", "<u2"), ("reserved", "<u4")]
)
SECTION = np.dtype(
    [
        ("kind", "S4"),
        ("reserved", "<u4"),
        ("offset", "<u8"),
        ("length", "<u8"),
        ("checksum", "<u4"),
        ("reserved_2", "<u4"),
    ]
)
TRAILER = np.dtype(
    [
        ("table_offset", "<u8"),
        ("blob_length", "<u8"),
        ("sections", "<u4"),
        ("checksum", "<u4"),
        ("reserved", "<u4"),
        ("magic", "S4"),
    ]
)

ALIGNMENT = 8
MAX_SECTIONS = 256
CHUNK = 1 << 20

_CHECKED_TRAILER = 20
"""Bytes of the trailer that its checksum covers: everything before the checksum itself."""


class Sink(Protocol):
    """Anything that takes bytes in order."""

    def write(self, data: Any, /) -> Any: ...  # noqa: D102


@dataclass(frozen=True)
class Section:
    """Where a section lies (bytes from the blob's start) and the CRC-32 of its bytes."""

    kind: str
    offset: int
    length: int
    checksum: int


def as_bytes(array: NDArray[Any]) -> memoryview:
    """Return the bytes of an array in C order, little-endian dtypes being the caller's duty."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class _SectionSink:
    """Counts and checksums what goes through it."""

    def __init__(self, out: Sink) -> None:
        self._out = out
        self.length = 0
        self.checksum = 0

    def write(self, data: bytes | memoryview) -> None:
        self._out.write(data)
        self.length += len(data)
        self.checksum = zlib.crc32(data, self.checksum)

    def write_array(self, array: NDArray[Any]) -> None:
        """Write an array of any size (also memory-mapped) in bounded pieces."""
        step = max(1, CHUNK // max(1, array[:1].nbytes))
        for start in range(0, len(array), step):
            self.write(as_bytes(array[start : start + step]))


class ContainerWriter:
    """Writes one blob to a stream, section after section.

    >>> out = io.BytesIO()
    >>> writer = ContainerWriter(out, "rout")
    >>> with writer.section("head") as sink:
    ...     sink.write(b"12345678")
    >>> writer.finish()
    88
    """

    def __init__(self, out: Sink, kind: str, *, minor: int = MINOR) -> None:
        header = np.zeros((), HEADER)
        header["magic"] = MAGIC
        header["kind"] = kind.encode("ascii")
        header["major"] = MAJOR
        header["minor"] = minor
        self._header = header.tobytes()
        self._out = out
        self._out.write(self._header)
        self._position = len(self._header)
        self._sections: list[Section] = []

    @contextmanager
    def section(self, kind: str) -> Iterator[_SectionSink]:
        """Give a sink for the bytes of the next section."""
        self._pad()
        sink = _SectionSink(self._out)
        yield sink
        self._sections.append(Section(kind, self._position, sink.length, sink.checksum))
        self._position += sink.length

    def put(self, kind: str, data: bytes | NDArray[Any]) -> None:
        """Write a whole section at once."""
        with self.section(kind) as sink:
            if isinstance(data, bytes):
                sink.write(data)
            else:
                sink.write_array(np.atleast_1d(data))

    def finish(self) -> int:
        """Write the table and the trailer; return the blob's length in bytes."""
        self._pad()
        table = np.zeros(len(self._sections), SECTION)
        for row, section in zip(table, self._sections, strict=True):
            row["kind"] = section.kind.encode("ascii")
            row["offset"] = section.offset
            row["length"] = section.length
            row["checksum"] = section.checksum
        trailer = np.zeros((), TRAILER)
        trailer["table_offset"] = self._position
        trailer["blob_length"] = self._position + table.nbytes + TRAILER.itemsize
        trailer["sections"] = len(table)
        trailer["magic"] = MAGIC
        checked = self._header + table.tobytes() + trailer.tobytes()[:_CHECKED_TRAILER]
        trailer["checksum"] = zlib.crc32(checked)
        self._out.write(table.tobytes())
        self._out.write(trailer.tobytes())
        return int(trailer["blob_length"])

    def _pad(self) -> None:
        padding = -self._position % ALIGNMENT
        self._out.write(bytes(padding))
        self._position += padding


class ContainerReader:
    """Reads sections of one blob from a seekable stream that holds the blob and nothing else.

    Nothing is allocated on the word of a length field: all lengths are first held against the
    stream's own.

    Raises:
        BlobFormatError: The bytes are not such a blob, or not of this kind.
        UnsupportedVersionError: A later major version wrote it.
        ChecksumError: Header and table are not what was written.
    """

    def __init__(self, source: BinaryIO, kind: str) -> None:
        self._source = source
        self.kind = kind
        self.length = source.seek(0, io.SEEK_END)
        if self.length < HEADER.itemsize + TRAILER.itemsize:
            raise BlobFormatError(f"{kind} blob: {self.length} bytes are too few")
        header = self._read_at(0, HEADER.itemsize)
        self.major, self.minor = _check_header(header, kind)
        trailer = self._read_at(self.length - TRAILER.itemsize, TRAILER.itemsize)
        table_offset, count = _check_trailer(trailer, self.length, kind)
        table = self._read_at(table_offset, count * SECTION.itemsize)
        checked = header + table + trailer[:_CHECKED_TRAILER]
        if zlib.crc32(checked) != int(np.frombuffer(trailer, TRAILER)[0]["checksum"]):
            raise ChecksumError(f"{kind} blob: checksum of header and section table is wrong")
        self.sections = _sections(np.frombuffer(table, SECTION), table_offset, kind)

    def __contains__(self, kind: str) -> bool:  # noqa: D105
        return kind in self.sections

    def read(self, kind: str) -> bytes:
        """Return a section's bytes, their checksum verified."""
        # As one piece, so that it is not held twice; the length was held against the blob's.
        return b"".join(self.pieces(kind, iter([self.section_length(kind)])))

    def array(self, kind: str, dtype: np.dtype[Any] | str, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return a section as a read-only array; its length must be exactly that of `shape`."""
        dtype = np.dtype(dtype)
        expected = dtype.itemsize
        for extent in shape:
            expected *= extent
        self.expect(kind, expected)
        return np.frombuffer(self.read(kind), dtype).reshape(shape)

    def record(self, kind: str, dtype: np.dtype[Any]) -> np.void:
        """Return a section that is one record.

        A later minor version may append fields to a record: the bytes beyond are not looked at.
        """
        section = self._find(kind)
        if section.length < dtype.itemsize:
            raise BlobFormatError(
                f"{self.kind} blob: section {kind} has {section.length} bytes, not {dtype.itemsize}"
            )
        record: np.void = np.frombuffer(self.read(kind), dtype, count=1)[0]
        return record

    def expect(self, kind: str, length: int) -> None:
        """Refuse a section that is not `length` bytes long."""
        section = self._find(kind)
        if section.length != length:
            raise BlobFormatError(
                f"{self.kind} blob: section {kind} has {section.length} bytes, not {length}"
            )

    def section_length(self, kind: str) -> int:
        """Return the length of a section in bytes."""
        return self._find(kind).length

    def pieces(self, kind: str, sizes: Iterator[int] | None = None) -> Iterator[bytes]:
        """Give a section's bytes in order, in pieces of 1 MiB or of `sizes` (which must sum up).

        The checksum is known only after the last piece: `ChecksumError` comes then, and whatever
        was made of the pieces before must be thrown away.
        """
        section = self._find(kind)
        left = section.length
        checksum = 0
        self._source.seek(section.offset)
        while left:
            want = min(left, CHUNK) if sizes is None else next(sizes)
            piece = self._read_exactly(want)
            checksum = zlib.crc32(piece, checksum)
            left -= want
            yield piece
        if checksum != section.checksum:
            raise ChecksumError(f"{self.kind} blob: checksum of section {kind} is wrong")

    def _find(self, kind: str) -> Section:
        try:
            return self.sections[kind]
        except KeyError:
            raise BlobFormatError(f"{self.kind} blob: section {kind} is missing") from None

    def _read_at(self, offset: int, length: int) -> bytes:
        self._source.seek(offset)
        return self._read_exactly(length)

    def _read_exactly(self, length: int) -> bytes:
        piece = self._source.read(length)
        while len(piece) < length:
            more = self._source.read(length - len(piece))
            if not more:
                raise BlobFormatError(f"{self.kind} blob: ends {length - len(piece)} bytes early")
            piece += more
        return piece


def fingerprint(source: BinaryIO) -> str:
    """Return what names a blob by its content, the same for every copy of it; reads its end alone.

    That is a digest of section table and trailer, which have the checksum of every section.

    Raises:
        BlobFormatError: the bytes do not end as a blob does.
    """
    length = source.seek(0, io.SEEK_END)
    source.seek(max(0, length - MAX_SECTIONS * SECTION.itemsize - TRAILER.itemsize))
    tail = source.read()
    if len(tail) < TRAILER.itemsize:
        raise BlobFormatError(f"blob: {length} bytes are too few")
    offset, _ = _check_trailer(tail[-TRAILER.itemsize :], length, "a")
    return hashlib.sha256(tail[offset - length :]).hexdigest()


def _check_header(data: bytes, kind: str) -> tuple[int, int]:
    header = np.frombuffer(data, HEADER)[0]
    if header["magic"] != MAGIC:
        raise BlobFormatError(f"{kind} blob: does not begin with {MAGIC!r}")
    if header["kind"] != kind.encode("ascii"):
        raise BlobFormatError(f"{kind} blob: is of kind {bytes(header['kind'])!r}")
    major, minor = int(header["major"]), int(header["minor"])
    if major != MAJOR:
        raise UnsupportedVersionError(
            f"{kind} blob: written in format version {major}.{minor}, this reader knows {MAJOR}.x; "
            "use a later puffin-ann, or rebuild the index with this one"
        )
    return major, minor


def _check_trailer(data: bytes, length: int, kind: str) -> tuple[int, int]:
    trailer = np.frombuffer(data, TRAILER)[0]
    if trailer["magic"] != MAGIC:
        raise BlobFormatError(f"{kind} blob: does not end with {MAGIC!r}; is it cut off?")
    if int(trailer["blob_length"]) != length:
        raise BlobFormatError(
            f"{kind} blob: has {length} bytes, {int(trailer['blob_length'])} were written"
        )
    offset, count = int(trailer["table_offset"]), int(trailer["sections"])
    if count > MAX_SECTIONS:
        raise BlobFormatError(f"{kind} blob: {count} sections are more than {MAX_SECTIONS}")
    if offset + count * SECTION.itemsize + TRAILER.itemsize != length:
        raise BlobFormatError(f"{kind} blob: section table is not where the trailer says")
    if offset < HEADER.itemsize:
        raise BlobFormatError(f"{kind} blob: section table overlaps the header")
    return offset, count


def _sections(table: NDArray[Any], end: int, kind: str) -> dict[str, Section]:
    """Check that sections follow each other between the header and `end`, and index them."""
    sections: dict[str, Section] = {}
    reached = HEADER.itemsize
    for row in table:
        name = bytes(row["kind"]).decode("latin-1")
        section = Section(name, int(row["offset"]), int(row["length"]), int(row["checksum"]))
        if name in sections:
            raise BlobFormatError(f"{kind} blob: section {name!r} is there twice")
        if section.offset % ALIGNMENT:
            raise BlobFormatError(
                f"{kind} blob: section {name!r} begins at {section.offset}, no multiple of "
                f"{ALIGNMENT}"
            )
        if section.offset < reached:
            raise BlobFormatError(f"{kind} blob: section {name!r} overlaps what is before it")
        reached = section.offset + section.length
        if reached > end:
            raise BlobFormatError(f"{kind} blob: section {name!r} reaches into the section table")
        sections[name] = section
    return sections


def length_of(sections: Sequence[int]) -> int:
    """Return the bytes of a container of sections of so many bytes."""
    padded = sum(length + -length % ALIGNMENT for length in sections)
    return HEADER.itemsize + padded + len(sections) * SECTION.itemsize + TRAILER.itemsize
