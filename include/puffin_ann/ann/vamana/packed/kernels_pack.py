"""Making packed nodes, and what searches do, too: rotating rows.

See `layout` for what a packed node is and for the sums below.
"""

import math

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.primitives import F32, U64, Whole
from puffin_ann.ann.simd.fastscan import BLOCK, GROUP_BYTES, ORDER
from puffin_ann.ann.simd.kernels_byte_rows import write_byte_row
from puffin_ann.ann.simd.vectors import (
    F32X16,
    add,
    fill_of,
    less_mask,
    load_of,
    multiply_add,
    prefetch,
    store_of,
    subtract,
    sum_of,
    where_less,
)
from puffin_ann.numba_kernels import inlined, kernel

HEAD_BYTES = 64
"""A cache line: how many neighbours there are, and the two numbers that make a stored row one of
the space, see `write_heads`, or its codes, see `write_coded_rows`. What follows stays aligned."""
TAIL_BYTES = 8 * BLOCK
"""Behind the codes of a block: 32 sums and 32 factors of two bytes, 32 row numbers of four."""
INNER, OUTER, BORDER = np.float32(0.4528), np.float32(1.5104), np.float32(0.9816)
"""The best four levels for a normal distribution, and the border between two (Max, 1960)."""

_BY_ROWS = ORDER == "rows"
_HALF = BLOCK // 2
_LANES = np.uint64(16)
_AT_ONCE = np.uint64(4)
_AHEAD = 8
"""Cache lines of the next neighbour that are asked for; the machine sees that more follow."""

load_floats, store_floats = load_of(F32X16), store_of(F32X16)
fill = fill_of(F32X16)


