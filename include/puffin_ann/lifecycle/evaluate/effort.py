"""Tell what searches cost, by their widths in the shards they enter, without a search.

A choice by the clock depends on what else the machine does, so that the same build chooses now this
search, now that.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from puffin_ann.lifecycle.evaluate.measure import RecallMeter
from puffin_ann.search.index import Index
from puffin_ann.search.shards.placed import placed
from puffin_ann.search.shards.routes import Router

ENTERED: Mapping[str, int] = {"vamana": 16, "hnsw": 8, "ivf_pq": 100}
"""What it takes to enter a shard, in units of the search width, by engine: a graph's rows on the
way to the query, or to rank lists.

Of two to five searches of the same recall (0.9, 0.95 and 0.98; GloVe and glosses × 384, in four
shards) the one chosen so took at most a tenth more than the fastest as the clock had it, and
mostly less than a twentieth.
"""


class Efforts:
    """What searches of an index cost.

    Args:
        index: with cells.
        meter: queries, and how many rows are searched for.
    """

    def __init__(self, index: Index, meter: RecallMeter) -> None:
        routing = index.version.routing
        cells = index.version.cells(index.table.io)
        places = np.unique(cells.shards, return_inverse=True)[1].astype(np.uint32)
        self._router = Router(cells.centroids, places)
        self._queries = placed(meter.queries, routing)
        self._entered, self._k = ENTERED.get(routing.algorithm, 0), meter.k
        self._shares: dict[int, NDArray[np.float32]] = {}

    def of(self, width: int, probe: int) -> float:
        """Return the effort of a query, in units of the search width, over all shards it enters."""
        if probe not in self._shares:
            self._shares[probe] = self._router.shares(self._queries, probe)
        shares = self._shares[probe]
        widths = np.maximum(self._k, np.rint(shares * width)) + self._entered
        return float(np.where(shares > 0.0, widths, 0.0).sum(axis=1).mean())
