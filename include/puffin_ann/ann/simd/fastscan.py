"""Fast scan: sums of table entries chosen by 4-bit codes, 32 rows at a time, by byte shuffles.

Each row has m codes, and each query a table of sixteen bytes for every one of them; the result is,
for each row, the sum of the m bytes its codes choose. A table fits a register, so a shuffle
looks up many codes at once (André et al., "Cache locality is not enough", VLDB 2015; faiss calls
it fast scan).

Rows are stored in blocks of 32. Four codes of each row of a block are 64 bytes, and each byte holds
the code of a row and, in its high half, that of the row 16 further on. Two orders of those bytes:

- `"rows"`: byte 4·v + s has code s of row v. One shuffle looks up all four codes, and a dot product
  of bytes adds them up (AVX-512 VBMI and VNNI).
- `"codes"`: byte 16·s + v has it. Shuffles look up each code in its own sixteen bytes; sums are of
  16 bits, and are carried into wider ones before they could overflow.

Blobs know neither order: `pack` makes that of this machine when a shard is opened.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.simd.vectors import (
    F32X16,
    LEVEL,
    U8X16,
    U8X32,
    U8X64,
    U16X8,
    U16X16,
    U32X16,
    add,
    add_dot_of_bytes,
    bits_as,
    both,
    bytes_of,
    constant_of,
    either,
    fill_of,
    floats_of,
    greatest_of,
    interleaved_to,
    least_of,
    left_by,
    load_of,
    look_up_16,
    look_up_64,
    look_up_halves,
    multiply_add,
    part_of,
    right_by,
    store_of,
    subtract,
    widened_to,
)
from puffin_ann.kernel_cache.simd_levels import SimdLevel
from puffin_ann.numba_kernels import inlined, kernel

Order = Literal["rows", "codes"]

BLOCK = 32
"""Rows in a block."""
GROUP = 4
"""Codes in a group."""
GROUP_BYTES = 64
WORDS = 16
"""Entries of a table: a code has 4 bits."""

ORDERS: Mapping[SimdLevel, Order] = {"vbmi": "rows", "avx2": "codes", "portable": "codes"}
ORDER = ORDERS[LEVEL]
"""That of this machine."""

U64, F32 = np.uint64, np.float32
_SAFE_GROUPS = np.uint64(64)
"""256 bytes add up to less than 2¹⁶: so many groups go into sums of 16 bits."""

_load_16, _load_32, _load_64 = load_of(U8X16), load_of(U8X32), load_of(U8X64)
_load_floats, _store_floats, _store_bytes = load_of(F32X16), store_of(F32X16), store_of(U8X16)
_fill_16, _fill_32, _fill_64 = fill_of(U8X16), fill_of(U8X32), fill_of(U8X64)
_fill_u16, _fill_u32, _fill_floats = fill_of(U16X16), fill_of(U32X16), fill_of(F32X16)
_as_bytes_32, _as_bytes_64 = bits_as(U8X32), bits_as(U8X64)
_as_u16, _as_u32 = bits_as(U16X16), bits_as(U32X16)
_widen_bytes, _widen_u16, _floats = widened_to(U16X16), widened_to(U32X16), floats_of(F32X16)
_right_4, _right_8, _left_8 = right_by(4), right_by(8), left_by(8)
_low_half, _high_half, _interleave = part_of(U16X8, 0), part_of(U16X8, 8), interleaved_to(U16X16)
_which_code = constant_of(U8X64, [16 * (i % 4) for i in range(64)])
_to_bytes = bytes_of(U8X16)


def groups_of(codes: int) -> int:
    """Return the groups that so many codes of a row take."""
    return -(-codes // GROUP)


def pack(codes: NDArray[np.uint8], order: Order = ORDER) -> NDArray[np.uint8]:
    """Return codes as a scan reads them.

    Args:
        codes: `(n, m) uint8`, each below 16.
        order: of the bytes in a group.

    Returns:
        `(blocks, groups, 64) uint8`; rows and codes that fill up the last ones are 0.
    """
    rows, count = codes.shape
    blocks, groups = -(-rows // BLOCK), groups_of(count)
    whole = np.zeros((blocks * BLOCK, groups * GROUP), np.uint8)
    whole[:rows, :count] = codes
    halves = whole.reshape(blocks, 2, BLOCK // 2, groups, GROUP)
    joined = halves[:, 0] | halves[:, 1] << 4
    axes = (0, 2, 1, 3) if order == "rows" else (0, 2, 3, 1)
    return np.ascontiguousarray(joined.transpose(axes)).reshape(blocks, groups, GROUP_BYTES)


@inlined
def _with_group(codes, at, tables, offset, first, second):  # type: ignore[no-untyped-def]
    """Return sums with those of one group of codes more, of rows from 0 and from 16 on."""
    low, ones, which = _fill_64(np.uint8(15)), _fill_64(np.uint8(1)), _which_code()
    pair = _load_64(codes, U64(at) + offset)
    table = _load_64(tables, offset)
    found = look_up_64(table, either(both(pair, low), which))
    first = add_dot_of_bytes(first, found, ones)
    pair = _as_bytes_64(_right_4(_as_u32(pair)))
    found = look_up_64(table, either(both(pair, low), which))
    return first, add_dot_of_bytes(second, found, ones)


@inlined
def _sums_vbmi(codes, at, tables, groups):  # type: ignore[no-untyped-def]
    # A dot product waits for the sum that it adds to, four cycles or five: two groups at a time,
    # each with sums of its own, wait together.
    first = _fill_u32(np.uint32(0))
    second, third, fourth = first, first, first
    end = U64(groups) * U64(GROUP_BYTES)
    even = end & ~U64(2 * GROUP_BYTES - 1)
    for offset in range(U64(0), even, U64(2 * GROUP_BYTES)):
        first, second = _with_group(codes, at, tables, offset, first, second)
        following = offset + U64(GROUP_BYTES)
        third, fourth = _with_group(codes, at, tables, following, third, fourth)
    if even != end:
        first, second = _with_group(codes, at, tables, even, first, second)
    return _floats(add(first, third)), _floats(add(second, fourth))


@inlined
def _two_with_group(codes, at, tables_1, tables_2, offset, a, b, c, d):  # type: ignore[no-untyped-def]
    """As `_with_group` for two queries."""
    low, ones, which = _fill_64(np.uint8(15)), _fill_64(np.uint8(1)), _which_code()
    pair = _load_64(codes, U64(at) + offset)
    table_1, table_2 = _load_64(tables_1, offset), _load_64(tables_2, offset)
    places = either(both(pair, low), which)
    a = add_dot_of_bytes(a, look_up_64(table_1, places), ones)
    c = add_dot_of_bytes(c, look_up_64(table_2, places), ones)
    places = either(both(_as_bytes_64(_right_4(_as_u32(pair))), low), which)
    b = add_dot_of_bytes(b, look_up_64(table_1, places), ones)
    return a, b, c, add_dot_of_bytes(d, look_up_64(table_2, places), ones)


@inlined
def _sums_of_two_vbmi(codes, at, tables_1, tables_2, groups):  # type: ignore[no-untyped-def]
    a = _fill_u32(np.uint32(0))
    b, c, d = a, a, a
    for offset in range(U64(0), U64(groups) * U64(GROUP_BYTES), U64(GROUP_BYTES)):
        a, b, c, d = _two_with_group(codes, at, tables_1, tables_2, offset, a, b, c, d)
    return _floats(a), _floats(b), _floats(c), _floats(d)


@inlined
def _sums_avx2(codes, at, tables, groups):  # type: ignore[no-untyped-def]
    # Pairs of bytes are added as one number of 16 bits, and their high bytes once more alone; what
    # the high ones have put into the sum is taken off at the end. So nothing is masked in the loop.
    total_1 = _fill_floats(F32(0))
    total_2 = total_1
    low = _fill_32(np.uint8(15))
    for begin in range(U64(0), U64(groups), _SAFE_GROUPS):
        end = min(begin + _SAFE_GROUPS, U64(groups))
        zero = _fill_u16(np.uint16(0))
        both_1, both_2, high_1, high_2 = zero, zero, zero, zero
        for offset in range(begin * U64(GROUP_BYTES), end * U64(GROUP_BYTES), U64(32)):
            pair = _load_32(codes, U64(at) + offset)
            table = _load_32(tables, offset)
            found = _as_u16(look_up_halves(table, both(pair, low)))
            both_1 = add(both_1, found)
            high_1 = add(high_1, _right_8(found))
            pair = _as_bytes_32(_right_4(_as_u16(pair)))
            found = _as_u16(look_up_halves(table, both(pair, low)))
            both_2 = add(both_2, found)
            high_2 = add(high_2, _right_8(found))
        total_1 = add(total_1, _lanes_in_order(subtract(both_1, _left_8(high_1)), high_1))
        total_2 = add(total_2, _lanes_in_order(subtract(both_2, _left_8(high_2)), high_2))
    return total_1, total_2


@inlined
def _sums_of_two_avx2(codes, at, tables_1, tables_2, groups):  # type: ignore[no-untyped-def]
    zero = _fill_floats(F32(0))
    total_1, total_2, total_3, total_4 = zero, zero, zero, zero
    low = _fill_32(np.uint8(15))
    for begin in range(U64(0), U64(groups), _SAFE_GROUPS):
        end = min(begin + _SAFE_GROUPS, U64(groups))
        none = _fill_u16(np.uint16(0))
        both_1, both_2, high_1, high_2 = none, none, none, none
        both_3, both_4, high_3, high_4 = none, none, none, none
        for offset in range(begin * U64(GROUP_BYTES), end * U64(GROUP_BYTES), U64(32)):
            pair = _load_32(codes, U64(at) + offset)
            table_1, table_2 = _load_32(tables_1, offset), _load_32(tables_2, offset)
            places = both(pair, low)
            found = _as_u16(look_up_halves(table_1, places))
            both_1, high_1 = add(both_1, found), add(high_1, _right_8(found))
            found = _as_u16(look_up_halves(table_2, places))
            both_3, high_3 = add(both_3, found), add(high_3, _right_8(found))
            places = both(_as_bytes_32(_right_4(_as_u16(pair))), low)
            found = _as_u16(look_up_halves(table_1, places))
            both_2, high_2 = add(both_2, found), add(high_2, _right_8(found))
            found = _as_u16(look_up_halves(table_2, places))
            both_4, high_4 = add(both_4, found), add(high_4, _right_8(found))
        total_1 = add(total_1, _lanes_in_order(subtract(both_1, _left_8(high_1)), high_1))
        total_2 = add(total_2, _lanes_in_order(subtract(both_2, _left_8(high_2)), high_2))
        total_3 = add(total_3, _lanes_in_order(subtract(both_3, _left_8(high_3)), high_3))
        total_4 = add(total_4, _lanes_in_order(subtract(both_4, _left_8(high_4)), high_4))
    return total_1, total_2, total_3, total_4


@inlined
def _lanes_in_order(even, odd):  # type: ignore[no-untyped-def]
    """Return f32x16 sums of 16 rows; both halves of the arguments are of the same rows."""
    even = add(_low_half(even), _high_half(even))
    odd = add(_low_half(odd), _high_half(odd))
    return _floats(_widen_u16(_interleave(even, odd)))


@inlined
def _sums_portable(codes, at, tables, groups):  # type: ignore[no-untyped-def]
    total_1 = _fill_floats(F32(0))
    total_2 = total_1
    for begin in range(U64(0), U64(groups), _SAFE_GROUPS):
        end = min(begin + _SAFE_GROUPS, U64(groups))
        sums_1 = _fill_u16(np.uint16(0))
        sums_2 = sums_1
        for offset in range(begin * U64(GROUP_BYTES), end * U64(GROUP_BYTES), U64(16)):
            pair = _load_16(codes, U64(at) + offset)
            table = _load_16(tables, offset)
            sums_1 = add(sums_1, _widen_bytes(look_up_16(table, pair)))
            sums_2 = add(sums_2, _widen_bytes(look_up_16(table, _right_4(pair))))
        total_1 = add(total_1, _floats(_widen_u16(sums_1)))
        total_2 = add(total_2, _floats(_widen_u16(sums_2)))
    return total_1, total_2


@inlined
def _sums_of_two_portable(codes, at, tables_1, tables_2, groups):  # type: ignore[no-untyped-def]
    first, second = _sums_portable(codes, at, tables_1, groups)
    third, fourth = _sums_portable(codes, at, tables_2, groups)
    return first, second, third, fourth


SUMS: Mapping[SimdLevel, Any] = {
    "vbmi": _sums_vbmi,
    "avx2": _sums_avx2,
    "portable": _sums_portable,
}
"""By level: `sums(codes, at, tables, groups)` of one block, as two f32x16 (its rows from 0 and from
16 on).

