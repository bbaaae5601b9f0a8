"""Staged rows of one task, in blocks that are read by ranges.

A block has the rows of one shard in a build, of one cell in a refresh. Of n rows of dimension d it
is, little-endian and without padding: vectors (n, d) float32, locators (n, 3) uint32 (file id, row
group, offset in it), identities (n, 2) uint64. Blocks follow each other in order of their numbers.
Offsets follow from the row counts, which travel in the assign summary with each block's CRC-32.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.memmap import new_array
from puffin_ann.blobs.shards.rows import Rows
from puffin_ann.errors import StagingGoneError

LOCATOR_BYTES = 3 * 4
IDENTITY_BYTES = 2 * 8
_CHUNK = 8 << 20


class Writable(Protocol):
    """What a segment is written to."""

    def write(self, data: bytes, /) -> int:
        """Write all of `data`."""
        ...


class Readable(Protocol):
    """What a stream of the table's store offers."""

    def read(self, size: int = ...) -> bytes:
        """Read up to `size` bytes."""
        ...

    def seek(self, offset: int, whence: int = ...) -> int:
        """Move to `offset`."""
        ...


@dataclass(frozen=True)
class VectorRows:
    """Rows on their way from the table to a shard.

    Attributes:
        vectors: (n, d) float32, possibly memory-mapped.
        locators: (n, 3) uint32: file id, row group, offset in the row group.
        identities: (n, 2) uint64.
    """

    vectors: NDArray[np.float32]
    locators: NDArray[np.uint32]
    identities: NDArray[np.uint64]

    def take(self, rows: NDArray[np.int64] | slice) -> "VectorRows":
        """Return some rows, in the order given; those of a slice are the same memory."""
        return VectorRows(self.vectors[rows], self.locators[rows], self.identities[rows])

    @property
    def located(self) -> Rows:
        """Where the rows are, as a shard's blob has it; the same memory."""
        file_ids, row_groups, offsets = self.locators.T
        return Rows(file_ids, row_groups, offsets, self.identities)


def row_bytes(dimension: int) -> int:
    """Return the bytes of one staged row."""
    return 4 * dimension + LOCATOR_BYTES + IDENTITY_BYTES


def write_segment(
    out: Writable, rows: VectorRows, shard_of_row: NDArray[np.uint32], shards: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Write the rows grouped by shard, each group in the order the rows came.

    Returns:
        Rows and CRC-32 of each shard's block, both (shards,) uint32.
    """
    order = np.argsort(shard_of_row, kind="stable")
    counts = np.bincount(shard_of_row, minlength=shards).astype(np.uint32)
    bounds = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    checksums = np.zeros(shards, dtype=np.uint32)
    for shard in range(shards):
        block = rows.take(order[bounds[shard] : bounds[shard + 1]])
        checksum = 0
        for array in (block.vectors, block.locators, block.identities):
            data = np.ascontiguousarray(array).tobytes()
            checksum = zlib.crc32(data, checksum)
            out.write(data)
        checksums[shard] = checksum
    return counts, checksums


def block_offset(counts: NDArray[np.uint32], shard: int, dimension: int) -> int:
    """Return where a shard's block begins in its segment."""
    return int(counts[:shard].sum(dtype=np.int64)) * row_bytes(dimension)


def read_block(
    stream: Readable, offset: int, into: VectorRows, checksum: int, *, name: str
) -> None:
    """Read one block into arrays of its size.

    Raises:
        StagingGoneError: the segment ends early or its bytes are not those that were written.
    """
    stream.seek(offset)
    found = 0
    for array in (into.vectors, into.locators, into.identities):
        found = _read_array(stream, array, found, name)
    if found != checksum:
        raise StagingGoneError(f"staged segment {name} at {offset}: checksum differs")


def _read_array(stream: Readable, array: NDArray[np.generic], checksum: int, name: str) -> int:
    target = array.reshape(-1).view(np.uint8)
    done = 0
    while done < len(target):
        data = stream.read(min(_CHUNK, len(target) - done))
        if not data:
            raise StagingGoneError(f"staged segment {name} ends early")
        checksum = zlib.crc32(data, checksum)
        target[done : done + len(data)] = np.frombuffer(data, dtype=np.uint8)
        done += len(data)
    return checksum


def mapped_rows(rows: int, dimension: int, scratch: Path) -> VectorRows:
    """Return room for rows in new files of an existing folder."""

    def array(name: str, width: int, dtype: type[np.generic]) -> NDArray[np.generic]:
        if not rows:  # an empty file cannot be mapped
            return np.zeros((0, width), dtype=dtype)
        return new_array(scratch / f"{name}.npy", dtype, (rows, width))

    return VectorRows(
        array("vectors", dimension, np.float32),  # type: ignore[arg-type]
        array("locators", 3, np.uint32),  # type: ignore[arg-type]
        array("identities", 2, np.uint64),  # type: ignore[arg-type]
    )


def concatenate(parts: Sequence[VectorRows], dimension: int) -> VectorRows:
    """Join batches of rows."""
    if not parts:
        return VectorRows(
            np.zeros((0, dimension), dtype=np.float32),
            np.zeros((0, 3), dtype=np.uint32),
            np.zeros((0, 2), dtype=np.uint64),
        )
    return VectorRows(
        np.concatenate([part.vectors for part in parts]),
        np.concatenate([part.locators for part in parts]),
        np.concatenate([part.identities for part in parts]),
    )
