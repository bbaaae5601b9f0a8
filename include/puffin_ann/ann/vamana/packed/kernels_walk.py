"""Searching packed nodes: a beam over estimated distances, every expanded row measured.

See `layout` for what is where. Much of an expansion is waiting for memory, so the next likely node
and its row are asked for while this one is scanned, and once more when a better one turned up: the
first lines of both, or all of a node that is not long; the machine itself fetches what follows on
those. They are asked for in three parts, between the steps of the scan, since a core waits with so
many lines on their way that what it reads next itself would queue behind them (a tenth at 384
dimensions). Numbers of neighbours are looked at only where a mask of 32 comparisons says so.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.arguments import Pools
from puffin_ann.ann.graph.kernels_answer import found_enough
from puffin_ann.ann.graph.kernels_frontier import (
    NOBODY,
    has_room,
    insert,
    is_deleted,
    is_passed,
    mark,
    next_open,
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
from puffin_ann.ann.signs.kernels_codes import from_halves
from puffin_ann.ann.simd.fastscan import BLOCK, GROUP_BYTES, block_sums
from puffin_ann.ann.simd.kernels_byte_rows import squared_by_bytes
from puffin_ann.ann.simd.vectors import (
    F32X16,
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
from puffin_ann.ann.vamana.packed.kernels_edges import TAIL_BYTES
from puffin_ann.ann.vamana.packed.kernels_pack import HEAD_BYTES
from puffin_ann.ann.vamana.packed.kernels_pool import LANES, enter, merge
from puffin_ann.ann.vamana.packed.kernels_tables import PackedGraph, PlacedQuery
from puffin_ann.numba_kernels import inlined, kernel

FAR = np.float32(3e38)
"""No estimate is farther."""
AHEAD = 2048
"""Bytes of a node, and of its row, that are asked for ahead."""
WHOLE = 4608
"""Nodes that have their rows within are asked for whole up to so many bytes, which they have at 768
dimensions: of one a tenth is gained so."""

_HALF = np.uint64(BLOCK // 2)
_LINE = np.uint64(64)
_LANES = np.uint64(16)

_load, _store, _fill = load_of(F32X16), store_of(F32X16), fill_of(F32X16)


@inlined
def _open_from(pool, place, size, stamps, done):  # type: ignore[no-untyped-def]
    """Return the place of the nearest candidate whose row was not expanded, from `place` on."""
    while place < size and (is_expanded(pool[place]) or stamps[row_of(pool[place])] == done):
        place += U64(1)
    return place


@inlined
def _ask_for_row(nodes, vectors, dimension, key):  # type: ignore[no-untyped-def]
    """Ask memory for the row of a candidate, if it is one, where rows are read as they are."""
    if nodes.row_bytes == 0 and key != NOBODY:
        at = row_of(key) * dimension
        for z in range(U64(0), min(dimension, U64(AHEAD // 4)), _LANES):
            prefetch(vectors, at + z)


@inlined
def _ask_for(nodes, key, part):  # type: ignore[no-untyped-def]
    """Ask memory for a third of what is read ahead of a candidate's node, if it is one."""
    if key == NOBODY:
        return
    whole = U64(AHEAD) if nodes.row_bytes == 0 else U64(WHOLE)
    stride = U64(nodes.stride)
    ahead = stride if stride <= whole else U64(AHEAD)
    step = (ahead // U64(3) + _LINE) & ~(_LINE - U64(1))
    at = row_of(key) * stride
    for z in range(step * U64(part), min(ahead, step * U64(part + 1)), _LINE):
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
def _measured(nodes, vectors, row, at, factor, asked):  # type: ignore[no-untyped-def]
    """Return the squared distance of a row, whose node begins at a place, and a query."""
    if nodes.row_bytes > 0:
        return squared_by_bytes(nodes.bytes, at + U64(HEAD_BYTES), factor, asked)
    return _squared(vectors, row * U64(len(asked)), factor, asked)


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
        from_halves(packed, tail + U64(64)),
        from_halves(packed, tail),
    )
    second = multiply_add(
        multiply_add(second, step, base),
        from_halves(packed, tail + U64(96)),
        from_halves(packed, tail + U64(32)),
    )
    first, second = add(first, own), add(second, own)
    mask = less_mask(first, limit) | (less_mask(second, limit) << _HALF)
    if mask:
        _store(out, U64(0), first)
        _store(out, _HALF, second)
    return mask