`codes` and `tables` are flat uint8 arrays, `at` is where the block begins in the first; `tables`
is `(4 · groups, 16)`, where those that fill up the last group are 0. Exact on every level: sums
are whole numbers below 2²⁴.
"""

SUMS_OF_TWO: Mapping[SimdLevel, Any] = {
    "vbmi": _sums_of_two_vbmi,
    "avx2": _sums_of_two_avx2,
    "portable": _sums_of_two_portable,
}
"""By level: the same by the tables of two queries, `sums(codes, at, tables_1, tables_2, groups)`:
what codes are taken apart by is done once."""

block_sums, block_sums_of_two = SUMS[LEVEL], SUMS_OF_TWO[LEVEL]


@kernel()
def quantise_tables(query, words, width, offsets, count, floats, tables):  # type: ignore[no-untyped-def]
    """Write a query's tables in bytes; return scale and shift.

    Of a row x, shift + scale · sum is about −2⟨q, x⟩. Both are not a number where float32 does not
    hold such products: nothing is nearer than that.

    Args:
        query: `(d + w,) float32`, finite, zeros from d on.
        words: flat `(m, w, 16) float32`, 0 beyond the width of a sub-space.
        width: w, dimensions of the widest sub-space.
        offsets: `(m + 1,) uint32`, where each sub-space begins.
        count: m.
        floats: `(16 · m,) float32`, scratch.
        tables: `(64 · groups,) uint8`, written up to 16 · m.
    """
    widest = F32(0)
    shift = F32(0)
    for j in range(U64(count)):
        line = _fill_floats(F32(0))
        for z in range(U64(width)):
            value = F32(-2) * query[U64(offsets[j]) + z]
            word = _load_floats(words, (j * U64(width) + z) * U64(WORDS))
            line = multiply_add(_fill_floats(value), word, line)
        least = least_of(line)
        widest = max(widest, greatest_of(line) - least)
        shift += least
        _store_floats(floats, j * U64(WORDS), subtract(line, _fill_floats(least)))
    if not (widest < F32(np.inf) and abs(shift) < F32(np.inf)):
        return F32(np.nan), F32(np.nan)
    factor = F32(255) / max(widest, F32(1e-30))
    for j in range(U64(count)):
        line = _load_floats(floats, j * U64(WORDS))
        scaled = multiply_add(line, _fill_floats(factor), _fill_floats(F32(0.5)))
        _store_bytes(tables, j * U64(WORDS), _to_bytes(scaled))
    return F32(1) / factor, shift
