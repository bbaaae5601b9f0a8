"""Search an HNSW graph: layers by greedy steps, layer 0 by a beam, exact distances at the end."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.memmap import read_only
from puffin_ann.ann.core.types import Answers, Width
from puffin_ann.ann.graph import space as spaces
from puffin_ann.ann.graph.searcher import SPARE, Answering, Part
from puffin_ann.ann.hnsw import kernels
from puffin_ann.ann.hnsw.layers import Layers, first_lists

EXPANSION = 240
"""Rows compared one by one in the time that a candidate takes which is kept, see `Answering`.
Measured at 100 and 384 dimensions."""


def space_metric(metric: str) -> str:
    """Return the metric in whose space rows are held.

    Vectors are as they are for `ip` too, and measured by inner product: among augmented ones, the
    few long rows that are the answers lie far from all others and from each other, and are hardly
    found (recall@10 of 0.4 for norms that differ by a factor of a thousand, 1.0 by inner product).
    """
    return "l2" if metric == "ip" else metric


class Searcher:
    """Layers with their vectors, ready to be searched by several threads at once.

    Args:
        metric: name.
        vectors: `(n, d) float32`, as stored.
        space: `(n, w) float32`, as `vamana.space.of_rows` gives it for `space_metric`.
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
        self._answering = Answering(metric, vectors, zero_rows, expansion=EXPANSION)
        self._space = read_only(space)
        self._links = layers.links
        self._neighbours = _flat(layers.neighbours)
        self._degrees = _flat(layers.degrees)
        self._upper = _flat(layers.upper_neighbours)
        self._upper_degrees = _flat(layers.upper_degrees)
        self._first = _flat(first_lists(layers.levels))
        self._entry, self._top = layers.entry, layers.top

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        width: Width,
        dead: NDArray[np.uint8] | None = None,
        threads: int = 1,
    ) -> Answers:
        """Return min(k, live rows) near rows of each query; see `Answering.answer`."""
        return self._answering.answer(
            self._run, queries, k, width=width, dead=dead, threads=threads
        )

    def _run(self, part: Part) -> None:
        metric = self._answering.metric
        moved = spaces.of_queries(part.queries, space_metric(metric.name))
        part.scratch.stamp = kernels.search(
            metric.name == "ip",
            self._space.reshape(-1),
            self._space.shape[1],
            self._neighbours,
            2 * self._links,
            self._degrees,
            self._upper,
            self._links,
            self._upper_degrees,
            self._first,
            self._entry,
            self._top,
            moved.reshape(-1),
            metric.code,
            self._answering.vectors,
            part.queries,
            part.widths,
            part.live,
            SPARE,
            part.dead,
            part.scratch.stamps,
            part.scratch.stamp,
            part.ids,
            part.distances,
            part.counts,
        )


def _flat(array: NDArray[Any]) -> NDArray[Any]:
    return read_only(array).reshape(-1)
