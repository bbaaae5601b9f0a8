"""The one loop of k-means that NumPy has no fast form for."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.settings import configure_numba

configure_numba()  # Numba reads where to keep compiled code when it is imported

from numba import njit  # noqa: E402


@njit(cache=True, nogil=True)
def add_rows(
    rows: NDArray[np.float32],
    ids: NDArray[np.uint32],
    sums: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> None:
    """Add each `(d,)` row to line `ids[i]` of `sums`, `(k, d)`, and count it, in order of rows."""
    for i in range(len(rows)):
        cluster = ids[i]
        counts[cluster] += 1
        for j in range(rows.shape[1]):
            sums[cluster, j] += rows[i, j]
