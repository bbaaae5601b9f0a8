"""Queries compared with rows by a byte a number, compiled; what codes cannot tell is measured."""

import numpy as np
from numba import types
from numpy.typing import NDArray

from puffin_ann.ann.exact.kernels_coding import (
    ASKED,
    BLOCK,
    DOUBT,
    LENGTH,
    MEASURE,
    QUERY_DOUBT,
    QUERY_STEP,
    SIDES,
    SQUARE,
    STEP,
    SUM,
    TERMS,
    write_queries,
)
from puffin_ann.ann.exact.kernels_products import PRODUCTS, TILE, multiply
from puffin_ann.ann.exact.kernels_scan import (
    LARGE,
    LARGE_PRODUCT,
    TINY,
    gamma_of,
    least_of,
    limit_of,
    line_of,
    offer,
    replace_greatest,
)
from puffin_ann.ann.simd.intrinsics import numbers_at, rows_at
from puffin_ann.ann.simd.kernels_byte_rows import MIDDLE
from puffin_ann.ann.simd.kernels_distance import (
    COSINE,
    L2,
    LARGEST,
    distance,
    key_distance,
    order_key,
)
from puffin_ann.ann.simd.vectors import F32X16, load_of, lowest_bit, prefetch
from puffin_ann.numba_kernels import inlined, kernel

F32, I64, U64 = np.float32, np.int64, np.uint64

CHUNK_BYTES = np.uint64(256 << 10)
"""Codes that are compared with every query before the next ones: they stay in a core's cache."""

_ROUNDED = 2.0**-22
"""Of a squared length that was rounded to float32 before it was squared: more than it is off."""

_FARTHEST = 3.0
"""Farther apart than any two rows are, as 1 − cos, whatever is lost by rounding."""

_AHEAD = 4
"""Rows whose first lines are asked for before they are measured."""

NOTES_BYTES = 16 << 20
"""What may be noted of queries that are compared in one go, if they are more than a tile."""

_load, _BLOCK = load_of(F32X16), U64(BLOCK)
_numbers, _rows = numbers_at(types.float32), rows_at(types.float32)


@inlined
def _most_of(metric, product, error, square, other):  # type: ignore[no-untyped-def]
    """Return what a surrogate is at most; see `least_of`."""
    if metric == L2:
        return (square + other) * (1.0 + 1e-13) - 2.0 * (product - error)
    if metric == COSINE:
        size = np.sqrt(square * other)
        return 1.0 + 1e-13 - (product - error) / size if size > 0.0 else 1.0
    return -product + error


@kernel()
def _limit_above(metric: int, most: float) -> float:
    """Return what a surrogate may be at most if it is not to be farther than one of `most`."""
    if metric == L2:
        return limit_of(metric, F32(min(np.sqrt(max(most, 0.0)), LARGEST)))
    if metric == COSINE:  # distances are no less than zero
        most = max(most, 0.0)
    return limit_of(metric, F32(min(max(most, -LARGEST), LARGEST)))


@kernel()
def _draw_line(
    metric: int,
    asked: NDArray[np.float64],
    i: int,
    limit: float,
    longest: float,
    doubt: float,
    dimension: int,
    lines: NDArray[np.float32],
) -> None:
    """Write the `line_of` a query, for products without its step; see `compare`."""
    if limit > (_FARTHEST if metric == COSINE else LARGEST):  # numbers as large would be no bounds
        lines[i, 0] = lines[i, 1] = F32(0)
        lines[i, 2] = F32(1)
        return
    root = np.sqrt(asked[i, SQUARE])
    gamma, coded = gamma_of(dimension + TERMS), longest + doubt
    doubted = root * doubt + asked[i, QUERY_DOUBT] * coded
    doubted += gamma * ((root + asked[i, QUERY_DOUBT]) * coded - root * longest)
    a, b, most = line_of(metric, root, longest, limit, gamma, doubted, dimension * TINY)
    lines[i, 0], lines[i, 1], lines[i, 2] = F32(a), F32(b * asked[i, QUERY_STEP]), F32(most)


