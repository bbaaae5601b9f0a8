"""Rows by a byte a number, compiled: they are coded, and multiplied with a few queries."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.simd.kernels_byte_rows import MIDDLE, product_by_bytes, write_byte_row
from puffin_ann.numba_kernels import FAST, kernel

F32, U64 = np.float32, np.uint64

DOUBTED = np.float32(1.001)
"""How much farther a row may be from what its codes say than was summed up in float32."""

LEAST = np.float32(1e-20)
"""Squared norm below which squares of what codes lack could fall below the least float32."""


@kernel(fastmath=FAST, allocates=True)
def write_byte_rows(
    vectors: NDArray[np.float32],
    codes: NDArray[np.uint8],
    steps: NDArray[np.float32],
    doubts: NDArray[np.float32],
) -> None:
    """Code rows.

    Args:
        vectors: `(n, d) float32`.
        codes: `(n, w) uint8`, written; w is a multiple of 16, and at least d.
        steps: `(n,) float32`, written.
        doubts: `(n,) float32`, written; infinite for rows too long or too short
            for squares.
    """
    dimension, wide = vectors.shape[1], codes.shape[1]
    flat = codes.reshape(-1)
    row = np.zeros(wide, np.float32)
    for i in range(U64(len(vectors))):
        size = widest = F32(0)
        for z in range(U64(dimension)):
            row[z] = vectors[i, z]
            size += row[z] * row[z]
            widest = max(widest, abs(row[z]))
        if LEAST < size < F32(np.inf):
            step, lacking = write_byte_row(row, U64(0), wide, flat, i * U64(wide))
            steps[i], doubts[i] = step, DOUBTED * np.sqrt(lacking)
        else:
            codes[i] = MIDDLE
            steps[i], doubts[i] = F32(0), F32(np.inf) if widest > F32(0) else F32(0)


@kernel()
def few_byte_products(
    queries: NDArray[np.float32],
    codes: NDArray[np.uint8],
    steps: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Write the products of a few `(q, w)` queries and rows by their codes, `(q, n)`.

    Args:
        queries: `(q, w) float32`, zeros behind the dimension.
        codes: flat `(n, w) uint8`.
        steps: `(n,) float32`.
        out: `(q, n) float32`, written.
    """
    wide = U64(queries.shape[1])
    for j in range(U64(len(steps))):
        for i in range(U64(len(queries))):
            out[i, j] = product_by_bytes(codes, j * wide, steps[j], queries[i])
