"""The loops of the bulk build: nearest within a leaf, and neighbours from all leaves."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.arguments import Space
from puffin_ann.ann.graph.kernels_prune import (
    MAX_CANDIDATES,
    measure,
    robust_prune,
    without_doubles,
)
from puffin_ann.ann.graph.primitives import F32, U32, U64, Whole
from puffin_ann.ann.simd import vectors
from puffin_ann.ann.simd.kernels_order import FAR, GROUPS, MOST_RANKED, bound_of
from puffin_ann.numba_kernels import FAST, inlined, kernel

NONE = 0xFFFFFFFF
I32, I64 = np.int32, np.int64
_NONE = np.uint32(NONE)
_LANES = 16
_LAST = np.int64(np.iinfo(np.int64).max)
_load = vectors.load_of(vectors.F32X16)
_fill = vectors.fill_of(vectors.F32X16)


@kernel(fastmath=FAST, allocates=True)
def gather(
    space: NDArray[np.float32],
    rows: NDArray[np.uint32],
    out: NDArray[np.float32],
    squares: NDArray[np.float32],
) -> None:
    """Copy rows of a space and move their mean to zero, which keeps the digits of distances.

    Args:
        space: `(n, d) float32`, d ≥ w: only the first w numbers are copied.
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


@kernel(fastmath=FAST)
def _group_least(
    line: NDArray[np.float32], squares: NDArray[np.float32], least: NDArray[np.float32]
) -> None:
    """Write the least score among columns g, g + G, g + 2G, … for each of G groups."""
    groups = U64(len(least))
    columns = U64(len(line))
    whole = columns // groups * groups
    least[:] = FAR
    for first in range(U64(0), whole, groups):
        for g in range(groups):
            score = squares[first + g] - F32(2) * line[first + g]
            least[g] = score if score < least[g] else least[g]
    for g in range(columns - whole):
        score = squares[whole + g] - F32(2) * line[whole + g]
        least[g] = score if score < least[g] else least[g]


@inlined
def _key(score: np.float32, column: Whole) -> np.int64:
    """Return an integer that sorts as (score, column)."""
    bits = F32(score).view(I32)
    bits ^= (bits >> I32(31)) & I32(0x7FFFFFFF)
    return (I64(bits) << I64(32)) | I64(column)


@kernel(fastmath=FAST)
def _not_above(
    line: NDArray[np.float32],
    squares: NDArray[np.float32],
    bound: np.float32,
    own: Whole,
    keys: NDArray[np.int64],
) -> Whole:
    """Write the keys of all columns but `own` whose score is not above a bound; return how many."""
    columns = U64(len(line))
    whole = columns // U64(_LANES) * U64(_LANES)
    found = U64(0)
    limit, minus_two = _fill(bound), _fill(F32(-2))
    for first in range(U64(0), whole, U64(_LANES)):
        scores = vectors.multiply_add(minus_two, _load(line, first), _load(squares, first))
        mask = vectors.less_mask(limit, scores) ^ U64(0xFFFF)
        while mask:
            column = first + vectors.lowest_bit(mask)
            mask &= mask - U64(1)
            keys[found] = _key(squares[column] - F32(2) * line[column], column)
            found += U64(column != U64(own))
    for column in range(whole, columns):
        score = squares[column] - F32(2) * line[column]
        keys[found] = _key(score, column)
        found += U64(score <= bound) & U64(column != U64(own))
    return found


@kernel(fastmath=FAST)
def _rank(keys: NDArray[np.int64], count: Whole, places: NDArray[np.uint32]) -> None:
    """Write the columns of the least keys, ascending, as many as there is room for.

    A key's place is how many are lesser. Few keys are ranked against all, without a branch.
    """
    end = (U64(count) + U64(_LANES - 1)) // U64(_LANES) * U64(_LANES)
    for j in range(U64(count), end):
        keys[j] = _LAST
    for i in range(U64(count)):
        key = keys[i]
        place = I64(0)
        for first in range(U64(0), end, U64(_LANES)):
            for j in range(U64(_LANES)):
                place += I64(keys[first + j] < key)
        if place < len(places):
            places[place] = U32(key)


