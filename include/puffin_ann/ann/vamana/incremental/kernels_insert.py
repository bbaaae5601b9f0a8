"""The loops of adding a batch of rows to a graph that is being searched."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.arguments import (
    Adjacency,
    Pools,
    Space,
    Visited,
    flat_adjacency,
)
from puffin_ann.ann.graph.kernels_answer import next_stamp
from puffin_ann.ann.graph.kernels_beam import beam
from puffin_ann.ann.graph.kernels_frontier import passed_room
from puffin_ann.ann.graph.kernels_prune import is_among, measure, robust_prune, without_doubles
from puffin_ann.ann.graph.primitives import (
    F32,
    U32,
    U64,
    Whole,
    row_of,
    squared_l2,
    squared_of,
)
from puffin_ann.ann.simd.vectors import prefetch
from puffin_ann.numba_kernels import FAST, kernel

NONE = 0xFFFFFFFF
_NONE = np.uint32(NONE)


class Insertion(NamedTuple):
    """Rows that are not in the graph yet, and what is found for them.

    Attributes:
        rows: `(b,) uint32`.
        near: `(b, k) uint32`, places in the batch of other new rows near each, or `NONE`.
        deleted: `(n,) uint8`, or empty if all rows of the graph are live.
        keep: L.
        alpha: slack.
        chosen: `(b, R) uint32`, to be written: neighbours.
        counts: `(b,) uint16`, to be written: how many there are.
        twins: `(b,) uint32`, to be written: a row of the graph at distance 0, or `NONE`.
    """

    rows: NDArray[np.uint32]
    near: NDArray[np.uint32]
    deleted: NDArray[np.uint8]
    keep: Whole
    alpha: float
    chosen: NDArray[np.uint32]
    counts: NDArray[np.uint16]
    twins: NDArray[np.uint32]


@kernel(fastmath=FAST, allocates=True)
def find_places(
    space: Space,
    graph: Adjacency,
    new: Insertion,
    stamps: NDArray[np.uint8],
    stamp: Whole,
    first: Whole,
    last: Whole,
) -> Whole:
    """Choose neighbours for rows that are not in the graph yet, among the live rows of it.

    Args:
        space: the rows, the new ones too.
        graph: the new rows have no neighbours yet.
        new: the rows; what is found is written.
        stamps: `(n,) uint8` scratch, kept from call to call.
        stamp: the last one used; 0 at first, with `stamps` all 0.
        first: first place in the batch that is worked on.
        last: the one after the last.

    Returns:
        The last stamp used.
    """
    rows, near, chosen, keep = new.rows, new.near, new.chosen, new.keep
    flat = flat_adjacency(graph)
    passed = np.empty(passed_room(keep, len(new.deleted)) + 1, np.uint64)
    pools = Pools(np.empty(keep + 1, np.uint64), keep, passed, new.deleted)
    trail = np.empty(8 * keep + 64, np.uint64)
    unseen = np.empty(flat.stride + 1, np.uint32)
    keys = np.empty(len(trail) + near.shape[1], np.uint64)
    beside = np.empty(near.shape[1], np.uint32)
    for b in range(first, last):
        stamp = next_stamp(stamps, stamp)
        visited = Visited(stamps, np.uint8(stamp), unseen)
        row = U64(rows[b])
        at = row * U64(space.dim)
        _, end = beam(space, flat, space.rows, at, pools, visited, trail)
        twin = _NONE
        for i in range(end):
            keys[i] = trail[i]
            if squared_of(trail[i]) == F32(0):
                twin = min(twin, U32(row_of(trail[i])))
        new.twins[b] = twin
        others = 0
        for j in range(near.shape[1]):
            if near[b, j] != _NONE:
                beside[others] = rows[near[b, j]]
                others += 1
        end = measure(space, row, beside, others, keys, end)
        ordered = np.sort(keys[:end])
        count = without_doubles(ordered, end)
        new.counts[b] = robust_prune(space, ordered, count, chosen.shape[1], new.alpha, chosen[b])
    return stamp


@kernel(fastmath=FAST)
def _place_in_full_list(
    space: Space,
    row: Whole,
    squared: np.float32,
    line: NDArray[np.uint32],
    lengths: NDArray[np.float32],
    alpha: np.float32,
) -> Whole:
    """Return which neighbour a new row replaces by RobustPrune's rule, or −1 if it is not needed.

    The list has been pruned, so that its neighbours do not occlude each other: the new row need be
    compared with each of them once, not each with each.
    """
    rows, w = space.rows, U64(space.dim)
    most = U64(len(line))
    for j in range(most):
        prefetch(rows, U64(line[j]) * w)
    furthest: Whole = U64(0)
    victim: Whole = most
    for j in range(most):
        between = squared_l2(rows, U64(row) * w, rows, U64(line[j]) * w, w)
        if lengths[j] <= squared:
            if alpha * between <= squared:
                return -1
        elif alpha * between <= lengths[j] and (victim == most or lengths[j] > lengths[victim]):
            victim = j
        if lengths[j] > lengths[furthest]:
            furthest = j
    if victim < most:
        return np.int64(victim)
    return np.int64(furthest) if lengths[furthest] > squared else -1


@kernel(fastmath=FAST)
def _measure_line(
    space: Space,
    node: Whole,
    line: NDArray[np.uint32],
    degree: Whole,
    lengths: NDArray[np.float32],
) -> None:
    rows, w = space.rows, U64(space.dim)
    for j in range(U64(degree)):
        lengths[j] = squared_l2(rows, U64(node) * w, rows, U64(line[j]) * w, w)


@kernel(fastmath=FAST, allocates=True)
def link_back(
    space: Space,
    graph: Adjacency,
    edges: NDArray[np.uint64],
    starts: NDArray[np.int64],
    alpha: float,
) -> None:
    """Add edges; in a full list an edge takes the place of one it makes needless, if any.

    Args:
        space: the rows.
        graph: changed.
        edges: `(e,) uint64`, from row (upper half) to row (lower half), ascending.
        starts: `(g + 1,) int64`, where the edges from each row begin.
        alpha: slack.
    """
    rows, w = space.rows, U64(space.dim)
    lists, degrees = graph.neighbours, graph.degrees
    most = lists.shape[1]
    lengths = np.empty(most, np.float32)
    slack = F32(alpha)
    for g in range(len(starts) - 1):
        node = edges[starts[g]] >> U64(32)
        line = lists[node]
        measured = False
        for e in range(starts[g], starts[g + 1]):
            row = edges[e] & U64(0xFFFFFFFF)
            if is_among(line, degrees[node], row):
                continue
            if degrees[node] < most:
                line[degrees[node]] = U32(row)
                degrees[node] += 1
                continue
            if not measured:
                for j in range(U64(most)):
                    prefetch(rows, U64(line[j]) * w)
                _measure_line(space, node, line, most, lengths)
                measured = True
            squared = squared_l2(rows, node * w, rows, row * w, w)
            place = _place_in_full_list(space, row, squared, line, lengths, slack)
            if place >= 0:
                line[place] = U32(row)
                lengths[place] = squared


@kernel()
def _place_of_equal(lengths: NDArray[np.float32], degree: Whole, arity: Whole, row: Whole) -> Whole:
    """Return where among `degree` neighbours a row goes that is equal to their node."""
    equal = 0
    for j in range(degree):
        equal += lengths[j] == F32(0)
    if equal >= arity:
        wanted = row % equal
        for j in range(degree):
            if lengths[j] == F32(0):
                if wanted == 0:
                    return j
                wanted -= 1
    if degree < len(lengths):
        return np.int64(degree)
    return np.int64(np.argmax(lengths))


@kernel(allocates=True)
def link_duplicate_below(
    space: Space, graph: Adjacency, row: Whole, top: Whole, arity: Whole
) -> None:
    """Link a new row below one equal to it, so that nothing that was reachable ceases to be.

    The row gets into the list of `top`: where there is room, or in the place of another equal row
    if there are `arity` of them already, or of the furthest. It leads back to `top` and to what it
    displaced, and has as many of the other neighbours as there is room for.
    """
    lists, degrees = graph.neighbours, graph.degrees
    most = lists.shape[1]
    line = lists[top]
    degree = np.int64(degrees[top])
    lengths = np.empty(most, np.float32)
    _measure_line(space, top, line, degree, lengths)
    place = _place_of_equal(lengths, degree, arity, row)
    own = lists[row]
    own[0] = U32(top)
    used = 1
    if place < degree and most > 1:
        own[1] = line[place]
        used = 2
    for j in range(degree):
        if used < most and j != place and lengths[j] > F32(0):
            own[used] = line[j]
            used += 1
    degrees[row] = used
    line[place] = U32(row)
    degrees[top] = max(degree, place + 1)
