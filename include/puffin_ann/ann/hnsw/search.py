"""Search an HNSW graph: layers by greedy steps, layer 0 by a beam, exact distances at the end."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.memmap import read_only
from puffin_ann.ann.core.types import Answers, Fields, Width
from puffin_ann.ann.graph import hollows
from puffin_ann.ann.graph import space as spaces
from puffin_ann.ann.graph.arguments import Adjacency, QueryBatch, Space
from puffin_ann.ann.graph.live_lists import Effort, Past, choose, to_fields
from puffin_ann.ann.graph.primitives import Whole
from puffin_ann.ann.graph.searcher import Answering
from puffin_ann.ann.hnsw import kernels
from puffin_ann.ann.hnsw.layers import Layers, first_lists

EXPANSION = 35
"""Rows compared one by one in the time that a candidate takes which is kept, see `Answering`.
Measured at 100 and 384 dimensions: 80 to 200 in a large batch, 10 alone."""

PAST = Effort(near=32, taken=32, rounds=2, alpha=1.2)
"""How lists that lead past deleted rows are chosen; see `graph.live_lists`."""


def space_metric(metric: str) -> str:
    """Return the metric in whose space rows are held.

    Vectors are as they are for `ip` too, and measured by inner product: among augmented ones, the
    few long rows that are the answers lie far from all others and from each other, and are hardly
    found (recall@10 of 0.4 for norms that differ by a factor of a thousand, 1.0 by inner product).
    """
    return "l2" if metric == "ip" else metric


class Searcher:
    """Layers with their vectors, ready to be searched by several threads at once.

    Attributes:
        answering: completes its answers.

    Args:
        metric: name.
        vectors: `(n, d) float32`, as stored.
        space: `(n, w) float32`, as `graph.space.of_rows` gives it for `space_metric`.
        layers: trusted: every number in them is in range.
        zero_rows: `(z,) int64`, ascending: for cosine, the rows without a direction.
    """

    def __init__(
        self,
        *,
        metric: str,
        vectors: NDArray[np.float32],
        space: NDArray[np.float32],
        layers: Layers,
        zero_rows: NDArray[np.int64] | None = None,
    ) -> None:
        self.answering = Answering(metric, vectors, zero_rows, expansion=EXPANSION, past=self._past)
        self._space: Fields = tuple(Space(_flat(space), space.shape[1]))
        self._adjacency = Adjacency(layers.neighbours, layers.degrees, layers.entry)
        upper = kernels.UpperLayers(
            _flat(layers.upper_neighbours),
            layers.links,
            _flat(layers.upper_degrees),
            _flat(first_lists(layers.levels)),
            layers.top,
        )
        self._graph = to_fields(self._adjacency)
        self._upper: Fields = tuple(upper)

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        width: Width,
        deleted: NDArray[np.uint8] | None = None,
        threads: int = 1,
    ) -> Answers:
        """Return min(k, live rows) near rows of each query; see `Answering.answer`."""
        return self.answering.answer(
            self._run, queries, k, width=width, deleted=deleted, threads=threads
        )

    def expect(self, deleted: NDArray[np.uint8]) -> None:
        """Make at once what many searches with a mask are quicker by."""
        self.answering.expect(deleted)

    def _past(self, deleted: NDArray[np.uint8]) -> Past | None:
        if self.answering.metric.name == "ip":  # measured by products, which no pruning is for
            return None
        chosen = choose(Space(*self._space), self._adjacency, deleted, PAST)
        answering = self.answering
        within = hollows.find(answering.metric, answering.vectors, self._adjacency, deleted)
        return Past(to_fields(chosen), within)

    def _run(self, batch: QueryBatch, stamp: Whole, past: Fields | None) -> Whole:
        name = self.answering.metric.name
        moved = spaces.of_queries(batch.queries, space_metric(name)).reshape(-1)
        return kernels.search(
            name == "ip", self._space, past or self._graph, self._upper, moved, tuple(batch), stamp
        )


def _flat(array: NDArray[Any]) -> NDArray[Any]:
    return read_only(array).reshape(-1)