@kernel()
def _measure_found(
    metric: int,
    queries: NDArray[np.float32],
    starts: NDArray[np.uint64],
    i: int,
    square: float,
    limit: float,
    found: NDArray[np.uint32],
    lows: NDArray[np.float64],
    used: int,
    heaps: NDArray[np.uint64],
    sizes: NDArray[np.int64],
) -> float:
    """Bring rows into the heap of a query, and return the limit that then holds."""
    heap, wide = heaps[i], queries.shape[1]
    for at in range(used):
        if at + _AHEAD < used and lows[i, at + _AHEAD] <= limit:
            ahead = _numbers(starts[found[i, at + _AHEAD]], wide)
            for z in range(U64(0), min(U64(wide), U64(64)), U64(16)):
                prefetch(ahead, z)
        if lows[i, at] > limit:
            continue
        row = I64(found[i, at])
        vector = _rows(starts[row], 1, wide)
        key = order_key(distance(metric, queries, i, square, vector, 0), row)
        sizes[i] = offer(heap, sizes[i], key)
        if sizes[i] == len(heap):
            limit = min(limit, limit_of(metric, key_distance(heap[0])))
    return limit


@kernel()
def _consider(
    metric: int,
    i: int,
    mask: np.uint64,
    block: int,
    products: NDArray[np.float32],
    at: int,
    asked: NDArray[np.float64],
    sides: NDArray[np.float32],
    dimension: int,
    limit: float,
    mosts: NDArray[np.float64],
    found: NDArray[np.uint32],
    lows: NDArray[np.float64],
    used: int,
) -> tuple[int, float]:
    """Note the rows of a block that may be near a query; return how many are noted, and the limit.

    What the k nearest noted are away at most tells what none that is nearer exceeds at least.
    """
    square, step = asked[i, SQUARE], asked[i, QUERY_STEP]
    root = np.sqrt(square)
    gamma = gamma_of(dimension + TERMS)
    while mask != U64(0):
        lane = I64(lowest_bit(mask))
        mask &= mask - U64(1)
        product = np.float64(products[at + lane]) * step
        doubt = np.float64(sides[block, DOUBT, lane])
        length = np.float64(sides[block, LENGTH, lane])
        coded, coded_root = length + doubt, root + asked[i, QUERY_DOUBT]
        error = gamma * coded_root * coded + _ROUNDED * length * (length + root) + dimension * TINY
        error += root * doubt + asked[i, QUERY_DOUBT] * coded
        low = least_of(metric, product, error, square, length * length)
        if low > limit:
            continue
        found[i, used], lows[i, used] = block * BLOCK + lane, low
        used += 1
        most = _most_of(metric, product, error, square, length * length)
        if most < mosts[i, 0]:
            replace_greatest(mosts[i], mosts.shape[1], most)
            if mosts[i, 0] < np.inf:
                limit = min(limit, _limit_above(metric, mosts[i, 0]))
    return used, limit


