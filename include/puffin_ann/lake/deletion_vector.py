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
        length = bitmap_length(data, offset, name=name)
        try:
            bitmaps[key] = BitMap.deserialize(data[offset : offset + length])
        except ValueError as error:
            raise FormatError(f"{name}: bitmap at offset {offset} is broken: {error}") from error
        offset += length
    if offset != len(data):
        raise FormatError(f"{name}: {len(data) - offset} bytes left over at offset {offset}")
    return bitmaps


_NO_RUNS = 12346
_WITH_RUNS = 12347
_NO_OFFSETS_BELOW = 4
_ARRAY_MAX = 4096
_BITSET_BYTES = 8192


def bitmap_length(data: bytes, start: int, *, name: str = "bitmap") -> int:
    """Return the bytes of the 32-bit roaring bitmap at `start`, by reading its headers.

    The format does not say its own length, and the roaring library says neither how much it has
    read nor that it read past the end, so this is also what makes it safe to hand it the bytes.
    """
    end = len(data)

    def need(at: int, size: int) -> int:
        if at + size > end:
            raise FormatError(f"{name}: bitmap at offset {start} goes past the end, {end}")
        return at + size

    at = need(start, 4)
    (cookie,) = struct.unpack_from("<I", data, start)
    flags = b""
    if cookie & 0xFFFF == _WITH_RUNS:
        containers = (cookie >> 16) + 1
        size = (containers + 7) // 8
        flags = data[at : need(at, size)]
        at += size
    elif cookie == _NO_RUNS:
        (containers,) = struct.unpack_from("<I", data, need(at, 4) - 4)
        at += 4
    else:
        raise FormatError(f"{name}: cookie at offset {start} is {cookie}")
    if containers > 1 << 16:
        raise FormatError(f"{name}: bitmap at offset {start} has {containers} containers")
    header = at
    at = need(at, 4 * containers)
    if not flags or containers >= _NO_OFFSETS_BELOW:
        at = need(at, 4 * containers)
    for i in range(containers):
        if flags and flags[i // 8] >> (i % 8) & 1:
            (runs,) = struct.unpack_from("<H", data, need(at, 2) - 2)
            at = need(at, 2 + 4 * runs)
            continue
        cardinality = struct.unpack_from("<H", data, header + 4 * i + 2)[0] + 1
        at = need(at, 2 * cardinality if cardinality <= _ARRAY_MAX else _BITSET_BYTES)
    return at - start
