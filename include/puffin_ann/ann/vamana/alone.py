"""One query alone, asked of one graph of packed nodes: as few steps as can be on the way there.

A query of 40,000 rows of 384 numbers is answered in 15 to 30 us. The way that a batch takes to its
kernel, through what it shares among threads and queries, would add 6 to 7; this one adds 4.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.known_masks import KnownMask
from puffin_ann.ann.core.types import Answers, Width
from puffin_ann.ann.graph.live_lists import Past
from puffin_ann.ann.graph.searcher import EXHAUSTIVE_ROWS, SPARE, Answering
from puffin_ann.ann.vamana.packed.kernels_search import NO_SIEVES, NO_SIGHTS, search_several
from puffin_ann.ann.vamana.packed.kernels_tables import PackedGraph
from puffin_ann.ann.vamana.packed.placed import placed


class Alone:
    """A graph, to be asked one query at a time; safe to use from several threads at once.

    Args:
        answering: of its rows, each of which has a direction if that matters.
        graph: of packed nodes.
    """

    def __init__(self, answering: Answering, graph: PackedGraph) -> None:
        self._answering, self._graph = answering, graph
        rows = len(answering.vectors)
        whole = placed(graph, answering.vectors, None, rows)
        self._whole = _Live(None, None, rows, answering.compared_from(rows), whole)
        self._last: _Live | None = None

    def search(
        self,
        query: NDArray[np.float32],
        k: int,
        width: Width,
        deleted: NDArray[np.uint8] | None,
    ) -> Answers | None:
        """Return what `Answering.answer` does of a query, `(1, d) float32`; None if it has to."""
        answering = self._answering
        live = self._whole if deleted is None else self._left_by(deleted)
        wide = int(width[0]) if isinstance(width, np.ndarray) else width
        if live.rows <= max(k, EXHAUSTIVE_ROWS) or max(wide, k) >= live.compared_from:
            return None
        ids, distances = np.empty((1, 1, k), np.int64), np.empty((1, 1, k), np.float32)
        scratch = answering.take()
        scratch.widths[0, 0] = wide
        scratch.stamp = search_several(
            live.graph, answering.metric.code, query, scratch.widths, SPARE, scratch.addresses,
            scratch.stamp, ids, distances, scratch.counts, NO_SIEVES, NO_SIGHTS,
        )  # fmt: skip
        found = scratch.counts[0, 0]
        answering.give_back(scratch)
        if found < k:
            return None
        if live.past is not None and live.past.hollows is not None:
            nearest = float(distances[0, 0, 0])
            if live.past.hollows.hold_one(answering.metric, query, nearest, max(wide, k)):
                return None
        return ids[0], distances[0]

    def _left_by(self, deleted: NDArray[np.uint8]) -> "_Live":
        """Return what a mask leaves; of one that stays, looked up once all is made for it."""
        answering, last = self._answering, self._last
        known = answering.known(deleted)
        if known.live == self._whole.rows:
            return self._whole
        is_last = last is not None and last.known is known
        if last is not None and is_last and known.is_settled and last.past is known.made:
            return last
        past = answering.past(deleted, 1)
        if last is None or not is_last or last.past is not past:
            graph = self._graph if past is None else PackedGraph(*past.graph)
            found = placed(graph, answering.vectors, deleted, known.live)
            limit = answering.compared_from(known.live)
            self._last = last = _Live(known, past, known.live, limit, found)
        return last


class _Live(NamedTuple):
    """Rows that a mask leaves, and the graph that leads to them.

    Attributes:
        known: of the mask; None if there is none.
        past: the graph that leads past the others, if it was made.
        rows: how many they are.
        compared_from: width from which on all of them are compared.
        graph: `(1,) PLACED`, where it lies.
    """

    known: KnownMask | None
    past: Past | None
    rows: int
    compared_from: int
    graph: NDArray[np.void]
