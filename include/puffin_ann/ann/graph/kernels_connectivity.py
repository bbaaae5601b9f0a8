"""Loops over a finished graph: join equal rows, add long edges, make every row reachable.

They change the adjacency that they get.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.arguments import Adjacency, Pools, Space, Visited, flat_adjacency
from puffin_ann.ann.graph.kernels_answer import next_stamp
from puffin_ann.ann.graph.kernels_beam import beam
from puffin_ann.ann.graph.kernels_frontier import is_deleted
from puffin_ann.ann.graph.primitives import LANES, U32, U64, Whole, row_of
from puffin_ann.ann.simd.vectors import prefetch
from puffin_ann.numba_kernels import FAST, kernel

_AHEAD = np.uint64(8)
_PRIME = np.uint64(0x100000001B3)
_BASIS = np.uint64(0xCBF29CE484222325)
NONE_DELETED = np.empty(0, np.uint8)
NONE_DELETED.flags.writeable = False


@kernel()
def hash_rows(words: NDArray[np.uint32], out: NDArray[np.uint64]) -> None:
    """Write a 64-bit hash (FNV-1a over words) of each `(n, w)` row."""
    for i in range(len(words)):
        value = _BASIS
        for j in range(U64(words.shape[1])):
            value = (value ^ U64(words[i, j])) * _PRIME
            value ^= value >> U64(29)
        out[i] = value


@kernel(allocates=True)
def find_equal(
    words: NDArray[np.uint32],
    hashes: NDArray[np.uint64],
    order: NDArray[np.int64],
    first: NDArray[np.uint32],
) -> Whole:
    """Write, for each row, the lowest row equal to it; return how many rows equal a lower one.

    Args:
        words: `(n, w) uint32`, the bits of the rows.
        hashes: `(n,) uint64`.
        order: `(n,) int64`, rows by (hash, row).
        first: `(n,) uint32`, written. Of rows that share a hash and are not equal, those beyond
            the second kind may be taken for unequal, which costs nothing but their shortcut.
    """
    doubles = 0
    leader = order[0] if len(order) else 0
    for i in range(len(order)):
        row = order[i]
        if i == 0 or hashes[row] != hashes[leader] or not np.all(words[row] == words[leader]):
            leader = row
        else:
            doubles += 1
        first[row] = U32(leader)
    return doubles


@kernel(allocates=True)
def hang_equal(
    members: NDArray[np.uint32],
    arity: Whole,
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.uint16],
) -> None:
    """Hang rows equal to the first of `members` below it, as a tree.

    Every member gets its children, its parent, and as many of the first one's own neighbours as
    there is room for, so that a search gets in, through and out again.
    """
    most = neighbours.shape[1]
    top = members[0]
    own = neighbours[top, : degrees[top]].copy()
    for i in range(len(members)):
        line = neighbours[members[i]]
        used = 0
        for child in range(arity * i + 1, min(arity * i + arity + 1, len(members))):
            line[used] = members[child]
            used += 1
        if i > 0:
            line[used] = members[(i - 1) // arity]
            used += 1
        for j in range(len(own)):
            if used == most:
                break
            line[used] = own[j]
            used += 1
        degrees[members[i]] = used


@kernel(allocates=True)
def add_long_edges(
    rows: NDArray[np.uint32],
    lists: NDArray[np.uint32],
    counts: NDArray[np.uint16],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.uint16],
) -> None:
    """Give sampled rows their neighbours in the sample, in place of their last ones if need be.

    Args:
        rows: `(s,) uint32`, the sample.
        lists: `(t, r) uint32`, for the first t of the sample: places in it; r at most R.
        counts: `(t,) uint16`, how many of them.
        neighbours: `(n, R) uint32`, changed.
        degrees: `(n,) uint16`, changed.
    """
    most = neighbours.shape[1]
    for i in range(len(lists)):
        line = neighbours[rows[i]]
        degree = min(np.int64(degrees[rows[i]]), most - counts[i])
        for j in range(counts[i]):
            row = rows[lists[i, j]]
            if not np.any(line[:degree] == row):
                line[degree] = row
                degree += 1
        line[degree:] = 0
        degrees[rows[i]] = degree


@kernel()
def _flood(
    start: Whole,
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.uint16],
    reached: NDArray[np.bool_],
    queue: NDArray[np.uint32],
) -> None:
    """Mark everything that can be reached from a row.

    First come, first served: who is next is known early enough to ask for its list ahead, which
    takes a quarter of the time of waiting for one list after the other.
    """
    most = U64(neighbours.shape[1])
    flat = neighbours.reshape(-1)
    reached[start] = True
    queue[0] = U32(start)
    head, size = U64(0), U64(1)
    while head < size:
        node = U64(queue[head])
        head += U64(1)
        if head + _AHEAD < size:
            first = U64(queue[head + _AHEAD]) * most
            for j in range(U64(0), most, U64(LANES)):
                prefetch(flat, first + j)
        for j in range(U64(degrees[node])):
            row = flat[node * most + j]
            queue[size] = row
            size += U64(not reached[row])
            reached[row] = True


@kernel()
def _attach(
    row: Whole,
    pool: NDArray[np.uint64],
    size: Whole,
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.uint16],
) -> None:
    """Make a row reachable from one of a pool: the nearest with room, else spliced into an edge.

    Splicing turns c → x into c → row → x: nothing that was reachable ceases to be.
    """
    most = neighbours.shape[1]
    for i in range(size):
        near = row_of(pool[i])
        if degrees[near] < most:
            neighbours[near, degrees[near]] = row
            degrees[near] += 1
            return
    near = row_of(pool[0])
    lost = neighbours[near, most - 1]
    neighbours[near, most - 1] = row
    line = neighbours[row]
    for j in range(degrees[row]):
        if line[j] == lost:
            return
    if degrees[row] < most:
        degrees[row] += 1
    line[degrees[row] - 1] = lost


@kernel(fastmath=FAST, allocates=True)
def make_reachable(
    space: Space, graph: Adjacency, keep: Whole, deleted: NDArray[np.uint8]
) -> Whole:
    """Add edges until every row can be reached from the entry; return how many were added.

    Args:
        space: the rows.
        graph: changed; its lists have at least one place.
        keep: candidates looked at for a place to attach a row.
        deleted: `(n,) uint8`, non-zero for rows that need not be reached, or empty.
    """
    neighbours, degrees = graph.neighbours, graph.degrees
    rows, most = neighbours.shape
    reached = np.zeros(rows, np.bool_)
    queue = np.empty(rows + 1, np.uint32)
    stamps, unseen = np.zeros(rows, np.uint8), np.empty(most + 1, np.uint32)
    stamp: Whole = 0
    pool = np.empty(keep + 1, np.uint64)
    pools = Pools(pool, keep, np.empty(1, np.uint64), np.empty(0, np.uint8))
    trail = np.empty(0, np.uint64)
    flat = flat_adjacency(graph)
    added = 0
    _flood(graph.entry, neighbours, degrees, reached, queue)
    for row in range(rows):
        if reached[row] or is_deleted(deleted, row):
            continue
        stamp = next_stamp(stamps, stamp)
        visited = Visited(stamps, np.uint8(stamp), unseen)
        size, _ = beam(space, flat, space.rows, row * space.dim, pools, visited, trail)
        _attach(row, pool, size, neighbours, degrees)
        added += 1
        _flood(row, neighbours, degrees, reached, queue)
    return added
