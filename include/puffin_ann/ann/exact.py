"""Exact nearest neighbours by comparison with every row: the oracle, and the fallback.

A float32 matrix product gives approximate scores. A row can only be among the k nearest if its
score is within the product's error bound of the k-th best, so just those rows are evaluated with
the exact distance. The answers are those of a sort of all exact distances, to the bit.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann import threads as threading
from puffin_ann.ann.metrics import METRICS, Metric, squared_norms

BLOCK_BYTES = 4 << 20
"""Vectors are read in blocks of about this size."""
QUERY_BLOCK = 256

UNIT = 2.0**-24
"""Largest relative error of one float32 rounding."""
SAFE_SCORE = 1e36
"""Scores above this might overflow float32; then every row is evaluated exactly."""

Answers = tuple[NDArray[np.int64], NDArray[np.float32]]


def search(
    queries: NDArray[np.float32],
    vectors: NDArray[np.float32],
    k: int,
    metric: Metric,
    *,
    allowed: NDArray[np.bool_] | None = None,
    threads: int = 1,
) -> Answers:
    """Return the k nearest rows of each query.

    Args:
        queries: `(q, d) float32`, finite.
        vectors: `(n, d) float32`, finite; may be memory-mapped, is read block by block.
        k: Answers wanted.
        metric: One of `METRICS`.
        allowed: `(n,) bool`, rows that may be answered; None means all.
        threads: Threads to use; the answers do not depend on it.

    Returns:
        ids `(q, k) int64` and distances `(q, k) float32`, ascending by (distance, id); -1 and
        infinity where fewer than k rows may be answered.

    """
    query_parts = threading.ranges(len(queries), _share(len(queries), threads))
    ways = max(1, threads // max(1, len(query_parts)))
    block = max(64, BLOCK_BYTES // (4 * max(1, vectors.shape[1])))
    rows_each = -(-max(1, len(vectors)) // ways)
    tasks = [
        _Task(part, slice(start, min(start + rows_each, len(vectors))))
        for part in query_parts
        for start in range(0, max(1, len(vectors)), rows_each)
    ]

    def answer(task: _Task) -> Answers:
        return _search_rows(queries[task.queries], vectors, k, metric, allowed, task.rows, block)

    ids = np.full((len(queries), k), -1, np.int64)
    distances = np.full((len(queries), k), np.inf, np.float32)
    for task, part in zip(tasks, threading.run(answer, tasks, threads), strict=True):
        known = (ids[task.queries], distances[task.queries])
        ids[task.queries], distances[task.queries] = _merged(known, part, k)
    return ids, distances


@dataclass(frozen=True)
class _Task:
    queries: slice
    rows: slice


def _share(queries: int, threads: int) -> int:
    return max(1, min(QUERY_BLOCK, -(-queries // max(1, threads))))


def _search_rows(
    queries: NDArray[np.float32],
    vectors: NDArray[np.float32],
    k: int,
    metric: Metric,
    allowed: NDArray[np.bool_] | None,
    rows: slice,
    block: int,
) -> Answers:
    best = _nothing(len(queries), k)
    scorer = _Scorer(queries, metric)
    for start in range(rows.start, rows.stop, block):
        part = slice(start, min(start + block, rows.stop))
        here = np.ascontiguousarray(vectors[part])
        usable = None if allowed is None else allowed[part].astype(np.bool_)
        if usable is not None and not usable.any():
            continue
        candidates = scorer.candidates(here, k, usable, best[1])
        found = metric.pair_distances(queries, here, candidates)
        candidates = np.where(candidates < 0, -1, candidates + start)
        best = _merged(best, (candidates, found), k)
    return best


def _nothing(queries: int, k: int) -> Answers:
    return np.full((queries, k), -1, np.int64), np.full((queries, k), np.inf, np.float32)


def _merged(one: Answers, other: Answers, k: int) -> Answers:
    """Return the k best of two sets of answers with no id in common, by (distance, id)."""
    ids = np.concatenate([one[0], other[0]], axis=1)
    distances = np.concatenate([one[1], other[1]], axis=1)
    order = np.lexsort((ids, distances), axis=1)[:, :k]
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1)


class _Scorer:
    """Approximate scores of blocks of rows, ascending as the distances do, with an error bound."""

    def __init__(self, queries: NDArray[np.float32], metric: Metric) -> None:
        self._metric = metric
        self._norms = np.sqrt(squared_norms(queries))
        if metric is METRICS["cosine"]:
            self._queries = metric.queries_to_search_space(queries)
        else:
            self._queries = queries

    def candidates(
        self,
        vectors: NDArray[np.float32],
        k: int,
        usable: NDArray[np.bool_] | None,
        known: NDArray[np.float32],
    ) -> NDArray[np.int64]:
        """Return every row that could be among the k nearest, `(q, c) int64` padded with -1.

        Args:
            vectors: `(b, d) float32`, a block.
            k: Answers wanted.
            usable: `(b,) bool` or None.
            known: `(q, k) float32`, exact distances of the best rows of earlier blocks.

        """
        norms = np.sqrt(squared_norms(vectors))
        scores, slack = self._scores(vectors, norms)
        if usable is not None:
            scores[:, ~usable] = np.inf
        if not np.isfinite(slack):
            return _listed(np.isfinite(scores) if usable is not None else scores == scores)
        limit = self._limit(known[:, -1]) + slack
        close = scores <= _above(limit)
        if int(close.sum(axis=1).max(initial=0)) > max(4 * k, 64) and k < scores.shape[1]:
            kth = np.partition(scores, k - 1, axis=1)[:, k - 1].astype(np.float64)
            close = scores <= _above(np.minimum(limit, kth + 2 * slack))
        return _listed(close & np.isfinite(scores))

    def _scores(
        self, vectors: NDArray[np.float32], norms: NDArray[np.float64]
    ) -> tuple[NDArray[np.float32], float]:
        """Return scores `(q, b) float32` and the most by which any of them may be wrong.

        A float32 dot product of d terms is off by at most d·u·‖q‖·‖x‖ in whatever order it is
        summed; the slack of 64 more roundings pays for the norms, for scaling, and for rows that
        differ in float64 but share a float32 distance, among which the lower id is answered.
        """
        longest = float(norms.max(initial=0.0))
        if self._metric is METRICS["cosine"]:
            size = 1.0
            vectors = self._metric.to_search_space(vectors, 0.0)
        elif self._metric is METRICS["ip"]:
            size = float(self._norms.max(initial=0.0)) * longest
        else:
            size = (float(self._norms.max(initial=0.0)) + longest) ** 2
        if not size < SAFE_SCORE:
            return np.zeros((len(self._norms), len(vectors)), np.float32), np.inf
        scores = self._queries @ vectors.T
        np.negative(scores, out=scores)
        if self._metric is METRICS["l2"]:
            scores *= 2
            scores += (norms**2).astype(np.float32)
        dimension = vectors.shape[1]
        return scores, (dimension + 64) * UNIT * size + dimension * 2.0**-120

    def _limit(self, distances: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the scores that exact distances stand for."""
        exact = distances.astype(np.float64)
        if self._metric is METRICS["cosine"]:
            return exact - 1.0
        if self._metric is METRICS["ip"]:
            return exact
        squared: NDArray[np.float64] = exact**2 - self._norms**2
        return squared


def _above(limit: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round up to float32, as a column."""
    with np.errstate(over="ignore"):
        return np.nextafter(limit.astype(np.float32), np.float32(np.inf))[:, None]


def _listed(chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the columns chosen in each line, `(q, c) int64` padded with -1."""
    counts = chosen.sum(axis=1)
    out = np.full((len(chosen), int(counts.max(initial=0))), -1, np.int64)
    line, column = np.nonzero(chosen)
    firsts = np.cumsum(counts) - counts
    out[line, np.arange(len(line)) - firsts[line]] = column
    return out
