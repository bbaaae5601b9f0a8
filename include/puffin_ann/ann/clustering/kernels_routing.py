"""From the distances of cells to which shards a query is searched in, and how widely."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.numba_kernels import kernel


@kernel()
def share_widths(
    queries: NDArray[np.float32],
    scores: NDArray[np.float32],
    limits: NDArray[np.float32],
    begins: NDArray[np.int64],
    owners: NDArray[np.int64],
    steps_a_unit: np.float32,
    shares: NDArray[np.float32],
    nearest: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Write the share of the search width of each query and shard.

    Args:
        queries: `(q, d) float32`, whose squared lengths the scores lack.
        scores: `(q, c) float32`, squared distances of cells less those; cells of a shard are side
            by side.
        limits: `(q,) float32`: shards whose nearest cell is farther are not searched.
        begins: `(s + 1,) int64`, where the cells of each shard begin, and c.
        owners: `(s,) int64`, the shards that have cells.
        steps_a_unit: steps for each unit by which a shard's nearest cell is farther than the
            nearest of all, in units of that one's squared distance.
        shares: `(steps + 1,) float32`, by steps; the last for all beyond.
        nearest: `(s,) float32`, scratch.
        out: `(q, shards) float32`, written, all 0 before.
    """
    steps = np.float32(len(shares) - 1)
    for query in range(len(queries)):
        home = 0
        for shard in range(len(owners)):
            least = scores[query, begins[shard]]
            for cell in range(begins[shard] + 1, begins[shard + 1]):
                least = min(least, scores[query, cell])
            nearest[shard] = least
            if least < nearest[home]:
                home = shard
        length = np.float32(0)
        for z in range(queries.shape[1]):
            length += queries[query, z] * queries[query, z]
        squared = max(nearest[home] + length, np.float32(1e-30))
        for shard in range(len(owners)):
            if nearest[shard] > limits[query]:
                continue
            farther = (nearest[shard] - nearest[home]) / squared * steps_a_unit
            # Queries so long that squares leave float32 are near no cell, or all: not a number.
            step = farther if farther < steps else steps
            out[query, owners[shard]] = shares[int(np.rint(step))]
        out[query, owners[home]] = np.float32(1)


@kernel(allocates=True)
def share_widths_of_few(
    queries: NDArray[np.float32],
    doubled: NDArray[np.float32],
    squares: NDArray[np.float32],
    nearest_cells: int,
    begins: NDArray[np.int64],
    owners: NDArray[np.int64],
    steps_a_unit: np.float32,
    shares: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Write what `share_widths` does of queries so few that BLAS would take longer to begin.

    Args:
        queries: `(q, d) float32`.
        doubled: `(d, c) float32`, twice the centroids.
        squares: `(c,) float32`, their squared lengths.
        nearest_cells: cells whose shards are searched, at least 1.
        begins: as of `share_widths`.
        owners: as of `share_widths`.
        steps_a_unit: as of `share_widths`.
        shares: as of `share_widths`.
        out: `(q, shards) float32`, written, all 0 before.
    """
    cells = len(squares)
    scores = np.empty((len(queries), cells), np.float32)
    limits = np.empty(len(queries), np.float32)
    nearest = np.empty(len(owners), np.float32)
    for query in range(len(queries)):
        line = scores[query]
        line[:] = squares
        for z in range(doubled.shape[0]):
            number, centroids = queries[query, z], doubled[z]
            for cell in range(cells):
                line[cell] -= number * centroids[cell]
        limits[query] = np.inf
        if nearest_cells < cells:
            limits[query] = np.partition(line, nearest_cells - 1)[nearest_cells - 1]
    share_widths(queries, scores, limits, begins, owners, steps_a_unit, shares, nearest, out)
