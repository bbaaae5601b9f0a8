"""The container all our blobs share: header, sections, section table, trailer.

The table is at the end, so a blob is written without seeking back and without knowing a
section's length before its last byte. Sections of unknown kind are skipped; an unknown major
version is refused. Layout and rules: `docs/format.md`, "Blob container".

Blobs that are read in place are written `by_ranges`: sections begin at multiples of 64, and the
long ones have a checksum for each block (`block_sums`), so that `read_range` need not read more.
"""

import hashlib
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding import block_sums
from puffin_ann.blobs.encoding.block_sums import BlockSums, Summed
from puffin_ann.blobs.encoding.container_layout import (
    ALIGNMENT,
    ALIGNMENT_BY_RANGES,
    CHECKED_TRAILER,
    HEADER,
    MAGIC,
    MAJOR,
    MAX_SECTIONS,
    MINOR,
    MINOR_BY_RANGES,
    SECTION,
    TRAILER,
    Section,
    check_header,
    check_sections,
    check_trailer,
)
from puffin_ann.errors import BlobFormatError, ChecksumError

CHUNK = 1 << 20


class Sink(Protocol):
    """Anything that takes bytes in order."""

    def write(self, data: Any, /) -> Any: ...  # noqa: D102


def as_bytes(array: NDArray[Any]) -> memoryview:
    """Return the bytes of an array in C order, little-endian dtypes being the caller's duty."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class _SectionSink:
    """Counts and checksums what goes through it; block by block if there are `blocks`."""

    def __init__(self, out: Sink, blocks: Summed | None) -> None:
        self._out = out
        self.length = 0
        self._checksum = 0
        self._blocks = blocks

    @property
    def checksum(self) -> int:
        return self._checksum if self._blocks is None else self._blocks.of_all()

    def write(self, data: bytes | memoryview) -> None:
        self._out.write(data)
        self.length += len(data)
        if self._blocks is None:
            self._checksum = zlib.crc32(data, self._checksum)
        else:
            self._blocks.update(data)

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

    Args:
        out: takes the bytes in order.
        kind: of the blob.
        major: version of the format.
        minor: version of the format.
        by_ranges: for a blob that is stored as it is and read in place.
    """

    def __init__(
        self,
        out: Sink,
        kind: str,
        *,
        major: int = MAJOR,
        minor: int = MINOR,
        by_ranges: bool = False,
    ) -> None:
        header = np.zeros((), HEADER)
        header["magic"] = MAGIC
        header["kind"] = kind.encode("ascii")
        header["major"] = major
        header["minor"] = max(minor, MINOR_BY_RANGES if by_ranges and major == MAJOR else 0)
        self._header = header.tobytes()
        self._out = out
        self._out.write(self._header)
        self._position = len(self._header)
        self._sections: list[Section] = []
        self._by_ranges = by_ranges
        self._blocks: dict[str, NDArray[np.uint32]] = {}

    @contextmanager
    def section(self, kind: str) -> Iterator[_SectionSink]:
        """Give a sink for the bytes of the next section."""
        self._pad(ALIGNMENT_BY_RANGES if self._by_ranges else ALIGNMENT)
        blocks = Summed() if self._by_ranges else None
        sink = _SectionSink(self._out, blocks)
        yield sink
        self._sections.append(Section(kind, self._position, sink.length, sink.checksum))
        self._position += sink.length
        if blocks is not None and sink.length > block_sums.BLOCK_BYTES:
            self._blocks[kind] = blocks.checksums()

    def put(self, kind: str, data: bytes | NDArray[Any]) -> None:
        """Write a whole section at once."""
        with self.section(kind) as sink:
            if isinstance(data, bytes):
                sink.write(data)
            else:
                sink.write_array(np.atleast_1d(data))

    def finish(self) -> int:
        """Write the table and the trailer; return the blob's length in bytes."""
        if self._blocks:
            sums = BlockSums(block_sums.BLOCK_BYTES, self._blocks.copy())
            self.put(block_sums.KIND, block_sums.encode(sums))
        self._pad(ALIGNMENT)
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
        checked = self._header + table.tobytes() + trailer.tobytes()[:CHECKED_TRAILER]
        trailer["checksum"] = zlib.crc32(checked)
        self._out.write(table.tobytes())
        self._out.write(trailer.tobytes())
        return int(trailer["blob_length"])

    def _pad(self, alignment: int) -> None:
        padding = -self._position % alignment
        self._out.write(bytes(padding))
        self._position += padding


