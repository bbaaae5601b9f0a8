"""Beam search over full vectors: the kernel that both searching and building call."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.kernels_frontier import (
    NOBODY,
    is_dead,
    mark,
    next_open,
    open_from,
    put,
    start,
    wanted,
)
from puffin_ann.ann.graph.primitives import (
    FAST,
    U64,
    Whole,
    candidate,
    row_of,
    squared_l2,
    squared_of_four,
)
from puffin_ann.ann.simd.vectors import prefetch

from numba import njit  # isort: skip  (after the primitives have configured it)

PREFETCHED = 128
"""Numbers of a row asked for ahead; the hardware fetches the rest of a longer one."""


@njit(cache=True, nogil=True, fastmath=FAST)
def unseen(
    node: Whole,
    neighbours: NDArray[np.uint32],
    stride: Whole,
    degree: Whole,
    stamps: NDArray[np.uint8],
    stamp: np.uint8,
    out: NDArray[np.uint32],
) -> Whole:
    """Mark a node's neighbours as seen and write those that were not; return how many."""
    first = node * stride
    count = U64(0)
    for j in range(U64(degree)):
        row = neighbours[first + j]
        out[count] = row
        # No branch: whether a neighbour is new cannot be predicted.
        count += U64(stamps[row] != stamp)
        stamps[row] = stamp
    return count


@njit(cache=True, nogil=True, fastmath=FAST)
def beam(
    space: NDArray[np.float32],
    width: Whole,
    neighbours: NDArray[np.uint32],
    stride: Whole,
    degrees: NDArray[np.uint16],
    entry: Whole,
    queries: NDArray[np.float32],
    query: Whole,
    pool: NDArray[np.uint64],
    keep: Whole,
    passed: NDArray[np.uint64],
    dead: NDArray[np.uint8],
    stamps: NDArray[np.uint8],
    stamp: np.uint8,
    fresh: NDArray[np.uint32],
    trail: NDArray[np.uint64],
) -> tuple[Whole, Whole]:
    """Find candidates near a query.

    Args:
        space: flat `(n · width,) float32` rows.
        width: numbers in a row, a multiple of 16.
        neighbours: flat `(n · stride,) uint32`.
        stride: places in a neighbour list.
        degrees: `(n,) uint16`.
        entry: row to begin at.
        queries: flat float32, of rows of `width`.
        query: where in `queries` the query begins.
        pool: `(keep + 1,) uint64`, written: live candidates, ascending.
        keep: L, candidates kept.
        passed: uint64, its length less 1 is the most dead rows it holds; written: those passed
            through, see `kernels_frontier`.
        dead: `(n,) uint8`, or empty if all rows live.
        stamps: `(n,) uint8`; rows that carry `stamp` count as seen.
        stamp: of this search, carried by no row yet.
        fresh: `(stride + 1,) uint32` scratch.
        trail: every live candidate that is expanded is written here, as far as there is room.

    Returns:
        How many candidates the pool holds, and how many the trail.
    """
    w = U64(width)
    at = U64(query)
    full = U64(keep)
    ahead = min(w, U64(PREFETCHED))
    first = candidate(squared_l2(space, U64(entry) * w, queries, at, w), entry)
    stamps[entry] = stamp
    recorded = U64(0)
    current = beside = U64(0)
    size, count = start(first, pool, passed, dead)
    while True:
        key = next_open(pool, current, size, full, passed, beside, count)
        if key == NOBODY:
            return size, recorded
        lives = mark(key, pool, current, size, passed, beside)
        if lives and recorded < U64(len(trail)):
            trail[recorded] = key
            recorded += U64(1)
        node = row_of(key)
        new = U64(unseen(node, neighbours, U64(stride), degrees[node], stamps, stamp, fresh))
        new = wanted(fresh, new, lives, size, full, dead)
        for j in range(new):
            for z in range(U64(0), ahead, U64(16)):
                prefetch(space, U64(fresh[j]) * w + z)
        last = new - U64(1)
        for j in range(U64(0), new, U64(4)):
            four = (
                U64(fresh[j]),
                U64(fresh[min(j + U64(1), last)]),
                U64(fresh[min(j + U64(2), last)]),
                U64(fresh[min(j + U64(3), last)]),
            )
            squared = squared_of_four(
                queries, at, space, four[0] * w, four[1] * w, four[2] * w, four[3] * w, w
            )
            for z in range(min(U64(4), new - j)):
                found = candidate(squared[z], four[z])
                size, current, count, beside = put(
                    found, is_dead(dead, four[z]), pool, size, full, current, passed, count, beside
                )
        current = open_from(pool, current, size)
        beside = open_from(passed, beside, count)
