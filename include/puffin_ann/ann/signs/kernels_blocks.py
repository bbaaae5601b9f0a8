"""Rows, wherever they lie, by a bit or two of each number once they are rotated, compiled.

A block has 32 rows: their codes, as a scan reads them, and two numbers of each that make a bound of
them, see `kernels_nearest`.
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from puffin_ann.ann.core.kernels_copy import AHEAD
from puffin_ann.ann.core.types import Whole
from puffin_ann.ann.signs.kernels_codes import code_1, code_2, in_two_bytes, pack_codes
from puffin_ann.ann.signs.kernels_rotate import fill, load_floats, mix, store_floats
from puffin_ann.ann.simd.fastscan import BLOCK
from puffin_ann.ann.simd.intrinsics import numbers_at, rows_at
from puffin_ann.ann.simd.kernels_distance import COSINE, IP, dot
from puffin_ann.ann.simd.vectors import multiply_add, prefetch, subtract
from puffin_ann.numba_kernels import kernel

F32, U64 = np.float32, np.uint64

TAIL_BYTES = 4 * BLOCK
"""Behind the codes of a block: 32 squares and 32 factors, of two bytes."""

_NOTHING = np.uint16(0x7F80)
"""The upper half of infinity: the square of a row that there is not."""

_BLOCK, _AHEAD, _LANES = U64(BLOCK), U64(AHEAD), U64(16)
_numbers, _rows = numbers_at(types.float32), rows_at(types.float32)


@kernel()
def place_row(
    numbers: NDArray[np.float32],
    factor: np.float32,
    origin: NDArray[np.float32],
    flips: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Write (x · factor - origin) · flips; zeros stand for the numbers that x has not.

    Args:
        numbers: `(d,) float32`, x.
        factor: that it is multiplied with.
        origin: `(w,) float32`, w ≥ d.
        flips: `(w,) float32`.
        out: `(w,) float32`, written.
    """
    dimension, none = U64(len(numbers)), fill(F32(0))
    whole, times = dimension - dimension % _LANES, fill(factor)
    for z in range(U64(0), whole, _LANES):
        line = multiply_add(load_floats(numbers, z), times, subtract(none, load_floats(origin, z)))
        store_floats(out, z, multiply_add(line, load_floats(flips, z), none))
    for z in range(whole, dimension):
        out[z] = (numbers[z] * factor - origin[z]) * flips[z]
    for z in range(dimension, U64(len(out))):
        out[z] = -origin[z] * flips[z]


@kernel()
def factor_of(metric: int, square: float) -> np.float32:
    """Return what a row or a query is multiplied with: cosine knows directions alone."""
    if metric == COSINE:
        return F32(1.0 / np.sqrt(square)) if square > 0.0 else F32(0)
    return F32(1)


@kernel(allocates=True)
def write_blocks(
    metric: int,
    starts: NDArray[np.uint64],
    dimension: int,
    origin: NDArray[np.float32],
    flips: NDArray[np.float32],
    flips_between: NDArray[np.float32],
    across: NDArray[np.float32],
    bits: Whole,
    stride: Whole,
    packed: NDArray[np.uint8],
) -> float:
    """Code rows, and return how far from the origin one is at most, squared.

    Args:
        metric: code.
        starts: `(n,) uint64`, the address of each row.
        dimension: numbers d in a row.
        origin: `(w,) float32`, see `sign_rows.Frame`, as those below.
        flips: `(w,) float32`.
        flips_between: `(w,) float32`.
        across: `(m, m) float32`.
        bits: of each number, 1 or 2.
        stride: bytes of a block.
        packed: flat uint8, of the blocks of all rows, written.
    """
    wide = U64(len(origin))
    moved = np.empty(wide, np.float32)
    # The edges of packed nodes are coded in the same way: a row is the edge that leads there from
    # one of zeros, which is the last here.
    rows = np.zeros((_BLOCK + U64(1)) * wide, np.float32)
    codes = np.zeros((wide >> U64(4)) * _BLOCK, np.uint32)
    halves = packed.view(np.uint16)
    longest = 0.0
    for begin in range(U64(0), U64(len(starts)), _BLOCK):
        at = begin // _BLOCK * U64(stride)
        tail = (at + U64(4) * U64(bits) * wide) >> U64(1)
        many = min(_BLOCK, U64(len(starts)) - begin)
        for i in range(many, _BLOCK):
            halves[tail + i], halves[tail + _BLOCK + i] = _NOTHING, np.uint16(0)
        for i in range(many):
            row = begin + i
            if row + _AHEAD < U64(len(starts)):
                ahead = _numbers(starts[row + _AHEAD], dimension)
                for z in range(U64(0), U64(min(dimension, 128)), U64(16)):
                    prefetch(ahead, z)
            square = 1.0
            if metric == COSINE:
                vector = _rows(starts[row], 1, dimension)
                square = dot(vector, 0, vector, 0)
            numbers = _numbers(starts[row], dimension)
            place_row(numbers, factor_of(metric, square), origin, flips, moved)
            mix(moved, flips_between, across, rows, i * wide)
            if bits == 1:
                total, factor = code_1(rows, _BLOCK * wide, i * wide, wide, codes, i)
            else:
                total, factor = code_2(rows, _BLOCK * wide, i * wide, wide, codes, i)
            # Squares that are too great for float32 are not a number in what is made of them.
            longest = max(longest, np.float64(total) if total < F32(np.inf) else np.inf)
            # A square is cut off, so that no bound is too great for it.
            halves[tail + i] = (
                U64(0) if metric == IP else U64(F32(total).view(np.uint32)) >> U64(16)
            )
            halves[tail + _BLOCK + i] = in_two_bytes(factor)
        pack_codes(codes, wide, bits, packed, at)
    return longest
