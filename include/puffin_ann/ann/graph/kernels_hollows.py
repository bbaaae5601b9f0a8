"""How many rows are nearer to a query than a distance, compiled: for few rows at a time."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.simd.kernels_distance import distance, dot
from puffin_ann.numba_kernels import kernel


@kernel()
def count_nearer(
    metric: int, query: NDArray[np.float32], vectors: NDArray[np.float32], limit: float
) -> int:
    """Return how many rows are nearer to a query than a distance.

    Args:
        metric: code.
        query: `(1, d) float32`.
        vectors: `(s, d) float32`.
        limit: the distance.
    """
    square = dot(query, 0, query, 0)
    nearer = 0
    for row in range(len(vectors)):
        nearer += int(distance(metric, query, 0, square, vectors, row) < limit)
    return nearer
