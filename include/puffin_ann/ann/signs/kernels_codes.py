"""Rows by the sign of each of their numbers, or by two bits a number, compiled.

See `vamana.packed.layout` for the sums.
"""

import math

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.types import Whole
from puffin_ann.ann.simd.fastscan import BLOCK, GROUP_BYTES, ORDER
from puffin_ann.ann.simd.vectors import (
    F32X16,
    U8X16,
    U16X16,
    U32X16,
    add,
    bits_as,
    both,
    either,
    fill_of,
    left_by,
    less_mask,
    load_of,
    multiply_add,
    narrowed_to,
    right_by,
    store_of,
    subtract,
    sum_of,
    where_less,
    widened_to,
)
from puffin_ann.numba_kernels import inlined, kernel

F32, U64 = np.float32, np.uint64

INNER, OUTER, BORDER = np.float32(0.4528), np.float32(1.5104), np.float32(0.9816)
"""The best four levels for a normal distribution, and the border between two (Max, 1960)."""

U32 = np.uint32
_BY_ROWS = ORDER == "rows"
_LANES = np.uint64(16)

load_floats, fill = load_of(F32X16), fill_of(F32X16)
_load_codes, _store_codes = load_of(U32X16), store_of(U32X16)
_store_bytes, _bytes = store_of(U8X16), narrowed_to(U8X16)
_fill_codes = fill_of(U32X16)
_left_2, _left_4, _left_8 = left_by(2), left_by(4), left_by(8)
_load_halves, _widen, _upper = load_of(U16X16), widened_to(U32X16), left_by(16)
_as_floats = bits_as(F32X16)
_right_8, _right_14, _right_16, _right_24 = right_by(8), right_by(14), right_by(16), right_by(24)


@inlined
def _size(edge):  # type: ignore[no-untyped-def]
    nothing = fill(F32(0))
    return where_less(nothing, edge, edge, subtract(nothing, edge))


@inlined
def _as_signed(edge, value):  # type: ignore[no-untyped-def]
    """Return the value where an edge is positive, its negative elsewhere."""
    nothing = fill(F32(0))
    return where_less(nothing, edge, value, subtract(nothing, value))


@kernel()
def code_1(
    rows: NDArray[np.float32],
    own: Whole,
    other: Whole,
    dim: Whole,
    codes: NDArray[np.uint32],
    place: Whole,
) -> tuple[np.float32, np.float32]:
    """Write the sign of an edge in each dimension; return its sum and its factor.

    Those are ‖r‖² + 2f·⟨u, c⟩ and -2f. The signs of 16 dimensions are the lower half of a number;
    the others of the block are between it and that of the next dimensions, see `pack_codes`.
    """
    nothing = fill(F32(0))
    square = along = beside = nothing
    for group in range(U64(dim) >> U64(4)):
        center = load_floats(rows, U64(own) + group * _LANES)
        edge = subtract(load_floats(rows, U64(other) + group * _LANES), center)
        codes[group * U64(BLOCK) + place] = less_mask(nothing, edge)
        square = multiply_add(edge, edge, square)
        along = add(along, _size(edge))
        beside = add(beside, _as_signed(edge, center))
    total = sum_of(square)
    factor = F32(2) * total / max(sum_of(along), F32(1e-30))
    return total + factor * sum_of(beside), -factor


