"""Searching packed nodes: a beam over estimated distances, every expanded row measured exactly.

See `layout` for what is where. Most of an expansion is waiting for memory, so the next likely node
and its row are asked for while this one is scanned, and once more when a better one turned up: the
first lines of both, since the machine itself fetches what follows on those. Numbers of neighbours
are looked at only where a mask of 32 comparisons says so; places in the pool are found by halving,
since at widths above 100 walking there takes as long as the scan.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from puffin_ann.ann.core.types import Fields
from puffin_ann.ann.graph.arguments import Pools, QueryBatch
from puffin_ann.ann.graph.kernels_answer import (
    candidates_kept,
    found_enough,
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
    passed_room,
    start,
)
from puffin_ann.ann.graph.primitives import (
    F32,
    U64,
    Whole,
    candidate,
    is_expanded,
    row_of,
    squared_of,
)
from puffin_ann.ann.simd.fastscan import BLOCK, GROUP_BYTES, block_sums
from puffin_ann.ann.simd.intrinsics import numbers_at, rows_at
from puffin_ann.ann.simd.kernels_distance import distance, dot, order_key
from puffin_ann.ann.simd.vectors import (
    F32X16,
    U16X16,
    U32X16,
    add,
    bits_as,
    fill_of,
    left_by,
    less_mask,
    load_of,
    lowest_bit,
    multiply_add,
    prefetch,
    store_of,
    sum_of,
    widened_to,
)
from puffin_ann.ann.vamana.packed.kernels_pack import HEAD_BYTES, TAIL_BYTES, rotate
from puffin_ann.ann.vamana.packed.kernels_tables import (
    PackedGraph,
    PackedGraphs,
    PlacedQuery,
    place_query,
    tables_of,
)
from puffin_ann.numba_kernels import inlined, kernel

ROUNDING = np.float32(2.0**-18)
"""How far a float32 distance of two rows may be off, for each unit of the product of that distance
and the lengths of what is compared: 64 times the rounding of one number."""
LONGEST = 2.0**12
"""Rows are shorter than 1. Of the distances of a query so much longer, few digits would be left:
it is answered by comparing all rows."""

WIDER, MORE = 1.25, 4
"""Candidates kept, a quarter and four more than the width says: so a width finds about as much as
over full vectors, which estimates alone would not."""
WIDER_AGAIN, WIDEST_AGAIN = 2, 4
"""So much wider, and at most, a query is searched again that found fewer rows than are wanted,
since some entered more than once and left others no place: to compare all would take longer."""
FAR = np.float32(3e38)
"""No estimate is farther."""
AHEAD = 1024
"""Bytes of a node, and of its row, that are asked for ahead."""

_KEYS = np.uint64(8)
_HALF = np.uint64(BLOCK // 2)
_LINE = np.uint64(64)
_LANES = np.uint64(16)

_load, _store, _fill = load_of(F32X16), store_of(F32X16), fill_of(F32X16)
_load_keys, _store_keys = load_of(U32X16), store_of(U32X16)
_load_halves, _widen, _upper = load_of(U16X16), widened_to(U32X16), left_by(16)
_as_floats = bits_as(F32X16)
_bytes, _numbers = numbers_at(types.uint8), numbers_at(types.uint32)
_rows = rows_at(types.float32)


class Room(NamedTuple):
    """What a search writes to and reads again; see `ask`.

    Attributes:
        pool: uint64, candidates that are live rows; see `Pools`.
        passed: uint64, deleted rows passed through; see `Pools`.
        best: uint64, see `walk`.
        placed: `(w,) float32`, a query in the frame.
        scratch: `(w,) float32`.
        moved: `(w,) float32`, the query rotated.
        asked: `(d,) float32`, see `PlacedQuery`.
        tables: uint8, see `PlacedQuery`.
        estimates: `(32,) float32`.
    """

    pool: NDArray[np.uint64]
    passed: NDArray[np.uint64]
    best: NDArray[np.uint64]
    placed: NDArray[np.float32]
    scratch: NDArray[np.float32]
    moved: NDArray[np.float32]
    asked: NDArray[np.float32]
    tables: NDArray[np.uint8]
    estimates: NDArray[np.float32]


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
def _open_from(pool, place, size, stamps, done):  # type: ignore[no-untyped-def]
    """Return the place of the nearest candidate whose row was not expanded, from `place` on."""
    while place < size and (is_expanded(pool[place]) or stamps[row_of(pool[place])] == done):
        place += U64(1)
    return place


@inlined
def _next_stamps(stamps, stamp):  # type: ignore[no-untyped-def]
    """Return a stamp that no row carries, and neither the one before it, see `walk`."""
    if stamp < 254:
        return stamp + 2
    stamps[:] = 0
    return 2


@inlined
def _candidates_kept(width, k, rows):  # type: ignore[no-untyped-def]
    return min(int(WIDER * candidates_kept(width, k, rows)) + MORE, rows)


@inlined
def _prefetch_node(nodes, vectors, dimension, key):  # type: ignore[no-untyped-def]
    at = row_of(key) * dimension
    for z in range(U64(0), min(dimension, U64(AHEAD // 4)), _LANES):
        prefetch(vectors, at + z)
    at = row_of(key) * U64(nodes.stride)
    for z in range(U64(0), min(U64(nodes.stride), U64(AHEAD)), _LINE):
        prefetch(nodes.bytes, at + z)


@inlined
def _squared(vectors, at, factor, asked):  # type: ignore[no-untyped-def]
    """Return the squared distance of a stored row, times a factor, and a query."""
    dimension = U64(len(asked))
    minus = _fill(-factor)
    one = other = _fill(F32(0))
    pairs = dimension >> U64(5)
    for i in range(pairs):
        z = i * U64(32)
        left = multiply_add(_load(vectors, at + z), minus, _load(asked, z))
        z += _LANES
        right = multiply_add(_load(vectors, at + z), minus, _load(asked, z))
        one = multiply_add(left, left, one)
        other = multiply_add(right, right, other)
    z = pairs * U64(32)
    if dimension & _LANES:
        left = multiply_add(_load(vectors, at + z), minus, _load(asked, z))
        one = multiply_add(left, left, one)
        z += _LANES
    total = sum_of(add(one, other))
    while z < dimension:
        rest = asked[z] - vectors[at + z] * factor
        total += rest * rest
        z += U64(1)
    return total


@inlined
def _from_halves(packed, at):  # type: ignore[no-untyped-def]
    """Return 16 numbers of which the upper halves, as float32, are stored."""
    return _as_floats(_upper(_widen(_load_halves(packed, at))))


@inlined
def _estimate_block(nodes, at, query, own, limit, out):  # type: ignore[no-untyped-def]
    """Write the estimates of a block where any is below the limit; return which are, as bits."""
    packed, code_bytes = nodes.bytes, U64(nodes.code_bytes)
    first, second = block_sums(packed, at, query.tables, code_bytes // U64(GROUP_BYTES))
    # A load takes its offset in elements of the array, which are bytes.
    tail = at + code_bytes
    step, base, own, limit = _fill(query.step), _fill(query.base), _fill(own), _fill(limit)
    first = multiply_add(
        multiply_add(first, step, base),
        _from_halves(packed, tail + U64(64)),
        _from_halves(packed, tail),
    )
    second = multiply_add(
        multiply_add(second, step, base),
        _from_halves(packed, tail + U64(96)),
        _from_halves(packed, tail + U64(32)),
    )
    first, second = add(first, own), add(second, own)
    mask = less_mask(first, limit) | (less_mask(second, limit) << _HALF)
    if mask:
        _store(out, U64(0), first)
        _store(out, _HALF, second)
    return mask


@inlined
def _let_in(  # type: ignore[no-untyped-def]
    mask, estimates, numbers, place, again, pools, size, current, count, beside, stamps, done, met
):
    """Put the rows of a mask into their pools.

    Return the size of each, and its first place that may not be expanded, and how many live rows
    were let in so far.
    """
    pool, passed, deleted = pools.live, pools.passed, pools.deleted
    there = np.uint8(done - np.uint8(1))
    full, most = U64(pools.keep), U64(len(passed) - 1)
    while mask:
        bit = lowest_bit(mask)
        mask &= mask - U64(1)
        row = min(U64(numbers[place + bit]), U64(len(stamps) - 1))  # a damaged file harms nobody
        mark_of_row = stamps[row]
        if mark_of_row == done or (mark_of_row == there and not again):
            continue
        key = candidate(max(estimates[bit], F32(0)), row)
        if is_deleted(deleted, row):
            if is_passed(key, pool, size, full) and has_room(passed, count, most, key):
                stamps[row] = there
                count -= U64(count == most)
                beside = min(beside, U64(enter(passed, count, key)))
                count += U64(1)
        elif has_room(pool, size, full, key):
            stamps[row] = there
            met += U64(mark_of_row != there)
            size -= U64(size == full)
            current = min(current, U64(enter(pool, size, key)))
            size += U64(1)
    return size, current, count, beside, met


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
    vectors: NDArray[np.float32],
    query: PlacedQuery,
    pools: Pools,
    stamps: NDArray[np.uint8],
    done: np.uint8,
    best: NDArray[np.uint64],
    estimates: NDArray[np.float32],
) -> Whole:
    """Find live rows near a query; return how many, none where deleted ones left too few of them.

    By two bits a dimension a row enters a pool once: the first estimate near enough may stand. By
    one bit it enters again with every estimate near enough, from each neighbour expanded, and is
    expanded at the least of them: else a third more rows would have to be expanded. Finding its
    former place, to move it, takes longer than to skip it there.

    Args:
        nodes: the graph.
        vectors: flat `(n · d,) float32`, rows as stored.
        query: as the nodes are.
        pools: written; as many of the nearest live candidates as it keeps are expanded.
        stamps: `(n,) uint8`; rows that carry `done` were expanded, those with one less were in a
            pool.
        done: stamp of this search, at least 2; no row carries it or the one before it yet.
        best: uint64, its length less 1 is how many are wanted; written: the nearest live rows
            expanded, by their squared distances, ascending.
        estimates: `(32,) float32`, scratch.
    """
    packed, numbers = nodes.bytes, nodes.numbers
    floats = packed.view(np.float32)
    pool, passed, deleted = pools.live, pools.passed, pools.deleted
    stride, code_bytes = U64(nodes.stride), U64(nodes.code_bytes)
    dimension, again = U64(len(query.asked)), nodes.bits == 1
    full = U64(pools.keep)
    current = beside = found = U64(0)
    key = candidate(F32(0), nodes.entry)
    size, count = start(key, pool, passed, deleted)
    met = U64(size)
    while key != NOBODY:
        row = row_of(key)
        stamps[row] = done
        lives = mark(key, pool, current, size, passed, beside)
        current = _open_from(pool, current, size, stamps, done)
        beside = _open_from(passed, beside, count, stamps, done)
        following = next_open(pool, current, size, full, passed, beside, count)
        if following != NOBODY:
            _prefetch_node(nodes, vectors, dimension, following)
        at = row * stride
        head = at >> U64(2)
        factor, addend = floats[head + U64(1)], floats[head + U64(2)]
        own = max(_squared(vectors, row * dimension, factor, query.asked) + addend, F32(0))
        if lives:
            found = _kept(best, found, candidate(own, row))
        degree = min(U64(numbers[head]), U64(nodes.most))
        at += U64(HEAD_BYTES)
        for begin in range(U64(0), degree, U64(BLOCK)):
            limit = squared_of(pool[full - U64(1)]) if size == full else FAR
            mask = _estimate_block(nodes, at, query, own, limit, estimates)
            if degree - begin < U64(BLOCK):
                mask &= (U64(1) << (degree - begin)) - U64(1)
            at += code_bytes
            place = (at + U64(128)) >> U64(2)
            size, current, count, beside, met = _let_in(
                mask, estimates, numbers, place, again, pools, size, current, count, beside,
                stamps, done, met,
            )  # fmt: skip
            at += U64(TAIL_BYTES)
        current = _open_from(pool, current, size, stamps, done)
        beside = _open_from(passed, beside, count, stamps, done)
        key = next_open(pool, current, size, full, passed, beside, count)
        if key != following and key != NOBODY:
            _prefetch_node(nodes, vectors, dimension, key)
    return found if found_enough(met, full, deleted) else U64(0)


@kernel()
def answer(
    metric: int,
    queries: NDArray[np.float32],
    query: Any,
    square: float,
    length: float,
    best: NDArray[np.uint64],
    found: Whole,
    vectors: NDArray[np.float32],
    ids: NDArray[np.int64],
    distances: NDArray[np.float32],
) -> Whole:
    """Write the k nearest of the rows found by their exact distances; return how many there are.

    Beyond the first k only those are measured that rounding may have put there.

    Args:
        metric: code.
        queries: `(q, d) float32`.
        query: which of them.
        square: its squared norm.
        length: of the query as it was searched, see `place_query`.
        best: candidates by their float32 distances, ascending; overwritten.
        found: how many.
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
        limit = last + ROUNDING * root * (root + length + 1.0)
        while count < U64(found) and squared_of(best[count]) <= limit:
            count += U64(1)
    dimension = U64(vectors.shape[1])
    for i in range(count):
        for z in range(U64(0), dimension, U64(16)):
            prefetch(flat, row_of(best[i]) * dimension + z)
    for i in range(count):
        row: Any = np.int64(row_of(best[i]))
        exact = distance(metric, queries, query, square, vectors, row)
        insert(best, i, order_key(exact, row))
    count = min(k, count)
    write_nearest(best, count, ids, distances)
    return count


