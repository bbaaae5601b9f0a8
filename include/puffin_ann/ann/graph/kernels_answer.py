"""The ends of graph searches: candidates measured exactly, the nearest written as answers."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.arguments import QueryBatch
from puffin_ann.ann.graph.kernels_frontier import insert
from puffin_ann.ann.graph.primitives import F32, U64, Whole, row_of
from puffin_ann.ann.simd.kernels_distance import distance, dot, key_distance, order_key
from puffin_ann.numba_kernels import inlined, kernel

_LOW = np.uint64(0xFFFFFFFF)


@inlined
def next_stamp(stamps: NDArray[np.uint8], stamp: Whole) -> Whole:
    """Return a stamp that no row carries; `stamps` are cleared once each number has been used."""
    if stamp < 255:
        return stamp + 1
    stamps[:] = 0
    return 1


@inlined
def candidates_kept(width, k, rows):  # type: ignore[no-untyped-def]
    """Return how many candidates a search of a width keeps: no fewer than it answers."""
    return min(max(width, k), rows)


@inlined
def found_enough(size, keep, deleted):  # type: ignore[no-untyped-def]
    """Return how many candidates are answered from: none if deleted rows left too few of them.

    A search that came to its end before it had as many live rows as its width says was cut off from
    some: what it found may be anything. Then all are compared, as for one that found fewer than k;
    else a wider search, which finds some more, would answer worse than a narrower one.
    """
    return U64(0) if len(deleted) and U64(size) < U64(keep) else U64(size)


@kernel()
def write_nearest(
    keys: NDArray[np.uint64],
    count: Whole,
    ids: NDArray[np.int64],
    distances: NDArray[np.float32],
) -> None:
    """Write answers of one query.

    Args:
        keys: `order_key` of each, ascending.
        count: how many there are, at most k.
        ids: `(k,) int64`, written; -1 where there is none.
        distances: `(k,) float32`, written; infinite there.
    """
    for j in range(U64(len(ids))):
        ids[j] = np.int64(keys[j] & _LOW) if j < U64(count) else np.int64(-1)
        distances[j] = key_distance(keys[j]) if j < U64(count) else F32(np.inf)


@kernel()
def answer_from(
    batch: QueryBatch,
    query: int,
    pool: NDArray[np.uint64],
    size: Whole,
    keys: NDArray[np.uint64],
) -> None:
    """Write the nearest rows of a pool, by exact distance, and how many there are.

    Args:
        batch: its answers are written.
        query: which of its queries.
        pool: candidates, ascending.
        size: how many.
        keys: `uint64` scratch; as many rows are measured as it has room for, which is more than k,
            since the pool's order is float32's.
    """
    ids = batch.ids[query]
    square = dot(batch.queries, query, batch.queries, query)
    found = U64(0)
    for i in range(U64(size)):
        row = int(row_of(pool[i]))
        exact = distance(batch.metric, batch.queries, query, square, batch.vectors, row)
        insert(keys, found, order_key(exact, row))
        found += U64(1)
        if found == U64(len(keys)):
            break
    count = min(U64(len(ids)), found)
    write_nearest(keys, count, ids, batch.distances[query])
    batch.counts[query] = count