@kernel(fastmath=FAST, allocates=True)
def nearest(
    products: NDArray[np.float32],
    squares: NDArray[np.float32],
    own: Whole,
    places: NDArray[np.uint32],
) -> None:
    """Write each line's columns of least `squares[c] − 2 · products[i, c]`, nearest first.

    Columns are dealt to groups. The k-th least of the groups' least scores bounds the k-th least
    score, so that only the few columns not above it are looked at one by one.

    Args:
        products: `(b, m) float32`.
        squares: `(m,) float32`.
        own: column of line 0 that is the line itself and is left out; line i leaves out own + i.
            Below −b, nothing is.
        places: `(b, k) uint32`, written; `NONE` where there are fewer than k.
    """
    columns = products.shape[1]
    count = places.shape[1]
    least = np.empty(GROUPS, np.float32)
    keys = np.empty(columns + _LANES, np.int64)
    for i in range(len(products)):
        line = products[i]
        _group_least(line, squares, least)
        bound = bound_of(least, count)  # one more than are wanted, for the line itself
        found = _not_above(line, squares, bound, own + i, keys)
        places[i, :] = _NONE
        if found > MOST_RANKED:
            keys[:found].sort()
            found = min(found, U64(count))
        _rank(keys, found, places[i])


@kernel(allocates=True)
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


@kernel()
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


@kernel()
def tidy(
    forward: NDArray[np.uint32],
    first: Whole,
    last: Whole,
    counts: NDArray[np.int32],
    seen_by: NDArray[np.uint32],
) -> None:
    """Take doubles and `NONE` out of lines of forward, in place, and count what is left.

    Args:
        forward: `(n, c) uint32`, changed.
        first: first line.
        last: line after the last.
        counts: `(n,) int32`, written.
        seen_by: `(n,) uint32` scratch: 1 + the last line a row was seen in; 0 at first, and kept
            from call to call.
    """
    places = U64(forward.shape[1])
    flat = forward.reshape(-1)
    for i in range(first, last):
        at, line = U64(i) * places, U32(i + 1)
        kept = U64(0)
        for j in range(places):
            row = flat[at + j]
            if row != _NONE:
                # No branch: whether a row is a double cannot be predicted.
                flat[at + kept] = row
                kept += U64(seen_by[row] != line)
                seen_by[row] = line
        counts[i] = kept


@kernel(allocates=True)
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


class Found(NamedTuple):
    """What leaves gave each row, both ways.

    Attributes:
        forward: `(n, c) uint32`, c ≥ R, as `tidy` leaves it: neighbours found for a row.
        counts: `(n,) int32`, how many there are.
        starts: `(n + 1,) int64`, as `turn_round` writes it: where each row's sources begin.
        sources: `(edges,) uint32`, rows for which a row was found.
    """

    forward: NDArray[np.uint32]
    counts: NDArray[np.int32]
    starts: NDArray[np.int64]
    sources: NDArray[np.uint32]


@kernel(fastmath=FAST, allocates=True)
def choose(
    space: Space,
    found: Found,
    rows: NDArray[np.uint32],
    most: Whole,
    alpha: float,
    degrees: NDArray[np.uint16],
) -> None:
    """Prune what was found for some rows, both ways, to their neighbours.

    Args:
        space: the rows.
        found: its `forward` is changed: the neighbours chosen take the place of those found.
        rows: `(m,) uint32`, those rows.
        most: R.
        alpha: slack.
        degrees: `(n,) uint16`, written.
    """
    forward, counts, starts = found.forward, found.counts, found.starts
    keys = np.empty(0, np.uint64)
    chosen = np.empty(most, np.uint32)
    for i in rows:
        back = found.sources[starts[i] : starts[i + 1]]
        if counts[i] + len(back) > len(keys):
            keys = np.empty(2 * (counts[i] + len(back)), np.uint64)
        end = measure(space, i, forward[i], counts[i], keys, 0)
        end = measure(space, i, back, len(back), keys, end)
        ordered = np.sort(keys[:end])
        count = min(U64(without_doubles(ordered, end)), U64(MAX_CANDIDATES))
        degrees[i] = robust_prune(space, ordered, count, most, alpha, chosen)
        for j in range(degrees[i]):
            forward[i, j] = chosen[j]


@kernel()
def compact(
    lists: NDArray[np.uint32], places: Whole, most: Whole, degrees: NDArray[np.uint16]
) -> None:
    """Move lists together in flat `(n · places,)` memory, to `most` places each, 0 where unused."""
    for i in range(len(degrees)):
        for j in range(most):
            # every list moves towards the front, past none that is yet to be moved
            lists[i * most + j] = lists[i * places + j] if j < degrees[i] else U32(0)
