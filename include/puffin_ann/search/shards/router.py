"""Choose the shards that each query is searched in, and how widely: arrays in, arrays out."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.clustering.kernels_routing import share_widths

NEAREST_SHARE = 0.7
"""Share of the search width for a shard whose nearest cell is as near as the nearest of all."""

FARTHEST_SHARE = 0.25
"""Share for a shard whose nearest cell is farther by `FARTHEST` or more."""

FARTHEST = 0.2
"""By how much that cell's squared distance exceeds the smallest one, as a share of that."""

STEPS = 3
"""Steps in which the share falls from `NEAREST_SHARE` to `FARTHEST_SHARE`.

At equal recall this is a tenth faster than one share for all shards at 0.95, a fifth at 0.99 (GloVe
and WordNet glosses in four shards). To go by the distance of the k-th neighbour that the nearest
shard found, known only after it was searched, was no better.
"""


_STEPS_A_UNIT = np.float32(STEPS / FARTHEST)
_SHARES = np.linspace(NEAREST_SHARE, FARTHEST_SHARE, STEPS + 1, dtype=np.float32)


class Router:
    """Chooses the shards that hold each query's nearest cells, and how wide to search each.

    Args:
        centroids: (k, dc) float32, k ≥ 1.
        partition_shards: (k,) uint32, the shard of each cell.
    """

    def __init__(
        self, centroids: NDArray[np.float32], partition_shards: NDArray[np.uint32]
    ) -> None:
        # The cells of a shard are side by side, so that one pass finds each shard's nearest.
        order = np.argsort(partition_shards, kind="stable")
        owners, firsts = np.unique(partition_shards[order], return_index=True)
        self._owners = owners.astype(np.int64)
        self._begins = np.append(firsts, len(order)).astype(np.int64)
        doubled = np.ascontiguousarray(centroids[order].T) * np.float32(2)
        self._doubled = doubled
        self._squares = np.einsum("ij,ij->j", doubled, doubled) * np.float32(0.25)
        self.shards = int(self._owners[-1]) + 1

    def shares(self, queries: NDArray[np.float32], probe_partitions: int) -> NDArray[np.float32]:
        """Return (q, shards) float32, shares of the search width.

        It is 1 for the shard of the nearest cell, less for others that are probed, 0 for those
        that are not.

        Args:
            queries: (q, dc) float32 in the search space of the metric.
            probe_partitions: nearest cells to consider, at least 1.
        """
        # Queries so long that squares leave float32 are near no cell, or all.
        with np.errstate(over="ignore", invalid="ignore"):
            scores = queries @ self._doubled
            np.subtract(self._squares, scores, out=scores)
        last = probe_partitions - 1
        if probe_partitions < len(self._squares):
            limits = np.partition(scores, last, axis=1)[:, last].copy()
        else:
            limits = np.full(len(queries), np.inf, np.float32)
        nearest = np.empty(len(self._owners), np.float32)
        shares = np.zeros((len(queries), self.shards), np.float32)
        share_widths(
            queries, scores, limits, self._begins, self._owners, _STEPS_A_UNIT, _SHARES, nearest,
            shares,
        )  # fmt: skip
        return shares
