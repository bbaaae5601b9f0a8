"""One query alone, asked of one graph of packed nodes: as few steps as can be on the way there.

A query of 40,000 rows of 384 numbers is answered in 15 to 30 us. The way that a batch takes to its
kernel, through what it shares among threads and queries, would add 6 to 7; this one adds 4.
"""

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
        self._rows = len(answering.vectors)
        self._placed = placed(graph, answering.vectors, None, self._rows)
        self._last: tuple[KnownMask, Past | None, NDArray[np.void]] | None = None

    def search(
        self,
        query: NDArray[np.float32],
        k: int,
        width: Width,
        deleted: NDArray[np.uint8] | None,
    ) -> Answers | None:
        """Return what `Answering.answer` does of a query, `(1, d) float32`; None if it has to."""
        answering = self._answering
        live = answering.live(deleted)
        wide = int(width[0]) if isinstance(width, np.ndarray) else width
        if live <= max(k, EXHAUSTIVE_ROWS) or max(wide, k) >= answering.compared_from(live):
            return None
        graph, past = self._placed, None
        if deleted is not None and live < self._rows:
            graph, past = self._past(deleted, live)
        ids, distances = np.empty((1, 1, k), np.int64), np.empty((1, 1, k), np.float32)
        scratch = answering.take()
        scratch.widths[0, 0] = wide
        scratch.stamp = search_several(
            graph, answering.metric.code, query, scratch.widths, SPARE, scratch.addresses,
            scratch.stamp, ids, distances, scratch.counts, NO_SIEVES, NO_SIGHTS,
        )  # fmt: skip
        found = scratch.counts[0, 0]
        answering.give_back(scratch)
        if found < k:
            return None
        if past is not None and past.hollows is not None:
            nearest = float(distances[0, 0, 0])
            if past.hollows.hold_one(answering.metric, query, nearest, max(wide, k)):
                return None
        return ids[0], distances[0]

    def _past(self, deleted: NDArray[np.uint8], live: int) -> tuple[NDArray[np.void], Past | None]:
        """Return the graph with a mask; that which leads past its deleted rows, if it was made."""
        known, past = self._answering.known(deleted), self._answering.past(deleted, 1)
        last = self._last
        if last is None or last[0] is not known or last[1] is not past:
            graph = self._graph if past is None else PackedGraph(*past.graph)
            found = placed(graph, self._answering.vectors, deleted, live)
            self._last = last = known, past, found
        return last[2], past
