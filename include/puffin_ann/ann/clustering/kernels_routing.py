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
