"""Cells of which most rows were deleted: where a query lies in one, its neighbours lie elsewhere.

The nearest of the rows that are left are then on all sides of it, in shards that the distances of
their cells would not lead to.
"""

import threading
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.shards.cells import CellStarts
from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.search.shards.opening.snapshot_shard import SnapshotShard

MOSTLY = 0.5
"""Share of a cell's rows that are left, below which a query that lies in it is searched farther."""

FARTHER = 4
"""So many times as many cells are probed for such a query, each counted by the share of its rows
that are left: as much more as shards do themselves, see `ann.graph.kernels_frontier`."""

WIDER = np.float32(2.0)
"""Share of the search width for it in each shard found: what is nearest there lies on one side.

Of 12,000 rows of 96 numbers in 20 clusters, one of them deleted, in four shards of 32 cells, 0.55
of the nearest to queries in that one were found; so 0.92, and by a share of 1 0.88.
"""


SMALL = 0.1
"""Share of the rows that cells of its shard have on average, below which one may have lost rows
that are not in the shard any more, since it was built again: it had more once."""


class EmptiedCells:
    """What is left of cells, as far as the shards they lie in are open; safe for several threads.

    Attributes:
        left: (cells,) float32, the share of each cell's rows that are live; None while no cell is
            known that lost most of them.

    Args:
        cells: of the version.
    """

    def __init__(self, cells: Partitions) -> None:
        self.left: NDArray[np.float32] | None = None
        self._cells, self._every = cells, np.ones(cells.count, np.float32)
        self._noted: set[int] = set()
        self._lock = threading.Lock()

    def note(self, shards: Mapping[int, SnapshotShard]) -> bool:
        """Note what is left of the cells of open shards, by id; tell whether some are emptied."""
        if len(shards) == len(self._noted):
            return False
        with self._lock:
            new = [number for number in list(shards) if number not in self._noted]
            changed = [self._count(number, shards[number]) for number in new]
            if any(changed):
                self.left = self._every.copy()
            self._noted.update(new)  # last: until then others wait for what is left
        return any(changed)

    def _count(self, number: int, shard: SnapshotShard) -> bool:
        """Count what is left of the cells of a shard; tell whether some are emptied.

        Of a shard whose rows are not all in the order of cells nothing is known.
        """
        runs, deleted = shard.loaded.locators.cells, shard.deleted
        owned = np.flatnonzero(self._cells.shards == number)
        if runs is None or runs.ordered_rows < len(shard.loaded.locators) or not len(owned):
            return False
        gone = np.zeros(len(runs.cells), np.int64)
        if deleted is not None and len(gone):
            gone = np.add.reduceat(deleted, runs.starts[:-1].astype(np.int64), dtype=np.int64)
        self._every[owned] = left_of_cells(self._cells, owned, runs, gone)
        return bool((self._every[owned] < MOSTLY).any())


def left_of_cells(
    cells: Partitions, owned: NDArray[np.int64], runs: CellStarts, gone: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return the share of rows that each cell of a shard has left, (o,) float32.

    Args:
        cells: of the version.
        owned: (o,) int64, those of the shard, at least one.
        runs: of its rows, which are all in the order of cells.
        gone: (r,) int64, how many rows of each run are deleted.
    """
    count = cells.count
    rows = np.bincount(runs.cells, np.diff(runs.starts.astype(np.int64)), minlength=count)[owned]
    live = rows - np.bincount(runs.cells, gone, minlength=count)[owned]
    is_small = rows <= SMALL * rows.mean()
    once = np.maximum(rows, np.where(is_small, cells.rows[owned], 0))
    left = (live / np.maximum(once, 1.0)).astype(np.float32)
    left[once == 0] = 1.0
    return left


def probe_farther(
    scores: NDArray[np.float32], left: NDArray[np.float32], probe_partitions: int
) -> NDArray[np.bool_]:
    """Return the cells to probe for queries that lie in emptied ones, (q, cells) bool.

    Args:
        scores: (q, cells) float32, ascending with the squared distances of queries and cells.
        left: (cells,) float32, see `EmptiedCells`.
        probe_partitions: cells that are probed for other queries.
    """
    order = np.argsort(scores, axis=1, kind="stable")
    nearer = np.cumsum(left[order], axis=1, dtype=np.float64) - left[order]
    probed = np.empty(scores.shape, np.bool_)
    np.put_along_axis(probed, order, nearer < FARTHER * probe_partitions, axis=1)
    return probed & (left > 0.0)
