"""Rows by a byte a number: a quarter of the memory, to tell which of them may be the nearest.

A number is its code, less `MIDDLE`, times the step of its row. What that lacks is perpendicular to
nearly everything, so its square is taken off squared distances.
"""

import numpy as np

from puffin_ann.ann.simd.vectors import (
    F32X16,
    U8X16,
    U32X16,
    add,
    bytes_of,
    fill_of,
    floats_of,
    greatest_of,
    load_of,
    multiply_add,
    store_of,
    subtract,
    sum_of,
    where_less,
    widened_to,
)
from puffin_ann.numba_kernels import inlined

MIDDLE = 128
"""The code of zero."""

U64, F32 = np.uint64, np.float32
_LANES = np.uint64(16)
_load, _fill = load_of(F32X16), fill_of(F32X16)
_store_bytes, _to_bytes = store_of(U8X16), bytes_of(U8X16)
_load_bytes, _widen, _as_numbers = load_of(U8X16), widened_to(U32X16), floats_of(F32X16)


@inlined
def write_byte_row(row, begin, dimension, out, at):  # type: ignore[no-untyped-def]
    """Write the codes of a row; return its step, and the square of what they lack.

    Args:
        row: flat float32, finite.
        begin: where the row begins in it.
        dimension: of the row, a multiple of 16.
        out: flat uint8, written.
        at: offset in it.
    """
    nothing = _fill(F32(0))
    widest = nothing
    for z in range(U64(0), U64(dimension), _LANES):
        line = _load(row, U64(begin) + z)
        size = where_less(nothing, line, line, subtract(nothing, line))
        widest = where_less(widest, size, size, widest)
    step = max(greatest_of(widest), F32(1e-30)) / F32(MIDDLE - 1)
    inverse, minus = _fill(F32(1) / step), _fill(-step)
    middle, rounding = _fill(F32(-MIDDLE)), _fill(F32(MIDDLE + 0.5))
    squares = nothing
    for z in range(U64(0), U64(dimension), _LANES):
        line = _load(row, U64(begin) + z)
        codes = _to_bytes(multiply_add(line, inverse, rounding))
        _store_bytes(out, U64(at) + z, codes)
        rest = multiply_add(add(_as_numbers(_widen(codes)), middle), minus, line)
        squares = multiply_add(rest, rest, squares)
    return step, sum_of(squares)


@inlined
def squared_by_bytes(packed, at, step, asked):  # type: ignore[no-untyped-def]
    """Return the squared distance of a row, by its codes, and a query of 16 numbers or more."""
    minus, middle = _fill(-step), _fill(step * F32(MIDDLE))
    one = other = _fill(F32(0))
    dimension = U64(len(asked))
    pairs = dimension >> U64(5)
    for i in range(pairs):
        z = i * U64(32)
        left = _as_numbers(_widen(_load_bytes(packed, at + z)))
        right = _as_numbers(_widen(_load_bytes(packed, at + z + _LANES)))
        left = multiply_add(left, minus, add(_load(asked, z), middle))
        right = multiply_add(right, minus, add(_load(asked, z + _LANES), middle))
        one = multiply_add(left, left, one)
        other = multiply_add(right, right, other)
    if dimension & _LANES:
        z = pairs * U64(32)
        left = _as_numbers(_widen(_load_bytes(packed, at + z)))
        left = multiply_add(left, minus, add(_load(asked, z), middle))
        one = multiply_add(left, left, one)
    return sum_of(add(one, other))


@inlined
def product_by_bytes(packed, at, step, asked):  # type: ignore[no-untyped-def]
    """Return the inner product of a row, by its codes, and a query of 16 numbers or more."""
    minus = _fill(F32(-MIDDLE))
    total = _fill(F32(0))
    for z in range(U64(0), U64(len(asked)), _LANES):
        line = add(_as_numbers(_widen(_load_bytes(packed, at + z))), minus)
        total = multiply_add(line, _load(asked, z), total)
    return step * sum_of(total)
