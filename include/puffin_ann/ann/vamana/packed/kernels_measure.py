"""Measuring what a walk found: on rows as they are stored, and no more of them than may count."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.kernels_answer import write_nearest
from puffin_ann.ann.graph.kernels_frontier import insert
from puffin_ann.ann.graph.primitives import F32, U64, Whole, row_of, squared_of
from puffin_ann.ann.simd.kernels_distance import distance, order_key
from puffin_ann.ann.simd.vectors import prefetch
from puffin_ann.numba_kernels import inlined, kernel

ROUNDING = np.float32(2.0**-18)
"""How far a float32 distance of two rows may be off, for each unit of the product of that distance
and the lengths of what is compared: 64 times the rounding of one number."""
CODED = 1.0 / 16.0
"""How far a squared distance by codes of 8 bits may be off, for each unit of the distance divided
by the root of the number of dimensions: five standard deviations and more, as rows are shorter than
1. A quarter of it would find 0.0005 less (recall, WordNet glosses, 384 dimensions)."""
ROW_AHEAD = 32
"""Numbers of each row to be measured that are asked for ahead, all rows together. To ask for whole
rows of 384 so takes a twentieth longer."""
ROWS_AHEAD = 2
"""So many rows ahead of the one that is measured are asked for whole, where they were not read yet:
a twentieth less at 384 dimensions."""
LAST = 4
"""Candidates that tell where a pool ends."""


@inlined
def error_of_codes(nodes):  # type: ignore[no-untyped-def]
    """Return how far two squared distances by codes may be off, as a share of the distance."""
    return CODED / math.sqrt(len(nodes.origin)) if nodes.row_bytes else 0.0


@inlined
def _ask_for(vectors, key, dimension, begin, end):  # type: ignore[no-untyped-def]
    """Ask memory for some numbers of the row of a candidate."""
    at = row_of(key) * dimension
    for z in range(U64(begin), min(dimension, U64(end)), U64(16)):
        prefetch(vectors, at + z)


@inlined
def _may_be_among(last, error):  # type: ignore[no-untyped-def]
    """Return up to which squared distance by codes a row may be among the k nearest.

    Squared distances by codes are off by at most half of `error` times the distance. So the k-th
    nearest is at a distance of at most `farthest`, for which the least of them is `last`; and those
    nearer than that have at most what is returned.
    """
    half = F32(0.5) * error
    farthest = F32(0.5) * (half + math.sqrt(half * half + F32(4) * last))
    return last + error * farthest


@kernel()
def answer(
    metric: int,
    queries: NDArray[np.float32],
    query: Any,
    square: float,
    length: float,
    error: float,
    best: NDArray[np.uint64],
    found: Whole,
    near: NDArray[np.uint64],
    vectors: NDArray[np.float32],
    ids: NDArray[np.int64],
    distances: NDArray[np.float32],
) -> Whole:
    """Write the k nearest of the rows found by their exact distances; return how many there are.

    Beyond the first k only those are measured that rounding, or coding, may have put there.

    Args:
        metric: code.
        queries: `(q, d) float32`.
        query: which of them.
        square: its squared norm.
        length: of the query as it was searched, see `kernels_tables.place_query`.
        error: see `error_of_codes`.
        best: candidates by their float32 distances, ascending; overwritten.
        found: how many.
        near: all candidates in any order, where distances are by codes, else empty; overwritten.
        vectors: `(n, d) float32`, rows as stored.
        ids: `(k,) int64`, written; -1 where there is none.
        distances: `(k,) float32`, written; infinite there.
    """
    k = U64(len(ids))
    count = min(k, U64(found))
    flat = vectors.reshape(-1)
    if count == k:
        last = squared_of(best[k - U64(1)])
        root = math.sqrt(last)
        # Rows are shorter than 1, and so is the origin that the query's length is taken from.
        rounding = ROUNDING * (root + length + 1.0) * root
        if len(near):
            limit = _may_be_among(last, F32(error)) + rounding
            count = U64(0)
            for i in range(U64(len(near))):
                if squared_of(near[i]) <= limit:
                    near[count] = near[i]
                    count += U64(1)
            best = near
        else:
            while count < U64(found) and squared_of(best[count]) <= last + rounding:
                count += U64(1)
    dimension = U64(vectors.shape[1])
    ahead = U64(ROWS_AHEAD)
    whole = dimension if len(near) else U64(ROW_AHEAD)  # else they were read as they are before
    for i in range(count):
        _ask_for(flat, best[i], dimension, 0, whole if i < ahead else U64(ROW_AHEAD))
    for i in range(count):
        if i + ahead < count:
            _ask_for(flat, best[i + ahead], dimension, ROW_AHEAD, whole)
        row: Any = np.int64(row_of(best[i]))
        exact = distance(metric, queries, query, square, vectors, row)
        insert(best, i, order_key(exact, row))
    count = min(k, count)
    write_nearest(best, count, ids, distances)
    return count


@inlined
def horizon(pool, full, metric, queries, query, square, vectors):  # type: ignore[no-untyped-def]
    """Return up to which distance of a query its rows are known: that of the last of a full pool.

    They are in the order of their estimates: the farthest of several is where the pool ends.
    """
    farthest, flat, dimension = F32(-np.inf), vectors.reshape(-1), U64(vectors.shape[1])
    for i in range(max(0, full - LAST), full):
        _ask_for(flat, pool[i], dimension, 0, ROW_AHEAD)
    for i in range(max(0, full - LAST), full):
        row: Any = np.int64(row_of(pool[i]))
        farthest = max(farthest, F32(distance(metric, queries, query, square, vectors, row)))
    return farthest
