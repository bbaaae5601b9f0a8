"""Products of a block of rows and queries by their codes, and which rows these do not rule out."""

import numpy as np

from puffin_ann.ann.exact.kernels_coding import BLOCK
from puffin_ann.ann.simd.kernels_byte_rows import MIDDLE
from puffin_ann.ann.simd.vectors import (
    F32X16,
    LEVEL,
    U8X64,
    U32X16,
    add,
    add_dot_of_bytes,
    bits_as,
    both,
    fill_of,
    floats_of,
    less_mask,
    load_of,
    multiply_add,
    right_by,
    store_of,
)
from puffin_ann.numba_kernels import inlined

F32, U32, U64 = np.float32, np.uint32, np.uint64

TILE = 8
"""Queries that are multiplied with a block at once, while its rows are in registers."""

PRODUCTS = BLOCK * TILE
"""Products that are written at once."""

HAS_DOTS = LEVEL == "vbmi"
"""Whether this machine multiplies bytes: many queries, too, are answered sooner by codes."""

_load_codes, _fill_word, _next_byte = load_of(U32X16), fill_of(U32X16), right_by(8)
_fill, _store = fill_of(F32X16), store_of(F32X16)
_as_bytes, _as_numbers = bits_as(U8X64), floats_of(F32X16)
_BLOCK = U64(BLOCK)


@inlined
def _near(products, measures, lines, i):  # type: ignore[no-untyped-def]
    """Return bits of the rows of a block that a query's line does not rule out."""
    at = U64(3) * U64(i)
    low = multiply_add(_fill(lines[at]), measures, _fill(F32(0)))
    low = multiply_add(_fill(lines[at + U64(1)]), products, low)
    return less_mask(low, _fill(lines[at + U64(2)]))


@inlined
def _by_floats(codes, at, groups, words, starts, i):  # type: ignore[no-untyped-def]
    """Return the sums of products of the codes of a block and a query, on any machine."""
    total, low = _fill(F32(0)), _fill_word(U32(255))
    minus = _fill(F32(-MIDDLE))
    for z in range(groups):
        line, word = _load_codes(codes, at + z * _BLOCK), words[i * groups + z]
        for _ in range(4):
            number = F32(np.int8(word & U32(255)))
            code = add(_as_numbers(both(line, low)), minus)
            total = multiply_add(code, _fill(number), total)
            line, word = _next_byte(line), word >> U32(8)
    return total


@inlined
def _by_dots(codes, at, groups, words, starts, i):  # type: ignore[no-untyped-def]
    """Return the same; two sums, since each waits for what was added to it before."""
    first = i * groups
    one, other = _fill_word(starts[i]), _fill_word(U32(0))
    pairs = groups >> U64(1)
    for pair in range(pairs):
        z = U64(2) * pair
        line = _as_bytes(_load_codes(codes, at + z * _BLOCK))
        one = add_dot_of_bytes(one, line, _as_bytes(_fill_word(words[first + z])))
        line = _as_bytes(_load_codes(codes, at + (z + U64(1)) * _BLOCK))
        other = add_dot_of_bytes(other, line, _as_bytes(_fill_word(words[first + z + U64(1)])))
    if groups & U64(1):
        z = groups - U64(1)
        line = _as_bytes(_load_codes(codes, at + z * _BLOCK))
        one = add_dot_of_bytes(one, line, _as_bytes(_fill_word(words[first + z])))
    return _as_numbers(add(one, other))


@inlined
def _multiply_each(codes, at, groups, words, starts, i, many, steps, measures, lines, out):  # type: ignore[no-untyped-def]
    """Write the products of a block and some queries, without their steps, one after the other.

    Returns:
        Bits of the rows that may be near, sixteen of each query: of the first four, and of others.
    """
    low = high = U64(0)
    for place in range(U64(many)):
        found = _sums(codes, at, groups, words, starts, i + place)
        found = multiply_add(found, steps, _fill(F32(0)))
        _store(out, place * _BLOCK, found)
        near = _near(found, measures, lines, i + place)
        if place < U64(4):
            low |= near << (place * _BLOCK)
        else:
            high |= near << ((place - U64(4)) * _BLOCK)
    return low, high


