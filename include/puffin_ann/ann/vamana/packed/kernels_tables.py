"""What a search of packed nodes makes of a query first: its place in their frame, and its tables.

See `layout` for the sums.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.primitives import F32, U64, Whole
from puffin_ann.ann.simd.kernels_distance import COSINE, IP
from puffin_ann.ann.simd.vectors import (
    F32X16,
    U8X16,
    bytes_of,
    fill_of,
    greatest_of,
    least_of,
    load_of,
    multiply_add,
    store_of,
    subtract,
)
from puffin_ann.ann.vamana.packed.kernels_pack import INNER, OUTER
from puffin_ann.numba_kernels import kernel

_LEVELS = np.array([-OUTER, -INNER, INNER, OUTER], np.float32)
_WORDS = np.concatenate([np.tile(_LEVELS, 4), np.repeat(_LEVELS, 4)])

_load, _store, _fill = load_of(F32X16), store_of(F32X16), fill_of(F32X16)
_store_bytes, _to_bytes = store_of(U8X16), bytes_of(U8X16)


class PackedGraph(NamedTuple):
    """Packed nodes, and what brings a query into their frame; see `layout`.

    Attributes:
        bytes: flat `(n · stride,) uint8`.
        numbers: the same as uint32.
        stride: bytes of a node.
        code_bytes: of a block's codes.
        blocks: room for them in a node; a number of blocks above it is damaged.
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
    code_bytes: Whole
    blocks: Whole
    entry: Whole
    origin: NDArray[np.float32]
    scale: float
    across: NDArray[np.float32]
    within: NDArray[np.float32]
    length: float


class PlacedQuery(NamedTuple):
    """A query in the frame of packed nodes.

    Attributes:
        moved: `(w,) float32`, rotated.
        tables: `(8 · w,) uint8`, see `tables_of`.
        step: of the tables.
        base: the sum for codes that find nothing but zeros.
    """

    moved: NDArray[np.float32]
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
        out: `(w,) float32`, written.
    """
    origin, scale = nodes.origin, nodes.scale
    factor = 1.0
    if metric == COSINE:
        factor = 1.0 / math.sqrt(square) if square > 0.0 else 0.0
    elif metric == IP:
        factor = nodes.length / math.sqrt(square) if square > 0.0 else 0.0
    dimension = queries.shape[1]
    total = 0.0
    for z in range(len(out)):
        value = np.float64(queries[query, z]) * factor if z < dimension else 0.0
        value = (value - np.float64(origin[z])) * scale
        out[z] = value
        total += value * value
    return math.sqrt(total)


@kernel()
def tables_of(
    moved: NDArray[np.float32], floats: NDArray[np.float32], tables: NDArray[np.uint8]
) -> tuple[np.float32, np.float32]:
    """Write, for every two dimensions, what a query adds to ⟨u, q⟩ by each code.

    Returns the step, and the sum for codes that find nothing but zeros.

    Args:
        moved: `(w,) float32`, the query, rotated.
        floats: `(8 · w,) float32`, scratch.
        tables: `(8 · w,) uint8`, written.
    """
    widest = F32(0)
    base = F32(0)
    low, high = _load(_WORDS, U64(0)), _load(_WORDS, U64(16))
    for pair in range(U64(len(moved)) >> U64(1)):
        line = multiply_add(_fill(moved[pair * U64(2)]), low, _fill(F32(0)))
        line = multiply_add(_fill(moved[pair * U64(2) + U64(1)]), high, line)
        least = least_of(line)
        widest = max(widest, greatest_of(line) - least)
        base += least
        _store(floats, pair * U64(16), subtract(line, _fill(least)))
    factor = F32(255) / max(widest, F32(1e-30))
    for pair in range(U64(len(moved)) >> U64(1)):
        line = multiply_add(_load(floats, pair * U64(16)), _fill(factor), _fill(F32(0.5)))
        _store_bytes(tables, pair * U64(16), _to_bytes(line))
    return F32(1) / factor, base
