"""Where an index version's shards lie: which of them a query is searched in, and how widely."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pyiceberg.io import FileIO

from puffin_ann.ann.clustering.kernels_routing import share_widths, share_widths_of_few
from puffin_ann.ann.core import blas
from puffin_ann.ann.core.types import Fields
from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.errors import FormatError
from puffin_ann.search.shards.emptied import MOSTLY, WIDER, EmptiedCells, probe_farther
from puffin_ann.search.shards.opening.snapshot_shard import SnapshotShard
from puffin_ann.search.shards.placed import placed
from puffin_ann.search.version.consistency import check_shards_have_cells
from puffin_ann.search.version.index_version import IndexVersion

EVERYWHERE_ROWS = 1 << 20
"""Up to so many rows that satisfy a condition are looked for in every shard, since they need not
lie where a query's nearest cells are."""

NEAREST_SHARE = 0.7
"""Share of the search width for a shard whose nearest cell is as near as the nearest of all."""

FARTHEST_SHARE = 0.25
"""Share for a shard whose nearest cell is farther by `FARTHEST` or more."""

FARTHEST = 0.2
"""By how much that cell's squared distance exceeds the smallest one, as a share of that."""

FEW = 4
"""Queries, at most, that are routed by a kernel: BLAS has to be told to use one thread first."""

STEPS = 3
"""Steps in which the share falls from `NEAREST_SHARE` to `FARTHEST_SHARE`.

At equal recall this is a tenth faster than one share for all shards at 0.95, a fifth at 0.99 (GloVe
and WordNet glosses in four shards). To go by the distance of the k-th neighbour that the nearest
shard found, known only after it was searched, was no better; nor was to keep one pool for all
shards, so that a shard ends where the others' candidates are nearer, or to begin at the row nearest
the query's cell: as many rows were expanded for the same recall, within a twentieth (GloVe).
"""


_STEPS_A_UNIT = np.float32(STEPS / FARTHEST)
_SHARES = np.linspace(NEAREST_SHARE, FARTHEST_SHARE, STEPS + 1, dtype=np.float32)

