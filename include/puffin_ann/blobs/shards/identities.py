"""The identities blob: what finds the rows of a shard again in other files, by ordinal.

Apart from the rows blob, since an engine that writes rows anew changes their places and not what
they are: so 16 bytes of each row stay where they are. Rows blobs that earlier releases wrote have
the section themselves.
"""

from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter, Sink
from puffin_ann.errors import BlobFormatError

KIND = "iden"
TYPE = "puffin-ann-identities-v1"

HEAD = np.dtype([("rows", "<u8")])
SECTION = "iden"

RANGES = 32
"""Reads that identities of some rows take at most; more would take longer than to read all."""
NEAR_ROWS = 4096
"""Rows between two whose identities are read in one go: 64 KiB, less than a read costs."""

_IDENTITY = np.dtype(("<u8", 2))


def write(identities: NDArray[np.uint64], out: Sink) -> int:
    """Write the blob and return its length in bytes.

    Args:
        identities: `(n, 2) uint64`, by ordinal; may be memory-mapped.
        out: written to.
    """
    head = np.zeros((), HEAD)
    head["rows"] = len(identities)
    writer = ContainerWriter(out, KIND, by_ranges=True)
    writer.put("head", head)
    with writer.section(SECTION) as sink:
        sink.write_array(identities.astype("<u8", copy=False))
    return writer.finish()


def open_reader(source: BinaryIO, rows: int) -> ContainerReader:
    """Return the sections of an identities blob.

    Args:
        source: the blob.
        rows: how many there must be.

    Raises:
        BlobFormatError: it is no such blob, or that of another number of rows.
    """
    reader = ContainerReader(source, KIND)
    count = int(reader.record("head", HEAD)["rows"])
    if count != rows:
        raise BlobFormatError(f"{KIND} blob: {count} rows, {rows} by the routing blob")
    reader.expect(SECTION, rows * _IDENTITY.itemsize)
    return reader


def read(source: BinaryIO, rows: int) -> NDArray[np.uint64]:
    """Return `(n, 2) uint64`, the identities of all rows; arguments and errors as of `open_reader`.

    Raises:
        ChecksumError: they are not as they were written.
    """
    return read_all(open_reader(source, rows), rows)


def read_all(reader: ContainerReader, rows: int) -> NDArray[np.uint64]:
    """Return `(n, 2) uint64`, the identities in a blob that has some; errors as of `read`."""
    return reader.array(SECTION, "<u8", (rows, 2))


def read_some(
    reader: ContainerReader, rows: int, ordinals: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return `(m, 2) uint64`, the identities of some rows.

    Those near each other are read in one go, in `RANGES` reads at most.

    Args:
        reader: of a blob that has the section.
        rows: how many it has.
        ordinals: (m,) int64, in any order.

    Raises:
        BlobFormatError, ChecksumError: the section is not that of so many rows, or is not as it
            was written where it is read.
    """
    size = _IDENTITY.itemsize
    reader.expect(SECTION, rows * size)
    order = np.argsort(ordinals, kind="stable")
    ascending = ordinals[order]
    found = np.empty((len(ordinals), 2), "<u8")
    gaps = np.diff(ascending)
    widest = np.sort(gaps)[-RANGES:][0] if len(gaps) >= RANGES else 0
    ends = [*np.flatnonzero(gaps > max(widest, NEAR_ROWS)).tolist(), len(ascending) - 1]
    begin = 0
    for end in ends if len(ascending) else []:
        mine = ascending[begin : end + 1]
        first, last = int(mine[0]), int(mine[-1]) + 1
        data = reader.read_range(SECTION, first * size, last * size)
        found[order[begin : end + 1]] = np.frombuffer(data, "<u8").reshape(-1, 2)[mine - first]
        begin = end + 1
    return found
