"""What a search of packed nodes makes of a query first: its place in their frame.

See `layout` for the sums.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.primitives import F32, U64, Whole
from puffin_ann.ann.simd.kernels_distance import COSINE, IP
from puffin_ann.ann.simd.vectors import F32X16, fill_of, load_of, multiply_add, sum_of
from puffin_ann.numba_kernels import kernel

_LANES = np.uint64(16)
_load, _fill = load_of(F32X16), fill_of(F32X16)


class PackedGraph(NamedTuple):
    """Packed nodes, and what brings a query into their frame; see `layout`.

    Attributes:
        bytes: flat `(n · stride,) uint8`.
        numbers: the same as uint32.
        stride: bytes of a node.
        bits: of each dimension of an edge.
        row_bytes: of the row's own codes; 0 where it is read as it is stored.
        code_bytes: of a block's codes.
        most: room for neighbours in a node; a number of them above it is damaged.
        entry: row to begin at.
        origin: `(w,) float32`, see `layout.Frame`.
        scale: a power of two, see `layout.Frame`.
        across: `(w / 16, w / 16) float32`, orthogonal, see `layout.Frame`.
        within: `(16, 16) float32`, orthogonal, see `layout.Frame`.
        length: of all rows of the space, for the inner product.
    """

    bytes: NDArray[np.uint8]
    numbers: NDArray[np.uint32]
    stride: Whole
    bits: Whole
    row_bytes: Whole
    code_bytes: Whole
    most: Whole
    entry: Whole
    origin: NDArray[np.float32]
    scale: float
    across: NDArray[np.float32]
    within: NDArray[np.float32]
    length: float


PLACED = np.dtype(
    [
        ("packed", np.uint64),
        ("vectors", np.uint64),
        ("deleted", np.uint64),
        ("origin", np.uint64),
        ("across", np.uint64),
        ("within", np.uint64),
        ("rows", np.int64),
        ("live", np.int64),
        ("dim", np.int64),
        ("stride", np.int64),
        ("bits", np.int64),
        ("row_bytes", np.int64),
        ("code_bytes", np.int64),
        ("most", np.int64),
        ("entry", np.int64),
        ("scale", np.float64),
        ("length", np.float64),
    ]
)
"""A graph by where it lies: to call a kernel takes the longer, the more arguments it has.

The first six are addresses of what is held elsewhere; see `PackedGraph`. Vectors are `(rows, d)
float32`, as stored; deleted is `(rows,) uint8`, or 0 if all rows live; live is how many do; dim is
w, the numbers in a row of the space.
"""


class PlacedQuery(NamedTuple):
    """A query in the frame of packed nodes.

    Attributes:
        asked: `float32`, as rows are once they have their factor: `(d,)`, scaled, or `(w,)`,
            rotated, where they are read by their codes.
        tables: `(16 · codes,) uint8`, see `signs.kernels_tables.tables_of`.
        step: of the tables.
        base: the sum for codes that find nothing but zeros.
    """

    asked: NDArray[np.float32]
    tables: NDArray[np.uint8]
    step: np.float32
    base: np.float32


@kernel()
def place_query(
    nodes: PackedGraph,
    metric: int,
    queries: NDArray[np.float32],
    query: Whole,
    square: float,
    asked: NDArray[np.float32],
    out: NDArray[np.float32],
) -> float:
    """Write a query as rows are before rotation; return its length.

    For the inner product the query is made as long as the rows are, which does not change the
    order: among the distances of a short one, or of a long one, no digits would be left.

    Args:
        nodes: whose frame it is.
        metric: code.
        queries: `(q, d) float32`.
        query: which of them.
        square: its squared norm.
        asked: `(d,) float32`, written: scaled, but not moved to the frame's origin.
        out: `(w,) float32`, written: scaled and moved.
    """
    origin, scale = nodes.origin, np.float64(nodes.scale)
    factor = 1.0
    if metric == COSINE:
        factor = 1.0 / math.sqrt(square) if square > 0.0 else 0.0
    elif metric == IP:
        factor = nodes.length / math.sqrt(square) if square > 0.0 else 0.0
    dimension = U64(queries.shape[1])
    for z in range(dimension):
        value = np.float64(queries[query, z]) * factor
        asked[z] = value * scale
        out[z] = (value - np.float64(origin[z])) * scale
    for z in range(dimension, U64(len(out))):
        out[z] = -np.float64(origin[z]) * scale
    total = _fill(F32(0))
    for z in range(U64(0), U64(len(out)), _LANES):
        line = _load(out, z)
        total = multiply_add(line, line, total)
    return math.sqrt(sum_of(total))
