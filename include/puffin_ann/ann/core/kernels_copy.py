"""Copying rows from here and there to one place, compiled."""

import numpy as np
from numba import types
from numpy.typing import NDArray

from puffin_ann.ann.simd.intrinsics import numbers_at
from puffin_ann.ann.simd.vectors import prefetch
from puffin_ann.numba_kernels import kernel

AHEAD = 8
"""Rows whose first lines are asked for before their turn; the processor follows from there."""

U64 = np.uint64

_numbers = numbers_at(types.float32)


@kernel()
def copy_rows(starts: NDArray[np.uint64], out: NDArray[np.float32]) -> None:
    """Copy rows side by side.

    Args:
        starts: `(n,) uint64`, the address of each row; trusted.
        out: `(n, d) float32`, written.
    """
    d = out.shape[1]
    for i in range(len(starts)):
        if i + AHEAD < len(starts):
            ahead = _numbers(starts[i + AHEAD], d)
            for z in range(U64(0), U64(min(d, 64)), U64(16)):
                prefetch(ahead, z)
        row = _numbers(starts[i], d)
        for z in range(d):
            out[i, z] = row[z]
