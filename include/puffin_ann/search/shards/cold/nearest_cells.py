"""Choose the cells whose rows a query is compared with: arrays in, arrays out."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import blas


def scores(queries: NDArray[np.float32], centroids: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return (q, c) float32 that order the cells of each query by distance, nearest first.

    Args:
        queries: (q, w) float32, in the search space of the metric.
        centroids: (c, w) float32.
    """
    squares = np.einsum("ij,ij->i", centroids, centroids)
    # Queries so long that squares leave float32 are near no cell, or all.
    with blas.single_thread(), np.errstate(over="ignore", invalid="ignore"):
        found: NDArray[np.float32] = squares - 2.0 * (queries @ centroids.T)
    return found


def nearest(
    queries: NDArray[np.float32],
    centroids: NDArray[np.float32],
    rows: NDArray[np.uint64],
    *,
    count: int,
    least_rows: int,
) -> NDArray[np.bool_]:
    """Mark the nearest cells of each query, (q, c) bool.

    Args:
        queries: (q, w) float32, in the search space of the metric.
        centroids: (c, w) float32.
        rows: (c,) uint64, of each cell.
        count: cells to mark.
        least_rows: more cells are marked until they have so many rows.
    """
    order = np.argsort(scores(queries, centroids), axis=1, kind="stable")
    before = np.cumsum(rows[order], axis=1) - rows[order]
    taken = (np.arange(order.shape[1]) < count) | (before < least_rows)
    marked = np.zeros(order.shape, np.bool_)
    np.put_along_axis(marked, order, taken, axis=1)
    return marked
