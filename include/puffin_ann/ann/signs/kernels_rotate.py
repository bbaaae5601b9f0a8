"""Rotating rows, so that what their codes lack has no direction that any row prefers, compiled.

Two rotations are offered. `rotate` multiplies by dense matrices. `mix` is for rows that are coded
whenever somebody asks: it takes time in proportion to the numbers, nearly.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.types import Whole
from puffin_ann.ann.simd.vectors import (
    F32X16,
    add,
    constant_of,
    fill_of,
    load_of,
    multiply_add,
    store_of,
    subtract,
    swapped_by,
)
from puffin_ann.numba_kernels import inlined, kernel

F32, U64 = np.float32, np.uint64

_LANES = np.uint64(16)
_AT_ONCE = np.uint64(4)

load_floats, store_floats = load_of(F32X16), store_of(F32X16)
fill = fill_of(F32X16)


def _signs_of(distance: int) -> Any:
    return constant_of(F32X16, [-1.0 if lane & distance else 1.0 for lane in range(16)])


_signs_1, _signs_2, _signs_4, _signs_8 = (_signs_of(distance) for distance in (1, 2, 4, 8))
_swapped_1, _swapped_2, _swapped_4, _swapped_8 = (swapped_by(distance) for distance in (1, 2, 4, 8))


@kernel()
def multiply_lines(
    left: NDArray[np.float32],
    width: Whole,
    right: NDArray[np.float32],
    out: NDArray[np.float32],
    at: Whole,
) -> None:
    """Write the product of a flat `(v, width)` and a flat `(width, 16)` matrix, from `at` on.

    Four lines at a time: one alone would wait for each of its sums.
    """
    lines = U64(len(left)) // width
    whole = lines - lines % _AT_ONCE
    for i in range(U64(0), whole, _AT_ONCE):
        first = second = third = fourth = fill(F32(0))
        begin = i * width
        for j in range(width):
            line = load_floats(right, j * _LANES)
            place = begin + j
            first = multiply_add(fill(left[place]), line, first)
            second = multiply_add(fill(left[place + width]), line, second)
            third = multiply_add(fill(left[place + U64(2) * width]), line, third)
            fourth = multiply_add(fill(left[place + U64(3) * width]), line, fourth)
        place = U64(at) + i * _LANES
        store_floats(out, place, first)
        store_floats(out, place + _LANES, second)
        store_floats(out, place + U64(2) * _LANES, third)
        store_floats(out, place + U64(3) * _LANES, fourth)
    for i in range(whole, lines):
        total = fill(F32(0))
        for j in range(width):
            total = multiply_add(fill(left[i * width + j]), load_floats(right, j * _LANES), total)
        store_floats(out, U64(at) + i * _LANES, total)


@kernel()
def rotate(
    row: NDArray[np.float32],
    across: NDArray[np.float32],
    within: NDArray[np.float32],
    room: NDArray[np.float32],
    out: NDArray[np.float32],
    at: Whole,
) -> None:
    """Write across · M · within, where M is the row as a matrix of 16 columns.

    Args:
        row: `(16 · v,) float32`.
        across: `(v, v) float32`.
        within: `(16, 16) float32`.
        room: `(16 · v,) float32`, scratch.
        out: flat float32, written from `at` on.
        at: offset in it.
    """
    lines = U64(len(across))
    multiply_lines(across.reshape(-1), lines, row, room, U64(0))
    multiply_lines(room, _LANES, within.reshape(-1), out, U64(at))


@inlined
def _mixed_lanes(line):  # type: ignore[no-untyped-def]
    """Return a line of 16 numbers, times a Hadamard matrix."""
    line = multiply_add(line, _signs_1(), _swapped_1(line))
    line = multiply_add(line, _signs_2(), _swapped_2(line))
    line = multiply_add(line, _signs_4(), _swapped_4(line))
    return multiply_add(line, _signs_8(), _swapped_8(line))


@kernel()
def _mix_parts(row: NDArray[np.float32], width: Whole) -> None:
    """Multiply each part of a row by a Hadamard matrix, in place; it is not normalised.

    Args:
        row: flat float32, one part or several.
        width: of a part, 16 times a power of two.
    """
    whole, step = U64(len(row)), _LANES
    for z in range(U64(0), whole, _LANES):
        store_floats(row, z, _mixed_lanes(load_floats(row, z)))
    while step < U64(width):
        for begin in range(U64(0), whole, U64(2) * step):
            for z in range(begin, begin + step, _LANES):
                one, other = load_floats(row, z), load_floats(row, z + step)
                store_floats(row, z, add(one, other))
                store_floats(row, z + step, subtract(one, other))
        step *= U64(2)


@kernel()
def _cross(
    row: NDArray[np.float32], across: NDArray[np.float32], out: NDArray[np.float32], at: Whole
) -> None:
    """Write (across ⊗ 1) · row: of the parts of a row, sums of each place of all.

    Args:
        row: `(w,) float32`, in as many parts as `across` has lines.
        across: `(m, m) float32`.
        out: flat float32, written from `at` on; not the row.
        at: offset in it.
    """
    numbers, parts, at = across.reshape(-1), U64(len(across)), U64(at)
    width = U64(len(row)) // parts
    if parts < _AT_ONCE:
        for i in range(parts):
            for z in range(U64(0), width, _LANES):
                total = fill(F32(0))
                for j in range(parts):
                    line = load_floats(row, j * width + z)
                    total = multiply_add(fill(numbers[i * parts + j]), line, total)
                store_floats(out, at + i * width + z, total)
        return
    # Four at a time: each line is read once for them. Some of the last are written twice.
    for begin in range(U64(0), parts, _AT_ONCE):
        one = begin if begin + _AT_ONCE <= parts else parts - _AT_ONCE
        for z in range(U64(0), width, _LANES):
            first = second = third = fourth = fill(F32(0))
            for j in range(parts):
                line, place = load_floats(row, j * width + z), one * parts + j
                first = multiply_add(fill(numbers[place]), line, first)
                second = multiply_add(fill(numbers[place + parts]), line, second)
                third = multiply_add(fill(numbers[place + U64(2) * parts]), line, third)
                fourth = multiply_add(fill(numbers[place + U64(3) * parts]), line, fourth)
            place = at + one * width + z
            store_floats(out, place, first)
            store_floats(out, place + width, second)
            store_floats(out, place + U64(2) * width, third)
            store_floats(out, place + U64(3) * width, fourth)


@kernel()
def mix(
    row: NDArray[np.float32],
    flips: NDArray[np.float32],
    across: NDArray[np.float32],
    out: NDArray[np.float32],
    at: Whole,
) -> None:
    """Write M · F · M · row, where M is across ⊗ H, H a Hadamard matrix, and F the flips.

    M is there twice, since what a row has in few places the first time spreads alike to all of
    them, by which signs would often be of sums of nothing (the rotations of Ailon and Chazelle,
    STOC 2006). It is not normalised.

    Args:
        row: `(w,) float32`, as it is after its first flips; overwritten.
        flips: `(w,) float32`.
        across: `(m, m) float32`, orthogonal; w is m times 16 times a power of two.
        out: flat float32, written from `at` on; not the row.
        at: offset in it.
    """
    width = U64(len(row)) // U64(len(across))
    _mix_parts(row, width)
    _cross(row, across, out, at)
    for z in range(U64(0), U64(len(row)), _LANES):
        line = load_floats(out, U64(at) + z)
        store_floats(row, z, multiply_add(line, load_floats(flips, z), fill(F32(0))))
    _mix_parts(row, width)
    _cross(row, across, out, at)
