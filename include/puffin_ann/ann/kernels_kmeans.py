"""The loops of k-means that numpy has no single pass for."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.kernels_distance import squared_l2

from numba import njit  # isort: skip  (after the kernels' module has configured it)


@njit(cache=True, nogil=True)
def nearest(
    vectors: NDArray[np.float32],
    centroids: NDArray[np.float32],
    centroid_squares: NDArray[np.float32],
    products: NDArray[np.float32],
    ids: NDArray[np.uint32],
    squared: NDArray[np.float32],
) -> None:
    """Write each vector's nearest centroid, the lowest id of equals, and its squared distance.

    Args:
        vectors: `(b, d) float32`.
        centroids: `(k, d) float32`.
        centroid_squares: `(k,) float32`.
        products: `(b, k) float32`, vectors times centroids.
        ids: `(b,) uint32`, written.
        squared: `(b,) float32`, written; computed anew, for the float32 sum of squares less
            products has lost its digits where a vector is close to its centroid.

    """
    k = np.uint64(len(centroids))
    for i in range(len(vectors)):
        row = products[i]
        best = np.uint64(0)
        least = np.float32(np.inf)
        for j in range(k):
            value = centroid_squares[j] - np.float32(2.0) * row[j]
            if value < least:
                least = value
                best = np.uint64(j)
        ids[i] = np.uint32(best)
        squared[i] = np.float32(squared_l2(vectors, i, centroids, int(best)))


@njit(cache=True, nogil=True)
def add_up(
    vectors: NDArray[np.float32],
    ids: NDArray[np.uint32],
    sums: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> None:
    """Add `(n, d)` vectors to the `(k, d)` sums and `(k,)` counts of their centroids."""
    d = np.uint64(vectors.shape[1])
    for i in range(len(vectors)):
        row = sums[ids[i]]
        for j in range(d):
            row[j] += np.float64(vectors[i, j])
        counts[ids[i]] += 1