@kernel()
def _note(
    metric: int,
    queries: NDArray[np.float32],
    asked: NDArray[np.float64],
    starts: NDArray[np.uint64],
    sides: NDArray[np.float32],
    longest: float,
    doubt: float,
    block: int,
    tile: int,
    low: np.uint64,
    high: np.uint64,
    products: NDArray[np.float32],
    mosts: NDArray[np.float64],
    found: NDArray[np.uint32],
    lows: NDArray[np.float64],
    used: NDArray[np.int64],
    limits: NDArray[np.float64],
    lines: NDArray[np.float32],
    heaps: NDArray[np.uint64],
    sizes: NDArray[np.int64],
) -> None:
    """Note the rows of a block that may be near queries; measure those of a query without room.

    Args are those of `compare`; `low` and `high` are the bits of the rows, sixteen of each query of
    a tile.
    """
    dimension, room = queries.shape[1], found.shape[1]
    while low | high != U64(0):
        place, near = (0, low) if low != U64(0) else (4, high)
        shift = lowest_bit(near) & U64(48)  # of the first query that has any
        mask = near >> shift & U64(0xFFFF)
        if low != U64(0):
            low ^= mask << shift
        else:
            high ^= mask << shift
        at = place + int(shift >> U64(4))
        i = tile + at
        if i >= len(queries):
            continue
        limit = limits[i]
        if used[i] + BLOCK > room:
            limits[i] = _measure_found(
                metric, queries, starts, i, asked[i, SQUARE], limit, found, lows, used[i], heaps,
                sizes,
            )  # fmt: skip
            used[i] = 0
        used[i], limits[i] = _consider(
            metric, i, mask, block, products, at * BLOCK, asked, sides, dimension, limits[i],
            mosts, found, lows, used[i],
        )  # fmt: skip
        if limits[i] != limit:
            _draw_line(metric, asked, i, limits[i], longest, doubt, dimension, lines)


