"""Add rows to a graph: beam search for candidates, RobustPrune, edges back.

Rows are added by batches. Those of one batch are searched in the graph as it was before it, and
compared with each other besides, so that neither their order nor the number of threads matters.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import blas
from puffin_ann.ann.graph import kernels_connectivity
from puffin_ann.ann.graph.arguments import Adjacency, Space
from puffin_ann.ann.graph.kernels_connectivity import NONE_DELETED
from puffin_ann.ann.graph.primitives import Whole
from puffin_ann.ann.vamana.bulk import bulk_build
from puffin_ann.ann.vamana.bulk.leading_axes import Leading
from puffin_ann.ann.vamana.incremental import kernels_insert as kernels

BATCH = 1024
"""Rows that are compared with each other: at most what a leaf of the bulk build holds."""
NEAREST = 16
"""Candidates taken from the batch itself."""
ARITY = 4
REPAIR_KEEP = 32
HASHED_ROWS = 65536

_NONE_DELETED = np.empty(0, np.uint8)


def insert(
    space: NDArray[np.float32],
    graph: Adjacency,
    first: int,
    *,
    keep: int,
    alpha: float,
    deleted: NDArray[np.uint8] | None,
    threads: int,
    progress: Callable[[float], None],
) -> None:
    """Add the rows from `first` on to a graph; every row can be reached afterwards.

    Args:
        space: `(n, w) float32`, read-only: the rows of the graph, and the added ones after them.
        graph: of all n rows, changed; those from `first` on have no neighbours yet.
        first: the first added row, at least 1.
        keep: L, candidates kept by the search for a row's place: live ones.
        alpha: slack of pruning.
        deleted: `(first,) uint8`, non-zero for rows that are passed through but get no new edges;
            None if all live.
        threads: threads to use; the graph does not depend on it.
        progress: told the share that is done.
    """
    mask = _NONE_DELETED
    if deleted is not None and deleted.any():
        mask = np.concatenate([deleted, np.zeros(len(space) - first, np.uint8)])
    work = _Work(space, graph, keep, alpha, mask, threads)
    leader = first_equal(space[first:], threads)
    added = np.arange(len(space) - first, dtype=np.uint32)
    different = added[leader == added] + np.uint32(first)
    with blas.single_thread():
        for at in range(0, len(different), BATCH):
            work.add(different[at : at + BATCH])
            progress(at / len(different))
    for copy in added[leader != added]:
        work.link_duplicate(int(copy) + first, int(leader[copy]) + first)
    kernels_connectivity.make_reachable(
        Space(space.reshape(-1), space.shape[1]), graph, REPAIR_KEEP, NONE_DELETED
    )
    progress(1.0)


def first_equal(
    space: NDArray[np.float32], threads: int, live: NDArray[np.bool_] | None = None
) -> NDArray[np.uint32]:
    """Return for each of `(n, w) float32` rows the lowest live one equal to it, `(n,) uint32`.

    A row that is not live gets itself.
    """
    words = space.view(np.uint32)
    hashes = np.empty(len(space), np.uint64)

    def hash_block(at: int) -> None:
        kernels_connectivity.hash_rows(words[at : at + HASHED_ROWS], hashes[at : at + HASHED_ROWS])

    for _ in blas.parallel(hash_block, range(0, len(space), HASHED_ROWS), threads):
        pass
    order = np.argsort(hashes, kind="stable")
    if live is not None and not live.all():
        order = order[live[order]]
    first = np.arange(len(space), dtype=np.uint32)
    kernels_connectivity.find_equal(words, hashes, order, first)
    return first


class _Work:
    """A graph being added to, and scratch for each thread."""

    def __init__(
        self,
        space: NDArray[np.float32],
        graph: Adjacency,
        keep: int,
        alpha: float,
        deleted: NDArray[np.uint8],
        threads: int,
    ) -> None:
        self._near, self._graph = Leading(space), graph
        self._space = Space(space.reshape(-1), space.shape[1])
        self._most = graph.neighbours.shape[1]
        self._keep, self._alpha, self._deleted = keep, alpha, deleted
        self._threads = threads
        self._plan = bulk_build.Plan()
        self._leaf = bulk_build.Scratch(self._plan, space.shape[1])
        self._stamps = [np.zeros(len(space), np.uint8) for _ in range(threads)]
        self._last: list[Whole] = [0] * threads

    def add(self, rows: NDArray[np.uint32]) -> None:
        """Search a place for each of `(b,)` different rows, then make the edges both ways."""
        near = np.full((len(rows), NEAREST), kernels.NONE, np.uint32)
        if len(rows) > 1:
            near = bulk_build.nearest_within(self._near, rows, NEAREST, self._leaf)
        chosen = np.zeros((len(rows), self._most), np.uint32)
        counts = np.zeros(len(rows), np.uint16)
        twins = np.empty(len(rows), np.uint32)
        new = kernels.Insertion(
            rows, near, self._deleted, self._keep, self._alpha, chosen, counts, twins
        )

        def search(part: tuple[int, int, int]) -> None:
            thread, first, last = part
            self._last[thread] = kernels.find_places(
                self._space,
                self._graph,
                new,
                self._stamps[thread],
                self._last[thread],
                first,
                last,
            )

        self._parallel(search, len(rows))
        alone = twins == kernels.NONE
        self._link(rows[alone], chosen[alone], counts[alone], rows[~alone])
        for row, twin in zip(rows[~alone], twins[~alone], strict=True):
            self.link_duplicate(int(row), int(twin))

    def link_duplicate(self, row: int, top: int) -> None:
        """Hang a row below one that equals it."""
        arity = max(1, min(ARITY, self._most // 2 - 1))
        kernels.link_duplicate_below(self._space, self._graph, row, top, arity)

    def _link(
        self,
        rows: NDArray[np.uint32],
        chosen: NDArray[np.uint32],
        counts: NDArray[np.uint16],
        apart: NDArray[np.uint32],
    ) -> None:
        """Make the edges of rows, and those back; but none back from rows that will be hung."""
        graph = self._graph
        graph.neighbours[rows] = chosen
        graph.degrees[rows] = counts
        used = np.arange(self._most, dtype=np.uint16)[None, :] < counts[:, None]
        targets = chosen[used].astype(np.uint64)
        sources = np.repeat(rows.astype(np.uint64), counts)
        edges = (targets << np.uint64(32)) | sources
        if len(apart):
            edges = edges[~np.isin(targets, apart)]
        edges.sort()
        targets = edges >> np.uint64(32)
        starts = np.flatnonzero(np.diff(targets, prepend=np.uint64(2**63), append=np.uint64(2**63)))

        def back(part: tuple[int, int, int]) -> None:
            _, first, last = part
            kernels.link_back(self._space, graph, edges, starts[first : last + 1], self._alpha)

        if len(edges):
            self._parallel(back, len(starts) - 1)

    def _parallel(self, work: Callable[[tuple[int, int, int]], None], count: int) -> None:
        ways = max(1, min(self._threads, count // 16))
        cuts = [count * way // ways for way in range(ways + 1)]
        parts = [(way, cuts[way], cuts[way + 1]) for way in range(ways)]
        for _ in blas.parallel(work, parts, self._threads):
            pass
