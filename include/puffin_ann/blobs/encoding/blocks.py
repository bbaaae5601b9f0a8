"""A section of zstd frames, one per block of items, and a section of where each frame begins.

Blocks bound the memory of both sides and let a reader fetch one block alone. The table has one
offset more than there are blocks: the last is the length of the section of frames.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import zstandard
from numpy.typing import NDArray

from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter
from puffin_ann.errors import BlobFormatError, OutputLimitError

OFFSET = np.dtype("<u8")
LEVEL = 3

_ZSTD_BLOCK = 128 << 10
_ZSTD_SMALLEST_BLOCK = 4


def count(items: int, per_block: int) -> int:
    """Return how many blocks `items` fill."""
    return -(-items // per_block)


def write(
    writer: ContainerWriter, frames_kind: str, table_kind: str, blocks: Iterable[memoryview]
) -> None:
    """Compress blocks one by one into section `frames_kind`, then write their offsets."""
    writer.put(table_kind, write_frames(writer, frames_kind, blocks))


def write_frames(
    writer: ContainerWriter, frames_kind: str, blocks: Iterable[memoryview]
) -> NDArray[np.uint64]:
    """Compress blocks one by one into a section; return the offsets that its table is to have."""
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_content_size=True)
    offsets = [0]
    with writer.section(frames_kind) as sink:
        for block in blocks:
            sink.write(compressor.compress(block))
            offsets.append(sink.length)
    return np.array(offsets, OFFSET)


def read(
    reader: ContainerReader, frames_kind: str, table_kind: str, blocks: int, limit: int
) -> Iterator[NDArray[np.uint8]]:
    """Give the content of each block in order, as `uint8`.

    Raises:
        BlobFormatError: The offsets do not ascend from 0 to the section's length, or a frame is
            broken.
        OutputLimitError: A block's content is over `limit` bytes.
        ChecksumError: After the last block, if the section's bytes are not those written.
    """
    where = f"{reader.kind} blob, section {frames_kind}"
    sizes = iter(np.diff(offsets(reader, frames_kind, table_kind, blocks)).tolist())
    for i, frame in enumerate(reader.pieces(frames_kind, sizes)):
        yield content(frame, limit, f"{where}, block {i}")


def offsets(
    reader: ContainerReader, frames_kind: str, table_kind: str, blocks: int
) -> NDArray[np.uint64]:
    """Return where frames begin, `(blocks + 1,) uint64`; errors as of `read`."""
    found = reader.array(table_kind, OFFSET, (blocks + 1,))
    where = f"{reader.kind} blob, section {frames_kind}"
    if int(found[0]) != 0 or np.any(found[1:] <= found[:-1]):
        raise BlobFormatError(f"{where}: offsets of blocks do not ascend from 0")
    if int(found[-1]) != reader.section_length(frames_kind):
        raise BlobFormatError(f"{where}: offsets of blocks do not end where the section does")
    return found


def content(frame: bytes, limit: int, where: str) -> NDArray[np.uint8]:
    """Decompress one frame, allocating no more than a frame of its length can possibly hold."""
    try:
        size = zstandard.frame_content_size(frame)
        if size < 0:
            raise BlobFormatError(f"{where}: frame does not state its content size")
        if size > limit:
            raise OutputLimitError(f"{where}: frame claims {size} bytes, the limit is {limit}")
        if size > (len(frame) // _ZSTD_SMALLEST_BLOCK + 1) * _ZSTD_BLOCK:
            raise BlobFormatError(f"{where}: frame cannot hold the {size} bytes it claims")
        data = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
        return np.frombuffer(data, np.uint8)
    except zstandard.ZstdError as error:
        raise BlobFormatError(f"{where}: broken zstd frame: {error}") from None
