"""Loops over varints, compiled: the only part of the layouts where numpy is too slow.

Decoders never read or write outside the arrays they are given, whatever the bytes say.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding.varint_faults import (
    CUT_OFF,
    DEGREE,
    LEFT_OVER,
    NEIGHBOUR,
    OVER_LONG,
    TOO_LARGE,
)
from puffin_ann.numba_kernels import kernel


@kernel()
def _put(value: int, out: NDArray[np.uint8], at: int) -> int:
    while value >= 128:
        out[at] = np.uint8((value & 127) | 128)
        value >>= 7
        at += 1
    out[at] = np.uint8(value)
    return at + 1


@kernel()
def _get(data: NDArray[np.uint8], at: int) -> tuple[int, int]:
    """Return (value, position after it); a negative value is an error code."""
    value = 0
    shift = 0
    while shift < 35:
        if at >= len(data):
            return CUT_OFF, at
        byte = data[at]
        at += 1
        value |= (np.int64(byte) & 127) << shift  # type: ignore[assignment]
        if byte < 128:
            if byte == 0 and shift > 0:
                return OVER_LONG, at
            return value, at
        shift += 7
    return OVER_LONG, at


@kernel()
def put_varints(values: NDArray[np.int64], out: NDArray[np.uint8]) -> int:
    """Encode `(n,) int64` values in 0 … 2³⁵−1 to `out` (5n bytes suffice); return bytes used."""
    at = 0
    for i in range(len(values)):
        at = _put(values[i], out, at)
    return at


@kernel()
def get_varints(data: NDArray[np.uint8], out: NDArray[np.int64]) -> int:
    """Decode exactly `len(out)` varints that fill `data`; return 0 or an error code."""
    at = 0
    for i in range(len(out)):
        value, at = _get(data, at)
        if value < 0:
            return int(value)
        out[i] = value
    return 0 if at == len(data) else LEFT_OVER


@kernel()
def get_steps(data: NDArray[np.uint8], out: NDArray[np.uint32]) -> int:
    """Decode columns of numbers, each told by steps; return 0 or an error code.

    Args:
        data: `uint8`, zigzag varints of steps from number to number, a column after the other; each
            column begins at 0.
        out: `(c, n) uint32`, written.
    """
    at = 0
    for column in range(out.shape[0]):
        value = np.int64(0)
        for i in range(out.shape[1]):
            step, at = _get(data, at)
            if step < 0:
                return int(step)
            value += (step >> 1) ^ -(step & 1)
            if value < 0 or value > 0xFFFFFFFF:
                return TOO_LARGE
            out[column, i] = value
    return 0 if at == len(data) else LEFT_OVER


@kernel()
def put_adjacency(
    degrees: NDArray[np.uint16],
    neighbours: NDArray[np.uint32],
    rows: int,
    out: NDArray[np.uint8],
) -> int:
    """Encode a block of nodes; return bytes used or an error code.

    Args:
        degrees: `(b,) uint16`.
        neighbours: `(b, R) uint32`, the first `degrees[i]` of each line strictly ascending.
        rows: every neighbour must be below this.
        out: `uint8`, at least `b · (3 + 5R)` bytes.
    """
    at = 0
    for i in range(len(degrees)):
        if degrees[i] > neighbours.shape[1]:
            return DEGREE
        at = _put(np.int64(degrees[i]), out, at)
    for i in range(len(degrees)):
        expected = 0
        for j in range(degrees[i]):
            neighbour = np.int64(neighbours[i, j])
            if neighbour < expected or neighbour >= rows:
                return NEIGHBOUR
            at = _put(neighbour - expected, out, at)
            expected = neighbour + 1  # type: ignore[assignment]
    return at


@kernel()
def get_adjacency(
    data: NDArray[np.uint8],
    rows: int,
    degrees: NDArray[np.uint16],
    neighbours: NDArray[np.uint32],
) -> int:
    """Decode a block of nodes that fills `data`; return 0 or an error code.

    Args:
        data: `uint8`, what `put_adjacency` wrote.
        rows: every neighbour must be below this.
        degrees: `(b,) uint16`, written.
        neighbours: `(b, R) uint32`, written, zero beyond the degree.
    """
    most = neighbours.shape[1]
    at = 0
    for i in range(len(degrees)):
        degree, at = _get(data, at)
        if degree < 0:
            return int(degree)
        if degree > most:
            return DEGREE
        degrees[i] = degree
    for i in range(len(degrees)):
        expected = 0
        for j in range(degrees[i]):
            gap, at = _get(data, at)
            if gap < 0:
                return int(gap)
            neighbour = expected + gap
            if neighbour >= rows:
                return NEIGHBOUR
            neighbours[i, j] = neighbour
            expected = neighbour + 1
        for j in range(degrees[i], most):
            neighbours[i, j] = 0
    return 0 if at == len(data) else LEFT_OVER