class ContainerReader:
    """Reads sections of one blob from a seekable stream that holds the blob and nothing else.

    Nothing is allocated on the word of a length field: all lengths are first held against the
    stream's own. For one thread at a time, as the stream is.

    Args:
        source: the blob.
        kind: that it must be of.
        majors: versions of the format that its caller knows.

    Raises:
        BlobFormatError: The bytes are not such a blob, or not of this kind.
        UnsupportedVersionError: A later major version wrote it.
        ChecksumError: Header and table are not what was written.
    """

    def __init__(self, source: BinaryIO, kind: str, majors: Sequence[int] = (MAJOR,)) -> None:
        self._source = source
        self.kind = kind
        self.length = source.seek(0, io.SEEK_END)
        if self.length < HEADER.itemsize + TRAILER.itemsize:
            raise BlobFormatError(f"{kind} blob: {self.length} bytes are too few")
        header = self._read_at(0, HEADER.itemsize)
        self.major, self.minor = check_header(header, kind, majors)
        trailer = self._read_at(self.length - TRAILER.itemsize, TRAILER.itemsize)
        table_offset, count = check_trailer(trailer, self.length, kind)
        table = self._read_at(table_offset, count * SECTION.itemsize)
        checked = header + table + trailer[:CHECKED_TRAILER]
        if zlib.crc32(checked) != int(np.frombuffer(trailer, TRAILER)[0]["checksum"]):
            raise ChecksumError(f"{kind} blob: checksum of header and section table is wrong")
        self.sections = check_sections(np.frombuffer(table, SECTION), table_offset, kind)

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

    def read_range(self, kind: str, start: int, stop: int) -> bytes:
        """Return bytes `[start, stop)` of a section, verified.

        Read are the blocks that hold them, in one go. Of a section without checksums of blocks, as
        short ones and those of earlier writers are, all is read, a piece at a time.

        Raises:
            BlobFormatError: the section has not so many bytes, or the checksums are not sound.
            ChecksumError: names the section, and the block of which the bytes are not those
                written; or the checksums themselves are not.
        """
        section, (begin, end) = self._find(kind), self.extent(kind, start, stop)
        sums = self.block_sums
        if start == stop:
            return b""
        if sums is None or kind not in sums.of:
            return self._cut(kind, start, stop)
        data = self._read_at(begin, end - begin)
        view, size, offset = memoryview(data), sums.block_bytes, begin - section.offset
        first, last = offset // size, block_sums.count_of(stop, size)
        for block, checksum in enumerate(sums.of[kind][first:last].tolist()):
            if zlib.crc32(view[block * size : (block + 1) * size]) != checksum:
                raise self._wrong_block(kind, first + block)
        return data[start - offset : stop - offset]

    def extent(self, kind: str, start: int, stop: int) -> tuple[int, int]:
        """Return which bytes of the blob `read_range` reads; raises as that does for the first."""
        section = self._find(kind)
        if not 0 <= start <= stop <= section.length:
            raise BlobFormatError(
                f"{self.kind} blob: section {kind} has {section.length} bytes, none from {start} "
                f"to {stop}"
            )
        begin, end, sums = 0, section.length, self.block_sums
        if sums is not None and kind in sums.of:
            begin = start - start % sums.block_bytes
            end = min(-(-stop // sums.block_bytes) * sums.block_bytes, end)
        return section.offset + begin, section.offset + max(begin, end)

    @cached_property
    def block_sums(self) -> BlockSums | None:
        """The checksums of blocks, verified; None if there are none.

        Raises:
            BlobFormatError, ChecksumError: they are not sound.
        """
        if block_sums.KIND not in self:
            return None
        where = f"{self.kind} blob, section {block_sums.KIND}"
        lengths = {kind: section.length for kind, section in self.sections.items()}
        length = lengths.pop(block_sums.KIND)
        if length > block_sums.longest(lengths):
            raise BlobFormatError(f"{where}: {length} bytes are too many")
        return block_sums.decode(self.read(block_sums.KIND), lengths, where)

    def verify(self) -> None:
        """Read all sections, and hold them to their checksums and to those of their blocks.

        Raises:
            BlobFormatError, ChecksumError: a section, or the checksums of blocks, are not sound.
        """
        sums = self.block_sums
        for kind in self.sections:
            expected = None if sums is None else sums.of.get(kind)
            summed = None if sums is None or expected is None else Summed(sums.block_bytes)
            for piece in self.pieces(kind):
                if summed is not None:
                    summed.update(piece)
            if summed is not None and expected is not None:
                wrong = np.flatnonzero(summed.checksums() != expected)
                if len(wrong):
                    raise self._wrong_block(kind, int(wrong[0]))

    def _cut(self, kind: str, start: int, stop: int) -> bytes:
        """Return bytes `[start, stop)` of a section, of which all is read and verified."""
        kept, at = [], 0
        for piece in self.pieces(kind):
            kept.append(piece[max(start - at, 0) : max(stop - at, 0)])
            at += len(piece)
        return b"".join(kept)

    def _wrong_block(self, kind: str, block: int) -> ChecksumError:
        return ChecksumError(
            f"{self.kind} blob: checksum of block {block} of section {kind} is wrong"
        )

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
    offset, _ = check_trailer(tail[-TRAILER.itemsize :], length, "a")
    return hashlib.sha256(tail[offset - length :]).hexdigest()


def length_of(sections: Sequence[int], *, by_ranges: bool = False) -> int:
    """Return the bytes of a container of sections of so many bytes."""
    lengths, alignment = list(sections), ALIGNMENT
    if by_ranges:
        alignment = ALIGNMENT_BY_RANGES
        lengths += [length for length in (block_sums.length_of(lengths),) if length]
    end = HEADER.itemsize
    for length in lengths:
        end += -end % alignment + length
    return end + -end % ALIGNMENT + len(lengths) * SECTION.itemsize + TRAILER.itemsize
