"""Making packed nodes but for their edges, and what searches do, too: rotating rows.

See `layout` for what a packed node is and for the sums below.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.primitives import U64, Whole
from puffin_ann.ann.signs.kernels_rotate import rotate
from puffin_ann.ann.simd.kernels_byte_rows import write_byte_row
from puffin_ann.numba_kernels import kernel

HEAD_BYTES = 64
"""A cache line: how many neighbours there are, and the two numbers that make a stored row one of
the space, see `write_heads`, or its codes, see `write_coded_rows`. What follows stays aligned."""


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