@inlined
def _most_kept(candidates, live, bits):  # type: ignore[no-untyped-def]
    """Return how many candidates a search keeps at most that is repeated more widely."""
    return min(WIDEST_AGAIN * candidates, live) if bits == 1 else candidates


@inlined
def _room_for(candidates, gone, best, numbers, dim, bits):  # type: ignore[no-untyped-def]
    """Return room for searches of so many candidates and deleted rows, best rows and dimensions."""
    return Room(
        np.empty(candidates + 1, np.uint64),
        np.empty(passed_room(candidates, gone) + 1, np.uint64),
        np.empty(best + 1, np.uint64),
        np.empty(dim, np.float32),
        np.empty(dim, np.float32),
        np.empty(dim, np.float32),
        np.empty(numbers, np.float32),
        np.empty(4 * bits * dim, np.uint8),
        np.empty(BLOCK, np.float32),
    )


@kernel()
def ask(
    nodes: PackedGraph,
    vectors: NDArray[np.float32],
    deleted: NDArray[np.uint8],
    live: Whole,
    stamps: NDArray[np.uint8],
    stamp: Whole,
    metric: int,
    queries: NDArray[np.float32],
    query: Any,
    square: float,
    width: Whole,
    room: Room,
    ids: NDArray[np.int64],
    distances: NDArray[np.float32],
) -> Whole:
    """Answer a query from one graph; return how many answers there are.

    Args:
        nodes: the graph.
        vectors: `(n, d) float32`, its rows as stored.
        deleted: `(n,) uint8`, or empty if all rows are live.
        live: how many rows are.
        stamps: `(n,) uint8`, see `walk`.
        stamp: of this search, see `_next_stamps`.
        metric: code.
        queries: `(q, d) float32`.
        query: which of them.
        square: its squared norm.
        width: candidates wanted; see `kernels_answer.candidates_kept`.
        room: scratch, which is wide enough.
        ids: `(k,) int64`, written; -1 where there is none.
        distances: `(k,) float32`, written; infinite there.
    """
    length = place_query(nodes, metric, queries, query, square, room.asked, room.placed)
    found: Whole = U64(0)
    if length < LONGEST:
        rotate(room.placed, nodes.across, nodes.within, room.scratch, room.moved, U64(0))
        step, base = tables_of(room.moved, nodes.bits, room.tables)
        keep = _candidates_kept(width, len(ids), live)
        most = _most_kept(keep, live, nodes.bits)
        placed = PlacedQuery(room.asked, room.tables, step, base)
        while True:
            passed = room.passed[: passed_room(keep, len(vectors) - live) + 1]
            found = walk(
                nodes, vectors.reshape(-1), placed, Pools(room.pool, keep, passed, deleted),
                stamps, np.uint8(stamp), room.best, room.estimates,
            )  # fmt: skip
            if found == U64(0) or found >= U64(len(ids)) or keep == most:
                break
            keep = min(WIDER_AGAIN * keep, most)
            stamps[:] = 0
    return answer(metric, queries, query, square, length, room.best, found, vectors, ids, distances)


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
    queries, live = batch.queries, batch.live
    k = batch.ids.shape[1]
    widest = _most_kept(_candidates_kept(batch.widths.max(), k, live), live, nodes.bits)
    room = _room_for(
        widest, len(batch.stamps) - live, k + batch.spare, queries.shape[1], len(nodes.origin),
        nodes.bits,
    )  # fmt: skip
    for q in range(len(queries)):
        stamp = _next_stamps(batch.stamps, stamp)
        square = dot(queries, q, queries, q)
        batch.counts[q] = ask(
            nodes, batch.vectors, batch.deleted, live, batch.stamps, stamp, batch.metric, queries,
            q, square, batch.widths[q], room, batch.ids[q], batch.distances[q],
        )  # fmt: skip
    return stamp


