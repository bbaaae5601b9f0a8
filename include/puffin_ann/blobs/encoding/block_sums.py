"""Checksums of the blocks of long sections, so that a range of one is verified without the rest.

They stand in a section of their own, of kind `bcrc`: `HEAD`, an `ENTRY` for each section that has
some, and then the CRC-32 of each of their blocks, as `docs/format.md` says in section 2.

Blocks are 16 KiB. A cold search reads the checksums of a shard once and then some ranges, of which
each brings half a block too much at either end: of sections of 512 MiB and twenty ranges that is
least in all at some 10 KiB. The checksums take 0.024 % of what they stand for.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from puffin_ann.errors import BlobFormatError

KIND = "bcrc"

HEAD = np.dtype([("block_bytes", "<u4"), ("sections", "<u4")])
ENTRY = np.dtype([("kind", "S4"), ("blocks", "<u4")])
CHECKSUM = np.dtype("<u4")

BLOCK_BYTES = 1 << 14
SMALLEST_BLOCK = 1 << 12
LARGEST_BLOCK = 1 << 24


class Summed:
    """The CRC-32 of a stream of bytes and of each of its blocks, for which no byte is read twice.

    Args:
        block_bytes: bytes of every block but the last.
    """

    def __init__(self, block_bytes: int = BLOCK_BYTES) -> None:
        self._block_bytes = block_bytes
        self._done: list[int] = []
        self._filled = 0
        self._checksum = 0

    def update(self, data: bytes | memoryview) -> None:
        """Take the next bytes."""
        view, at, size = memoryview(data), 0, self._block_bytes
        if self._filled:
            at = min(size - self._filled, len(view))
            self._checksum = zlib.crc32(view[:at], self._checksum)
            self._filled += at
            if self._filled < size:
                return
            self._done.append(self._checksum)
        whole = at + (len(view) - at) // size * size
        self._done += [zlib.crc32(view[start : start + size]) for start in range(at, whole, size)]
        self._filled, self._checksum = len(view) - whole, zlib.crc32(view[whole:])

    def checksums(self) -> NDArray[np.uint32]:
        """Return `(blocks,) uint32`, the last block being as short as it is."""
        last = [self._checksum] if self._filled else []
        return np.array([*self._done, *last], CHECKSUM)

    def of_all(self) -> int:
        """Return the CRC-32 of all bytes.

        What comes after some bytes changes their CRC in a way that only depends on how long it is,
        and is linear: the CRC of both is that of the former, as if as many zeros came, and that of
        the latter.
        """
        low, second, third, high = _after(self._block_bytes)
        found = 0
        for checksum in self._done:
            found = checksum ^ (
                low[found & 255]
                ^ second[found >> 8 & 255]
                ^ third[found >> 16 & 255]
                ^ high[found >> 24]
            )
        zeros = bytes(self._filled)
        return zlib.crc32(zeros, found) ^ zlib.crc32(zeros) ^ self._checksum


@lru_cache(maxsize=4)
def _after(length: int) -> list[list[int]]:
    """Return what a CRC's four bytes, lowest first, each become by `length` bytes behind it."""
    zeros = bytes(length)
    bits = [zlib.crc32(zeros, 1 << bit) ^ zlib.crc32(zeros) for bit in range(32)]
    tables = []
    for first in range(0, 32, 8):
        table = [0]
        for bit in bits[first : first + 8]:
            table += [value ^ bit for value in table]
        tables.append(table)
    return tables


@dataclass(frozen=True, eq=False)
class BlockSums:
    """The checksums of a container's blocks.

    Attributes:
        block_bytes: bytes of every block but a section's last.
        of: by kind of section, `(blocks,) uint32`.
    """

    block_bytes: int
    of: Mapping[str, NDArray[np.uint32]]


def encode(sums: BlockSums) -> bytes:
    """Return the section's bytes."""
    head = np.array((sums.block_bytes, len(sums.of)), HEAD)
    entries = np.array([(kind.encode(), len(of)) for kind, of in sums.of.items()], ENTRY)
    return b"".join([head.tobytes(), entries.tobytes(), *(of.tobytes() for of in sums.of.values())])


def decode(data: bytes, lengths: Mapping[str, int], where: str) -> BlockSums:
    """Return what a section says, held to the lengths in bytes of the sections there are.

    Raises:
        BlobFormatError: blocks of a size that cannot be, of a section that is not there or twice,
            or not as many as it has; bytes are missing or follow.
    """
    if len(data) < HEAD.itemsize:
        raise BlobFormatError(f"{where}: {len(data)} bytes are too few")
    head = np.frombuffer(data, HEAD, 1)[0]
    block_bytes, count = int(head["block_bytes"]), int(head["sections"])
    if not SMALLEST_BLOCK <= block_bytes <= LARGEST_BLOCK or block_bytes & (block_bytes - 1):
        raise BlobFormatError(f"{where}: blocks of {block_bytes} bytes")
    at = HEAD.itemsize + count * ENTRY.itemsize
    if at > len(data):
        raise BlobFormatError(f"{where}: {count} sections do not fit in {len(data)} bytes")
    of: dict[str, NDArray[np.uint32]] = {}
    for entry in np.frombuffer(data, ENTRY, count, HEAD.itemsize):
        kind, blocks = bytes(entry["kind"]).decode("latin-1"), int(entry["blocks"])
        if kind in of or kind == KIND or kind not in lengths:
            raise BlobFormatError(f"{where}: section {kind!r} is not there, or twice")
        if blocks != count_of(lengths[kind], block_bytes):
            raise BlobFormatError(
                f"{where}: {blocks} blocks of {block_bytes} bytes are not the {lengths[kind]} of "
                f"section {kind}"
            )
        if at + blocks * CHECKSUM.itemsize > len(data):
            raise BlobFormatError(f"{where}: ends within the checksums of section {kind}")
        of[kind] = np.frombuffer(data, CHECKSUM, blocks, at)
        at += blocks * CHECKSUM.itemsize
    if at != len(data):
        raise BlobFormatError(f"{where}: {len(data) - at} bytes follow the last checksum")
    return BlockSums(block_bytes, of)


def count_of(length: int, block_bytes: int = BLOCK_BYTES) -> int:
    """Return how many blocks a section of so many bytes has."""
    return -(-length // block_bytes)


def longest(lengths: Mapping[str, int]) -> int:
    """Return the most bytes that the checksums of sections of some lengths in bytes can take."""
    blocks = sum(count_of(length, SMALLEST_BLOCK) for length in lengths.values())
    return HEAD.itemsize + len(lengths) * ENTRY.itemsize + blocks * CHECKSUM.itemsize


def length_of(sections: list[int]) -> int:
    """Return the bytes of what a writer says of sections of some lengths; 0 if that is nothing."""
    long = [length for length in sections if length > BLOCK_BYTES]
    if not long:
        return 0
    blocks = sum(map(count_of, long))
    return HEAD.itemsize + len(long) * ENTRY.itemsize + blocks * CHECKSUM.itemsize
