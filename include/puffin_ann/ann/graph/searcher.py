"""What all searchers of graphs share: threads, reusable scratch, and completing their answers.

A graph may find fewer answers than there are: the rest is found by other means. Scratch is kept
from call to call, one set for each thread at work, so that a single query pays for neither
allocation nor clearing.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import blas
from puffin_ann.ann.core.known_masks import KnownMask
from puffin_ann.ann.core.lasting_masks import LastingMasks
from puffin_ann.ann.core.memmap import read_only
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.core.types import Answers, Fields, Width
from puffin_ann.ann.exact.live_rows import LiveRows
from puffin_ann.ann.graph.arguments import QueryBatch
from puffin_ann.ann.graph.hollows import Hollows
from puffin_ann.ann.graph.live_lists import Past
from puffin_ann.ann.graph.primitives import Whole

SPARE = 8
"""Candidates measured exactly beyond k: the order they are found in is that of float32 sums."""
EXHAUSTIVE_ROWS = 256
"""With so few live rows, all are compared."""

REPAID = 4.0
"""Queries for each deleted row that repay lists which lead past those: with 19 % deleted in a
cluster, about as many as that; see `live_lists`."""

Run = Callable[[QueryBatch, Whole, Fields | None], Whole]
"""(queries, last stamp used, graph that leads past their deleted rows, if it was made) -> the last
stamp used then."""

SiftingRun = Callable[[QueryBatch, Whole, Fields | None, NDArray[np.float32]], Whole]
"""The same of a search that sifts; the last is `(q, 3) float32`, written: see `Sight`."""

_Found = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]
"""Rows and distances, (q, k), and how many of them there are, (q,): written by a run."""

_NONE_DELETED = np.empty(0, np.uint8)


class _Asked(NamedTuple):
    """What a run is asked; see `QueryBatch`, and `Run` of `past`."""

    queries: NDArray[np.float32]
    widths: NDArray[np.int64]
    live: int
    mask: NDArray[np.uint8]
    past: Fields | None


class Scratch:
    """What a kernel needs between calls, or a single query would make anew.

    Attributes:
        stamps: `(n,) uint8`, marks of the rows that a search has seen.
        stamp: the last mark used.
        addresses: `(1,) uint64`, where the marks lie.
        widths: `(1, 1) int64`, candidates wanted of a query alone.
        counts: `(1, 1) int64`, how many answers it has.

    Args:
        rows: n.
    """

    def __init__(self, rows: int) -> None:
        self.stamps = np.zeros(rows, np.uint8)
        self.stamp: Whole = 0
        self.addresses = np.array([self.stamps.ctypes.data], np.uint64)
        self.widths, self.counts = np.empty((1, 1), np.int64), np.empty((1, 1), np.int64)


class Answering:
    """Rows whose neighbours a graph finds, safe to use from several threads at once.

    Args:
        metric: name.
        vectors: `(n, d) float32`, as stored.
        zero_rows: `(z,) int64`, ascending: for cosine, the rows without a direction; the graph has
            no right place for them.
        expansion: what the graph's search takes for a candidate that it keeps, in rows compared
            one by one; between what that is for a query alone and for one of a large batch.
        past: makes of a mask the graph that leads past its deleted rows, as the search reads it;
            None if it cannot. It must not hold the mask.
    """

    def __init__(
        self,
        metric: str,
        vectors: NDArray[np.float32],
        zero_rows: NDArray[np.int64] | None = None,
        *,
        expansion: int,
        past: Callable[[NDArray[np.uint8]], Past | None],
    ) -> None:
        self.metric = METRICS[metric]
        self.vectors = read_only(vectors)
        self._zero_rows = np.empty(0, np.int64) if zero_rows is None else zero_rows
        self._free: list[Scratch] = []
        self._expansion = expansion
        self._live_rows = LiveRows(self.metric, self.vectors)
        masks = self._live_rows.masks
        self._lasting: LastingMasks[Past] = LastingMasks(
            len(self.vectors), past, masks, repaid=REPAID
        )

    def answer(
        self,
        run: Run,
        queries: NDArray[np.float32],
        k: int,
        *,
        width: Width,
        deleted: NDArray[np.uint8] | None,
        threads: int,
    ) -> Answers:
        """Return min(k, live rows) near rows of each query, by (exact distance, row).

        A query for which the graph gives fewer is answered by comparing all live rows; so is one
        that would keep as many candidates as there are, and one of rows of which so few live that
        they are compared sooner than the graph is searched past the deleted ones.

        Args:
            run: searches the graph.
            queries: `(q, d) float32`, contiguous.
            k: answers wanted, at least 1.
            width: candidates kept; at least k are.
            deleted: `(n,) uint8`, non-zero for rows not to be answered; None if all live. Not to be
                changed while it is in use: its rows are counted once.
            threads: threads to use.

        Returns:
            `(q, k) int64` rows, −1 where there is none, and `(q, k) float32`, infinite there.
        """
        rows = len(self.vectors)
        live = self._live_rows.count(deleted)
        if live <= max(k, EXHAUSTIVE_ROWS) or not len(queries):
            return self.exhaustive(queries, k, deleted=deleted, threads=threads)
        if isinstance(width, np.ndarray):
            widths = np.ascontiguousarray(width, np.int64)  # for others, kernels would be compiled
            widest = int(widths.max())
        else:
            widths = np.empty(len(queries), np.int64)
            widths.fill(min(width, rows))
            widest = width
        limit = self.compared_from(live)
        compared = None  # a single query takes so little time that an array more would be felt
        if max(widest, k) >= limit:
            compared = np.maximum(widths, k) >= limit
            if compared.all():
                return self.exhaustive(queries, k, deleted=deleted, threads=threads)
            widths = np.where(compared, 1, widths)
        ids = np.empty((len(queries), k), np.int64)
        distances = np.empty((len(queries), k), np.float32)
        counts = np.empty(len(queries), np.int64)
        mask = _NONE_DELETED if deleted is None or live == rows else deleted
        past = self.past(mask, len(queries))
        asked = _Asked(queries, widths, live, mask, past and past.graph)
        found = ids, distances, counts
        self._run_in_parts(run, asked, found, threads)
        if past is not None and past.hollows is not None:
            self._search_hollows(run, asked, found, past.hollows, threads)
        # Of a query alone the reduction would take a tenth of the search.
        if compared is not None or (counts[0] if len(counts) == 1 else counts.min()) < k:
            rest = np.flatnonzero(counts < k if compared is None else compared | (counts < k))
            ids[rest], distances[rest] = self.exhaustive(
                queries[rest], k, deleted=deleted, threads=threads
            )
        if len(self._zero_rows):
            return self._with_zero_rows(ids, distances, deleted)
        return ids, distances

    def _run(self, run: Run, asked: "_Asked", found: _Found) -> None:
        scratch = self.take()
        batch = QueryBatch(
            self.metric.code, self.vectors, asked.queries, asked.widths, asked.live, SPARE,
            asked.mask, scratch.stamps, *found,
        )  # fmt: skip
        scratch.stamp = run(batch, scratch.stamp, asked.past)
        self.give_back(scratch)

    def _search_hollows(
        self, run: Run, asked: "_Asked", found: _Found, hollows: Hollows, threads: int
    ) -> None:
        """Search again for queries from within deleted rows, through these: farther, that is."""
        kept = np.maximum(asked.widths, found[0].shape[1])
        lines = np.flatnonzero(hollows.hold(self.metric, asked.queries, found[1][:, 0], kept))
        if len(lines):
            queries, widths = asked.queries[lines], asked.widths[lines]
            anew = found[0][lines], found[1][lines], found[2][lines]
            again = asked._replace(queries=queries, widths=widths, past=None)
            self._run_in_parts(run, again, anew, threads)
            ids, distances, counts = found
            ids[lines], distances[lines], counts[lines] = anew

    def _run_in_parts(self, run: Run, asked: "_Asked", found: _Found, threads: int) -> None:
        ids, distances, counts = found
        if threads <= 1 or len(counts) <= 1:
            self._run(run, asked, found)
            return

        def run_some(some: slice) -> None:
            part = asked._replace(queries=asked.queries[some], widths=asked.widths[some])
            self._run(run, part, (ids[some], distances[some], counts[some]))

        for _ in blas.parallel(run_some, _parts(len(counts), threads), threads):
            pass

    def sift(
        self,
        run: SiftingRun,
        queries: NDArray[np.float32],
        k: int,
        *,
        widths: NDArray[np.int64],
        deleted: NDArray[np.uint8] | None,
        threads: int,
    ) -> tuple[Answers, NDArray[np.float32]] | None:
        """Return those of the rows near each query that a run lets through its sieve.

        Args:
            run: searches the graph.
            queries: `(q, d) float32`, contiguous, at least one.
            k: answers wanted, at least 1.
            widths: `(q,) int64`, candidates kept.
            deleted: as for `answer`.
            threads: threads to use.

        Returns:
            Answers, fewer than k where fewer are let through; and `(q, 3) float32`, see `Sight`.
            None where a graph alone does not answer, see `answer`.
        """
        live, wide = self._live_rows.count(deleted), int(widths.max())
        if live <= max(k, EXHAUSTIVE_ROWS) or max(wide, k) >= self.compared_from(live):
            return None
        ids, distances = (
            np.empty((len(queries), k), np.int64),
            np.empty((len(queries), k), np.float32),
        )
        counts, sights = np.empty(len(queries), np.int64), np.empty((len(queries), 3), np.float32)
        mask = _NONE_DELETED if deleted is None or live == len(self.vectors) else deleted
        past = self.past(mask, len(queries))
        graph = past and past.graph

        def run_some(some: slice) -> None:
            scratch = self.take()
            batch = QueryBatch(
                self.metric.code, self.vectors, queries[some], widths[some], live, SPARE, mask,
                scratch.stamps, ids[some], distances[some], counts[some],
            )  # fmt: skip
            scratch.stamp = run(batch, scratch.stamp, graph, sights[some])
            self.give_back(scratch)

        if threads <= 1 or len(queries) <= 1:
            run_some(slice(None))
        else:
            for _ in blas.parallel(run_some, _parts(len(queries), threads), threads):
                pass
        return (ids, distances), sights

    def exhaustive(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        deleted: NDArray[np.uint8] | None = None,
        threads: int = 1,
    ) -> Answers:
        """Return the k nearest live rows of each query, exactly."""
        return self._live_rows.nearest(queries, k, deleted=deleted, threads=threads)

    def live(self, deleted: NDArray[np.uint8] | None) -> int:
        """Return how many rows live."""
        return self._live_rows.count(deleted)

    def expect(self, deleted: NDArray[np.uint8]) -> None:
        """Make the graph that leads past a mask's deleted rows at once, if it is worth it."""
        self._lasting.make_now(deleted)

    def past(self, mask: NDArray[np.uint8], queries: int) -> Past | None:
        """Return the graph that leads past deleted rows, if there are any and it was made."""
        if mask is _NONE_DELETED:
            return None
        return self._lasting.find(self.known(mask), mask, queries)

    def known(self, mask: NDArray[np.uint8]) -> KnownMask:
        """Return what is known of a mask: whether `past` is settled, among others."""
        return self._live_rows.masks.of(mask)

    def compared_from(self, live: int) -> int:
        """Return from which width on all live rows are compared: it takes less time.

        At equal recall a search takes longer, the fewer rows live: with nine tenths deleted 3 times
        as long if those lie anywhere, 11 times if in one cluster; 10 times is assumed. How many
        queries come together does not matter, though a comparison takes a seventh of the time in a
        large batch: answers must not depend on it.
        """
        if live in (0, len(self.vectors)):
            return live
        longer = len(self.vectors) / live
        return min(live, math.ceil(live / (self._expansion * longer)))

    def _with_zero_rows(
        self,
        ids: NDArray[np.int64],
        distances: NDArray[np.float32],
        deleted: NDArray[np.uint8] | None,
    ) -> Answers:
        """Merge answers with the rows that the space has no right place for: all at distance 1."""
        k = ids.shape[1]
        zeros = (
            self._zero_rows if deleted is None else self._zero_rows[deleted[self._zero_rows] == 0]
        )
        found = np.isin(ids, self._zero_rows)
        shape = (len(ids), min(k, len(zeros)))
        ids = np.concatenate([ids, np.broadcast_to(zeros[:k], shape)], axis=1)
        distances = np.concatenate(
            [np.where(found, np.float32(np.inf), distances), np.ones(shape, np.float32)], axis=1
        )
        order = np.lexsort((ids, distances))[:, :k]
        return np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1)

    def take(self) -> Scratch:
        """Return scratch that is this thread's until it is given back."""
        try:
            return self._free.pop()  # appending and popping are atomic
        except IndexError:
            return Scratch(len(self.vectors))

    def give_back(self, scratch: Scratch) -> None:
        """Let others have scratch that was taken."""
        self._free.append(scratch)


def _parts(queries: int, threads: int) -> list[slice]:
    step = -(-queries // threads)
    return [slice(at, at + step) for at in range(0, queries, step)]
