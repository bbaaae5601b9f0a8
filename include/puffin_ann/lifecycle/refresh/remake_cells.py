"""Make the cells of an index again, of the rows of its shards.

A rows blob says which rows are of which cell, so a cell keeps its number, by which deltas name it,
and its shard. Its centroid becomes the mean of its rows, as k-means takes that of a sample, or of
what rounded vectors or codes say of them; radii are not known then. Each shard is unpacked once,
one after the other; no graph is built, and nothing is read of the table.
"""

import logging

import numpy as np
from numpy.typing import NDArray
from pyiceberg.io import FileIO

from puffin_ann.ann.clustering.centroids import radii
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.shards.cells import CellStarts
from puffin_ann.blobs.version import partitions as partitions_blob
from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.engines import SearchableShard
from puffin_ann.errors import BlobFormatError
from puffin_ann.lifecycle.build.cell_order import CHUNK_ROWS, ShardCells
from puffin_ann.lifecycle.runtime.scratch import scratch_folder
from puffin_ann.search.cache.local_cache import LocalCache
from puffin_ann.search.shards.opening.blobs import shard_blobs
from puffin_ann.search.shards.opening.load import load_shard
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.settings import settings

log = logging.getLogger("puffin_ann")

SCOPE = "cells"
"""The folder that one shard is unpacked to has no other table's."""
UNBOUNDED = 1 << 62
"""Bytes that a folder may take which holds one shard and is removed: the disk's room bounds it."""


def remake_cells(io: FileIO, version: IndexVersion) -> Partitions:
    """Return the cells of a version whose own cannot be read.

    Args:
        io: reads the files.
        version: of an index of shards.

    Raises:
        FormatError: a shard is damaged, or does not say which of its rows are of which cell.
        StoreUnavailableError: a file's store does not say.
        EnvironmentProblemError: the disk has no room for a shard.
    """
    routing = version.routing
    made = _Made(version)
    for shard in routing.shards:
        if shard.kind != "graph" or not shard.rows:
            continue
        log.info("cells: of the %d rows of shard %d", shard.rows, shard.shard_id)
        with scratch_folder(f"shard-{shard.shard_id}") as folder:
            cache = LocalCache(folder, UNBOUNDED)
            starts = _starts(io, version, shard)
            made.add(shard, starts, load_shard(io, version, shard, cache, SCOPE).engine)
    return made.cells()


def _starts(io: FileIO, version: IndexVersion, shard: ShardEntry) -> CellStarts:
    where = f"{version.file_of(shard)}: shard {shard.shard_id}"
    with version.files(io) as files:
        reader = rows_blob.open_reader(shard_blobs(files, version, shard).rows.open())
        starts = rows_blob.read_cells(reader, shard.rows)
    if starts is None or not len(starts.cells):
        raise BlobFormatError(f"{where} does not say of which cells its rows are")
    if int(starts.cells.max()) >= version.routing.cells.count:
        raise BlobFormatError(
            f"{where} has rows of partition {int(starts.cells.max())}, of "
            f"{version.routing.cells.count}"
        )
    return starts


class _Made:
    """The cells of the shards that were looked at.

    A cell of which no shard has a row lies where another does, in the shard of that: whatever is
    nearest to it is nearest to a cell of that shard.

    Args:
        version: of the index.
    """

    def __init__(self, version: IndexVersion) -> None:
        routing = version.routing
        self._metric, self._norm_bound = routing.metric, routing.norm_bound
        self._dimension = routing.dimension
        count = routing.cells.count
        width = partitions_blob.none(routing.metric, routing.dimension).centroids.shape[1]
        self._centroids = np.zeros((count, width), np.float32)
        self._owners = np.full(count, min(routing.graph_ids, default=0), np.uint32)
        self._rows = np.zeros(count, np.uint64)
        self._radii = np.zeros(count, np.float32)
        self._is_made = np.zeros(count, np.bool_)
        self._is_measured = routing.vectors == "float32"  # else stored vectors prove no radius
        self._threads = settings().thread_count

    def add(self, shard: ShardEntry, starts: CellStarts, rows: SearchableShard) -> None:
        """Make the cells of a shard.

        Raises:
            BlobFormatError: another shard has rows of one, too.
        """
        ids = np.unique(starts.cells)
        if self._is_made[ids].any():
            cell = int(ids[self._is_made[ids].argmax()])
            raise BlobFormatError(
                f"shard {shard.shard_id} has rows of partition {cell}, as another"
            )
        self._is_made[ids], self._owners[ids] = True, shard.shard_id
        places = np.searchsorted(ids, starts.cells).astype(np.uint32)
        ordered = np.repeat(places, np.diff(starts.starts))
        totals = np.zeros((len(ids), self._centroids.shape[1]), np.float64)
        for place, (_, start, stop) in zip(places.tolist(), starts.ranges(), strict=True):
            totals[place] += self._total(rows, start, stop)
        self._centroids[ids] = totals / np.bincount(ordered, minlength=len(ids))[:, None]
        cells = ShardCells(ids, self._centroids[ids], self._metric, self._norm_bound)
        for start in range(0, shard.rows, CHUNK_ROWS):
            vectors = rows.vectors(np.arange(start, min(start + CHUNK_ROWS, shard.rows)))
            known = ordered[start : start + len(vectors)]
            # Rows that earlier releases inserted stand behind all others, in no order.
            behind = cells.nearest(vectors[len(known) :], self._threads)
            places = np.concatenate([known, np.searchsorted(ids, behind).astype(np.uint32)])
            wide = radii(self._space(vectors), cells.centroids, places, self._metric)
            if not self._is_measured:
                wide = np.full_like(wide, np.inf)
            self._radii[ids] = np.maximum(self._radii[ids], wide)
            self._rows[ids] += np.bincount(places, minlength=len(ids)).astype(np.uint64)

    def _total(self, rows: SearchableShard, start: int, stop: int) -> NDArray[np.float64]:
        total = np.zeros(self._centroids.shape[1], np.float64)
        for first in range(start, stop, CHUNK_ROWS):
            space = self._space(rows.vectors(np.arange(first, min(first + CHUNK_ROWS, stop))))
            total += space.sum(axis=0, dtype=np.float64)
        return total

    def _space(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        return METRICS[self._metric].to_search_space(vectors, self._norm_bound)

    def cells(self) -> Partitions:
        """Return them."""
        if self._is_made.any():
            first = int(self._is_made.argmax())
            self._centroids[~self._is_made] = self._centroids[first]
            self._owners[~self._is_made] = self._owners[first]
        return Partitions(
            metric=self._metric,
            dimension=self._dimension,
            centroids=self._centroids,
            shards=self._owners,
            rows=self._rows,
            radii=self._radii,
        )
