"""Search an HNSW graph: layers by greedy steps, layer 0 by a beam, exact distances at the end."""

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann import blas, exact
from puffin_ann.ann.hnsw import kernels
from puffin_ann.ann.hnsw.layers import Layers, first_lists
from puffin_ann.ann.metrics import METRICS, frozen
from puffin_ann.ann.vamana import space as spaces
from puffin_ann.ann.vamana.primitives import Whole

Answers = tuple[NDArray[np.int64], NDArray[np.float32]]

SPARE = 8
"""Candidates measured exactly beyond k: the beam's order is that of float32 sums."""
LARGEST_WIDENING = 8
EXHAUSTIVE_ROWS = 256
"""With so few live rows, all are compared."""

_NOBODY = np.empty(0, np.uint8)


def space_metric(metric: str) -> str:
    """Return the metric in whose space rows are held.

    Vectors are as they are for `ip` too, and measured by inner product: among augmented ones, the
    few long rows that are the answers lie far from all others and from each other, and are hardly
    found (recall@10 of 0.4 for norms that differ by a factor of a thousand, 1.0 by inner product).
    """
    return "l2" if metric == "ip" else metric


@dataclass(eq=False)
class _Scratch:
    stamps: NDArray[np.uint8]
    stamp: Whole = 0


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
        self._metric = METRICS[metric]
        self._vectors = frozen(vectors)
        self._space = frozen(space)
        self._links = layers.links
        self._neighbours = _flat(layers.neighbours)
        self._degrees = _flat(layers.degrees)
        self._upper = _flat(layers.upper_neighbours)
        self._upper_degrees = _flat(layers.upper_degrees)
        self._first = _flat(first_lists(layers.levels))
        self._entry, self._top = layers.entry, layers.top
        self._zero_rows = np.empty(0, np.int64) if zero_rows is None else zero_rows
        self._free: list[_Scratch] = []
        self._lock = threading.Lock()

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        width: int,
        dead: NDArray[np.uint8] | None = None,
        threads: int = 1,
    ) -> Answers:
        """Return min(k, live rows) near rows of each query, by (exact distance, row).

        A query for which the graph gives fewer is answered by comparing all live rows.

        Args:
            queries: `(q, d) float32`, contiguous.
            k: answers wanted, at least 1.
            width: ef, candidates kept; at least k are, and more where few rows live.
            dead: `(n,) uint8`, non-zero for rows not to be answered; None if all live.
            threads: threads to use.

        Returns:
            `(q, k) int64` rows, −1 where there is none, and `(q, k) float32`, infinite there.

        """
        rows = len(self._vectors)
        live = rows if dead is None else rows - int(np.count_nonzero(dead))
        if live <= max(k, EXHAUSTIVE_ROWS):
            return self._exhaustive(queries, k, dead, threads)
        keep = min(rows, max(k, width) * min(LARGEST_WIDENING, -(-rows // live)))
        ids = np.empty((len(queries), k), np.int64)
        distances = np.empty((len(queries), k), np.float32)
        counts = np.empty(len(queries), np.int64)
        moved = spaces.of_queries(queries, space_metric(self._metric.name))
        mask = _NOBODY if dead is None else dead

        def run(part: slice) -> None:
            scratch = self._take()
            scratch.stamp = kernels.search(
                self._metric.name == "ip",
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
                moved[part].reshape(-1),
                self._metric.code,
                self._vectors,
                queries[part],
                keep,
                SPARE,
                mask,
                scratch.stamps,
                scratch.stamp,
                ids[part],
                distances[part],
                counts[part],
            )
            with self._lock:
                self._free.append(scratch)

        step = max(1, -(-len(queries) // max(1, threads)))
        parts = [slice(at, at + step) for at in range(0, len(queries), step)]
        for _ in blas.parallel(run, parts, threads):
            pass
        short = np.flatnonzero(counts < k)
        if len(short):
            ids[short], distances[short] = self._exhaustive(queries[short], k, dead, threads)
        if len(self._zero_rows):
            return self._with_zero_rows(ids, distances, dead)
        return ids, distances

    def _exhaustive(
        self,
        queries: NDArray[np.float32],
        k: int,
        dead: NDArray[np.uint8] | None,
        threads: int,
    ) -> Answers:
        allowed = None if dead is None else dead == 0
        return exact.search(
            queries, self._vectors, k, self._metric, allowed=allowed, threads=threads
        )

    def _with_zero_rows(
        self,
        ids: NDArray[np.int64],
        distances: NDArray[np.float32],
        dead: NDArray[np.uint8] | None,
    ) -> Answers:
        """Merge answers with the rows that the space has no right place for: all at distance 1."""
        k = ids.shape[1]
        zeros = self._zero_rows if dead is None else self._zero_rows[dead[self._zero_rows] == 0]
        found = np.isin(ids, self._zero_rows)
        shape = (len(ids), min(k, len(zeros)))
        ids = np.concatenate([ids, np.broadcast_to(zeros[:k], shape)], axis=1)
        distances = np.concatenate(
            [np.where(found, np.float32(np.inf), distances), np.ones(shape, np.float32)], axis=1
        )
        order = np.lexsort((ids, distances))[:, :k]
        return np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1)

    def _take(self) -> _Scratch:
        with self._lock:
            if self._free:
                return self._free.pop()
        return _Scratch(np.zeros(len(self._vectors), np.uint8))


def _flat(array: NDArray[Any]) -> NDArray[Any]:
    view = np.ascontiguousarray(array).view(np.ndarray).reshape(-1)
    view.flags.writeable = False
    return view
