"""The `deletion-vector-v1` blob and the 64-bit roaring bitmap in it (Iceberg's Puffin spec).

Layout of the blob: length of magic and bitmap (4 bytes, big-endian), magic `D1 D3 39 64`, the
bitmap, CRC-32 of magic and bitmap (4 bytes, big-endian). Layout of the bitmap ("portable", of
RoaringFormatSpec): number of 32-bit bitmaps (8 bytes, little-endian), then for each, ascending by
key, its key (4 bytes, little-endian: the upper half of the positions) and the 32-bit bitmap.
"""

import struct
import zlib

from pyroaring import BitMap

from puffin_ann.errors import ChecksumError, FormatError
from puffin_ann.roaring import sound_length

MAGIC = bytes((0xD1, 0xD3, 0x39, 0x64))

_FRAME = 4 + len(MAGIC) + 4


def decode(blob: bytes, *, name: str = "deletion vector") -> BitMap:
    """Return the positions of a deletion vector blob.

    Positions of 2^32 and above are not supported (no data file we index has as many rows) and are
    refused. Raises FormatError, or ChecksumError if the CRC does not match.
    """
    if len(blob) < _FRAME:
        raise FormatError(f"{name}: {len(blob)} bytes are too few for a deletion vector")
    (length,) = struct.unpack_from(">I", blob, 0)
    if length != len(blob) - 8:
        raise FormatError(f"{name}: length at offset 0 is {length}, not {len(blob) - 8}")
    if blob[4:8] != MAGIC:
        raise FormatError(f"{name}: magic at offset 4 is {blob[4:8].hex()}, not {MAGIC.hex()}")
    (expected,) = struct.unpack_from(">I", blob, len(blob) - 4)
    actual = zlib.crc32(blob[4:-4])
    if actual != expected:
        raise ChecksumError(f"{name}: CRC-32 is {actual:08x}, the blob says {expected:08x}")
    bitmaps = decode_map(blob[8:-4], name=name)
    if any(key for key, bitmap in bitmaps.items() if bitmap):
        raise FormatError(f"{name}: a position is 2^32 or above")
    return bitmaps.get(0, BitMap())


def decode_map(data: bytes, *, name: str = "bitmap") -> dict[int, BitMap]:
    """Return the 32-bit bitmaps of a 64-bit roaring bitmap by the upper half of their positions."""
    if len(data) < 8:
        raise FormatError(f"{name}: {len(data)} bytes are too few for a 64-bit bitmap")
    (count,) = struct.unpack_from("<Q", data, 0)
    offset = 8
    bitmaps: dict[int, BitMap] = {}
    last = -1
    for _ in range(count):
        if offset + 4 > len(data):
            raise FormatError(f"{name}: bitmap ends at offset {offset}, {count} parts promised")
        (key,) = struct.unpack_from("<I", data, offset)
        if key <= last:
            raise FormatError(f"{name}: key {key} at offset {offset} is not above {last}")
        last = key
        offset += 4
        try:
            length = sound_length(data, offset)
            bitmaps[key] = BitMap.deserialize(data[offset : offset + length])
        except ValueError as error:
            raise FormatError(f"{name}: bitmap at offset {offset} is broken: {error}") from error
        offset += length
    if offset != len(data):
        raise FormatError(f"{name}: {len(data) - offset} bytes left over at offset {offset}")
    return bitmaps
