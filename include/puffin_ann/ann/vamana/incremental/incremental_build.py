"""Build a graph by inserting its rows in batches: for small shards and for samples.

Within a batch every row is searched in the graph as it was before the batch, so that the order, and
with it the number of threads, does not matter.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import blas
from puffin_ann.ann.graph.arguments import Adjacency, Space
from puffin_ann.ann.graph.primitives import Whole
from puffin_ann.ann.vamana.incremental import kernels_incremental_build as kernels
from puffin_ann.ann.vamana.incremental import kernels_insert

SLACK = 1.3
"""Lists may grow by this factor before they are pruned again."""
LARGEST_BATCH = 0.02
"""Share of the rows that is inserted without seeing each other."""

_NONE_DELETED = np.empty(0, np.uint8)


def medoid(space: NDArray[np.float32]) -> int:
    """Return the row nearest to the mean of `(n, w) float32` rows, n ≥ 1; the lowest of equals."""
    mean = space.mean(axis=0, dtype=np.float64).astype(np.float32)
    moved = space - mean
    return int(np.einsum("ij,ij->i", moved, moved).argmin())


def build(
    space: NDArray[np.float32],
    *,
    most: int,
    keep: int,
    alpha: float,
    seed: list[int],
    threads: int,
) -> Adjacency:
    """Insert all rows, in random order.

    Args:
        space: `(n, w) float32`, n ≥ 1, in memory.
        most: R, neighbours of a row at most.
        keep: L, candidates kept by the search for a row's place.
        alpha: slack of pruning.
        seed: of the order.
        threads: threads to use.
    """
    rows = len(space)
    entry = medoid(space)
    order = np.random.default_rng(seed).permutation(rows)
    order = order[order != entry].astype(np.uint32)
    work = _Work(space, most, keep, alpha, entry, threads)
    largest = max(64, int(rows * LARGEST_BATCH))
    at = 0
    while at < len(order):
        batch = order[at : at + min(largest, max(1, at))]
        at += len(batch)
        work.insert(batch)
    return work.finish()


class _Work:
    """The graph being built, and scratch for each thread."""

    def __init__(
        self,
        space: NDArray[np.float32],
        most: int,
        keep: int,
        alpha: float,
        entry: int,
        threads: int,
    ) -> None:
        rows, dim = space.shape
        self._space = Space(space.reshape(-1), dim)
        self._most, self._keep, self._alpha = most, keep, alpha
        self._threads = threads
        lists = np.zeros((rows, int(most * SLACK) + 1), np.uint32)
        self._graph = Adjacency(lists, np.zeros(rows, np.uint16), entry)
        self._scratch = [np.zeros(rows, np.uint8) for _ in range(threads)]
        self._stamps: list[Whole] = [0] * threads

    def insert(self, batch: NDArray[np.uint32]) -> None:
        """Search a place for each row of a batch, then make the edges of both directions."""
        chosen = np.zeros((len(batch), self._most), np.uint32)
        counts = np.zeros(len(batch), np.uint16)
        new = kernels_insert.Insertion(
            batch,
            np.empty((len(batch), 0), np.uint32),
            _NONE_DELETED,
            self._keep,
            self._alpha,
            chosen,
            counts,
            np.empty(len(batch), np.uint32),
        )

        def search(part: tuple[int, int, int]) -> None:
            thread, first, last = part
            self._stamps[thread] = kernels_insert.find_places(
                self._space,
                self._graph,
                new,
                self._scratch[thread],
                self._stamps[thread],
                first,
                last,
            )

        self._parallel(search, len(batch))
        kernels.put_lists(self._graph, batch, chosen, counts)
        used = np.arange(self._most, dtype=np.uint16)[None, :] < counts[:, None]
        targets = chosen[used].astype(np.uint64)
        sources = np.repeat(batch.astype(np.uint64), counts)
        edges = np.sort((targets << np.uint64(32)) | sources)
        targets = edges >> np.uint64(32)
        starts = np.flatnonzero(np.diff(targets, prepend=np.uint64(2**63), append=np.uint64(2**63)))

        def add(part: tuple[int, int, int]) -> None:
            _, first, last = part
            kernels.add_edges(
                self._space,
                self._graph,
                edges,
                starts[first : last + 1],
                self._most,
                self._alpha,
            )

        self._parallel(add, len(starts) - 1)

    def finish(self) -> Adjacency:
        """Prune every list to R and return the graph."""
        neighbours = np.zeros((len(self._graph.degrees), self._most), np.uint32)

        def prune(part: tuple[int, int, int]) -> None:
            _, first, last = part
            kernels.prune_lists(self._space, self._graph, first, last, self._alpha, neighbours)

        self._parallel(prune, len(neighbours))
        return self._graph._replace(neighbours=neighbours)

    def _parallel(self, work: Callable[[tuple[int, int, int]], None], count: int) -> None:
        ways = max(1, min(self._threads, count // 16))
        cuts = [count * way // ways for way in range(ways + 1)]
        parts = [(way, cuts[way], cuts[way + 1]) for way in range(ways)]
        for _ in blas.parallel(work, parts, self._threads):
            pass
