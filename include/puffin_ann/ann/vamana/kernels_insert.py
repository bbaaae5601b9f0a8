"""The loops of adding a batch of rows to a graph that is being searched."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.kernels_beam import beam
from puffin_ann.ann.graph.kernels_frontier import passed_room
from puffin_ann.ann.graph.kernels_prune import measure, robust_prune, without_doubles
from puffin_ann.ann.graph.primitives import (
    F32,
    FAST,
    U32,
    U64,
    Whole,
    row_of,
    squared_l2,
    squared_of,
)
from puffin_ann.ann.simd.vectors import prefetch

from numba import njit  # isort: skip  (after the primitives have configured it)

NONE = 0xFFFFFFFF
_NONE = np.uint32(NONE)


@njit(cache=True, nogil=True, fastmath=FAST)
def find_places(
    space: NDArray[np.float32],
    width: Whole,
    lists: NDArray[np.uint32],
    degrees: NDArray[np.uint16],
    entry: Whole,
    rows: NDArray[np.uint32],
    near: NDArray[np.uint32],
    dead: NDArray[np.uint8],
    keep: Whole,
    alpha: float,
    stamps: NDArray[np.uint8],
    stamp: Whole,
    chosen: NDArray[np.uint32],
    counts: NDArray[np.uint16],
    twins: NDArray[np.uint32],
    first: Whole,
    last: Whole,
) -> Whole:
    """Choose neighbours for rows that are not in the graph yet, among the live rows of it.

    Args:
        space: flat `(n · width,) float32`, the new rows' too.
        width: numbers in a row.
        lists: `(n, R) uint32`, the graph.
        degrees: `(n,) uint16`, 0 for the new rows.
        entry: row to begin at.
        rows: `(b,) uint32`, the new rows.
        near: `(b, k) uint32`, places in the batch of other new rows near each, or `NONE`.
        dead: `(n,) uint8`, or empty if all rows live.
        keep: L.
        alpha: slack.
        stamps: `(n,) uint8` scratch, kept from call to call.
        stamp: the last one used; 0 at first, with `stamps` all 0.
        chosen: `(b, R) uint32`, written.
        counts: `(b,) uint16`, written.
        twins: `(b,) uint32`, written: a row of the graph at distance 0, or `NONE`.
        first: first place in the batch that is worked on.
        last: the one after the last.

    Returns:
        The last stamp used.
    """
    pool = np.empty(keep + 1, np.uint64)
    passed = np.empty(passed_room(keep, len(dead)) + 1, np.uint64)
    trail = np.empty(8 * keep + 64, np.uint64)
    fresh = np.empty(lists.shape[1] + 1, np.uint32)
    keys = np.empty(len(trail) + near.shape[1], np.uint64)
    beside = np.empty(near.shape[1], np.uint32)
    flat = lists.reshape(-1)
    for b in range(first, last):
        stamp += 1
        if stamp == 256:
            stamps[:] = 0
            stamp = 1
        row = U64(rows[b])
        _, end = beam(
            space,
            width,
            flat,
            lists.shape[1],
            degrees,
            entry,
            space,
            row * U64(width),
            pool,
            keep,
            passed,
            dead,
            stamps,
            np.uint8(stamp),
            fresh,
            trail,
        )
        twins[b] = _NONE
        for i in range(end):
            keys[i] = trail[i]
            if squared_of(trail[i]) == F32(0):
                twins[b] = min(twins[b], U32(row_of(trail[i])))
        others = 0
        for j in range(near.shape[1]):
            if near[b, j] != _NONE:
                beside[others] = rows[near[b, j]]
                others += 1
        end = measure(space, width, row, beside, others, keys, end)
        ordered = np.sort(keys[:end])
        count = without_doubles(ordered, end)
        counts[b] = robust_prune(space, width, ordered, count, chosen.shape[1], alpha, chosen[b])
    return stamp


@njit(cache=True, nogil=True)
def _is_among(line: NDArray[np.uint32], count: Whole, row: Whole) -> bool:
    found = False
    for j in range(U64(count)):
        found |= U64(line[j]) == U64(row)
    return found


@njit(cache=True, nogil=True, fastmath=FAST)
def _place_in_full_list(
    space: NDArray[np.float32],
    width: Whole,
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
    w = U64(width)
    most = U64(len(line))
    for j in range(most):
        prefetch(space, U64(line[j]) * w)
    furthest: Whole = U64(0)
    victim: Whole = most
    for j in range(most):
        between = squared_l2(space, U64(row) * w, space, U64(line[j]) * w, w)
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


@njit(cache=True, nogil=True, fastmath=FAST)
def link_back(
    space: NDArray[np.float32],
    width: Whole,
    edges: NDArray[np.uint64],
    starts: NDArray[np.int64],
    alpha: float,
    lists: NDArray[np.uint32],
    degrees: NDArray[np.uint16],
) -> None:
    """Add edges; in a full list an edge takes the place of one it makes needless, if any.

    Args:
        space: flat `(n · width,) float32`.
        width: numbers in a row.
        edges: `(e,) uint64`, from row (upper half) to row (lower half), ascending.
        starts: `(g + 1,) int64`, where the edges from each row begin.
        alpha: slack.
        lists: `(n, R) uint32`, changed.
        degrees: `(n,) uint16`, changed.
    """
    w = U64(width)
    most = lists.shape[1]
    lengths = np.empty(most, np.float32)
    slack = F32(alpha)
    for g in range(len(starts) - 1):
        node = edges[starts[g]] >> U64(32)
        line = lists[node]
        measured = False
        for e in range(starts[g], starts[g + 1]):
            row = edges[e] & U64(0xFFFFFFFF)
            if _is_among(line, degrees[node], row):
                continue
            if degrees[node] < most:
                line[degrees[node]] = U32(row)
                degrees[node] += 1
                continue
            if not measured:
                for j in range(U64(most)):
                    prefetch(space, U64(line[j]) * w)
                for j in range(U64(most)):
                    lengths[j] = squared_l2(space, node * w, space, U64(line[j]) * w, w)
                measured = True
            squared = squared_l2(space, node * w, space, row * w, w)
            place = _place_in_full_list(space, width, row, squared, line, lengths, slack)
            if place >= 0:
                line[place] = U32(row)
                lengths[place] = squared


@njit(cache=True, nogil=True, fastmath=FAST)
def _measure_line(
    space: NDArray[np.float32],
    width: Whole,
    node: Whole,
    line: NDArray[np.uint32],
    degree: Whole,
    lengths: NDArray[np.float32],
) -> None:
    w = U64(width)
    for j in range(U64(degree)):
        lengths[j] = squared_l2(space, U64(node) * w, space, U64(line[j]) * w, w)


@njit(cache=True, nogil=True, fastmath=False)
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


@njit(cache=True, nogil=True)
def hang_below(
    space: NDArray[np.float32],
    width: Whole,
    row: Whole,
    top: Whole,
    arity: Whole,
    lists: NDArray[np.uint32],
    degrees: NDArray[np.uint16],
) -> None:
    """Hang a new row below one equal to it, so that nothing that was reachable ceases to be.

    The row gets into the list of `top`: where there is room, or in the place of another equal row
    if there are `arity` of them already, or of the furthest. It leads back to `top` and to what it
    displaced, and has as many of the other neighbours as there is room for.
    """
    most = lists.shape[1]
    line = lists[top]
    degree = np.int64(degrees[top])
    lengths = np.empty(most, np.float32)
    _measure_line(space, width, top, line, degree, lengths)
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
