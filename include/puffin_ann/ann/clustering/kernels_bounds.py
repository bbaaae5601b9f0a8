"""The loop over coded centroids: where a probe of thousands of files spends its time."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.numba_kernels import kernel


@kernel()
def products(
    codes: NDArray[np.int8], width: np.uint64, query: NDArray[np.int16], out: NDArray[np.int32]
) -> None:
    """Write the integer inner product of a query and each centroid.

    Args:
        codes: flat `(n · width,) int8`.
        width: numbers in a row.
        query: `(width,) int16`, so small that no sum leaves int32.
        out: `(n,) int32`, written.
    """
    w = np.uint64(width)
    for i in range(np.uint64(len(out))):
        total = np.int32(0)
        first = i * w
        for j in range(w):
            total += np.int32(np.int16(codes[first + j])) * np.int32(query[j])
        out[i] = total
