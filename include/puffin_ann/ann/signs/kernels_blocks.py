"""Rows, wherever they lie, by a bit or two of each number once they are rotated, compiled.

Each has a record: the signs of every 16 numbers in two bytes, by 2 bits with two more of which are
beyond the border, and two numbers that make a bound of them, see `kernels_nearest`. A block has the
records of 32 rows, in the order in which a scan reads them.
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from puffin_ann.ann.core.kernels_copy import AHEAD
from puffin_ann.ann.core.types import Whole
from puffin_ann.ann.signs.frame import Frame
from puffin_ann.ann.signs.kernels_codes import code_1, code_2, in_two_bytes, pack_codes
from puffin_ann.ann.signs.kernels_rotate import fill, load_floats, mix, store_floats
from puffin_ann.ann.simd.fastscan import BLOCK
from puffin_ann.ann.simd.intrinsics import numbers_at, rows_at
from puffin_ann.ann.simd.kernels_distance import COSINE, IP, dot
from puffin_ann.ann.simd.vectors import multiply_add, prefetch, subtract
from puffin_ann.numba_kernels import kernel

F32, U32, U64 = np.float32, np.uint32, np.uint64

TAIL_BYTES = 4 * BLOCK
"""Behind the codes of a block: 32 offsets and 32 factors, of two bytes."""

_NOTHING = np.uint16(0x7F80)
"""The upper half of infinity: the offset of a row that there is not."""

_SIZE = np.uint16(0x7FFF)
"""All bits but the sign."""

_BLOCK, _AHEAD, _LANES = U64(BLOCK), U64(AHEAD), U64(16)
_numbers, _rows = numbers_at(types.float32), rows_at(types.float32)
_halves, _flags = numbers_at(types.uint16), numbers_at(types.uint8)


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
def code_rows(
    metric: int,
    starts: NDArray[np.uint64],
    dimension: int,
    frame: Frame,
    bits: Whole,
    places: NDArray[np.int64],
    records: NDArray[np.uint8],
) -> None:
    """Write the record of each of some rows: its codes, its offset and its factor.

    The offset is what does not depend on the query: of a row r relative to the origin o, ‖r‖², or
    by inner product -2 · ⟨r, o⟩.

    Args:
        metric: code.
        starts: `(n,) uint64`, the address of each row.
        dimension: numbers d in a row.
        frame: to bring them into.
        bits: of each number, 1 or 2.
        places: `(n,) int64`, of each record among the records.
        records: flat uint8, of `row_codes.record_bytes` each; written at those places.
    """
    wide = U64(len(frame.origin))
    moved = np.empty(wide, np.float32)
    # The edges of packed nodes are coded in the same way: a row is the edge that leads there from
    # one of zeros, which is the last here.
    rows = np.zeros(U64(2) * wide, np.float32)
    codes = np.zeros((wide >> U64(4)) * _BLOCK, np.uint32)
    halves, length = records.view(np.uint16), (U64(bits) * wide >> U64(4)) + U64(2)
    for row in range(U64(0), U64(len(starts))):
        if row + _AHEAD < U64(len(starts)):
            ahead = _numbers(starts[row + _AHEAD], dimension)
            for z in range(U64(0), U64(min(dimension, 128)), U64(16)):
                prefetch(ahead, z)
        square = 1.0
        if metric == COSINE:
            vector = _rows(starts[row], 1, dimension)
            square = dot(vector, 0, vector, 0)
        numbers = _numbers(starts[row], dimension)
        place_row(numbers, factor_of(metric, square), frame.origin, frame.flips, moved)
        mix(moved, frame.flips_between, frame.across, rows, U64(0))
        at = U64(places[row]) * length
        if bits == 1:
            total, factor = code_1(rows, wide, U64(0), wide, codes, U64(0))
            for group in range(U64(0), wide >> U64(4)):
                halves[at + group] = codes[group * _BLOCK]
        else:
            total, factor = code_2(rows, wide, U64(0), wide, codes, U64(0))
            for group in range(U64(0), wide >> U64(4)):
                halves[at + U64(2) * group] = codes[group * _BLOCK]
                halves[at + U64(2) * group + U64(1)] = codes[group * _BLOCK] >> U64(16)
        if metric == IP:
            total = _along(numbers, frame.origin)
        halves[at + length - U64(2)] = _below(total)
        halves[at + length - U64(1)] = in_two_bytes(factor)


@kernel()
def _along(numbers: NDArray[np.float32], origin: NDArray[np.float32]) -> np.float32:
    """Return -2 · ⟨x - o, o⟩; both have zeros behind the numbers of x."""
    along = 0.0
    for z in range(len(numbers)):
        along += (np.float64(numbers[z]) - np.float64(origin[z])) * np.float64(origin[z])
    return F32(-2.0 * along)


@kernel()
def _below(number: np.float32) -> np.uint16:
    """Return the upper half of the greatest number of two bytes that is no greater: bounds hold."""
    bits = U64(F32(number).view(np.uint32))
    return np.uint16((bits + U64(0xFFFF) * (bits >> U64(31))) >> U64(16))


@kernel()
def find_records(
    starts: NDArray[np.uint64],
    arrays: NDArray[np.uint64],
    length: Whole,
    records: NDArray[np.uint64],
    missing: NDArray[np.int64],
    owners: NDArray[np.int64],
) -> int:
    """Write where the record of each row is, and which of them are still to be written.

    Args:
        starts: `(n,) uint64`, the address of each row; each is a row of one of the arrays.
        arrays: `(a, 5) uint64`, where each begins, which ascend, and ends, the bytes from a row to
            the next, where its records begin, and where the flags of the rows that have theirs.
        length: bytes of a record.
        records: `(n,) uint64`, written.
        missing: `(n,) int64`, written: ordinals in their arrays of rows whose records are missing.
        owners: `(n,) int64`, written: the numbers of these arrays.

    Returns:
        How many those are.
    """
    at, many = 0, 0
    for row in range(len(starts)):
        start = starts[row]
        if not arrays[at, 0] <= start < arrays[at, 1]:  # nor of the array of the row before
            at, end = 0, len(arrays)
            while end - at > 1:
                middle = (at + end) // 2
                if arrays[middle, 0] <= start:
                    at = middle
                else:
                    end = middle
        ordinal = (start - arrays[at, 0]) // arrays[at, 2]
        records[row] = arrays[at, 3] + ordinal * U64(length)
        if _flags(arrays[at, 4] + ordinal, 1)[0] == 0:
            missing[many], owners[many] = ordinal, at
            many += 1
    return many


@kernel(allocates=True)
def pack_blocks(
    metric: int,
    records: NDArray[np.uint64],
    wide: Whole,
    bits: Whole,
    stride: Whole,
    packed: NDArray[np.uint8],
) -> float:
    """Put the records of rows into blocks, and return how far one is from the origin at most.

    Args:
        metric: code.
        records: `(n,) uint64`, the address of each, see `code_rows`.
        wide: w.
        bits: of each number, 1 or 2.
        stride: bytes of a block.
        packed: flat uint8, of the blocks of all rows, written.

    Returns:
        What no distance from the origin, squared, is more than; infinity if one is too great for
        float32.
    """
    groups = U64(wide) >> U64(4)
    codes = np.zeros(groups * _BLOCK, np.uint32)
    halves, length = packed.view(np.uint16), U64(bits) * groups + U64(2)
    greatest = np.uint16(0)
    for begin in range(U64(0), U64(len(records)), _BLOCK):
        at = begin // _BLOCK * U64(stride)
        tail = (at + U64(4) * U64(bits) * U64(wide)) >> U64(1)
        many = min(_BLOCK, U64(len(records)) - begin)
        for i in range(many, _BLOCK):
            halves[tail + i], halves[tail + _BLOCK + i] = _NOTHING, np.uint16(0)
        for i in range(many):
            row = begin + i
            if row + _AHEAD < U64(len(records)):
                ahead = _halves(records[row + _AHEAD], length)
                for z in range(U64(0), length, _LANES):
                    prefetch(ahead, z)
            record = _halves(records[row], length)
            if bits == 1:
                for group in range(groups):
                    codes[group * _BLOCK + i] = record[group]
            else:
                for group in range(groups):
                    outer = U32(record[U64(2) * group + U64(1)])
                    codes[group * _BLOCK + i] = U32(record[U64(2) * group]) | outer << U32(16)
            halves[tail + i] = record[length - U64(2)]
            halves[tail + _BLOCK + i] = record[length - U64(1)]
            greatest = max(greatest, record[length - U64(1 if metric == IP else 2)] & _SIZE)
        pack_codes(codes, wide, bits, packed, at)
    if greatest >= _NOTHING:
        return np.inf
    most = np.float64(U32(U32(greatest + U64(1)) << U32(16)).view(np.float32))
    # A factor is -2 · ‖r‖² / ⟨u, r⟩, and ⟨u, r⟩ at most `OUTER` · √w · ‖r‖: ‖r‖² is less than this.
    return most * most * np.float64(wide) if metric == IP else most
