"""Compression of blobs: one frame with its content size, both ways in chunks of bounded size.

Decompression trusts nothing a frame says of itself. What comes out is handed on in pieces of at
most `CHUNK` bytes and counted against the caller's limit, so a bomb costs one piece of memory.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import lz4.frame
import zstandard

from puffin_ann.errors import OutputLimitError, PuffinFormatError

CHUNK = 1 << 20

ZSTD_LEVEL = 3
ZSTD_MAX_WINDOW = 1 << 27
"""The window of zstd's highest level (128 MiB); a frame asking for more memory is refused."""

_ZSTD_HEADER = 18
_ZSTD_BLOCK = 128 << 10
_ZSTD_SMALLEST_BLOCK = 4  # a run-length block: three bytes of header and the byte to repeat


@dataclass(frozen=True)
class Codec:
    """One compression codec.

    `compress(chunks, size)` gives the frame of `size` bytes that come in chunks;
    `decompress(source, length, limit)` gives the content of a frame of `length` bytes at the start
    of the seekable `source`. Both are generators. Decompression raises `PuffinFormatError` for
    broken frames and `OutputLimitError` for content beyond `limit` bytes.
    """

    name: str
    compress: Callable[[Iterable[bytes], int], Iterator[bytes]]
    decompress: Callable[[BinaryIO, int, int], Iterator[bytes]]


def codec(name: str, where: str) -> Codec:
    """Return the codec called `name`; `PuffinFormatError` for another than the spec's two."""
    try:
        return CODECS[name]
    except KeyError:
        known = ", ".join(sorted(CODECS))
        raise PuffinFormatError(f"{where}: unknown compression codec {name!r} ({known})") from None


def pieces(source: BinaryIO, length: int) -> Iterator[bytes]:
    """Read exactly `length` bytes of `source` in chunks; `PuffinFormatError` if it ends before."""
    left = length
    while left:
        piece = source.read(min(left, CHUNK))
        if not piece:
            raise PuffinFormatError(f"stream ended {left} bytes short of {length}")
        left -= len(piece)
        yield piece


def _zstd_compress(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
    stream = compressor.compressobj(size=size)
    for chunk in chunks:
        yield stream.compress(chunk)
    yield stream.flush()


def _zstd_decompress(source: BinaryIO, length: int, limit: int) -> Iterator[bytes]:
    size = _zstd_content_size(source.read(min(length, _ZSTD_HEADER)), length)
    _check_limit(size, limit)
    source.seek(0)
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_MAX_WINDOW)
    # Reading on across frames makes bytes after the frame an error instead of silently ignored.
    stream = decompressor.stream_reader(source, read_across_frames=True, closefd=False)
    given = 0
    while True:
        try:
            piece = stream.read(CHUNK)
        except zstandard.ZstdError as error:
            raise PuffinFormatError(f"broken zstd frame: {error}") from None
        if not piece:
            break
        given += len(piece)
        if given > size:
            raise PuffinFormatError(f"zstd frame holds more than the {size} bytes it claims")
        yield piece
    if given != size:
        raise PuffinFormatError(f"zstd frame holds {given} bytes and claims {size}")


def _zstd_content_size(head: bytes, length: int) -> int:
    try:
        frame = zstandard.get_frame_parameters(head)
    except zstandard.ZstdError as error:
        raise PuffinFormatError(f"broken zstd frame: {error}") from None
    size = int(frame.content_size)
    if frame.dict_id:
        raise PuffinFormatError("zstd frame needs a dictionary")
    if size == zstandard.CONTENTSIZE_UNKNOWN:
        raise PuffinFormatError("zstd frame does not state its content size, as Puffin requires")
    if size > (length // _ZSTD_SMALLEST_BLOCK + 1) * _ZSTD_BLOCK:
        raise PuffinFormatError(f"zstd frame of {length} bytes cannot hold the {size} it claims")
    return size


def _lz4_compress(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    stream = lz4.frame.LZ4FrameCompressor(content_checksum=True, auto_flush=True)
    yield stream.begin(source_size=size)
    for chunk in chunks:
        yield stream.compress(chunk)
    yield stream.flush()


def _lz4_decompress(source: BinaryIO, length: int, limit: int) -> Iterator[bytes]:
    stream = lz4.frame.LZ4FrameDecompressor()
    given = 0
    for compressed in pieces(source, length):
        data = compressed
        while data or not stream.needs_input:
            piece = _lz4_step(stream, data)
            data = b""
            given += len(piece)
            _check_limit(given, limit)
            yield piece
            if stream.eof or not piece:
                break
    if not stream.eof:
        raise PuffinFormatError("lz4 frame is cut off")
    if stream.unused_data:
        raise PuffinFormatError("bytes follow the lz4 frame")


def _lz4_step(stream: lz4.frame.LZ4FrameDecompressor, data: bytes) -> bytes:
    try:
        return bytes(stream.decompress(data, max_length=CHUNK))
    except (RuntimeError, EOFError) as error:
        raise PuffinFormatError(f"broken lz4 frame: {error}") from None


def _check_limit(size: int, limit: int) -> None:
    if size > limit:
        raise OutputLimitError(f"decompressing gives more than the limit of {limit} bytes")


CODECS = {
    "zstd": Codec("zstd", _zstd_compress, _zstd_decompress),
    "lz4": Codec("lz4", _lz4_compress, _lz4_decompress),
}
