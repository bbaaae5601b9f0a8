"""The loops of the bulk build: nearest within a leaf, and neighbours from all leaves."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.vamana.primitives import F32, FAST, U32, U64, Whole
from puffin_ann.ann.vamana.prune import MAX_CANDIDATES, measure, robust_prune, without_doubles

from numba import njit  # isort: skip  (after the primitives have configured it)

NONE = 0xFFFFFFFF
_NONE = np.uint32(NONE)
_FAR = np.float32(3.4e38)
_LANES = 16


@njit(cache=True, nogil=True, fastmath=FAST)
def gather(
    space: NDArray[np.float32],
    rows: NDArray[np.uint32],
    out: NDArray[np.float32],
    squares: NDArray[np.float32],
) -> None:
    """Copy rows of a space and move their mean to zero, which keeps the digits of distances.

    Args:
        space: `(n, w) float32`.
        rows: `(m,) uint32`.
        out: `(m, w) float32`, written.
        squares: `(m,) float32`, written: squared norms after the move.

    """
    m, w = out.shape
    mean = np.zeros(w, np.float32)
    for i in range(U64(m)):
        source = space[rows[i]]
        for j in range(U64(w)):
            out[i, j] = source[j]
            mean[j] += source[j]
    for j in range(U64(w)):
        mean[j] /= F32(m)
    for i in range(U64(m)):
        total = F32(0)
        for j in range(U64(w)):
            moved = out[i, j] - mean[j]
            out[i, j] = moved
            total += moved * moved
        squares[i] = total


@njit(cache=True, nogil=True, fastmath=FAST)
def _offer(
    scores: NDArray[np.float32], names: NDArray[np.uint32], score: np.float32, name: int
) -> None:
    """Insert a score in ascending ones if it is below the last, which leaves."""
    place = U64(len(scores) - 1)
    if not score < scores[place]:
        return
    while place > U64(0) and scores[place - U64(1)] > score:
        scores[place] = scores[place - U64(1)]
        names[place] = names[place - U64(1)]
        place -= U64(1)
    scores[place] = score
    names[place] = U32(name)


@njit(cache=True, nogil=True, fastmath=FAST)
def _group_least(
    line: NDArray[np.float32], squares: NDArray[np.float32], least: NDArray[np.float32]
) -> None:
    """Write the least score among columns g, g + G, g + 2G, … for each of G groups."""
    groups = U64(len(least))
    columns = U64(len(line))
    whole = columns // groups * groups
    least[:] = _FAR
    for first in range(U64(0), whole, groups):
        for g in range(groups):
            score = squares[first + g] - F32(2) * line[first + g]
            least[g] = score if score < least[g] else least[g]
    for g in range(columns - whole):
        score = squares[whole + g] - F32(2) * line[whole + g]
        least[g] = score if score < least[g] else least[g]


@njit(cache=True, nogil=True, fastmath=FAST)
def nearest(
    products: NDArray[np.float32],
    squares: NDArray[np.float32],
    own: Whole,
    places: NDArray[np.uint32],
) -> None:
    """Write each line's columns of least `squares[c] − 2 · products[i, c]`, nearest first.

    Columns are dealt to groups, groups to lanes. The k-th least of the lanes' least scores bounds
    the k-th least score, so that only the few groups below it are looked into, and finding the
    least of groups and lanes takes no branch.

    Args:
        products: `(b, m) float32`.
        squares: `(m,) float32`.
        own: column of line 0 that is the line itself and is left out; line i leaves out own + i.
            Below −b, nothing is.
        places: `(b, k) uint32`, written; `NONE` where there are fewer than k.

    """
    columns = products.shape[1]
    count = places.shape[1]
    groups = max(_LANES, columns // 128 * _LANES)
    lanes = min(groups, _LANES * (1 + count // 8))
    least = np.empty(groups, np.float32)
    lane = np.empty(lanes, np.float32)
    bounds = np.empty(count + 1, np.float32)  # one more, for the line itself
    scores = np.empty(count, np.float32)
    names = np.empty(count + 1, np.uint32)
    for i in range(len(products)):
        line = products[i]
        _group_least(line, squares, least)
        for j in range(lanes):
            lane[j] = least[j]
        for g in range(lanes, groups):
            lane[g % lanes] = min(lane[g % lanes], least[g])
        bounds[:] = _FAR
        for j in range(lanes):
            _offer(bounds, names, lane[j], j)
        bound = bounds[count]
        scores[:] = _FAR
        found = places[i]
        found[:] = _NONE
        for g in range(groups):
            if least[g] <= bound:
                for c in range(g, columns, groups):
                    if c != own + i:
                        _offer(scores, found, squares[c] - F32(2) * line[c], c)


@njit(cache=True, nogil=True)
def group(
    leaders: NDArray[np.uint32], starts: NDArray[np.int64], members: NDArray[np.uint32]
) -> None:
    """Group entries by leader, in order of entries.

    Args:
        leaders: `(e,) uint32`, below `len(starts) − 1`, or `NONE`: belongs to no group.
        starts: `(l + 1,) int64`, written: where each leader's entries begin in `members`.
        members: `(e,) uint32`, written.

    """
    starts[:] = 0
    for e in range(len(leaders)):
        if leaders[e] != _NONE:
            starts[leaders[e] + 1] += 1
    for g in range(1, len(starts)):
        starts[g] += starts[g - 1]
    at = starts[:-1].copy()
    for e in range(len(leaders)):
        if leaders[e] != _NONE:
            members[at[leaders[e]]] = U32(e)
            at[leaders[e]] += 1


@njit(cache=True, nogil=True)
def put_neighbours(
    rows: NDArray[np.uint32],
    slots: NDArray[np.uint32],
    places: NDArray[np.uint32],
    forward: NDArray[np.uint32],
) -> None:
    """Write the neighbours found in a leaf to the slots that its rows have for them.

    Args:
        rows: `(m,) uint32`, rows of the leaf.
        slots: `(m,) uint32`, where in a row of `forward` its neighbours go.
        places: `(m, k) uint32`, places in the leaf, or `NONE`.
        forward: `(n, c) uint32`, written.

    """
    for i in range(len(rows)):
        line = forward[rows[i]]
        for j in range(places.shape[1]):
            place = places[i, j]
            line[slots[i] + j] = _NONE if place == _NONE else rows[place]


@njit(cache=True, nogil=True)
def tidy(forward: NDArray[np.uint32], first: Whole, last: Whole, counts: NDArray[np.int32]) -> None:
    """Sort lines of `(n, c)` forward, take doubles and `NONE` out, and count what is left."""
    for i in range(first, last):
        line = forward[i]
        line.sort()
        kept = 0
        for j in range(len(line)):
            if line[j] == _NONE:
                break
            if kept == 0 or line[j] != line[kept - 1]:
                line[kept] = line[j]
                kept += 1
        counts[i] = kept


@njit(cache=True, nogil=True)
def turn_round(
    forward: NDArray[np.uint32],
    counts: NDArray[np.int32],
    starts: NDArray[np.int64],
    sources: NDArray[np.uint32],
) -> None:
    """Write the edges backwards: who has row r among its neighbours, in order.

    Args:
        forward: `(n, c) uint32`.
        counts: `(n,) int32`, neighbours in each line.
        starts: `(n + 1,) int64`, written: where the sources of each row begin.
        sources: `(edges,) uint32`, written.

    """
    starts[:] = 0
    for i in range(len(forward)):
        for j in range(counts[i]):
            starts[forward[i, j] + 1] += 1
    for g in range(1, len(starts)):
        starts[g] += starts[g - 1]
    at = starts[:-1].copy()
    for i in range(len(forward)):
        for j in range(counts[i]):
            target = forward[i, j]
            sources[at[target]] = U32(i)
            at[target] += 1


@njit(cache=True, nogil=True, fastmath=FAST)
def choose(
    space: NDArray[np.float32],
    width: Whole,
    first: Whole,
    last: Whole,
    forward: NDArray[np.uint32],
    counts: NDArray[np.int32],
    starts: NDArray[np.int64],
    sources: NDArray[np.uint32],
    most: Whole,
    alpha: float,
    degrees: NDArray[np.uint16],
) -> None:
    """Prune what was found for rows `first` to `last`, both ways, to their neighbours.

    Args:
        space: flat `(n · width,) float32`.
        width: numbers in a row.
        first: first row.
        last: row after the last.
        forward: `(n, c) uint32`, c ≥ `most`, as `tidy` leaves it; the neighbours take its place.
        counts: `(n,) int32`.
        starts: `(n + 1,) int64`, as `turn_round` writes it.
        sources: `(edges,) uint32`.
        most: R.
        alpha: slack.
        degrees: `(n,) uint16`, written.

    """
    keys = np.empty(0, np.uint64)
    chosen = np.empty(most, np.uint32)
    for i in range(first, last):
        back = sources[starts[i] : starts[i + 1]]
        if counts[i] + len(back) > len(keys):
            keys = np.empty(2 * (counts[i] + len(back)), np.uint64)
        end = measure(space, width, i, forward[i], counts[i], keys, 0)
        end = measure(space, width, i, back, len(back), keys, end)
        ordered = np.sort(keys[:end])
        count = min(U64(without_doubles(ordered, end)), U64(MAX_CANDIDATES))
        degrees[i] = robust_prune(space, width, ordered, count, most, alpha, chosen)
        for j in range(degrees[i]):
            forward[i, j] = chosen[j]


@njit(cache=True, nogil=True)
def compact(
    lists: NDArray[np.uint32], width: Whole, most: Whole, degrees: NDArray[np.uint16]
) -> None:
    """Move lists together in flat `(n · width,)` memory, to `most` places each, 0 where unused."""
    for i in range(len(degrees)):
        for j in range(most):
            # every list moves towards the front, past none that is yet to be moved
            lists[i * most + j] = lists[i * width + j] if j < degrees[i] else U32(0)
