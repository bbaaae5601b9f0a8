"""Several graphs of packed nodes, which a kernel asks a few queries in one call."""

from collections.abc import Iterable, Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import Metric
from puffin_ann.ann.graph.hollows import Hollows
from puffin_ann.ann.graph.primitives import Whole
from puffin_ann.ann.vamana.packed.kernels_tables import PackedGraph
from puffin_ann.ann.vamana.packed.placed import addresses, placed
from puffin_ann.ann.vamana.search import Searcher


class Several:
    """Graphs of one metric and width, as `search_several` asks them; for several threads at once.

    Attributes:
        live: `(graphs,) int64`, live rows of each.
        widest: `(graphs,) int64`, the width from which on all rows of it are compared.

    Args:
        searchers: of the graphs, at least one; each `is_packed`.
        masks: of the deleted rows of each, `(n,) uint8`; None if all are live. Not to be changed.
    """

    def __init__(
        self, searchers: Sequence[Searcher], masks: Sequence[NDArray[np.uint8] | None]
    ) -> None:
        self._held = (tuple(searchers), tuple(masks))
        self._graphs = [searcher.packed_graph for searcher in searchers]
        self._vectors = [searcher.answering.vectors for searcher in searchers]
        rows = _numbers(map(len, self._vectors))
        self.live = _numbers(
            searcher.answering.live(mask) for searcher, mask in zip(searchers, masks, strict=True)
        )
        self.widest = _numbers(
            searcher.answering.compared_from(live)
            for searcher, live in zip(searchers, self.live.tolist(), strict=True)
        )
        self._rows = rows
        self._masked = [place for place, mask in enumerate(masks) if mask is not None]
        self._hollows: tuple[Hollows, ...] = ()
        self._looking = Lock()
        self._where = self._placed()
        self._free: list[Stamps] = []

    def _placed(self) -> NDArray[np.void]:
        graphs = zip(self._graphs, self._vectors, self._held[1], self.live.tolist(), strict=True)
        return np.concatenate([placed(*graph) for graph in graphs])

    def _look_for_past(self, queries: int) -> None:
        """Tell graphs how many queries they are asked, and take those that lead past deleted rows.

        They are as wide, and lie in the same frame. Searcher and mask hold the former and the new,
        which another thread may be searching.
        """
        left = []
        with self._looking:
            for place in self._masked:
                answering, mask = self._held[0][place].answering, self._held[1][place]
                if mask is None:
                    continue
                is_settled = answering.known(mask).is_settled
                past = answering.past(mask, queries)
                if past is not None:
                    self._graphs[place] = PackedGraph(*past.graph)
                    if past.hollows is not None:
                        self._hollows = (*self._hollows, past.hollows)
                elif not is_settled:
                    left.append(place)
            if len(left) < len(self._masked):
                self._where, self._masked = self._placed(), left

    def where(self, queries: int) -> NDArray[np.void]:
        """Return where the graphs lie, `(graphs,) PLACED`, to ask them so many queries."""
        if self._masked:
            self._look_for_past(queries)
        return self._where

    def are_in_hollows(
        self, metric: Metric, queries: NDArray[np.float32], nearest: NDArray[np.float32], kept: int
    ) -> bool:
        """Tell whether any query, of which `kept` candidates were, lies within deleted rows.

        Args:
            metric: of the graphs.
            queries: `(q, d) float32`.
            nearest: `(q,) float32`, distance of the nearest row that was found of each.
            kept: candidates.
        """
        if not self._hollows:
            return False
        return any(one.hold(metric, queries, nearest, kept).any() for one in self._hollows)

    def take(self) -> "Stamps":
        """Return marks that are this thread's until they are given back."""
        try:
            return self._free.pop()  # appending and popping are atomic
        except IndexError:
            return Stamps(self._rows.tolist())

    def give_back(self, stamps: "Stamps") -> None:
        """Let others have marks that were taken."""
        self._free.append(stamps)


class Stamps:
    """Marks of the rows of each graph that searches have seen, and the last mark used."""

    def __init__(self, rows: Sequence[int]) -> None:
        self._marks = [np.zeros(count, np.uint8) for count in rows]
        self.addresses = addresses(self._marks)
        self.last: Whole = 0


def _numbers(values: Iterable[Whole]) -> NDArray[np.int64]:
    return np.array(list(values), np.int64)
