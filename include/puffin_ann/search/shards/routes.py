"""Where an index version's shards lie: which of them a query is searched in, and how widely."""

import logging
import math
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pyiceberg.io import FileIO

from puffin_ann.ann.core import blas
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.blobs.partitions import Partitions
from puffin_ann.blobs.routing import ShardEntry
from puffin_ann.errors import FormatError
from puffin_ann.search.index_version import IndexVersion
from puffin_ann.search.shards.router import NEAREST_SHARE, Router

EVERYWHERE_ROWS = 1 << 20
"""Up to so many rows that satisfy a condition are looked for in every shard, since they need not
lie where a query's nearest cells are."""

log = logging.getLogger("puffin_ann")


class Routes:
    """The cells of a version, read when first needed, and the ways by them to its shards.

    Attributes:
        is_delta: (shards,) bool.
        lost_cells: why the cells could not be read, so that every shard is asked; else empty.
    """

    def __init__(self, io: FileIO, version: IndexVersion) -> None:
        self._io, self._version, self._routing = io, version, version.routing
        self._metric = METRICS[version.routing.metric]
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
            return self._version.cells(self._io).among(graphs)
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
        # BLAS's own threads would go on spinning for a tenth of a second, on the cores of ours.
        with blas.single_thread():
            routed = router.shares(self._metric.queries_to_search_space(queries), probe_partitions)
        if router.shards == len(self.is_delta) and not self.is_delta.any():
            return routed
        every = np.zeros((len(queries), len(self.is_delta)), np.float32)
        every[:, : router.shards] = routed
        every[:, self.is_delta] = NEAREST_SHARE
        return every

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
        shares = np.where(self.is_delta, np.float32(NEAREST_SHARE), np.float32(1.0))
        return np.tile(shares, (queries, 1))

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
