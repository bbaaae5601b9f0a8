"""The loops of k-means that numpy has no single pass for."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.simd.kernels_distance import squared_l2
from puffin_ann.numba_kernels import kernel

BLOCK = 128
"""Centroids looked at between two branches."""


@kernel(fastmath=frozenset({"nnan", "nsz", "reassoc"}))
def _least(
    line: NDArray[np.float32], squares: NDArray[np.float32], first: int, last: int
) -> np.float32:
    """Return the least of `squares − 2 · line` in a range: no branches, so that it vectorises."""
    least = np.float32(np.inf)
    for j in range(np.uint64(first), np.uint64(last)):
        value = squares[j] - np.float32(2.0) * line[j]
        least = value if value < least else least
    return least


@kernel()
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
        squared: `(b,) float32`, written; computed again, for the float32 sum of squares less
            products has lost its digits where a vector is close to its centroid.
    """
    k = len(centroids)
    for i in range(len(vectors)):
        line = products[i]
        least = np.float32(np.inf)
        best = 0
        for first in range(0, k, BLOCK):
            value = _least(line, centroid_squares, first, min(first + BLOCK, k))
            if value < least:
                least = value
                best = first
        # Twice a number is exact, so the same difference comes out again, bit for bit.
        while best < k and centroid_squares[best] - np.float32(2.0) * line[best] != least:
            best += 1
        if best == k:  # the products overflowed: any centroid is as good as another
            best = 0
        ids[i] = np.uint32(best)
        squared[i] = np.float32(squared_l2(vectors, i, centroids, best))


@kernel()
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
