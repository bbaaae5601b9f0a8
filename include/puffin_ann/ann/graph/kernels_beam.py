"""Beam search over full vectors: the kernel that both searching and building call."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.arguments import FlatAdjacency, Pools, Space, Visited
from puffin_ann.ann.graph.kernels_frontier import (
    NOBODY,
    is_deleted,
    keep_live,
    leads_to_deleted,
    mark,
    next_open,
    open_from,
    put,
    start,
)
from puffin_ann.ann.graph.primitives import (
    U64,
    Whole,
    candidate,
    row_of,
    squared_l2,
    squared_of_four,
)
from puffin_ann.ann.simd.vectors import prefetch
from puffin_ann.numba_kernels import FAST, inlined, kernel

PREFETCHED = 128
"""Numbers of a row asked for ahead; the hardware fetches the rest of a longer one."""
LINE = np.uint64(16)
"""Numbers, of 4 bytes, in a line of the cache."""


@inlined
def prefetch_list(neighbours, stride, key):  # type: ignore[no-untyped-def]
    """Ask for the neighbours of what is likely expanded next: else they are waited for."""
    if key != NOBODY:
        for z in range(U64(0), stride, LINE):
            prefetch(neighbours, row_of(key) * stride + z)


@kernel(fastmath=FAST)
def find_unseen(
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


@kernel(fastmath=FAST)
def beam(
    space: Space,
    graph: FlatAdjacency,
    queries: NDArray[np.float32],
    query: Whole,
    pools: Pools,
    visited: Visited,
    trail: NDArray[np.uint64],
) -> tuple[Whole, Whole]:
    """Find candidates near a query.

    Args:
        space: the rows.
        graph: their neighbours; the search begins at its entry.
        queries: flat float32, rows of `space.dim` numbers.
        query: where in `queries` the query begins.
        pools: written.
        visited: changed.
        trail: every live candidate that is expanded is written here, as far as there is room.

    Returns:
        How many candidates the pool of live rows holds, and how many the trail.
    """
    rows, pool, passed, deleted = space.rows, pools.live, pools.passed, pools.deleted
    neighbours, stride, degrees = graph.neighbours, U64(graph.stride), graph.degrees
    stamps, stamp, unseen = visited.stamps, visited.stamp, visited.unseen
    w = U64(space.dim)
    at = U64(query)
    full = U64(pools.keep)
    ahead = min(w, U64(PREFETCHED))
    first = candidate(squared_l2(rows, U64(graph.entry) * w, queries, at, w), graph.entry)
    stamps[graph.entry] = stamp
    recorded = U64(0)
    current = beside = U64(0)
    size, count = start(first, pool, passed, deleted)
    while True:
        key = next_open(pool, current, size, full, passed, beside, count)
        if key == NOBODY:
            return size, recorded
        lives = mark(key, pool, current, size, passed, beside)
        if lives and recorded < U64(len(trail)):
            trail[recorded] = key
            recorded += U64(1)
        node = row_of(key)
        leads = leads_to_deleted(lives, current, pool, size, full, passed, count, deleted)
        current = open_from(pool, current, size)
        beside = open_from(passed, beside, count)
        prefetch_list(
            neighbours, stride, next_open(pool, current, size, full, passed, beside, count)
        )
        new = U64(find_unseen(node, neighbours, stride, degrees[node], stamps, stamp, unseen))
        if not leads:
            new = keep_live(unseen, new, deleted)
        for j in range(new):
            for z in range(U64(0), ahead, LINE):
                prefetch(rows, U64(unseen[j]) * w + z)
        last = new - U64(1)
        for j in range(U64(0), new, U64(4)):
            four = (
                U64(unseen[j]),
                U64(unseen[min(j + U64(1), last)]),
                U64(unseen[min(j + U64(2), last)]),
                U64(unseen[min(j + U64(3), last)]),
            )
            squared = squared_of_four(
                queries, at, rows, four[0] * w, four[1] * w, four[2] * w, four[3] * w, w
            )
            for z in range(min(U64(4), new - j)):
                found = candidate(squared[z], four[z])
                size, current, count, beside = put(
                    found,
                    is_deleted(deleted, four[z]),
                    pool,
                    size,
                    full,
                    current,
                    passed,
                    count,
                    beside,
                )
        current = open_from(pool, current, size)
        beside = open_from(passed, beside, count)
