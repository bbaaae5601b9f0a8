"""Searching packed nodes: a beam over estimated distances, every expanded row measured exactly.

See `layout` for what is where. What profiling showed, per expansion of 0.4 µs (100 dimensions)
to 0.7 µs (384): most of it is waiting for the node, so the next likely one is asked for while
this one is scanned, and once more when a better one turned up; numbers of neighbours are looked at
only where a mask of 32 comparisons says so; places in the pool are found by halving, since at
widths above 100 walking there takes as long as the scan.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.types import Fields
from puffin_ann.ann.graph.arguments import Pools, QueryBatch
from puffin_ann.ann.graph.kernels_answer import (
    candidates_kept,
    found_enough,
    next_stamp,
    write_nearest,
)
from puffin_ann.ann.graph.kernels_frontier import (
    NOBODY,
    has_room,
    insert,
    is_deleted,
    is_passed,
    mark,
    next_open,
    open_from,
    passed_room,
    start,
)
from puffin_ann.ann.graph.primitives import F32, U64, Whole, candidate, row_of, squared_of
from puffin_ann.ann.simd.fastscan import BLOCK, GROUP_BYTES, block_sums
from puffin_ann.ann.simd.kernels_distance import distance, dot, order_key
from puffin_ann.ann.simd.vectors import (
    F32X16,
    U32X16,
    add,
    fill_of,
    less_mask,
    load_of,
    lowest_bit,
    multiply_add,
    prefetch,
    store_of,
    sum_of,
)
from puffin_ann.ann.vamana.packed.kernels_pack import FAR, HEAD_BYTES, rotate, squared_from
from puffin_ann.ann.vamana.packed.kernels_tables import (
    PackedGraph,
    PlacedQuery,
    place_query,
    tables_of,
)
from puffin_ann.numba_kernels import inlined, kernel

ROUNDING = np.float32(2.0**-18)
"""How far a float32 distance of two rows, rotated and all, may be off, for each unit of the product
of that distance and the query's length: 64 times the rounding of one number."""
LONGEST = 2.0**12
"""Rows are shorter than 1. Of the distances of a query so much longer, few digits would be left:
it is answered by comparing all rows."""

WIDER, MORE = 1.25, 4
"""Candidates kept, a quarter and four more than the width says: so a width finds as much as over
full vectors (GloVe: 0.922 and 0.928 at 32, 0.969 and 0.971 at 64), which estimates alone would
not."""