log = logging.getLogger("puffin_ann")


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
        self._order = order = np.argsort(partition_shards, kind="stable")
        owners, firsts = np.unique(partition_shards[order], return_index=True)
        self._owners = owners.astype(np.int64)
        self._begins = np.append(firsts, len(order)).astype(np.int64)
        doubled = np.ascontiguousarray(centroids[order].T) * np.float32(2)
        self._doubled = doubled
        self._squares = np.einsum("ij,ij->j", doubled, doubled) * np.float32(0.25)
        self.shards = int(self._owners[-1]) + 1

    def routed(self, always: NDArray[np.float32]) -> Fields:
        """Return what `kernels_few.answer_few` chooses by, with shares of shards without cells."""
        return (
            self._doubled, self._squares, self._begins, self._owners, _STEPS_A_UNIT, _SHARES,
            always,
        )  # fmt: skip

    def shares(self, queries: NDArray[np.float32], probe_partitions: int) -> NDArray[np.float32]:
        """Return (q, shards) float32, shares of the search width.

        It is 1 for the shard of the nearest cell, less for others that are probed, 0 for those
        that are not.

        Args:
            queries: (q, dc) float32 in the search space of the metric.
            probe_partitions: nearest cells to consider, at least 1.
        """
        probe_partitions = min(probe_partitions, len(self._squares))
        shares = np.zeros((len(queries), self.shards), np.float32)
        if len(queries) <= FEW:
            share_widths_of_few(
                queries, self._doubled, self._squares, probe_partitions, self._begins,
                self._owners, _STEPS_A_UNIT, _SHARES, shares,
            )  # fmt: skip
            return shares
        scores = self._scores(queries)
        last = probe_partitions - 1
        if probe_partitions < len(self._squares):
            limits = np.partition(scores, last, axis=1)[:, last].copy()
        else:
            limits = np.full(len(queries), np.inf, np.float32)
        nearest = np.empty(len(self._owners), np.float32)
        share_widths(
            queries, scores, limits, self._begins, self._owners, _STEPS_A_UNIT, _SHARES, nearest,
            shares,
        )  # fmt: skip
        return shares

    def in_emptied(
        self, queries: NDArray[np.float32], left: NDArray[np.float32]
    ) -> NDArray[np.bool_]:
        """Tell which queries, placed, lie in a cell that lost most of its rows: (q,) bool."""
        nearest = self._order[self._scores(queries).argmin(axis=1)]
        is_emptied: NDArray[np.bool_] = left[nearest] < MOSTLY
        return is_emptied

    def widen(
        self,
        shares: NDArray[np.float32],
        queries: NDArray[np.float32],
        probe_partitions: int,
        left: NDArray[np.float32],
    ) -> None:
        """Change the shares of queries that lie in emptied cells: they are searched farther.

        Args:
            shares: (q, shards) float32, written.
            queries: (q, dc) float32, placed.
            probe_partitions: nearest cells to consider of other queries.
            left: (cells,) float32, see `EmptiedCells`.
        """
        asked = np.flatnonzero(self.in_emptied(queries, left))
        if len(asked):
            probed = probe_farther(
                self._scores(queries[asked]), left[self._order], probe_partitions
            )
            by_shard = np.logical_or.reduceat(probed, self._begins[:-1], axis=1)
            shares[np.ix_(asked, self._owners)] = WIDER * by_shard

    def _scores(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return (q, cells) float32, ascending with squared distances; cells in `_order`."""
        # BLAS's own threads would go on spinning for a tenth of a second, on the cores of ours.
        # Queries so long that squares leave float32 are near no cell, or all.
        with blas.single_thread(), np.errstate(over="ignore", invalid="ignore"):
            scores: NDArray[np.float32] = queries @ self._doubled
            np.subtract(self._squares, scores, out=scores)
        return scores


class Routes:
    """The cells of a version, read when first needed, and the ways by them to its shards.

    Attributes:
        is_delta: (shards,) bool.
        lost_cells: why the cells could not be read, so that every shard is asked; else empty.
    """

    def __init__(self, io: FileIO, version: IndexVersion) -> None:
        self._io, self._version, self._routing = io, version, version.routing
        self.is_delta = np.array(
            [shard.kind == "delta" for shard in version.routing.shards], np.bool_
        )
        self.lost_cells = ""

    @cached_property
    def cells(self) -> Partitions | None:
        """The cells; None if they cannot be read: then none tells which shards to leave out."""
        graphs = self._routing.graph_ids
        if not (graphs and self._routing.cells.count):
            return None
        try:
            found = self._version.cells(self._io).among(graphs)
            check_shards_have_cells(self._version.index, self._routing.shards, found)
            return found
        except FormatError as error:
            log.error("the cells of index %s cannot be read: %s", self._version.index, error)
            self.lost_cells = str(error)
            return None

    def nearest(self, queries: NDArray[np.float32], probe_partitions: int) -> NDArray[np.float32]:
        """Return (q, shards) float32: the share of the width to search each with, 0 for not at all.

        Deltas have rows of any cell, few of a query's neighbours: they are always probed.

        Args:
            queries: (q, d) float32.
            probe_partitions: nearest cells whose shards are probed.
        """
        router = self._router
        if router is None:
            return self._everywhere(len(queries))
        there, left = self.placed(queries), self._left
        routed = router.shares(there, probe_partitions)
        if left is not None:
            router.widen(routed, there, probe_partitions, left)
        if router.shards == len(self.is_delta) and not self.is_delta.any():
            return routed
        every = np.zeros((len(queries), len(self.is_delta)), np.float32)
        every[:, : router.shards] = routed
        every[:, self.is_delta] = NEAREST_SHARE
        return every

    def note(self, shards: Mapping[int, SnapshotShard]) -> bool:
        """Note what open shards, by id, have left of their cells; tell whether some are emptied."""
        return self._emptied is not None and self._emptied.note(shards)

    @cached_property
    def _emptied(self) -> EmptiedCells | None:
        """None: every shard is asked."""
        cells = None if self._router is None else self.cells
        return None if cells is None else EmptiedCells(cells)

    @property
    def _left(self) -> NDArray[np.float32] | None:
        return None if self._emptied is None else self._emptied.left

    def are_near(self, queries: NDArray[np.float32]) -> bool:
        """Tell whether none of the queries, (q, d) float32, lies in an emptied cell."""
        router, left = self._router, self._left
        if router is None or left is None:
            return True
        return not router.in_emptied(self.placed(queries), left).any()

    def placed(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return queries as cells are compared with them, (q, dc) float32."""
        return placed(queries, self._routing)

    def to_allowed(
        self,
        queries: NDArray[np.float32],
        probe_partitions: int,
        rows: int,
        count_allowed: Callable[[int], int],
    ) -> NDArray[np.float32]:
        """Return (q, shards) float32 as `nearest` does, to where rows are that may be answered.

        Up to `EVERYWHERE_ROWS` of them, that is everywhere. Else so many more cells are probed as
        rows are fewer; and more again where the shards found have fewer such rows than a search
        without a condition reaches: none of them may be near.

        Args:
            queries: (q, d) float32.
            probe_partitions: nearest cells whose shards a search without a condition probes.
            rows: that may be answered, at least 1.
            count_allowed: returns how many of them the shard at a place has.
        """
        if rows <= EVERYWHERE_ROWS:
            return self._everywhere(len(queries))
        cells, live = self._routing.cells.count, max(1, self._version.vectors)
        enough = min(probe_partitions * live / max(1, cells), rows)
        asked = math.ceil(probe_partitions * live / rows)
        shares = self.nearest(queries, min(asked, max(1, cells)))
        short = np.arange(len(queries))
        while asked < cells:
            probed = shares[short] > 0.0
            counts = np.zeros(shares.shape[1], np.int64)
            for place in np.flatnonzero(probed.any(axis=0)).tolist():
                counts[place] = count_allowed(place)
            short = short[probed @ counts < enough]
            if not len(short):
                break
            asked *= 4
            shares[short] = self.nearest(queries[short], min(asked, cells))
        return shares

    def _everywhere(self, queries: int) -> NDArray[np.float32]:
        """Return (queries, shards) float32 as `nearest` does, of every shard."""
        return np.repeat(self._of_every_shard, queries, axis=0)

    @cached_property
    def _of_every_shard(self) -> NDArray[np.float32]:
        return np.where(self.is_delta, np.float32(NEAREST_SHARE), np.float32(1.0))[None]

    @cached_property
    def routed(self) -> Fields:
        """What `kernels_few.answer_few` needs to find what `nearest` does."""
        router = self._router
        if router is None:
            none, no_cells = np.empty(0, np.float32), np.empty(0, np.int64)
            every = self._everywhere(1)[0]
            nowhere = np.empty((0, 0), np.float32)
            return nowhere, none, no_cells, no_cells, _STEPS_A_UNIT, _SHARES, every
        return router.routed(np.where(self.is_delta, np.float32(NEAREST_SHARE), np.float32(0)))

    @cached_property
    def _router(self) -> Router | None:
        """None: every shard is asked."""
        if np.count_nonzero(~self.is_delta) < 2 or self.cells is None:
            return None
        return Router(self.cells.centroids, _owners(self._routing.shards, self.cells))


def _owners(shards: Sequence[ShardEntry], cells: Partitions) -> NDArray[np.uint32]:
    """Return (cells,) uint32, the place among the shards of the one that each belongs to."""
    places = {entry.shard_id: place for place, entry in enumerate(shards)}
    return np.array([places[shard_id] for shard_id in cells.shards.tolist()], np.uint32)