@inlined
def _let_in(  # type: ignore[no-untyped-def]
    mask, estimates, numbers, place, again, pools, size, current, count, beside, stamps, done, met,
    fresh,
):  # fmt: skip
    """Put the rows of a mask into their pools.

    Return the size of each, and its first place that may not be expanded, and how many live rows
    were let in so far.
    """
    pool, passed, deleted = pools.live, pools.passed, pools.deleted
    there = np.uint8(done - np.uint8(1))
    full, most, entered = U64(pools.keep), U64(len(passed) - LANES - 1), U64(0)
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
            fresh[entered] = key
            entered += U64(1)
    if entered:
        size, first = merge(pool, size, full, fresh, entered)
        current = min(current, U64(first))
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
    sieve: NDArray[np.uint8],
    stamps: NDArray[np.uint8],
    done: np.uint8,
    best: NDArray[np.uint64],
    near: NDArray[np.uint64],
    fresh: NDArray[np.uint64],
    estimates: NDArray[np.float32],
) -> tuple[Whole, bool, Whole, Whole]:
    """Find live rows near a query.

    Return how many, none where deleted ones left too few of them; whether the pool of live rows is
    full, and they did not; how many of them were expanded, and how many of those are wanted.

    By two bits a dimension a row enters a pool once: the first estimate near enough may stand. By
    one bit it enters again with every estimate near enough, from each neighbour expanded, and is
    expanded at the least of them: else a third more rows would have to be expanded. Finding its
    former place, to move it, takes longer than to skip it there.

    Args:
        nodes: the graph.
        vectors: flat `(n · d,) float32`, rows as stored.
        query: as the nodes are.
        pools: written; as many of the nearest live candidates as it keeps are expanded.
        sieve: `(n,) uint8`, non-zero for live rows that are not wanted; empty if all are. They are
            gone through like others.
        stamps: `(n,) uint8`; rows that carry `done` were expanded, those with one less were in a
            pool.
        done: stamp of this search, at least 2; no row carries it or the one before it yet.
        best: uint64, its length less 1 is how many are wanted; written: the nearest live rows
            expanded that are, by their squared distances, ascending.
        near: uint64, written: all of those in the order they were expanded, as far as there is
            room.
        fresh: uint64, scratch, see `merge`.
        estimates: `(32,) float32`, scratch.
    """
    packed, numbers = nodes.bytes, nodes.numbers
    floats = packed.view(np.float32)
    pool, passed, deleted = pools.live, pools.passed, pools.deleted
    stride, code_bytes = U64(nodes.stride), U64(nodes.code_bytes)
    dimension, again = U64(len(query.asked)), nodes.bits == 1
    blocks_at = U64(HEAD_BYTES) + U64(nodes.row_bytes)
    full = U64(pools.keep)
    current = beside = found = seen = wanted = U64(0)
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
        _ask_for_row(nodes, vectors, dimension, following)
        _ask_for(nodes, following, 0)
        at = row * stride
        head = at >> U64(2)
        factor, addend = floats[head + U64(1)], floats[head + U64(2)]
        own = max(_measured(nodes, vectors, row, at, factor, query.asked) + addend, F32(0))
        _ask_for(nodes, following, 1)
        if lives:
            seen += U64(1)
            if not is_deleted(sieve, row):
                if wanted < U64(len(near)):
                    near[wanted] = candidate(own, row)
                wanted += U64(1)
                found = _kept(best, found, candidate(own, row))
        degree = min(U64(numbers[head]), U64(nodes.most))
        at += blocks_at
        for begin in range(U64(0), degree, U64(BLOCK)):
            limit = squared_of(pool[full - U64(1)]) if size == full else FAR
            mask = _estimate_block(nodes, at, query, own, limit, estimates)
            if begin == U64(0):
                _ask_for(nodes, following, 2)
            if degree - begin < U64(BLOCK):
                mask &= (U64(1) << (degree - begin)) - U64(1)
            at += code_bytes
            place = (at + U64(128)) >> U64(2)
            size, current, count, beside, met = _let_in(
                mask, estimates, numbers, place, again, pools, size, current, count, beside,
                stamps, done, met, fresh,
            )  # fmt: skip
            at += U64(TAIL_BYTES)
        current = _open_from(pool, current, size, stamps, done)
        beside = _open_from(passed, beside, count, stamps, done)
        key = next_open(pool, current, size, full, passed, beside, count)
        if key != following:
            _ask_for_row(nodes, vectors, dimension, key)
            for part in range(3):
                _ask_for(nodes, key, part)
    is_enough = found_enough(met, full, deleted) > U64(0)
    return found if is_enough else U64(0), size == full and is_enough, seen, wanted