@kernel()
def code_2(
    rows: NDArray[np.float32],
    own: Whole,
    other: Whole,
    dim: Whole,
    codes: NDArray[np.uint32],
    place: Whole,
) -> tuple[np.float32, np.float32]:
    """Do what `code_1` does, with a second bit: whether a number is beyond the border.

    That of 16 dimensions is the upper half.
    """
    nothing = fill(F32(0))
    square = nothing
    for z in range(U64(0), U64(dim), _LANES):
        edge = subtract(load_floats(rows, U64(other) + z), load_floats(rows, U64(own) + z))
        square = multiply_add(edge, edge, square)
    total = sum_of(square)
    border = fill(BORDER * F32(math.sqrt(total / F32(dim))))
    along = beside = nothing
    for group in range(U64(dim) >> U64(4)):
        center = load_floats(rows, U64(own) + group * _LANES)
        edge = subtract(load_floats(rows, U64(other) + group * _LANES), center)
        size = _size(edge)
        level = where_less(border, size, fill(OUTER), fill(INNER))
        along = multiply_add(size, level, along)
        beside = multiply_add(_as_signed(edge, center), level, beside)
        signs, outer = less_mask(nothing, edge), less_mask(border, size)
        codes[group * U64(BLOCK) + place] = signs | outer << U64(16)
    factor = F32(2) * total / max(sum_of(along), F32(1e-30))
    return total + factor * sum_of(beside), -factor


@inlined
def _in_pairs(codes):  # type: ignore[no-untyped-def]
    """Return the codes of 8 numbers, 4 bits for each two of them: their signs, then beyond or not.

    Args:
        codes: 8 signs from bit 0 on, and the others from bit 16 on; the rest is zeros.
    """
    codes = both(either(codes, _left_4(codes)), _fill_codes(U32(0x0F0F0F0F)))
    codes = both(either(codes, _left_2(codes)), _fill_codes(U32(0x33333333)))
    return both(either(codes, _right_14(codes)), _fill_codes(U32(0xFFFF)))


@inlined
def _apart(codes):  # type: ignore[no-untyped-def]
    """Return four codes of 4 bits, each in the lower half of a byte."""
    codes = both(either(codes, _left_8(codes)), _fill_codes(U32(0x00FF00FF)))
    return both(either(codes, _left_4(codes)), _fill_codes(U32(0x0F0F0F0F)))


@inlined
def _write_group(first, second, packed, at):  # type: ignore[no-untyped-def]
    """Write 64 bytes: the codes of the first 16 rows in the lower halves, and of the others."""
    four = either(_apart(first), _left_4(_apart(second)))
    if _BY_ROWS:
        _store_codes(packed, at, four)
    else:
        _store_bytes(packed, at, _bytes(four))
        _store_bytes(packed, at + _LANES, _bytes(_right_8(four)))
        _store_bytes(packed, at + U64(2) * _LANES, _bytes(_right_16(four)))
        _store_bytes(packed, at + U64(3) * _LANES, _bytes(_right_24(four)))


@kernel()
def pack_codes(
    codes: NDArray[np.uint32], dim: Whole, bits: Whole, packed: NDArray[np.uint8], at: Whole
) -> None:
    """Write the codes of a block in this machine's order (see `fastscan`).

    Args:
        codes: flat `(w / 16, 32) uint32`, of each 16 dimensions those of all rows side by side.
        dim: w.
        bits: of each dimension.
        packed: flat uint8, written.
        at: place of the first byte.
    """
    at, low = U64(at), _fill_codes(U32(0x00FF00FF))
    for begin in range(U64(0), U64(dim) * U64(2), U64(BLOCK)):
        first, second = _load_codes(codes, begin), _load_codes(codes, begin + _LANES)
        if bits == 1:
            _write_group(first, second, packed, at)
            at += U64(GROUP_BYTES)
            continue
        _write_group(_in_pairs(both(first, low)), _in_pairs(both(second, low)), packed, at)
        first, second = both(_right_8(first), low), both(_right_8(second), low)
        _write_group(_in_pairs(first), _in_pairs(second), packed, at + U64(GROUP_BYTES))
        at += U64(2 * GROUP_BYTES)


@inlined
def in_two_bytes(value):  # type: ignore[no-untyped-def]
    """Return the upper half of a float32, rounded to the nearest."""
    bits = U64(F32(value).view(np.uint32))
    return (bits + U64(0x7FFF) + (bits >> U64(16) & U64(1))) >> U64(16)


@inlined
def from_halves(packed, at):  # type: ignore[no-untyped-def]
    """Return 16 numbers of which the upper halves, as float32, are stored."""
    return _as_floats(_upper(_widen(_load_halves(packed, at))))