@kernel()
def _compare(
    metric: int,
    queries: NDArray[np.float32],
    words: NDArray[np.uint32],
    asked: NDArray[np.float64],
    mosts: NDArray[np.float64],
    found: NDArray[np.uint32],
    lows: NDArray[np.float64],
    used: NDArray[np.int64],
    limits: NDArray[np.float64],
    lines: NDArray[np.float32],
    begins: NDArray[np.int32],
    products: NDArray[np.float32],
    starts: NDArray[np.uint64],
    codes: NDArray[np.uint32],
    sides: NDArray[np.float32],
    longest: float,
    doubt: float,
    bits: NDArray[np.uint16],
    first: int,
    last: int,
    heaps: NDArray[np.uint64],
    sizes: NDArray[np.int64],
) -> None:
    """Bring rows into the heaps of some queries; what makes arrays is apart, see `kernel`.

    Args are those of `compare`, and:
        words: `(t, g) uint32`, see `write_queries`; t is a multiple of 8.
        asked: `(t, 4) float64`, as well.
        mosts: `(q, k) float64`, scratch: what the k nearest noted are away at most.
        found: `(q, m) uint32`, scratch: rows noted; m is at least 16.
        lows: `(q, m) float64`, scratch: what those are away at least.
        used: `(q,) int64`, scratch: how many are noted.
        limits: `(q,) float64`, what a row may be away; changed.
        lines: `(t, 3) float32`, scratch: of each query the `line_of` that rules out rows.
        begins: `(t,) int32`, scratch: what sums of products begin with.
        products: `(128,) float32`, scratch.
    """
    many, dimension = len(queries), queries.shape[1]
    for i in range(len(words)):
        begins[i] = np.int32(-MIDDLE * asked[i, SUM])
    for i in range(many):
        mosts[i] = np.inf
        used[i] = 0
        _draw_line(metric, asked, i, limits[i], longest, doubt, dimension, lines)
    for i in range(many, len(words)):
        lines[i] = F32(0)
    groups, flat, numbers = U64(codes.shape[1]), codes.reshape(-1), sides.reshape(-1)
    flat_words, flat_lines = words.reshape(-1), lines.reshape(-1)
    chunk = max(U64(1), CHUNK_BYTES // (groups * U64(64)))
    for begin in range(U64(first), U64(last), chunk):
        end = min(begin + chunk, U64(last))
        for tile in range(0, many, TILE):
            width = min(TILE, many - tile)
            for block in range(begin, end):
                answerable = U64(bits[block])
                if answerable == U64(0):
                    continue
                low, high = multiply(
                    flat, block * groups * _BLOCK, groups, flat_words, begins, U64(tile), width,
                    _load(numbers, (U64(SIDES) * block + U64(STEP)) * _BLOCK),
                    _load(numbers, (U64(SIDES) * block + U64(MEASURE)) * _BLOCK),
                    flat_lines, products,
                )  # fmt: skip
                answerable |= answerable << U64(16)
                answerable |= answerable << U64(32)
                low, high = low & answerable, high & answerable
                if low | high != U64(0):
                    _note(
                        metric, queries, asked, starts, sides, longest, doubt, I64(block), tile,
                        low, high, products, mosts, found, lows, used, limits, lines, heaps, sizes,
                    )  # fmt: skip
    for i in range(many):
        _measure_found(
            metric, queries, starts, i, asked[i, SQUARE], limits[i], found, lows, used[i],
            heaps, sizes,
        )  # fmt: skip


@kernel(allocates=True)
def compare(
    metric: int,
    queries: NDArray[np.float32],
    within: NDArray[np.float32],
    at_once: int,
    noted: int,
    starts: NDArray[np.uint64],
    codes: NDArray[np.uint32],
    sides: NDArray[np.float32],
    longest: float,
    doubt: float,
    bits: NDArray[np.uint16],
    first: int,
    last: int,
    heaps: NDArray[np.uint64],
    sizes: NDArray[np.int64],
) -> bool:
    """Bring rows into each query's heap of the nearest; tell whether codes say enough of them.

    They do not if a query is too long for what is computed of it. Then nothing is brought.

    A product by codes is off by what the codes of both lack: |q| times the row's doubt, and the
    query's doubt times what the row's codes say. So each row's surrogate lies between two bounds.
    The k least upper ones rule out most rows by a look at sixteen of them at once. The others are
    noted, and those of them measured whose lower bound is not ruled out in the end.

    Args:
        metric: code.
        queries: `(q, d) float32`.
        within: `(q,) float32`, distances beyond which rows are not wanted; empty if all are.
        at_once: queries that are compared in one go, at most, a multiple of 8.
        noted: rows that are noted of a query, and k more, before those that may be near are
            measured; at least 16.
        starts: `(n,) uint64`, the address of each row.
        codes: `(b, g, 16) uint32`, see `write_blocks`.
        sides: `(b, 4, 16) float32`, as well; doubts are finite.
        longest: norm of a row, at most.
        doubt: of a row, at most.
        bits: `(b,) uint16`, of the rows of each block that may be answered.
        first: block.
        last: and where the blocks end.
        heaps: `(q, k) uint64`, greatest first, `order_key`s; changed; k is at least 1.
        sizes: `(q,) int64`, entries of each heap; changed.
    """
    many, k = heaps.shape
    room = noted + k
    at_once = min(at_once, max(1, NOTES_BYTES // (20 * room) // TILE) * TILE)
    taken = -(-many // TILE) * TILE
    words, asked = np.empty((taken, codes.shape[1]), np.uint32), np.empty((taken, ASKED))
    write_queries(queries, words, asked)
    largest = 0.0
    for i in range(many):
        largest = max(largest, asked[i, SQUARE])
    if not (largest < LARGE and largest * longest**2 < LARGE_PRODUCT):
        return False
    most = min(at_once, many)
    mosts, found = np.empty((most, k)), np.empty((most, room), np.uint32)
    lows, used, limits = np.empty((most, room)), np.empty(most, np.int64), np.empty(most)
    wide = min(at_once, taken)
    lines, begins = np.empty((wide, 3), np.float32), np.empty(wide, np.int32)
    products = np.empty(PRODUCTS, np.float32)
    for at in range(0, many, at_once):
        end = min(at + at_once, many)
        for i in range(at, end):
            limits[i - at] = limit_of(metric, within[i]) if len(within) else np.inf
        _compare(
            metric, queries[at:end], words[at : at + at_once], asked[at : at + at_once], mosts,
            found, lows, used, limits, lines, begins, products, starts, codes, sides, longest,
            doubt, bits, first, last, heaps[at:end], sizes[at:end],
        )  # fmt: skip
    return True
