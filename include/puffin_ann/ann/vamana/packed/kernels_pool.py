"""The pool of a walk: candidates in ascending order, into which those of a node are merged at once.

Of 32 neighbours a fifth enters, each at a place that nothing foretells. To look for those places
one by one, and to move what is behind for each, took a third of a walk: most of that was waiting
for what the processor had guessed wrong. So places are counted rather than searched, eight
candidates of the pool at a time, and with them how far each of those moves: twice as fast again as
to count for one candidate of the node after the other, and to move what lies between.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.kernels_frontier import NOBODY
from puffin_ann.ann.graph.primitives import U64, Whole
from puffin_ann.ann.simd.fastscan import BLOCK
from puffin_ann.ann.simd.vectors import (
    U64X8,
    add,
    bit_count,
    fill_of,
    less_mask,
    load_of,
    store_of,
    where_less,
)
from puffin_ann.numba_kernels import inlined, kernel

LANES = 8
"""Candidates that are looked at, or moved, at a time."""
BEYOND = BLOCK + LANES
"""Room of a pool beyond the candidates that it keeps: for those of a node, and what is loaded."""
COUNTED = 64
"""Of so many candidates those before a place are counted; among more it is halved first."""

_LANES, _BEYOND, _COUNTED = np.uint64(LANES), np.uint64(BEYOND), np.uint64(COUNTED)
_PLACES, _MOVES = np.uint64(2 * BEYOND), np.uint64(2 * BEYOND + BLOCK)
"""Where in `fresh` it is written which place each gets, and how far those of the pool move."""
_load, _store, _fill = load_of(U64X8), store_of(U64X8), fill_of(U64X8)


@inlined
def fresh_room(full):  # type: ignore[no-untyped-def]
    """Return how many uint64 `merge` takes as `fresh` for a pool that keeps so many."""
    return 2 * BEYOND + BLOCK + full + LANES


@inlined
def _place_of(pool, size, key):  # type: ignore[no-untyped-def]
    """Return how many of `size` ascending candidates come before one; eight behind are loaded."""
    low, high = U64(0), U64(size)
    while high - low > _COUNTED:
        middle = (low + high) >> U64(1)
        if pool[middle] < key:
            low = middle + U64(1)
        else:
            high = middle
    wanted = _fill(key)
    at = low
    while at + _LANES <= high:
        low += bit_count(less_mask(_load(pool, at), wanted))
        at += _LANES
    rest = (U64(1) << (high - at)) - U64(1)
    return low + bit_count(less_mask(_load(pool, at), wanted) & rest)


@inlined
def _move(pool, begin, end, by):  # type: ignore[no-untyped-def]
    """Move the candidates from one place up to another so many places on."""
    while end >= begin + _LANES:
        end -= _LANES
        _store(pool, end + by, _load(pool, end))
    while end > begin:
        end -= U64(1)
        pool[end + by] = pool[end]


@kernel()
def enter(pool: NDArray[np.uint64], size: Whole, key: np.uint64) -> Whole:
    """Insert a candidate in an ascending pool of `size`; return its place.

    There must be room for one, and `LANES` more to load.
    """
    place = _place_of(pool, U64(size), key)
    _move(pool, place, U64(size), U64(1))
    pool[place] = key
    return place  # type: ignore[no-any-return]


@inlined
def _sort(fresh, count):  # type: ignore[no-untyped-def]
    """Write candidates again from `BEYOND` on, ascending; return how many are different.

    As many are before each as are less: of equal ones, as a damaged node has them, one is written,
    and those behind move up.
    """
    end = (count + _LANES - U64(1)) & ~(_LANES - U64(1))
    for i in range(count, end):
        fresh[i] = NOBODY
    for i in range(count):
        fresh[_BEYOND + i] = NOBODY
    for i in range(count):
        key = fresh[i]
        wanted = _fill(key)
        before = U64(0)
        for at in range(U64(0), end, _LANES):
            before += bit_count(less_mask(_load(fresh, at), wanted))
        fresh[_BEYOND + before] = key
    different = U64(0)
    for i in range(count):
        key = fresh[_BEYOND + i]
        fresh[_BEYOND + different] = key
        different += U64(key != NOBODY)
    return different


@kernel()
def merge(
    pool: NDArray[np.uint64],
    size: Whole,
    full: Whole,
    fresh: NDArray[np.uint64],
    count: Whole,
) -> tuple[Whole, Whole]:
    """Merge candidates in an ascending pool that keeps `full`; return its size and the first place.

    Equal candidates of a node count once: each would take a place that another one has.

    Args:
        pool: `(full + BEYOND,) uint64` or more, changed.
        size: candidates that it holds, at most `full`.
        full: see above.
        fresh: uint64, as many as `fresh_room` says, overwritten; up to 32 candidates in any order.
        count: how many, at least 1.
    """
    size = U64(size)
    count = _sort(fresh, U64(count))
    first = _place_of(pool, size, fresh[_BEYOND])
    nothing, one = _fill(U64(0)), _fill(U64(1))
    for i in range(count):
        fresh[_PLACES + i] = i + size
    for at in range(first, size, _LANES):
        line = _load(pool, at)
        there = (U64(1) << min(size - at, _LANES)) - U64(1)
        moves = nothing
        for i in range(count):
            key = _fill(fresh[_BEYOND + i])
            moves = add(moves, where_less(key, line, one, nothing))
            fresh[_PLACES + i] -= bit_count(less_mask(key, line) & there)
        _store(fresh, _MOVES + at - first, moves)
    end = size
    while end > first:
        end -= U64(1)
        pool[end + fresh[_MOVES + end - first]] = pool[end]
    for i in range(count):
        pool[fresh[_PLACES + i]] = fresh[_BEYOND + i]
    return min(U64(full), size + count), first
