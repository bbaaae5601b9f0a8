"""Decompress the blocks of an Avro file, within what a file of its size may hold.

PyIceberg's codecs return whatever comes out, which of a kilobyte may be gigabytes. Here every
decompressor stops at a limit, and nothing is believed that a block says of its own size.
"""

import bz2
import zlib
from collections.abc import Callable, Mapping

import pyarrow as pa
import zstandard

from puffin_ann.errors import OutputLimitError

SMALLEST_LIMIT = 8 << 20
MOST_RATIO = 256
"""Entries of a manifest may differ by little more than a path. Those of a thousand columns of which
all statistics are the same are compressed to a two-hundredth."""

_MAX_WINDOW = 1 << 27
_SNAPPY_CHECKSUM = 4
_SNAPPY_RATIO = 32
"""Three bytes copy 64 at most."""


class Blocks:
    """Decompresses the blocks of one file, whose content together has a limit.

    Args:
        codec: its name, as Avro spells it.
        stored: the file's size in bytes.

    Raises:
        ValueError: there is no such codec.
    """

    def __init__(self, codec: str, stored: int) -> None:
        if codec not in _CODECS:
            raise ValueError(f"its codec is {codec!r}; known are {', '.join(_CODECS)}")
        self._decompress = _CODECS[codec]
        self._limit = self._left = SMALLEST_LIMIT + MOST_RATIO * stored

    def content(self, block: bytes) -> bytes:
        """Return the content of a block.

        Raises:
            OutputLimitError: the blocks so far hold more than the limit.
            Exception: it is broken; any kind, as decompressors raise them.
        """
        try:
            content = self._decompress(block, self._left)
        except OSError as error:  # as if a store had failed
            raise ValueError(f"a block is broken: {error}") from error
        if len(content) > self._left:
            raise OutputLimitError(
                f"its blocks unpack to more than {self._limit} bytes, which is more than a file of "
                "its size may hold"
            )
        self._left -= len(content)
        return content


# Each returns the content, or of one beyond the limit some more bytes than that.


def _stored(block: bytes, limit: int) -> bytes:
    return block


def _deflate(block: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj(-15)
    content = stream.decompress(block, limit + 1)
    if not stream.eof and len(content) <= limit:
        raise ValueError("a block's deflate stream is cut off")
    return content  # what follows the stream is left alone: PyIceberg leaves half a checksum there


def _bzip2(block: bytes, limit: int) -> bytes:
    stream = bz2.BZ2Decompressor()
    content = stream.decompress(block, limit + 1)
    if not stream.eof and len(content) <= limit:
        raise ValueError("a block's bzip2 stream is cut off")
    return content


def _zstandard(block: bytes, limit: int) -> bytes:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
    return decompressor.stream_reader(block).read(limit + 1)


def _snappy(block: bytes, limit: int) -> bytes:
    # Arrow brings it along, where PyIceberg needs a package of its own.
    if len(block) <= _SNAPPY_CHECKSUM:
        raise ValueError("a block is too short for snappy")
    frame, checksum = block[:-_SNAPPY_CHECKSUM], block[-_SNAPPY_CHECKSUM:]
    size = _snappy_size(frame)
    if size > limit:
        return bytes(limit + 1)
    content: bytes = pa.Codec("snappy").decompress(frame, decompressed_size=size, asbytes=True)
    if zlib.crc32(content) != int.from_bytes(checksum, "big"):
        raise ValueError("a block's checksum is wrong")
    return content


def _snappy_size(frame: bytes) -> int:
    """Return what a frame says of its size, a varint; refused is more than it can hold."""
    size = 0
    for at, byte in enumerate(frame[:5]):
        size |= (byte & 0x7F) << 7 * at
        if not byte & 0x80:
            if size > _SNAPPY_RATIO * len(frame):
                break
            return size
    raise ValueError("a block of snappy is larger than it can be")


_CODECS: Mapping[str, Callable[[bytes, int], bytes]] = {
    "null": _stored,
    "deflate": _deflate,
    "bzip2": _bzip2,
    "zstandard": _zstandard,
    "snappy": _snappy,
}
