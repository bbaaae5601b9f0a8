"""Queries compared with rows by signs, compiled: those that may be near are measured.

With u the codes of a row o, rotated and relative to the origin, f = ‖o‖² / ⟨u, o⟩, and a query q in
the same frame, f · ⟨u, q⟩ is ⟨o, q⟩ but for an error of random direction, whose standard deviation
is f · ‖q‖ · ‖u‖ · √((1 - c²) / w) over w numbers, where c is the cosine of u and o (RaBitQ, Gao and
Long, SIGMOD 2024). What f · ‖q‖ is multiplied with is close to `SPREADS` for nearly every row once
it is rotated. So `DEVIATIONS` of these are what an estimate is off at most, but for one in hundreds
of those that lie as far as the last answer.

By inner product a query is not in the frame of its own accord. It is divided by a number that
brings it near the origin (`_multiple`), since the error grows with how far from there it is.
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from puffin_ann.ann.core.types import Whole
from puffin_ann.ann.exact.kernels_scan import limit_of, offer
from puffin_ann.ann.signs.frame import Frame
from puffin_ann.ann.signs.kernels_blocks import factor_of, place_row
from puffin_ann.ann.signs.kernels_codes import from_halves
from puffin_ann.ann.signs.kernels_rotate import mix
from puffin_ann.ann.signs.kernels_tables import tables_of
from puffin_ann.ann.simd.fastscan import BLOCK, block_sums
from puffin_ann.ann.simd.intrinsics import numbers_at, rows_at
from puffin_ann.ann.simd.kernels_distance import (
    COSINE,
    IP,
    L2,
    distance,
    dot,
    key_distance,
    order_key,
)
from puffin_ann.ann.simd.vectors import (
    F32X16,
    fill_of,
    less_mask,
    load_of,
    lowest_bit,
    multiply_add,
    prefetch,
    store_of,
    sum_of,
)
from puffin_ann.numba_kernels import inlined, kernel

F32, I64, U32, U64 = np.float32, np.int64, np.uint32, np.uint64

SPREADS = (0.603, 0.322)
"""By 1 bit, and by 2: numbers of a row that is rotated have a normal distribution, of which the
cosines are √(2/π) and √0.8825 (Max, 1960)."""
DEVIATIONS = 2.5
"""Standard deviations that an estimate may be off."""
ROUNDING = 4e-6
"""Of squares, by how much sums of float32 err at most."""
ROUNDING_OF_DIRECTIONS = 1e-12
"""By how much more the squared distance of two directions errs: by the square of how much their
lengths do, which are rounded."""
LEAST = 1e-37
"""By how much whatever is less than float32 holds in full errs at most."""
SHORTEST, LONGEST = 1e-24, 1e24
"""Squared norms of queries and rows between which squares and sums of float32 have room."""

LEAST_MULTIPLE = 1e-3
"""Of an origin as long as the query: taking so much of it away from one that points elsewhere makes
no difference."""

FIRST = 2
"""Times k: so many rows of the least estimates are measured first, which rules out most others."""
_AHEAD = 8
"""Rows that are asked for before they are measured."""

STEP, BASE, MARGIN, SQUARE, TIMES, PLUS = 0, 1, 2, 3, 4, 5
"""Of a query: the step of its tables, the sum of codes that find nothing, and by how much an
estimate of ⟨u, q⟩ may be off; its squared norm; what makes of a distance, squared if it is
Euclidean, what bounds are compared with: it is multiplied with one number, and another added."""

_RING, _LOW = _AHEAD - 1, U64(0xFFFFFFFF)
_BLOCK, _HALF, _LANES = U64(BLOCK), U64(BLOCK // 2), U64(16)
_load, _store, _fill = load_of(F32X16), store_of(F32X16), fill_of(F32X16)
_numbers, _rows = numbers_at(types.float32), rows_at(types.float32)


@kernel()
def _place(
    metric: int,
    queries: NDArray[np.float32],
    i: int,
    frame: Frame,
    bits: Whole,
    moved: NDArray[np.float32],
    room: NDArray[np.float32],
    tables: NDArray[np.uint8],
    known: NDArray[np.float64],
) -> bool:
    """Write the tables of a query, and what is known of it; tell whether its length allows it."""
    square = dot(queries, i, queries, i)
    if not square < LONGEST or (metric != L2 and square < SHORTEST):
        return False
    factor, times = factor_of(metric, square), 1.0 if metric == L2 else 2.0
    along = 0.0
    if metric == IP:
        # Of ⟨r + o, q⟩ that of the origin is known, and of ⟨r, q⟩ that of any multiple of it.
        for z in range(queries.shape[1]):
            along += np.float64(queries[i, z]) * np.float64(frame.origin[z])
        multiple = _multiple(along, square, frame.origin)
        times /= multiple
        # Rounding it moves estimates no more than float32 does, of which no bound takes account.
        factor = F32(1.0 / multiple)
    place_row(queries[i], factor, frame.origin, frame.flips, room)
    mix(room, frame.flips_between, frame.across, moved, U64(0))
    total = _fill(F32(0))
    for z in range(U64(0), U64(len(moved)), _LANES):
        line = _load(moved, z)
        total = multiply_add(line, line, total)
    there = np.float64(sum_of(total))
    step, base = tables_of(moved, bits, tables, room)
    margin = DEVIATIONS * (SPREADS[0] if bits == 1 else SPREADS[1]) * np.sqrt(there)
    known[STEP], known[BASE], known[MARGIN], known[SQUARE] = step, base, margin, square
    known[TIMES] = times
    known[PLUS] = times * along if metric == IP else -there
    return True


@kernel()
def _multiple(along: float, square: float, origin: NDArray[np.float32]) -> float:
    """Return t > 0 by which q / t is near the origin, if any does, else almost as good as q alone.

    Estimates of ⟨r, q⟩ err by as much as ‖q‖ says, those of ⟨r, q - t · o⟩ by less. What that
    differs by is known of rows as they are, so that queries are divided instead.

    Args:
        along: ⟨q, o⟩.
        square: ‖q‖².
        origin: `(w,) float32`, o.
    """
    middle = 0.0
    for z in range(len(origin)):
        middle += np.float64(origin[z]) * np.float64(origin[z])
    if middle < SHORTEST:
        return 1.0
    least: float = LEAST_MULTIPLE * np.sqrt(square / middle)
    return max(along / middle, least)


@kernel()
def _limit_after(metric: int, worst: np.float32, known: NDArray[np.float64]) -> np.float32:
    """Return what a bound may be at most of a row that is no farther than the worst of a heap."""
    most = limit_of(metric, worst) * known[TIMES]
    limit = most + known[PLUS] + LEAST
    if metric != IP:
        # Rows as near have squares of twice as much at most.
        limit += ROUNDING * (max(most, 0.0) - known[PLUS])
        if metric == COSINE:
            limit += ROUNDING_OF_DIRECTIONS
    return F32(limit)


@kernel()
def _measure(
    metric: int,
    queries: NDArray[np.float32],
    starts: NDArray[np.uint64],
    i: int,
    row: int,
    known: NDArray[np.float64],
    limit: np.float32,
    heap: NDArray[np.uint64],
    sizes: NDArray[np.int64],
) -> np.float32:
    """Bring a row into the heap of a query, and return the limit that then holds."""
    vector = _rows(starts[row], 1, queries.shape[1])
    key = order_key(distance(metric, queries, i, known[SQUARE], vector, 0), row)
    sizes[i] = offer(heap, sizes[i], key)
    if sizes[i] == len(heap):
        limit = min(limit, _limit_after(metric, key_distance(heap[0]), known))
    return limit


@inlined
def _ask_for(starts, row, wide):  # type: ignore[no-untyped-def]
    ahead = _numbers(starts[row], wide)
    for z in range(U64(0), min(U64(wide), U64(128)), U64(16)):
        prefetch(ahead, z)


@kernel()
def _scan(
    packed: NDArray[np.uint8],
    stride: Whole,
    first: Whole,
    last: Whole,
    tables: NDArray[np.uint8],
    known: NDArray[np.float64],
    estimates: NDArray[np.float32],
    lows: NDArray[np.float32],
    least: NDArray[np.uint64],
) -> int:
    """Write the bound of every row of some blocks; return how many have the least estimates.

    Args:
        packed: see `compare`, as those below.
        stride: see above.
        first: see above.
        last: see above.
        tables: `(4 · bits · w,) uint8`, of the query.
        known: `(6,) float64`, see `STEP`.
        estimates: `(32,) float32`, scratch.
        lows: `(32 · (last - first),) float32`, written.
        least: `(c,) uint64`, written: `order_key`s of the least estimates and of places in `lows`.
    """
    many, codes = 0, U64(len(tables))
    groups, nearest = codes >> U64(6), F32(np.inf)
    step, base, margin = _fill(known[STEP]), _fill(known[BASE]), _fill(known[MARGIN])
    for block in range(U64(first), U64(last)):
        at, begin = block * U64(stride), (block - U64(first)) * _BLOCK
        tail = at + codes
        one, other = block_sums(packed, at, tables, groups)
        factors = from_halves(packed, tail + U64(2 * BLOCK))
        one = multiply_add(
            factors, multiply_add(one, step, base), from_halves(packed, tail)
        )  # fmt: skip
        _store(lows, begin, multiply_add(factors, margin, one))
        factors = from_halves(packed, tail + U64(3 * BLOCK))
        other = multiply_add(
            factors, multiply_add(other, step, base), from_halves(packed, tail + _BLOCK)
        )  # fmt: skip
        _store(lows, begin + _HALF, multiply_add(factors, margin, other))
        mask = less_mask(one, _fill(nearest)) | less_mask(other, _fill(nearest)) << _HALF
        if mask != U64(0):
            _store(estimates, U64(0), one)
            _store(estimates, _HALF, other)
            while mask != U64(0):
                lane = lowest_bit(mask)
                mask &= mask - U64(1)
                key = order_key(estimates[lane], I64(begin + lane))
                many = offer(least, many, key)
            if many == len(least):
                nearest = key_distance(least[0])
    return many


@kernel()
def _measure_near(
    metric: int,
    queries: NDArray[np.float32],
    i: int,
    starts: NDArray[np.uint64],
    begin: int,
    known: NDArray[np.float64],
    lows: NDArray[np.float32],
    least: NDArray[np.uint64],
    many: int,
    waiting: NDArray[np.uint32],
    heap: NDArray[np.uint64],
    sizes: NDArray[np.int64],
) -> int:
    """Measure rows that may be near a query, and return how many were measured.

    Those with the least estimates come first: how far the nearest of them are rules out the others.
    """
    limit, wide = F32(np.inf), queries.shape[1]
    for c in range(many):
        _ask_for(starts, begin + I64(least[c] & _LOW), wide)
    for c in range(many):
        place = I64(least[c] & _LOW)
        limit = _measure(metric, queries, starts, i, begin + place, known, limit, heap, sizes)
        lows[place] = F32(np.inf)
    measured, noted = many, 0
    for group in range(U64(0), U64(len(lows)), _LANES):
        mask = less_mask(_load(lows, group), _fill(limit))
        while mask != U64(0):
            lane = lowest_bit(mask)
            mask &= mask - U64(1)
            if noted >= _AHEAD:
                place = I64(waiting[noted & _RING])
                if lows[place] < limit:
                    limit = _measure(
                        metric, queries, starts, i, begin + place, known, limit, heap, sizes
                    )
                    measured += 1
            waiting[noted & _RING] = group + lane
            _ask_for(starts, begin + I64(group + lane), wide)
            noted += 1
    for at in range(max(0, noted - _AHEAD), noted):
        place = I64(waiting[at & _RING])
        if lows[place] < limit:
            limit = _measure(metric, queries, starts, i, begin + place, known, limit, heap, sizes)
            measured += 1
    return measured


@kernel(allocates=True)
def compare(
    metric: int,
    queries: NDArray[np.float32],
    starts: NDArray[np.uint64],
    frame: Frame,
    bits: Whole,
    packed: NDArray[np.uint8],
    stride: Whole,
    first: Whole,
    last: Whole,
    heaps: NDArray[np.uint64],
    sizes: NDArray[np.int64],
) -> int:
    """Bring rows into each query's heap of the nearest; return how many were measured.

    It is -1 if a query is too long for what is computed of it, or too short: nothing is brought.

    Args:
        metric: code.
        queries: `(q, d) float32`.
        starts: `(n,) uint64`, the address of each row.
        frame: that the rows were brought into.
        bits: of each number, 1 or 2.
        packed: flat uint8, see `kernels_blocks`.
        stride: bytes of a block.
        first: block.
        last: and where the blocks end.
        heaps: `(q, k) uint64`, greatest first, `order_key`s; changed; k is at least 1.
        sizes: `(q,) int64`, entries of each heap; changed.
    """
    many, k = heaps.shape
    wide = len(frame.origin)
    moved, scratch = np.empty(wide, np.float32), np.empty(wide, np.float32)
    tables, known = np.empty((many, 4 * int(bits) * wide), np.uint8), np.empty((many, 6))
    for i in range(many):
        if not _place(
            metric, queries, i, frame, bits, moved, scratch, tables[i], known[i]
        ):  # fmt: skip
            return -1
    lows, estimates = np.empty(BLOCK * (last - first), np.float32), np.empty(BLOCK, np.float32)
    least, waiting = np.empty(FIRST * k, np.uint64), np.empty(_AHEAD, np.uint32)
    begin, measured = I64(first) * BLOCK, 0
    for i in range(many):
        found = _scan(packed, stride, first, last, tables[i], known[i], estimates, lows, least)
        measured += _measure_near(
            metric, queries, i, starts, begin, known[i], lows, least, found, waiting, heaps[i],
            sizes,
        )  # fmt: skip
    return measured
