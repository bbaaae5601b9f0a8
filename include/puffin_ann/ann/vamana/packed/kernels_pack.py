"""Making packed nodes, and two things that searches do, too: rotating and measuring rows.

See `layout` for what a packed node is and for the sums below.
"""

import math

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.primitives import F32, U64, Whole
from puffin_ann.ann.simd.fastscan import BLOCK, GROUP, GROUP_BYTES, ORDER
from puffin_ann.ann.simd.vectors import (
    F32X16,
    add,
    fill_of,
    load_of,
    multiply_add,
    store_of,
    subtract,
)
from puffin_ann.numba_kernels import FAST, inlined, kernel

HEAD_BYTES = 64
"""The number of blocks, in a cache line of its own: what follows stays aligned."""
INNER, OUTER, BORDER = np.float32(0.4528), np.float32(1.5104), np.float32(0.9816)
"""The best four levels for a normal distribution, and the border between two (Max, 1960)."""
FAR = np.float32(3e38)
"""Stands for the sum of a place without neighbour: no estimate is nearer than that."""

_BY_ROWS = ORDER == "rows"
_TABLE_BYTES = np.uint64(4 * BLOCK)
_HALF = BLOCK // 2

load_floats, store_floats = load_of(F32X16), store_of(F32X16)
fill = fill_of(F32X16)


@kernel()
def rotate(
    row: NDArray[np.float32],
    across: NDArray[np.float32],
    within: NDArray[np.float32],
    room: NDArray[np.float32],
    out: NDArray[np.uint8] | NDArray[np.float32],
    at: Whole,
    element: Whole,
) -> None:
    """Write across · M · within, where M is the row as a matrix of 16 columns.

    Args:
        row: `(16 · v,) float32`.
        across: `(v, v) float32`.
        within: `(16, 16) float32`.
        room: `(16 · v,) float32`, scratch.
        out: written from `at` on.
        at: offset in it, in its elements.
        element: how many of its elements a number takes: 1, or 4 for bytes.
    """
    lines = U64(len(across))
    for i in range(lines):
        total = fill(F32(0))
        for j in range(lines):
            total = multiply_add(fill(across[i, j]), load_floats(row, j * U64(16)), total)
        store_floats(room, i * U64(16), total)
    for i in range(lines):
        total = fill(F32(0))
        for j in range(U64(16)):
            total = multiply_add(
                fill(room[i * U64(16) + j]), load_floats(within, j * U64(16)), total
            )
        store_floats(out, U64(at) + i * U64(16) * U64(element), total)


@kernel(allocates=True)
def write_rows(
    rows: NDArray[np.float32],
    origin: NDArray[np.float32],
    scale: np.float32,
    across: NDArray[np.float32],
    within: NDArray[np.float32],
    packed: NDArray[np.uint8],
    stride: Whole,
) -> None:
    """Write `(m, w)` rows into the first m packed nodes, as the frame says."""
    dim = rows.shape[1]
    moved = np.empty(dim, np.float32)
    room = np.empty(dim, np.float32)
    for i in range(len(rows)):
        for z in range(U64(dim)):
            moved[z] = (rows[i, z] - origin[z]) * scale
        rotate(moved, across, within, room, packed, U64(i) * U64(stride), U64(4))


@kernel(fastmath=FAST)
def _code(
    edge: NDArray[np.float32], own: NDArray[np.float32], levels: NDArray[np.uint8]
) -> tuple[np.float32, np.float32]:
    """Write the level of an edge in each dimension, 0 to 3; return its sum and its factor.

    Those are ‖r‖² + 2f·⟨u, c⟩ and -2f.
    """
    dim = U64(len(edge))
    square = F32(0)
    for z in range(dim):
        square += edge[z] * edge[z]
    deviation = F32(math.sqrt(square / F32(dim)))
    border = BORDER * deviation
    along = F32(0)
    beside = F32(0)
    for z in range(dim):
        value = edge[z]
        outer = abs(value) > border
        level = OUTER if outer else INNER
        level = level if value > F32(0) else -level
        along += value * level
        beside += own[z] * level
        inside = np.uint8(2) + np.uint8(outer)
        levels[z] = inside if value > F32(0) else np.uint8(3) - inside
    factor = F32(2) * square / max(along, F32(1e-30))
    return square + factor * beside, -factor


@kernel()
def _pack(levels: NDArray[np.uint8], packed: NDArray[np.uint8], at: Whole) -> None:
    """Write the codes of a block, two levels each, in this machine's order (see `fastscan`)."""
    for i in range(U64(_HALF)):
        for code in range(U64(levels.shape[1] // 2)):
            low = levels[i, code * U64(2)] | levels[i, code * U64(2) + U64(1)] << np.uint8(2)
            other = i + U64(_HALF)
            high = levels[other, code * U64(2)] | levels[other, code * U64(2) + U64(1)] << np.uint8(
                2
            )
            group, place = code // U64(GROUP), code % U64(GROUP)
            inside = i * U64(GROUP) + place if _BY_ROWS else place * U64(_HALF) + i
            where = U64(at) + group * U64(GROUP_BYTES) + inside
            packed[where] = np.uint8(low | high << np.uint8(4))


@kernel(allocates=True)
def write_edges(
    packed: NDArray[np.uint8],
    stride: Whole,
    dim: Whole,
    code_bytes: Whole,
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.uint16],
    first: Whole,
    last: Whole,
) -> None:
    """Write the blocks of the packed nodes `first` to `last` - 1; all rows are there already."""
    floats = packed.view(np.float32)
    numbers = packed.view(np.uint32)
    own = np.empty(dim, np.float32)
    edge = np.empty(dim, np.float32)
    levels = np.zeros((BLOCK, dim), np.uint8)
    for node in range(first, last):
        at = U64(node) * U64(stride)
        for z in range(U64(dim)):
            own[z] = floats[(at >> U64(2)) + z]
        at += U64(4 * dim)
        degree = int(degrees[node])
        numbers[at >> U64(2)] = (degree + BLOCK - 1) // BLOCK
        at += U64(HEAD_BYTES)
        for begin in range(0, degree, BLOCK):
            tail = (at + U64(code_bytes)) >> U64(2)
            for i in range(U64(BLOCK)):
                if begin + i >= degree:
                    floats[tail + i] = FAR
                    levels[i] = 0
                    continue
                row = U64(neighbours[node, begin + i])
                place = (row * U64(stride)) >> U64(2)
                for z in range(U64(dim)):
                    edge[z] = floats[place + z] - own[z]
                total, factor = _code(edge, own, levels[i])
                floats[tail + i] = total
                floats[tail + U64(BLOCK) + i] = factor
                numbers[tail + U64(2 * BLOCK) + i] = U64(row)
            _pack(levels, packed, at)
            at += U64(code_bytes) + U64(3) * _TABLE_BYTES


@inlined
def squared_from(packed, at, row, dim):  # type: ignore[no-untyped-def]
    """Return the squared distance of the row of a packed node, from its first byte, and a row."""
    one = fill(F32(0))
    other = one
    pairs = U64(dim) >> U64(5)
    for i in range(pairs):
        z = i * U64(32)
        left = subtract(load_floats(packed, at + z * U64(4)), load_floats(row, z))
        z += U64(16)
        right = subtract(load_floats(packed, at + z * U64(4)), load_floats(row, z))
        one = multiply_add(left, left, one)
        other = multiply_add(right, right, other)
    if U64(dim) & U64(16):
        z = pairs * U64(32)
        left = subtract(load_floats(packed, at + z * U64(4)), load_floats(row, z))
        one = multiply_add(left, left, one)
    return add(one, other)