@kernel()
def _products(
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
    _products(across.reshape(-1), lines, row, room, U64(0))
    _products(room, _LANES, within.reshape(-1), out, U64(at))


@kernel(allocates=True)
def rotate_rows(
    rows: NDArray[np.float32],
    origin: NDArray[np.float32],
    scale: np.float32,
    across: NDArray[np.float32],
    within: NDArray[np.float32],
    out: NDArray[np.float32],
    at: Whole,
) -> None:
    """Write `(m, w)` rows, as the frame says, to flat `out` from `at` on."""
    dim = rows.shape[1]
    moved = np.empty(dim, np.float32)
    room = np.empty(dim, np.float32)
    for i in range(len(rows)):
        for z in range(U64(dim)):
            moved[z] = (rows[i, z] - origin[z]) * scale
        rotate(moved, across, within, room, out, U64(at) + U64(i) * U64(dim))


@kernel()
def write_heads(
    vectors: NDArray[np.float32],
    space: NDArray[np.float32],
    scale: float,
    degrees: NDArray[np.uint16],
    packed: NDArray[np.uint8],
    stride: Whole,
) -> None:
    """Write the heads of the first packed nodes.

    A row of the space, scaled, is the stored one times a first number, but for a part of which the
    second is the squared length: what augments rows for the inner product, and for cosine where
    rows without a direction are put.

    Args:
        vectors: `(m, d) float32`, as stored.
        space: `(m, w) float32`, w ≥ d.
        scale: of the frame.
        degrees: `(m,) uint16`.
        packed: flat uint8, written.
        stride: bytes of a node.
    """
    floats, numbers = packed.view(np.float32), packed.view(np.uint32)
    dimension = vectors.shape[1]
    for i in range(len(vectors)):
        along = square = 0.0
        for z in range(dimension):
            value = np.float64(vectors[i, z])
            along += value * np.float64(space[i, z])
            square += value * value
        factor = along / square if square > 0.0 else 0.0
        beside = 0.0
        for z in range(space.shape[1]):
            rest = np.float64(space[i, z])
            if z < dimension:
                rest -= np.float64(vectors[i, z]) * factor
            beside += rest * rest
        at = (U64(i) * U64(stride)) >> U64(2)
        numbers[at] = degrees[i]
        floats[at + U64(1)] = factor * scale
        floats[at + U64(2)] = beside * scale * scale


@kernel()
def write_coded_rows(
    rows: NDArray[np.float32],
    dim: Whole,
    degrees: NDArray[np.uint16],
    first: Whole,
    last: Whole,
    packed: NDArray[np.uint8],
    stride: Whole,
) -> None:
    """Write the heads of the packed nodes of rows `first` to `last` - 1, and these rows by code.

    A row is its codes, less `MIDDLE`, times a first number. What that lacks is perpendicular to
    nearly everything: so the second number, which is added to squared distances, is its square,
    negative.

    Args:
        rows: flat `(n · w,) float32`, all rows, rotated.
        dim: w.
        degrees: `(n,) uint16`.
        first: the row of the first packed node.
        last: row after the last.
        packed: flat uint8, written.
        stride: bytes of a node.
    """
    floats, numbers = packed.view(np.float32), packed.view(np.uint32)
    for node in range(U64(first), U64(last)):
        begin, at = node * U64(dim), (node - U64(first)) * U64(stride)
        step, lacking = write_byte_row(rows, begin, dim, packed, at + U64(HEAD_BYTES))
        at >>= U64(2)
        numbers[at] = degrees[node]
        floats[at + U64(1)] = step
        floats[at + U64(2)] = -lacking


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
def _code_1(
    rows: NDArray[np.float32], own: Whole, other: Whole, dim: Whole, codes: NDArray[np.uint32]
) -> tuple[np.float32, np.float32]:
    """Write the sign of an edge in each dimension; return its sum and its factor.

    Those are ‖r‖² + 2f·⟨u, c⟩ and -2f.
    """
    nothing = fill(F32(0))
    square = along = beside = nothing
    for group in range(U64(dim) >> U64(4)):
        center = load_floats(rows, U64(own) + group * _LANES)
        edge = subtract(load_floats(rows, U64(other) + group * _LANES), center)
        codes[group] = less_mask(nothing, edge)
        square = multiply_add(edge, edge, square)
        along = add(along, _size(edge))
        beside = add(beside, _as_signed(edge, center))
    total = sum_of(square)
    factor = F32(2) * total / max(sum_of(along), F32(1e-30))
    return total + factor * sum_of(beside), -factor


@inlined
def _in_pairs(signs, outer):  # type: ignore[no-untyped-def]
    """Return the codes of 16 numbers, 4 bits for each two of them: their signs, then `outer`."""
    both = signs | outer << U64(32)
    both = (both | both << U64(8)) & U64(0x00FF00FF00FF00FF)
    both = (both | both << U64(4)) & U64(0x0F0F0F0F0F0F0F0F)
    both = (both | both << U64(2)) & U64(0x3333333333333333)
    return both | both >> U64(30)


@kernel()
def _code_2(
    rows: NDArray[np.float32], own: Whole, other: Whole, dim: Whole, codes: NDArray[np.uint32]
) -> tuple[np.float32, np.float32]:
    """Do what `_code_1` does, with a second bit: whether a number is beyond the border."""
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
        pairs = _in_pairs(signs, outer)
        codes[U64(2) * group] = pairs & U64(0xFFFF)
        codes[U64(2) * group + U64(1)] = pairs >> U64(16) & U64(0xFFFF)
    factor = F32(2) * total / max(sum_of(along), F32(1e-30))
    return total + factor * sum_of(beside), -factor


@inlined
def _in_bytes(first, second):  # type: ignore[no-untyped-def]
    """Return four bytes: a code of 4 bits of the first in the lower half of each, and the other."""
    both = U64(first) | U64(second) << U64(32)
    both = (both | both << U64(8)) & U64(0x00FF00FF00FF00FF)
    both = (both | both << U64(4)) & U64(0x0F0F0F0F0F0F0F0F)
    return (both | both >> U64(28)) & U64(0xFFFFFFFF)


@kernel()
def _pack(codes: NDArray[np.uint32], packed: NDArray[np.uint8], at: Whole) -> None:
    """Write the codes of a block, `(32, groups)`, in this machine's order (see `fastscan`)."""
    numbers = packed.view(np.uint32)
    for group in range(U64(codes.shape[1])):
        begin = U64(at) + group * U64(GROUP_BYTES)
        for i in range(U64(_HALF)):
            four = _in_bytes(codes[i, group], codes[i + U64(_HALF), group])
            if _BY_ROWS:
                numbers[(begin >> U64(2)) + i] = four
            else:
                for place in range(U64(4)):
                    byte = (four >> (U64(8) * place)) & U64(0xFF)
                    packed[begin + place * U64(_HALF) + i] = byte


@inlined
def _in_two_bytes(value):  # type: ignore[no-untyped-def]
    """Return the upper half of a float32, rounded to the nearest."""
    bits = U64(F32(value).view(np.uint32))
    return (bits + U64(0x7FFF) + (bits >> U64(16) & U64(1))) >> U64(16)


@kernel(allocates=True)
def write_edges(
    rows: NDArray[np.float32],
    dim: Whole,
    bits: Whole,
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.uint16],
    first: Whole,
    last: Whole,
    packed: NDArray[np.uint8],
    stride: Whole,
    begin_at: Whole,
) -> None:
    """Write the blocks of the packed nodes of rows `first` to `last` - 1.

    Args:
        rows: flat `(n · w,) float32`, all rows, rotated.
        dim: w.
        bits: of each dimension of an edge, 1 or 2.
        neighbours: `(n, R) uint32`.
        degrees: `(n,) uint16`.
        first: the row of the first packed node.
        last: row after the last.
        packed: flat uint8, zeros from the first blocks on, written.
        stride: bytes of a node.
        begin_at: where the first block of a node begins.
    """
    halves, numbers = packed.view(np.uint16), packed.view(np.uint32)
    groups = dim * bits // 16
    codes = np.zeros((BLOCK, groups), np.uint32)
    for node in range(first, last):
        at = U64(node - first) * U64(stride) + U64(begin_at)
        degree = int(degrees[node])
        own = U64(node) * U64(dim)
        for begin in range(0, degree, BLOCK):
            tail = at + U64(groups * GROUP_BYTES)
            for i in range(U64(BLOCK)):
                if begin + i >= degree:
                    codes[i] = 0
                    continue
                if begin + i + 1 < degree:
                    ahead = U64(neighbours[node, begin + i + 1]) * U64(dim)
                    for line in range(U64(_AHEAD)):
                        prefetch(rows, ahead + line * _LANES)
                row = U64(neighbours[node, begin + i])
                if bits == 1:
                    total, factor = _code_1(rows, own, row * U64(dim), dim, codes[i])
                else:
                    total, factor = _code_2(rows, own, row * U64(dim), dim, codes[i])
                halves[(tail >> U64(1)) + i] = _in_two_bytes(total)
                halves[(tail >> U64(1)) + U64(BLOCK) + i] = _in_two_bytes(factor)
                numbers[(tail >> U64(2)) + U64(BLOCK) + i] = row
            _pack(codes, packed, at)
            at = tail + U64(TAIL_BYTES)
