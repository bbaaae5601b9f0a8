"""Two pools of a search among live and dead rows: what is answered, and what is passed through.

Dead rows lead to live ones, but must not take their places: however many lie near a query, the pool
of live rows holds as many as the search's width says. Those that are passed through have a pool of
their own, so small that they cost little, and are expanded only while they are nearer than the
farthest live row that is kept. Once the live pool is full, a dead row leads to live ones only:
from dead to dead a search would wander through the midst of a deleted cluster, where nothing is to
be found; the way to the live rows around it leads over its rim.

Without dead rows the second pool stays empty, and a search is what it was without it.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.vamana.primitives import U64, Whole, expanded, is_expanded, row_of

from numba import njit  # isort: skip  (after the primitives have configured it)

PASSED = 0.5
"""Dead rows that are held for each live one that is kept, at least: enough for clusters of them.
Both shares were chosen on other queries than the benchmark's: half as many lose recall where a
fifth of the rows is dead in one cluster, four times as many only cost time."""
PASSED_PER_DEAD = 0.5
"""And more where much is dead: for each live row that is kept this share of the dead ones that lie
beside a live one on the average."""

NOBODY = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Stands for no candidate; greater than every one."""


def passed_share(rows: int, live: int) -> float:
    """Return how many dead rows a search holds for each live one it keeps; 0 if none is dead."""
    return PASSED + PASSED_PER_DEAD * (rows - live) / live if 0 < live < rows else 0.0


@njit(inline="always")
def passed_room(keep, share, dead_rows):  # type: ignore[no-untyped-def]
    """Return how many dead rows are held; at least 1, for the row that a search begins at."""
    return max(1, min(int(share * keep), dead_rows))


@njit(inline="always")
def open_from(pool, place, size):  # type: ignore[no-untyped-def]
    """Return the place of the nearest candidate not expanded yet, from `place` on."""
    while place < size and is_expanded(pool[place]):
        place += U64(1)
    return place


@njit(inline="always")
def nearest_open(pool, current, size, passed, beside, count):  # type: ignore[no-untyped-def]
    """Return the nearer of what both pools have at these places, `NOBODY` if there is nothing."""
    key = pool[current] if current < size else NOBODY
    return min(key, passed[beside]) if beside < count else key


@njit(inline="always")
def is_over(key, pool, size, full):  # type: ignore[no-untyped-def]
    """Tell whether nothing is left to expand that is nearer than what a full pool holds."""
    return key == NOBODY or (size == full and key > pool[full - U64(1)])


@njit(inline="always")
def mark(key, pool, current, size, passed, beside):  # type: ignore[no-untyped-def]
    """Mark what `nearest_open` gave as expanded; return whether it is a live row."""
    lives = current < size and key == pool[current]
    if lives:
        pool[current] = expanded(key)
    else:
        passed[beside] = expanded(key)
    return lives


@njit(inline="always")
def has_room(pool, size, full, key):  # type: ignore[no-untyped-def]
    """Tell whether a candidate is let into an ascending pool that holds at most `full`."""
    return size < full or key < pool[size - U64(1)]


@njit(inline="always")
def let_in(pool, size, full, key):  # type: ignore[no-untyped-def]
    """Put a candidate into a pool that has room for it; return the pool's size, and its place."""
    if not has_room(pool, size, full, key):
        return size, NOBODY
    size -= U64(size == full)
    return size + U64(1), U64(insert(pool, size, key))


@njit(inline="always")
def start(key, pool, passed, dead):  # type: ignore[no-untyped-def]
    """Put the first candidate into its pool; return the sizes of both."""
    if is_dead(dead, row_of(key)):
        passed[0] = key
        return U64(0), U64(1)
    pool[0] = key
    return U64(1), U64(0)


@njit(cache=True, nogil=True)
def is_dead(dead: NDArray[np.uint8], row: Whole) -> bool:
    """Tell whether a row is dead; `dead` is empty if none is."""
    return len(dead) != 0 and dead[row] != 0


@njit(cache=True, nogil=True)
def insert(pool: NDArray[np.uint64], size: Whole, key: np.uint64) -> Whole:
    """Insert a candidate in an ascending pool of `size`, which has room; return its place."""
    place = U64(size)
    while place > U64(0) and pool[place - U64(1)] > key:
        pool[place] = pool[place - U64(1)]
        place -= U64(1)
    pool[place] = key
    return place
