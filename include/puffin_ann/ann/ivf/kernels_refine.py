"""Candidates measured on the vectors as stored, compiled: by float32 first, the nearest exactly."""

import numpy as np

from puffin_ann.ann.ivf.kernels_lists import key_of, score_of
from puffin_ann.ann.simd.kernels_distance import COSINE, L2, distance
from puffin_ann.ann.simd.kernels_order import in_order, select
from puffin_ann.ann.simd.vectors import prefetch
from puffin_ann.numba_kernels import FAST, inlined, kernel

MARGIN = 8
"""So many more rows than asked for get an exact distance: float32 sums may have erred in order."""

U64, I64, F32 = np.uint64, np.int64, np.float32
_LOW, _LINE = np.uint64(0xFFFFFFFF), np.uint64(16)


@inlined
def _squared(query, from_query, vectors, from_vectors, factor, dimension):  # type: ignore[no-untyped-def]
    """Return ‖q − factor · x‖²: of near rows it keeps the digits that a product would lose."""
    total = F32(0)
    for z in range(U64(dimension)):
        difference = query[U64(from_query) + z] - factor * vectors[U64(from_vectors) + z]
        total += difference * difference
    return total


@inlined
def _product(query, from_query, vectors, from_vectors, dimension):  # type: ignore[no-untyped-def]
    total = F32(0)
    for z in range(U64(dimension)):
        total += query[U64(from_query) + z] * vectors[U64(from_vectors) + z]
    return total


@kernel(fastmath=FAST)
def refine(rows, query, at, unit_query, at_unit, found, count):  # type: ignore[no-untyped-def]
    """Put float32 scores from the stored vectors in the place of those from codes."""
    metric, inverse_norms, dimension = rows.metric, rows.inverse_norms, rows.vectors.shape[1]
    vectors = rows.vectors.reshape(-1)
    for i in range(U64(count)):
        row = (found[i] & _LOW) * U64(dimension)
        for z in range(U64(0), U64(dimension), _LINE):
            prefetch(vectors, row + z)
    for i in range(U64(count)):
        row = found[i] & _LOW
        place = row * U64(dimension)
        if metric == COSINE:
            inverse = inverse_norms[row]
            score = _squared(unit_query, at_unit, vectors, place, inverse, dimension)
            if inverse == F32(0):  # a zero row has distance 1 from all, squared 2 on the sphere
                score = F32(2)
        elif metric == L2:
            score = _squared(query, at, vectors, place, F32(1), dimension)
        else:
            score = F32(0) - _product(query, at, vectors, place, dimension)
        found[i] = key_of(score + F32(0), row)


@inlined
def likely(found, count, k):  # type: ignore[no-untyped-def]
    """Bring the candidates to the front that may be among the k nearest; return how many."""
    best = min(count, k + MARGIN)
    if best < count:
        select(found, count, best)
    return best


@kernel()
def answer(rows, queries, i, square, found, spare, best, ids, distances):  # type: ignore[no-untyped-def]
    """Write the k nearest of the best candidates by their exact distances; return how many."""
    k = len(ids)
    for j in range(best):
        row = found[j] & _LOW
        exact = distance(rows.metric, queries, i, square, rows.vectors, row)
        found[j] = key_of(exact + F32(0), row)
    in_order(found, best, spare)
    there = min(best, k)
    for j in range(there):
        ids[j] = I64(found[j] & _LOW)
        distances[j] = score_of(found[j])
    for j in range(there, k):
        ids[j] = -1
        distances[j] = np.inf
    return there
