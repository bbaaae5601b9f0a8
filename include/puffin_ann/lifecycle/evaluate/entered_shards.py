"""Tell which share of the true neighbours lies in the shards that searches enter, without a search.

A search enters the shards of the cells nearest a query. What lies in others it cannot find, however
wide it is.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.lifecycle.evaluate.measure import Measure, RecallMeter
from puffin_ann.lifecycle.evaluate.scanned_cells import CHUNK, ranks_of
from puffin_ann.search.index import Index


class EnteredShards:
    """The true neighbours of queries, by how many cells lead to the shard of each.

    Args:
        index: with cells.
        meter: queries, and the cells of their true neighbours.
    """

    def __init__(self, index: Index, meter: RecallMeter) -> None:
        cells = index.version.cells(index.table.io)
        self._count = cells.count
        self._firsts = _first_of_shard(index, meter, cells)

    def recall(self, k: int, probe: int) -> Measure:
        """Return the recall of k neighbours that no search by so many cells exceeds."""
        return Measure.of((self._firsts[:, :k] < probe).mean(axis=1))

    def fewest_cells(self, k: int, least: int, share: float) -> int:
        """Return how many cells, of at least some, lead to a share of k neighbours."""
        ordered = np.sort(self._firsts[:, :k], axis=None)
        wanted = int(np.ceil(share * ordered.size - 1e-9))
        return int(min(self._count, max(least, ordered[max(0, wanted - 1)] + 1)))


def _first_of_shard(index: Index, meter: RecallMeter, cells: Partitions) -> NDArray[np.int64]:
    """Return (q, m): how many cells are nearer to a query than the first of a neighbour's shard."""
    shards, place = np.unique(cells.shards, return_inverse=True)
    order = np.argsort(place, kind="stable")
    starts = np.searchsorted(place[order], np.arange(len(shards)))
    near, found = meter.truth.cells, []
    for start in range(0, len(near), CHUNK):
        part = slice(start, start + CHUNK)
        ranks = ranks_of(index, meter.queries[part])
        firsts = np.minimum.reduceat(ranks[:, order], starts, axis=1)
        taken = np.take_along_axis(firsts, place[np.maximum(near[part], 0)], axis=1)
        found.append(np.where(near[part] >= 0, taken, cells.count - 1))
    return np.concatenate(found)
