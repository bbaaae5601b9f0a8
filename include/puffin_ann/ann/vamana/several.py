"""Several graphs of packed nodes, a few queries at once: one call of a kernel answers from all.

A query alone, asked of four shards, spends more time on the way to each kernel than in it.
"""

from collections.abc import Iterable, Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.types import Answers
from puffin_ann.ann.graph.primitives import Whole
from puffin_ann.ann.graph.searcher import EXHAUSTIVE_ROWS, SPARE
from puffin_ann.ann.vamana.packed.kernels_search import search_several
from puffin_ann.ann.vamana.packed.kernels_tables import PackedGraph
from puffin_ann.ann.vamana.packed.placed import addresses, placed
from puffin_ann.ann.vamana.search import Searcher


class Several:
    """Graphs of one metric and width, safe to use from several threads at once.

    Args:
        searchers: of the graphs, at least one; each `is_packed`.
        masks: of the deleted rows of each, `(n,) uint8`; None if all are live. Not to be changed.
    """

    def __init__(
        self, searchers: Sequence[Searcher], masks: Sequence[NDArray[np.uint8] | None]
    ) -> None:
        self._held = (tuple(searchers), tuple(masks))
        self._metric = searchers[0].answering.metric
        self._graphs = [searcher.packed_graph for searcher in searchers]
        self._vectors = [searcher.answering.vectors for searcher in searchers]
        rows = _numbers(map(len, self._vectors))
        self._live = _numbers(
            searcher.answering.live(mask) for searcher, mask in zip(searchers, masks, strict=True)
        )
        self._widest = _numbers(
            searcher.answering.compared_from(live)
            for searcher, live in zip(searchers, self._live.tolist(), strict=True)
        )
        self._rows = rows
        self._masked = [place for place, mask in enumerate(masks) if mask is not None]
        self._looking = Lock()
        self._where = self._placed()
        self._free: list[_Stamps] = []

    def _placed(self) -> NDArray[np.void]:
        graphs = zip(self._graphs, self._vectors, self._held[1], self._live.tolist(), strict=True)
        return np.concatenate([placed(*graph) for graph in graphs])

    def _look_for_past(self, asked: NDArray[np.int64], queries: int) -> None:
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
                past = answering.past(mask, queries if asked[place] else 0)
                if past is not None:
                    self._graphs[place] = PackedGraph(*past)
                elif not is_settled:
                    left.append(place)
            if len(left) < len(self._masked):
                self._where, self._masked = self._placed(), left

    def search(
        self, queries: NDArray[np.float32], k: int, widths: NDArray[np.int64]
    ) -> Answers | None:
        """Return near rows of each query from each graph that it is asked of.

        They are those of `Searcher.search`.

        Args:
            queries: `(q, d) float32`, contiguous.
            k: answers wanted of each graph, at least 1.
            widths: `(graphs, q) int64`, candidates kept, at least k; 0 where a graph is not asked.

        Returns:
            `(graphs, q, k) int64` rows, -1 where there is none, and `(graphs, q, k) float32`,
            infinite there. None where a graph alone does not answer: its rows have to be compared.
        """
        asked = widths.max(axis=1)
        if (
            (asked > 0) & ((self._live <= max(k, EXHAUSTIVE_ROWS)) | (asked >= self._widest))
        ).any():
            return None
        if self._masked:
            self._look_for_past(asked, len(queries))
        ids = np.empty((len(asked), len(queries), k), np.int64)
        distances = np.empty(ids.shape, np.float32)
        counts = np.empty(widths.shape, np.int64)
        try:
            stamps = self._free.pop()  # appending and popping are atomic
        except IndexError:
            stamps = _Stamps(self._rows.tolist())
        stamps.last = search_several(
            self._where, self._metric.code, queries, widths, SPARE, stamps.addresses, stamps.last,
            ids, distances, counts,
        )  # fmt: skip
        self._free.append(stamps)
        return None if ((counts < k) & (widths > 0)).any() else (ids, distances)


class _Stamps:
    """Marks of the rows of each graph that searches have seen, and the last mark used."""

    def __init__(self, rows: Sequence[int]) -> None:
        self._marks = [np.zeros(count, np.uint8) for count in rows]
        self.addresses = addresses(self._marks)
        self.last: Whole = 0


def _numbers(values: Iterable[Whole]) -> NDArray[np.int64]:
    return np.array(list(values), np.int64)