@kernel(allocates=True)
def search_several(
    graphs_fields: Fields,
    metric: int,
    queries: NDArray[np.float32],
    widths: NDArray[np.int64],
    spare: int,
    stamps: NDArray[np.uint64],
    stamp: Whole,
    ids: NDArray[np.int64],
    distances: NDArray[np.float32],
    counts: NDArray[np.int64],
) -> Whole:
    """Answer a few queries from several graphs each: one call where there would be as many.

    Args:
        graphs_fields: of `PackedGraphs`.
        metric: code.
        queries: `(q, d) float32`.
        widths: `(graphs, q) int64`, candidates wanted of each; 0 where a query is not asked.
        spare: as of `QueryBatch`.
        stamps: `(graphs,) uint64`, addresses of those of each graph; see `QueryBatch`.
        stamp: the last one used of all; 0 at first.
        ids: `(graphs, q, k) int64`, written; -1 where there is none.
        distances: `(graphs, q, k) float32`, written; infinite there.
        counts: `(graphs, q) int64`, written: how many answers there are.

    Returns:
        The last stamp used.
    """
    graphs = PackedGraphs(*graphs_fields)
    many, k, dimension = len(graphs.rows), ids.shape[2], queries.shape[1]
    widest = most_gone = 0
    for g in range(many):
        kept = _candidates_kept(widths[g].max(), k, graphs.live[g])
        widest = max(widest, _most_kept(kept, graphs.live[g], graphs.bits))
        most_gone = max(most_gone, graphs.rows[g] - graphs.live[g])
    room = _room_for(widest, most_gone, k + spare, dimension, graphs.origins.shape[1], graphs.bits)
    for q in range(len(queries)):
        square = dot(queries, q, queries, q)
        if stamp >= 254:
            for g in range(many):
                _bytes(stamps[g], graphs.rows[g])[:] = 0
            stamp = 0
        stamp += 2
        for g in range(many):
            if widths[g, q] == 0:
                ids[g, q, :] = -1
                distances[g, q, :] = np.inf
                counts[g, q] = 0
                continue
            rows, size = graphs.rows[g], graphs.rows[g] * graphs.strides[g]
            nodes = PackedGraph(
                _bytes(graphs.packed[g], size), _numbers(graphs.packed[g], size >> 2),
                graphs.strides[g], graphs.bits, graphs.code_bytes, graphs.most[g],
                graphs.entries[g], graphs.origins[g], graphs.scales[g], graphs.across[g],
                graphs.within[g], graphs.lengths[g],
            )  # fmt: skip
            counts[g, q] = ask(
                nodes, _rows(graphs.vectors[g], rows, dimension),
                _bytes(graphs.deleted[g], rows if graphs.live[g] < rows else 0), graphs.live[g],
                _bytes(stamps[g], rows), stamp, metric, queries, q, square, widths[g, q], room,
                ids[g, q], distances[g, q],
            )  # fmt: skip
    return stamp
