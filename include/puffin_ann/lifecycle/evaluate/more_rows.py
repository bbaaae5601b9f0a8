"""Choose how wide to search, and how many cells to probe, for more rows than the gate's k.

Who asks for a hundred rows needs those, and so does a condition that half of the rows satisfy: the
ten nearest of these are among the twenty nearest of all, or so.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.version.gate import Wider
from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.declaration import EXACT
from puffin_ann.lifecycle.evaluate.measure import RecallMeter
from puffin_ann.lifecycle.evaluate.scanned_cells import CHUNK, ranks_of
from puffin_ann.lifecycle.evaluate.tune import FEW_QUERIES, WIDTHS
from puffin_ann.search.index import Index

log = logging.getLogger("puffin_ann")

TIMES = (2, 4, 8)
"""How many times k rows are searched for."""

MOST = 320
"""Rows beyond the gate's k that are searched for, at most: each task keeps as many true neighbours
of each query."""


def depth(k: int) -> int:
    """Return how many true neighbours of each query are to be known."""
    return max([k, *(times * k for times in TIMES if times * k <= MOST)])


def choose_wider(
    index: Index, meter: RecallMeter, chosen: tuple[int, int], *, target: float
) -> tuple[Wider, ...]:
    """Find searches for more rows than the gate's k that reach its target, ever wider.

    As many cells are probed as hold the same share of the true neighbours as of k; this is known
    without a search. Then the narrowest width is taken that exceeds the target as the gate's does.

    Args:
        index: that was built.
        meter: queries that choose, with as many true neighbours as `depth` says.
        chosen: width and cells that suffice for k rows.
        target: recall.

    Returns:
        Fewer than `TIMES` where no search reaches the target, or the table has too few rows; none
        where nothing is chosen for k, either.
    """
    routing = index.version.routing
    if not routing.cells.count or routing.algorithm == EXACT or len(meter.queries) < FEW_QUERIES:
        return ()
    wanted, (width, probe) = target + (1.0 - target) / 4, chosen
    share_of = _Shares(index, meter)
    found: list[Wider] = []
    for more in (replace(meter, k=times * meter.k) for times in TIMES):
        distances = meter.truth.distances
        if more.k > distances.shape[1] or not np.isfinite(distances[:, more.k - 1]).all():
            break
        probe = share_of.fewest(more.k, probe, share_of.of(meter.k, chosen[1]))
        for wide in _from(width, more.k):
            if more.measure(index, width=wide, probe_partitions=probe).low >= wanted:
                break
        else:
            break
        width = wide
        log.info("gate: width %d and %d cells for %d rows", width, probe, more.k)
        found.append(Wider(more.k, width, probe))
    return tuple(found)


def _from(width: int, k: int) -> Iterator[int]:
    """Return widths from one on, ever wider; a search is never narrower than its rows."""
    least = max(width, min(k, WIDTHS[-1]))
    yield least
    yield from (wider for wider in WIDTHS if wider > least)


class _Shares:
    """Which share of true neighbours lies in the shards that searches go to.

    Args:
        index: with cells.
        meter: queries, and the cells of their true neighbours.
    """

    def __init__(self, index: Index, meter: RecallMeter) -> None:
        cells = index.version.cells(index.table.io)
        self._count = cells.count
        self._firsts = _first_of_shard(index, meter, cells)

    def of(self, k: int, probe: int) -> float:
        """Return the share of k neighbours that so many cells lead to."""
        firsts = self._firsts[:, :k]
        return float((firsts < probe).mean())

    def fewest(self, k: int, least: int, share: float) -> int:
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
