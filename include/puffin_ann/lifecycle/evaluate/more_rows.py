"""Choose how wide to search, and how many cells to probe, for more rows than the gate's k.

Who asks for a hundred rows needs those, and so does a condition that half of the rows satisfy: the
ten nearest of these are among the twenty nearest of all, or so.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from puffin_ann.blobs.version.gate import Wider
from puffin_ann.declaration import EXACT
from puffin_ann.lifecycle.evaluate.entered_shards import EnteredShards
from puffin_ann.lifecycle.evaluate.measure import FEW_QUERIES, RecallMeter
from puffin_ann.lifecycle.evaluate.tune import WIDTHS
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
    entered = EnteredShards(index, meter)
    share = entered.recall(meter.k, probe).recall
    found: list[Wider] = []
    for more in (replace(meter, k=times * meter.k) for times in TIMES):
        distances = meter.truth.distances
        if more.k > distances.shape[1] or not np.isfinite(distances[:, more.k - 1]).all():
            break
        probe = entered.fewest_cells(more.k, probe, share)
        wide = _narrowest(partial(_is_enough, index, more, probe, wanted), width, more.k)
        if wide is None:
            break
        width = wide
        log.info("gate: width %d and %d cells for %d rows", width, probe, more.k)
        found.append(Wider(more.k, width, probe))
    return tuple(found)


def _is_enough(index: Index, meter: RecallMeter, probe: int, wanted: float, width: int) -> bool:
    return meter.measure(index, width=width, probe_partitions=probe).low >= wanted


def _narrowest(is_enough: Callable[[int], bool], width: int, k: int) -> int | None:
    """Return the narrowest width that is enough; None where none is.

    No search is narrower than its rows, nor than the one for fewer rows, whose width hardly ever
    suffices: it is tried only if the next one does.
    """
    least = max(width, min(k, WIDTHS[-1]))
    wider = [wide for wide in WIDTHS if wide > least] or [least]
    for place, wide in enumerate(wider):
        if is_enough(wide):
            return least if not place and least < wide and is_enough(least) else wide
    return None
