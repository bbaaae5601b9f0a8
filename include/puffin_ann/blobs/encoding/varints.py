"""Varints: numbers to bytes and back, by the compiled loops of `kernels`.

A varint here is unsigned LEB128: seven bits a byte, lowest first, the high bit set on all but the
last byte; at most five bytes, and never longer than it need be, so that a value has one encoding.

Stands apart from `kernels` so that a module can speak of varints without importing Numba.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding.varint_faults import MESSAGES
from puffin_ann.errors import BlobFormatError

MAX_BYTES = 5


def pack_varints(values: NDArray[np.int64]) -> memoryview:
    """Return the varints of numbers, `(n,)`, each from 0 to below 2^35."""
    from puffin_ann.blobs.encoding.kernels import put_varints

    out = np.empty(MAX_BYTES * len(values), np.uint8)
    return out[: put_varints(values, out)].data


def unpack_varints(data: NDArray[np.uint8], count: int, kind: str) -> NDArray[np.int64]:
    """Return so many numbers, `(count,)`, of which the varints are all of the bytes.

    Args:
        data: the bytes.
        count: how many varints they must be.
        kind: of the blob, for messages.

    Raises:
        BlobFormatError: they are not so many sound varints.
    """
    from puffin_ann.blobs.encoding.kernels import get_varints

    if count > len(data):
        raise BlobFormatError(f"{kind} blob: {len(data)} bytes cannot hold {count} varints")
    values = np.empty(count, np.int64)
    status = get_varints(data, values)
    if status:
        raise BlobFormatError(f"{kind} blob: {MESSAGES[status]}")
    return values


def unpack_steps(data: NDArray[np.uint8], out: NDArray[np.uint32], kind: str) -> None:
    """Unpack columns of numbers that are told by zigzag varints of steps, each column from 0 on.

    Args:
        data: the bytes; all of them are those of the columns.
        out: `(c, n) uint32`, written.
        kind: of the blob, for messages.

    Raises:
        BlobFormatError: they are not so many sound varints, or a number is beyond 32 bits.
    """
    from puffin_ann.blobs.encoding.kernels import get_steps

    if out.size > len(data):
        raise BlobFormatError(f"{kind} blob: {len(data)} bytes cannot hold {out.size} varints")
    status = get_steps(data, out)
    if status:
        raise BlobFormatError(f"{kind} blob: {MESSAGES[status]}")
