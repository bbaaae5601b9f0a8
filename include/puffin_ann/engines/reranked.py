"""A shard that has its vectors rounded, or not at all: answers are measured by those of the table.

What is stored says which rows can be among the answers. Where the bound of a rounded row's error
leaves open whether it is, or how far it is, the row is looked up; of codes nothing is proven, so
all their candidates are. Distances are always those of the table's vectors.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.core.types import Answers, Width
from puffin_ann.ann.exact import brute_force
from puffin_ann.ann.exact.compared_rows import Coding
from puffin_ann.ann.exact.range_search import rows_nearer
from puffin_ann.engines.base import RowMask, SearchableShard, check_search, exclude

GATHERED_BYTES = 256 << 20
"""Vectors of the table that are held at once."""
BLOCK_ROWS = 32_768
MORE = 16
"""Rounded rows that are looked at beyond twice those asked for."""
ROUNDED_ONCE = 1.2e-7
"""Relative: distances are rounded to float32, those of rounded rows and those of the table's."""


class RowVectors(Protocol):
    """Vectors of a shard's rows that are not in the shard."""

    @property
    def order(self) -> NDArray[np.int64]:
        """`(n,) int64`: all ordinals, in the order in which to read them takes least."""

    def read(self, ordinals: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vectors of live rows, `(m, d) float32`."""


class ArrayRows:
    """Vectors in memory, or mapped, by ordinal.

    Args:
        vectors: `(m, d) float32`, of rows `first` to `first + m`; others are not asked for.
        first: the first ordinal.
        rows: n, of the shard.
    """

    def __init__(self, vectors: NDArray[np.float32], first: int, rows: int) -> None:
        self._vectors, self._first = vectors, first
        self.order: NDArray[np.int64] = np.arange(rows)

    def read(self, ordinals: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vectors of rows, `(m, d) float32`."""
        found: NDArray[np.float32] = np.asarray(self._vectors[ordinals - self._first])
        return found


class CodedShard(Protocol):
    """An opened shard without vectors."""

    rows: int
    dimension: int
    metric: str

    @property
    def resident_bytes(self) -> int:
        """Memory, mostly mapped, that searches touch."""

    def candidates(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        width: int,
        excluded: NDArray[np.uint8] | None = None,
        threads: int = 1,
    ) -> NDArray[np.int64]:
        """Return rows among which the nearest are to be looked for, `(q, c) int64`, −1 for none."""


class _Rerank:
    """What both kinds of shards have in common."""

    def __init__(self, shard: SearchableShard | CodedShard, table: RowVectors) -> None:
        self._shard: Any = shard
        self._table = table
        self._metric = METRICS[shard.metric]

    @property
    def rows(self) -> int:
        """Number of rows n, deleted ones included."""
        return int(self._shard.rows)

    @property
    def dimension(self) -> int:
        """Numbers d in a vector."""
        return int(self._shard.dimension)

    @property
    def metric(self) -> str:
        """Name of the metric that distances are measured by."""
        return self._metric.name

    @property
    def resident_bytes(self) -> int:
        """Memory, mostly mapped, that searches touch."""
        return int(self._shard.resident_bytes)

    @property
    def order(self) -> NDArray[np.int64]:
        """`(n,) int64`: all ordinals, in the order in which to read them takes least."""
        return self._table.order

    def vectors(self, ordinals: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the table's vectors of live rows, `(m, d) float32`."""
        return self._table.read(ordinals)

    def coding_after(self, queries: int) -> Coding:
        """Return that `exhaustive` does not compare rows by a byte a number: it reads the table."""
        return Coding.NEVER

    def find_vectors(
        self, ordinals: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the table's vectors of live rows, `(m, d) float32`, and their places in order."""
        return self.vectors(ordinals), np.arange(len(ordinals))

    def _measured(
        self, queries: NDArray[np.float32], ids: NDArray[np.int64], asked: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """Return the exact distances of the pairs that are asked, `(q, c)`; infinite elsewhere."""
        wanted = np.unique(ids[asked])
        places = np.full(ids.shape, -1, np.int64)
        places[asked] = np.searchsorted(wanted, ids[asked])
        if not len(wanted):
            return np.full(ids.shape, np.inf, np.float32)
        return self._metric.pair_distances(queries, self._table.read(wanted), places)

    def _pieces(self, queries: NDArray[np.float32], each: int) -> Iterator[slice]:
        """Give queries by so many that the rows of all fit in memory, `each` of one."""
        step = max(1, GATHERED_BYTES // max(1, 4 * self.dimension * each))
        for start in range(0, len(queries), step):
            yield slice(start, start + step)


class CodesReranked(_Rerank):
    """A shard of codes, of which every candidate is looked up in the table."""

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        width: Width,
        deleted: RowMask = None,
        allowed: RowMask = None,
        threads: int = 1,
    ) -> Answers:
        """Return min(k, rows that may be answered) near rows of each query, exact distances."""
        queries = check_search(queries, k, self.dimension)
        mask = exclude(deleted, allowed, self.rows)
        ids, distances = _nothing(len(queries), k)
        widths = np.broadcast_to(np.asarray(width, np.int64), (len(queries),))
        for each in np.unique(widths).tolist():
            lines = np.flatnonzero(widths == each)
            found = self._shard.candidates(
                queries[lines], k, width=each, excluded=mask, threads=threads
            )
            for part in self._pieces(queries[lines], found.shape[1]):
                here = lines[part]
                near = self._measured(queries[here], found[part], found[part] >= 0)
                ids[here], distances[here] = nearest_of(found[part], near, k)
        live = self.rows if mask is None else self.rows - int(np.count_nonzero(mask))
        short = np.flatnonzero((ids >= 0).sum(axis=1) < min(k, live))
        if len(short):  # numbers were too large for codes
            ids[short], distances[short] = self.exhaustive(
                queries[short], k, deleted=mask, threads=threads
            )
        return ids, distances

    def exhaustive(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        deleted: RowMask = None,
        allowed: RowMask = None,
        within: NDArray[np.float32] | None = None,
        threads: int = 1,
    ) -> Answers:
        """Return the k nearest rows of each query that may be answered, exactly."""
        queries = check_search(queries, k, self.dimension)
        mask = exclude(deleted, allowed, self.rows)
        best = _nothing(len(queries), k)
        for ordinals in blocks_of(self._table.order, mask):
            places, near = brute_force.search(
                queries, self._table.read(ordinals), k, self._metric, threads=threads
            )
            found = np.append(ordinals, -1)[places], near
            best = nearest_of(
                np.concatenate([best[0], found[0]], axis=1),
                np.concatenate([best[1], found[1]], axis=1),
                k,
            )
        return best

    def maybe_nearer(
        self, queries: NDArray[np.float32], distance: float, ordinals: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the rows, of some, that may be nearer to a query than a distance: all of them."""
        return ordinals


class RoundedReranked(_Rerank):
    """A shard of rounded vectors.

    Args:
        shard: over the rounded vectors.
        errors: `(n,) float32`, bounds of the distances between the table's vectors and those.
        table: the table's.
    """

    def __init__(
        self, shard: SearchableShard, errors: NDArray[np.float32], table: RowVectors
    ) -> None:
        super().__init__(shard, table)
        self._errors = errors

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        width: Width,
        deleted: RowMask = None,
        allowed: RowMask = None,
        threads: int = 1,
    ) -> Answers:
        """Return min(k, rows that may be answered) near rows of each query, exact distances."""
        queries = check_search(queries, k, self.dimension)
        mask = exclude(deleted, allowed, self.rows)
        more = min(2 * k + MORE, max(self.rows, k))
        widest = np.maximum(width, more) if isinstance(width, np.ndarray) else max(width, more)
        found = self._shard.search(queries, more, width=widest, deleted=mask, threads=threads)
        return self._decided(queries, k, *found)[0]

    def exhaustive(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        deleted: RowMask = None,
        allowed: RowMask = None,
        within: NDArray[np.float32] | None = None,
        threads: int = 1,
    ) -> Answers:
        """Return the k nearest rows of each query that may be answered, exactly."""
        queries = check_search(queries, k, self.dimension)
        mask = exclude(deleted, allowed, self.rows)
        ids, distances = _nothing(len(queries), k)
        lines = np.arange(len(queries))
        more = 2 * k + MORE
        while len(lines):
            more = min(more, max(self.rows, k))
            found = self._shard.exhaustive(queries[lines], more, deleted=mask, threads=threads)
            (ids[lines], distances[lines]), is_whole = self._decided(queries[lines], k, *found)
            lines = lines[~is_whole]
            more *= 4
        return ids, distances

    def maybe_nearer(
        self, queries: NDArray[np.float32], distance: float, ordinals: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the rows, of some, that may be nearer to a query than a distance."""
        most = float(self._most(queries).max(initial=0))
        limit = distance + most
        limit += 2 * ROUNDED_ONCE * (abs(limit) + most) + 1e-37
        _, row, _ = rows_nearer(queries, self._shard.vectors(ordinals), limit, self.metric)
        return ordinals[np.unique(row)]

    def _decided(
        self,
        queries: NDArray[np.float32],
        k: int,
        ids: NDArray[np.int64],
        near: NDArray[np.float32],
    ) -> tuple[Answers, NDArray[np.bool_]]:
        """Return the k nearest of candidates, and whether no row beyond them can be among those.

        Args:
            queries: `(q, d) float32`.
            k: answers.
            ids: `(q, c) int64`, nearest first by rounded vectors; −1 where there are no more.
            near: `(q, c) float32`, the distances of those.
        """
        there = ids >= 0
        wide = np.where(there, near, 0).astype(np.float64)
        errors = self._bounds(queries, np.where(there, ids, 0))
        slack = errors + np.where(errors > 0, ROUNDED_ONCE * np.abs(wide) + 1e-37, 0)
        least = np.where(there, wide - slack, np.inf)
        farthest = np.full(len(queries), np.inf)
        if ids.shape[1] >= k:
            most = np.where(there, wide + slack, np.inf)
            farthest = np.partition(most, k - 1, axis=1)[:, k - 1]
        may_be = there & (least <= farthest[:, None])
        found = np.where(may_be, near, np.float32(np.inf))
        asked = may_be & (errors > 0)
        for part in self._pieces(queries, max(1, int(asked.sum(axis=1).max(initial=0)))):
            measured = self._measured(queries[part], ids[part], asked[part])
            found[part] = np.where(asked[part], measured, found[part])
        beyond = wide[:, -1] - self._most(queries) - ROUNDED_ONCE * np.abs(wide[:, -1]) - 1e-37
        is_whole = ~there[:, -1] | (beyond > farthest) | (ids.shape[1] >= self.rows)
        return nearest_of(np.where(may_be, ids, -1), found, k), is_whole

    def _bounds(self, queries: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return by how much the distances of rows can be off, `(q, c)`, rounding apart."""
        errors = self._row_bounds[ids]
        if self.metric == "ip":
            errors = errors * _norms(queries)[:, None]
        return errors

    def _most(self, queries: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the largest of the bounds of all rows, `(q,)`."""
        most = np.full(len(queries), self._row_bounds.max(initial=0))
        return most * _norms(queries) if self.metric == "ip" else most

    @cached_property
    def _row_bounds(self) -> NDArray[np.float64]:
        """By how much the distance of each row can be off, `(n,)`; of a query of length 1 for ip.

        Of vectors apart by e, those of length 1 are apart by 2e over the length of either.
        """
        errors = np.asarray(self._errors, np.float64)
        if self.metric != "cosine":
            return errors
        lengths = np.concatenate(
            [
                np.zeros(0),
                *(
                    _norms(self._shard.vectors(part))
                    for part in blocks_of(np.arange(self.rows), None)
                ),
            ]
        )
        bounds = np.divide(2 * errors, lengths, out=np.full(self.rows, 2.0), where=lengths > 0)
        return np.where(errors > 0, np.minimum(bounds * (1 + 1e-6), 2.0), 0.0)


Reranked = CodesReranked | RoundedReranked


def reranked(
    shard: Any, errors: NDArray[np.float32] | None, table: Callable[[], RowVectors]
) -> SearchableShard:
    """Return an opened shard, with what it has not of its vectors looked up elsewhere.

    Args:
        shard: as its engine opens it.
        errors: of rounded vectors; None where they are as in the table, or not stored.
        table: gives them, where they are needed.
    """
    if hasattr(shard, "candidates"):
        return CodesReranked(shard, table())
    opened: SearchableShard = shard
    if errors is None or not opened.rows:
        return opened
    return RoundedReranked(opened, errors, table())


def blocks_of(
    order: NDArray[np.int64], excluded: NDArray[np.uint8] | None
) -> Iterator[NDArray[np.int64]]:
    """Give ordinals block by block, without those that are excluded."""
    for start in range(0, len(order), BLOCK_ROWS):
        ordinals = order[start : start + BLOCK_ROWS]
        if excluded is not None:
            ordinals = ordinals[excluded[ordinals] == 0]
        if len(ordinals):
            yield ordinals


def nearest_of(ids: NDArray[np.int64], near: NDArray[np.float32], k: int) -> Answers:
    """Return the k nearest of each line by distance and ordinal, −1 and infinity for none."""
    by = np.where(ids < 0, np.iinfo(np.int64).max, ids)
    order = np.lexsort((by, near, ids < 0), axis=1)[:, :k]
    found_ids, found = np.take_along_axis(ids, order, 1), np.take_along_axis(near, order, 1)
    found = np.where(found_ids < 0, np.float32(np.inf), found)
    ids_out, out = _nothing(len(ids), k)
    ids_out[:, : order.shape[1]], out[:, : order.shape[1]] = found_ids, found
    return ids_out, out


def _nothing(queries: int, k: int) -> Answers:
    return np.full((queries, k), -1, np.int64), np.full((queries, k), np.inf, np.float32)


def _norms(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    norms: NDArray[np.float64] = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    return norms