@inlined
def _multiply_eight(codes, at, groups, words, starts, i, many, steps, measures, lines, out):  # type: ignore[no-untyped-def]
    """Write the same of eight queries at once; what is beyond `many` of them means nothing."""
    if many < 3:
        return _multiply_each(
            codes, at, groups, words, starts, i, many, steps, measures, lines, out
        )
    nothing = _fill(F32(0))
    p0 = i * groups
    p1, p2, p3 = p0 + groups, p0 + U64(2) * groups, p0 + U64(3) * groups
    p4, p5 = p0 + U64(4) * groups, p0 + U64(5) * groups
    p6, p7 = p0 + U64(6) * groups, p0 + U64(7) * groups
    a0, a1 = _fill_word(starts[i]), _fill_word(starts[i + U64(1)])
    a2, a3 = _fill_word(starts[i + U64(2)]), _fill_word(starts[i + U64(3)])
    a4, a5 = _fill_word(starts[i + U64(4)]), _fill_word(starts[i + U64(5)])
    a6, a7 = _fill_word(starts[i + U64(6)]), _fill_word(starts[i + U64(7)])
    for z in range(groups):
        line = _as_bytes(_load_codes(codes, at + z * _BLOCK))
        a0 = add_dot_of_bytes(a0, line, _as_bytes(_fill_word(words[p0 + z])))
        a1 = add_dot_of_bytes(a1, line, _as_bytes(_fill_word(words[p1 + z])))
        a2 = add_dot_of_bytes(a2, line, _as_bytes(_fill_word(words[p2 + z])))
        a3 = add_dot_of_bytes(a3, line, _as_bytes(_fill_word(words[p3 + z])))
        a4 = add_dot_of_bytes(a4, line, _as_bytes(_fill_word(words[p4 + z])))
        a5 = add_dot_of_bytes(a5, line, _as_bytes(_fill_word(words[p5 + z])))
        a6 = add_dot_of_bytes(a6, line, _as_bytes(_fill_word(words[p6 + z])))
        a7 = add_dot_of_bytes(a7, line, _as_bytes(_fill_word(words[p7 + z])))
    f0 = multiply_add(_as_numbers(a0), steps, nothing)
    f1 = multiply_add(_as_numbers(a1), steps, nothing)
    f2 = multiply_add(_as_numbers(a2), steps, nothing)
    f3 = multiply_add(_as_numbers(a3), steps, nothing)
    f4 = multiply_add(_as_numbers(a4), steps, nothing)
    f5 = multiply_add(_as_numbers(a5), steps, nothing)
    f6 = multiply_add(_as_numbers(a6), steps, nothing)
    f7 = multiply_add(_as_numbers(a7), steps, nothing)
    low = _near(f0, measures, lines, i)
    low |= _near(f1, measures, lines, i + U64(1)) << U64(16)
    low |= _near(f2, measures, lines, i + U64(2)) << U64(32)
    low |= _near(f3, measures, lines, i + U64(3)) << U64(48)
    high = _near(f4, measures, lines, i + U64(4))
    high |= _near(f5, measures, lines, i + U64(5)) << U64(16)
    high |= _near(f6, measures, lines, i + U64(6)) << U64(32)
    high |= _near(f7, measures, lines, i + U64(7)) << U64(48)
    if low | high:
        _store(out, U64(0), f0)
        _store(out, U64(16), f1)
        _store(out, U64(32), f2)
        _store(out, U64(48), f3)
        _store(out, U64(64), f4)
        _store(out, U64(80), f5)
        _store(out, U64(96), f6)
        _store(out, U64(112), f7)
    return low, high


_sums = _by_dots if HAS_DOTS else _by_floats
multiply = _multiply_eight if HAS_DOTS else _multiply_each
