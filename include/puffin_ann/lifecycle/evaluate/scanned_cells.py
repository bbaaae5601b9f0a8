"""Choose how many cells a search compares whole where it has not the shards on local disk.

Such a search finds the true neighbours that lie in the cells it looks at, and those exactly. So its
recall is known from the cells of the true neighbours, and nothing has to be searched for it.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.declaration import EXACT
from puffin_ann.lifecycle.evaluate.measure import FEW_QUERIES, Measure, RecallMeter
from puffin_ann.search.index import Index
from puffin_ann.search.shards.cold.nearest_cells import scores
from puffin_ann.search.shards.placed import placed

CHUNK = 64
"""Queries whose scores of all cells are held at once."""


def choose_scanned_cells(
    index: Index, tuning: RecallMeter, rest: RecallMeter, *, target: float
) -> tuple[int, float]:
    """Return the fewest cells that reach the target, and the recall that they reach.

    As of widths, a quarter is to spare on the queries that choose; and where the other queries do
    not reach the target by them, there are as many as those need.

    Args:
        index: with cells.
        tuning: queries that choose.
        rest: queries that were not asked before.
        target: recall.
    """
    cells = index.version.routing.cells.count
    if not cells or index.version.routing.algorithm == EXACT or len(tuning.queries) < FEW_QUERIES:
        return cells, 1.0
    chosen = _fewest(_ranks(index, tuning), cells, target + (1.0 - target) / 4, low=True)
    if not len(rest.queries):
        return chosen, 1.0
    ranks = _ranks(index, rest)
    chosen = max(chosen, _fewest(ranks, cells, target, low=False))
    return chosen, _recall(ranks, chosen).recall


def _fewest(ranks: NDArray[np.int64], cells: int, wanted: float, *, low: bool) -> int:
    least, most = 1, cells  # recall only grows with cells
    while least < most:
        middle = (least + most) // 2
        found = _recall(ranks, middle)
        if (found.low if low else found.recall) >= wanted:
            most = middle
        else:
            least = middle + 1
    return least


def _recall(ranks: NDArray[np.int64], cells: int) -> Measure:
    wanted = np.maximum((ranks >= 0).sum(axis=1), 1)
    return Measure.of(((ranks >= 0) & (ranks < cells)).sum(axis=1) / wanted)


def _ranks(index: Index, meter: RecallMeter) -> NDArray[np.int64]:
    """Return (q, k): how many cells are nearer to a query than that of each true neighbour.

    It is -1 where there is no such neighbour.
    """
    near = meter.truth.cells[:, : meter.k]
    found = np.full(near.shape, -1, np.int64)
    for start in range(0, len(near), CHUNK):
        part = slice(start, start + CHUNK)
        ranks, there = ranks_of(index, meter.queries[part]), near[part] >= 0
        taken = np.take_along_axis(ranks, np.where(there, near[part], 0), axis=1)
        found[part] = np.where(there, taken, -1)
    return found


def ranks_of(index: Index, queries: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return (q, cells): how many cells are nearer to a query than each."""
    centroids = index.version.cells(index.table.io).centroids
    nearness = scores(placed(queries, index.version.routing), centroids)
    order = np.argsort(nearness, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(order.shape[1])[None], axis=1)
    return ranks
