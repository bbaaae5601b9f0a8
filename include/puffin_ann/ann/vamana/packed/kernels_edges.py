"""Making the edges of packed nodes: codes of a row's neighbours, and what makes distances of them.

See `layout` for what a packed node is and for the sums below.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.primitives import U64, Whole
from puffin_ann.ann.signs.kernels_codes import code_1, code_2, in_two_bytes, pack_codes
from puffin_ann.ann.simd.fastscan import BLOCK, GROUP_BYTES
from puffin_ann.ann.simd.vectors import prefetch
from puffin_ann.numba_kernels import kernel

TAIL_BYTES = 8 * BLOCK
"""Behind the codes of a block: 32 sums and 32 factors of two bytes, 32 row numbers of four."""

_LANES = np.uint64(16)
_AHEAD = 6
"""Neighbours from the one that is read to the one whose row is asked for, whole: to leave it to the
machine to see that more lines follow takes half as long again for rows of 384 numbers."""
_MOST_LINES = 96
"""Cache lines, at most, that are asked for of a row."""


@kernel()
def _ask_for(
    rows: NDArray[np.float32],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.uint16],
    node: Whole,
    place: Whole,
    last: Whole,
    dim: Whole,
) -> None:
    """Ask for the row of a neighbour to come: behind those of a node are those of the next."""
    degree = int(degrees[node])
    if place >= degree:
        place, node = place - degree, node + 1
        if node >= last or place >= degrees[node]:
            return
    begin = U64(neighbours[node, place]) * U64(dim)
    for line in range(U64(min(dim // 16, _MOST_LINES))):
        prefetch(rows, begin + line * _LANES)


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
    codes = np.zeros(dim // 16 * BLOCK, np.uint32)
    for node in range(first, last):
        at = U64(node - first) * U64(stride) + U64(begin_at)
        degree = int(degrees[node])
        own = U64(node) * U64(dim)
        for begin in range(0, degree, BLOCK):
            tail = at + U64(groups * GROUP_BYTES)
            if degree - begin < BLOCK:
                codes[:] = 0
            for i in range(min(BLOCK, degree - begin)):
                _ask_for(rows, neighbours, degrees, node, begin + i + _AHEAD, last, dim)
                row, place = U64(neighbours[node, begin + i]), U64(i)
                if bits == 1:
                    total, factor = code_1(rows, own, row * U64(dim), dim, codes, place)
                else:
                    total, factor = code_2(rows, own, row * U64(dim), dim, codes, place)
                halves[(tail >> U64(1)) + place] = in_two_bytes(total)
                halves[(tail >> U64(1)) + U64(BLOCK) + place] = in_two_bytes(factor)
                numbers[(tail >> U64(2)) + U64(BLOCK) + place] = row
            pack_codes(codes, dim, bits, packed, at)
            at = tail + U64(TAIL_BYTES)