_KEYS = np.uint64(8)
_HALF = np.uint64(BLOCK // 2)
_LINE = np.uint64(64)

_load, _store, _fill = load_of(F32X16), store_of(F32X16), fill_of(F32X16)
_load_keys, _store_keys = load_of(U32X16), store_of(U32X16)


@kernel()
def enter(pool: NDArray[np.uint64], size: Whole, key: np.uint64) -> Whole:
    """Insert a candidate in an ascending pool of `size`, which has room; return its place."""
    low, high = U64(0), U64(size)
    while low < high:
        middle = (low + high) >> U64(1)
        if pool[middle] < key:
            low = middle + U64(1)
        else:
            high = middle
    end = U64(size)
    while end >= low + _KEYS:
        _store_keys(pool, end - _KEYS + U64(1), _load_keys(pool, end - _KEYS))
        end -= _KEYS
    while end > low:
        pool[end] = pool[end - U64(1)]
        end -= U64(1)
    pool[low] = key
    return low


@inlined
def _candidates_kept(width, k, rows):  # type: ignore[no-untyped-def]
    return min(int(WIDER * candidates_kept(width, k, rows)) + MORE, rows)


@inlined
def _prefetch_node(nodes, key):  # type: ignore[no-untyped-def]
    stride = U64(nodes.stride)
    first = row_of(key) * stride
    for at in range(U64(0), stride, _LINE):
        prefetch(nodes.bytes, first + at)


@inlined
def _estimate_block(nodes, at, query, own, limit, out):  # type: ignore[no-untyped-def]
    """Write the estimates of a block where any is below the limit; return which are, as bits."""
    packed, code_bytes = nodes.bytes, U64(nodes.code_bytes)
    first, second = block_sums(packed, at, query.tables, code_bytes // U64(GROUP_BYTES))
    tail = at + code_bytes
    step, base, own, limit = _fill(query.step), _fill(query.base), _fill(own), _fill(limit)
    first = multiply_add(
        multiply_add(first, step, base), _load(packed, tail + U64(128)), _load(packed, tail)
    )
    second = multiply_add(
        multiply_add(second, step, base),
        _load(packed, tail + U64(192)),
        _load(packed, tail + U64(64)),
    )
    first, second = add(first, own), add(second, own)
    mask = less_mask(first, limit) | (less_mask(second, limit) << _HALF)
    if mask:
        _store(out, U64(0), first)
        _store(out, _HALF, second)
    return mask


@inlined
def _let_in(  # type: ignore[no-untyped-def]
    mask, estimates, numbers, place, pools, size, current, count, beside, stamps, stamp
):
    """Put the rows of a mask into their pools.

    Return the size of each, and its first place that may not be expanded.
    """
    pool, passed, deleted = pools.live, pools.passed, pools.deleted
    full, most = U64(pools.keep), U64(len(passed) - 1)
    while mask:
        bit = lowest_bit(mask)
        mask &= mask - U64(1)
        row = min(U64(numbers[place + bit]), U64(len(stamps) - 1))  # a damaged file harms nobody
        if stamps[row] == stamp:
            continue
        key = candidate(max(estimates[bit], F32(0)), row)
        if is_deleted(deleted, row):
            if is_passed(key, pool, size, full) and has_room(passed, count, most, key):
                stamps[row] = stamp
                count -= U64(count == most)
                beside = min(beside, U64(enter(passed, count, key)))
                count += U64(1)
        elif has_room(pool, size, full, key):
            stamps[row] = stamp
            size -= U64(size == full)
            current = min(current, U64(enter(pool, size, key)))
            size += U64(1)
    return size, current, count, beside


@inlined
def _kept(best, found, key):  # type: ignore[no-untyped-def]
    """Put a row among the best if it is one of them; return how many there are."""
    wanted = U64(len(best) - 1)
    if found == wanted:
        if key >= best[found - U64(1)]:
            return found
        found -= U64(1)
    insert(best, found, key)
    return found + U64(1)


@kernel()
def walk(
    nodes: PackedGraph,
    query: PlacedQuery,
    pools: Pools,
    stamps: NDArray[np.uint8],
    stamp: np.uint8,
    best: NDArray[np.uint64],
    estimates: NDArray[np.float32],
) -> Whole:
    """Find live rows near a query; return how many, none where deleted ones left too few of them.

    A row enters the pool once, by the first estimate that was near enough: if later ones let it in
    again, a fifth of the pool is doubles.

    Args:
        nodes: the graph.
        query: as the nodes are.
        pools: written; as many of the nearest live candidates as it keeps are expanded.
        stamps: `(n,) uint8`; rows that carry `stamp` were in a pool.
        stamp: of this search, carried by no row yet.
        best: uint64, its length less 1 is how many are wanted; written: the nearest live rows
            expanded, by their squared distances, ascending.
        estimates: `(32,) float32`, scratch.
    """
    packed, numbers, moved = nodes.bytes, nodes.numbers, query.moved
    pool, passed, deleted = pools.live, pools.passed, pools.deleted
    stride, code_bytes = U64(nodes.stride), U64(nodes.code_bytes)
    full = U64(pools.keep)
    current = beside = found = U64(0)
    stamps[nodes.entry] = stamp
    key = candidate(F32(0), nodes.entry)
    size, count = start(key, pool, passed, deleted)
    while key != NOBODY:
        lives = mark(key, pool, current, size, passed, beside)
        current = open_from(pool, current, size)
        beside = open_from(passed, beside, count)
        following = next_open(pool, current, size, full, passed, beside, count)
        if following != NOBODY:
            _prefetch_node(nodes, following)
        at = row_of(key) * stride
        own = sum_of(squared_from(packed, at, moved, len(moved)))
        if lives:
            found = _kept(best, found, candidate(own, row_of(key)))
        at += U64(4 * len(moved))
        there = min(U64(numbers[at >> U64(2)]), U64(nodes.blocks))
        at += U64(HEAD_BYTES)
        for _ in range(there):
            limit = squared_of(pool[full - U64(1)]) if size == full else FAR
            mask = _estimate_block(nodes, at, query, own, limit, estimates)
            at += code_bytes
            place = (at + U64(256)) >> U64(2)
            size, current, count, beside = _let_in(
                mask, estimates, numbers, place, pools, size, current, count, beside, stamps, stamp
            )
            at += U64(384)
        current = open_from(pool, current, size)
        beside = open_from(passed, beside, count)
        key = next_open(pool, current, size, full, passed, beside, count)
        if key != following and key != NOBODY:
            _prefetch_node(nodes, key)
    return found if found_enough(size, full, deleted) else U64(0)


@kernel()
def answer(
    batch: QueryBatch,
    query: Any,
    square: float,
    length: float,
    best: NDArray[np.uint64],
    found: Whole,
) -> None:
    """Write the k nearest of the rows found by their exact distances, and how many there are.

    Beyond the first k only those are measured that rounding may have put there.

    Args:
        batch: its answers are written.
        query: which of its queries.
        square: its squared norm.
        length: of the query as it was searched, see `place_query`.
        best: candidates by their float32 distances, ascending; overwritten.
        found: how many.
    """
    vectors, ids = batch.vectors, batch.ids[query]
    k = U64(len(ids))
    count = min(k, U64(found))
    flat = vectors.reshape(-1)
    if count == k:
        last = squared_of(best[k - U64(1)])
        root = math.sqrt(last)
        limit = last + ROUNDING * root * (root + length)
        while count < U64(found) and squared_of(best[count]) <= limit:
            count += U64(1)
    dimension = U64(vectors.shape[1])
    for i in range(count):
        for z in range(U64(0), dimension, U64(16)):
            prefetch(flat, row_of(best[i]) * dimension + z)
    for i in range(count):
        row: Any = np.int64(row_of(best[i]))
        exact = distance(batch.metric, batch.queries, query, square, vectors, row)
        insert(best, i, order_key(exact, row))
    count = min(k, count)
    write_nearest(best, count, ids, batch.distances[query])
    batch.counts[query] = count


@kernel(allocates=True)
def search_packed(graph_fields: Fields, batch_fields: Fields, stamp: Whole) -> Whole:
    """Answer queries.

    Args:
        graph_fields: of `PackedGraph`.
        batch_fields: of `QueryBatch`: the queries; its answers are written. The spare candidates
            may be measured where rounding can have swapped them.
        stamp: the last one used; 0 at first.

    Returns:
        The last stamp used.
    """
    nodes, batch = PackedGraph(*graph_fields), QueryBatch(*batch_fields)
    dim = len(nodes.origin)
    queries, stamps, live = batch.queries, batch.stamps, batch.live
    rows, k = len(stamps), batch.ids.shape[1]
    widest = _candidates_kept(batch.widths.max(), k, live)
    pool = np.empty(widest + 1, np.uint64)
    passed = np.empty(passed_room(widest, rows - live) + 1, np.uint64)
    best = np.empty(k + batch.spare + 1, np.uint64)
    placed = np.empty(dim, np.float32)
    scratch = np.empty(dim, np.float32)
    moved = np.empty(dim, np.float32)
    floats = np.empty(8 * dim, np.float32)
    tables = np.empty(8 * dim, np.uint8)
    estimates = np.empty(BLOCK, np.float32)
    for q in range(len(queries)):
        stamp = next_stamp(stamps, stamp)
        square = dot(queries, q, queries, q)
        length = place_query(nodes, batch.metric, queries, q, square, placed)
        found: Whole = U64(0)
        if length < LONGEST:
            rotate(placed, nodes.across, nodes.within, scratch, moved, U64(0), U64(1))
            step, base = tables_of(moved, floats, tables)
            keep = _candidates_kept(batch.widths[q], k, live)
            room = passed_room(keep, rows - live)
            pools = Pools(pool, keep, passed[: room + 1], batch.deleted)
            query = PlacedQuery(moved, tables, step, base)
            found = walk(nodes, query, pools, stamps, np.uint8(stamp), best, estimates)
        answer(batch, q, square, length, best, found)
    return stamp
