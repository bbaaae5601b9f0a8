"""Exact distances of pairs, compiled once and used wherever an answer's distance is made.

Brute force and reranking must agree to the last bit, so both run these very loops, and the order
of the additions is part of the definition: sixteen float64 sums, sum j over the places j, j + 16,
j + 32, …; then sums j and j + 8 are added, j and j + 4, j and j + 2, and the last two; then the
places after the last multiple of sixteen, one by one. Nothing is fused or reordered, so a pair of
vectors has one distance on every machine.

`fastmath=False` is not the default it seems to be: a kernel that says nothing is compiled with the
flags of whichever kernel calls it first, and is kept so in the cache for everyone after.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from puffin_ann.numba_kernels import kernel

F32, U32 = np.float32, np.uint32  # `.view` in a kernel takes a global only

L2, COSINE, IP = 0, 1, 2
"""Codes of the metrics inside kernels."""

LARGEST = float(np.finfo(np.float32).max)
"""Distances beyond float32 are cut to this: infinity means that there is no answer."""

LANES = 16

# Numba's vectoriser leaves such sums alone, since without `fastmath` it may not reorder them. The
# order wanted here is that of vector instructions, so the vectors are written out: four times as
# fast as sixteen scalar sums.


def _sum_over_blocks(builder: Any, places: list[Any], blocks: Any, term: Any) -> Any:
    """Write the code that adds `term(builder, a, b)` over blocks of lanes and joins the lanes."""
    lanes = ir.VectorType(ir.DoubleType(), LANES)
    stored = ir.VectorType(ir.FloatType(), LANES)
    zeros = ir.Constant(lanes, [0.0] * LANES)
    total = cgutils.alloca_once_value(builder, zeros)  # type: ignore[no-untyped-call]
    with cgutils.for_range(builder, blocks) as loop:
        at = builder.mul(loop.index, ir.Constant(loop.index.type, LANES))
        pair = []
        for pointer in places:
            place = builder.bitcast(builder.gep(pointer, [at]), stored.as_pointer())
            pair.append(builder.fpext(builder.load(place, align=4), lanes))
        builder.store(builder.fadd(builder.load(total), term(builder, *pair)), total)
    joined, left = builder.load(total), LANES
    while left > 1:
        left //= 2
        halves = [
            builder.shuffle_vector(
                joined,
                ir.Constant(joined.type, ir.Undefined),
                ir.Constant(ir.VectorType(ir.IntType(32), left), list(range(at, at + left))),
            )
            for at in (0, left)
        ]
        joined = builder.fadd(*halves)
    return builder.extract_element(joined, ir.Constant(ir.IntType(32), 0))


def _square_of_difference(builder: Any, a: Any, b: Any) -> Any:
    difference = builder.fsub(a, b)
    return builder.fmul(difference, difference)


def _product(builder: Any, a: Any, b: Any) -> Any:
    return builder.fmul(a, b)


def _blocks_of(term: Callable[[Any, Any, Any], Any]) -> Any:
    """Return a function for kernels: rows of two `(., d) float32` arrays to a float64 sum.

    Its arguments are the arrays, each followed by where the row begins, and the blocks in a row.
    A slice `array[i]` in their stead would cost more than the sum: it counts references.
    """

    def over_blocks(typing_context, one, at_one, other, at_other, blocks):  # type: ignore[no-untyped-def]
        whole = types.int64
        signature = types.float64(one, whole, other, whole, whole)

        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            places = []
            for i in (0, 2):
                array = context.make_array(signature.args[i])(context, builder, arguments[i])
                places.append(builder.gep(array.data, [arguments[i + 1]]))
            return _sum_over_blocks(builder, places, arguments[4], term)

        return signature, generate

    return intrinsic(over_blocks)


_blocks_of_squares = _blocks_of(_square_of_difference)
_blocks_of_products = _blocks_of(_product)


@kernel()
def squared_l2(queries: NDArray[np.float32], i: int, vectors: NDArray[np.float32], j: int) -> float:
    """Return the squared Euclidean distance of row i of one array and row j of another.

    Both are `(., d) float32`, C-contiguous; the result is float64, as that of `dot`.
    """
    d = queries.shape[1]
    whole = d // LANES
    total: float = _blocks_of_squares(queries, i * d, vectors, j * d, whole)
    for at in range(whole * LANES, d):
        difference = np.float64(queries[i, at]) - np.float64(vectors[j, at])
        total += difference * difference
    return total


@kernel()
def dot(queries: NDArray[np.float32], i: int, vectors: NDArray[np.float32], j: int) -> float:
    """Return the inner product of row i of one array and row j of another."""
    d = queries.shape[1]
    whole = d // LANES
    total: float = _blocks_of_products(queries, i * d, vectors, j * d, whole)
    for at in range(whole * LANES, d):
        total += np.float64(queries[i, at]) * np.float64(vectors[j, at])
    return total


@kernel()
def distance(
    metric: int,
    queries: NDArray[np.float32],
    i: int,
    query_square: float,
    vectors: NDArray[np.float32],
    j: int,
) -> np.float32:
    """Return the distance of row i of the queries and row j of the vectors, rounded once.

    `query_square` is `dot(queries, i, queries, i)`; cosine alone looks at it.
    """
    if metric == L2:
        value = np.sqrt(squared_l2(queries, i, vectors, j))
    elif metric == IP:
        value = 0.0 - dot(queries, i, vectors, j)
    else:
        # The root of the product of squares, not the product of roots, which is exact if both are
        # equal: a vector has distance 0 from itself.
        size = np.sqrt(query_square * dot(vectors, j, vectors, j))
        value = 1.0 if size == 0.0 else max(0.0, 1.0 - dot(queries, i, vectors, j) / size)
    return np.float32(min(max(value, -LARGEST), LARGEST))


@kernel()
def all_distances(
    metric: int,
    queries: NDArray[np.float32],
    vectors: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Write the distances of `(q, d)` queries and `(n, d)` vectors to `(q, n)` out."""
    for i in range(len(queries)):
        square = dot(queries, i, queries, i)
        for j in range(len(vectors)):
            out[i, j] = distance(metric, queries, i, square, vectors, j)


@kernel()
def chosen_distances(
    metric: int,
    queries: NDArray[np.float32],
    vectors: NDArray[np.float32],
    ids: NDArray[np.int64],
    out: NDArray[np.float32],
) -> None:
    """Write the distances of each query and its `(q, c)` chosen vectors; id −1 gets infinity."""
    for i in range(len(queries)):
        square = dot(queries, i, queries, i)
        for j in range(ids.shape[1]):
            chosen = ids[i, j]
            if chosen < 0:
                out[i, j] = np.float32(np.inf)
            else:
                out[i, j] = distance(metric, queries, i, square, vectors, chosen)


@kernel()
def order_key(value: np.float32, number: int) -> np.uint64:
    """Pack (distance, id) into one integer that sorts as the pair does; id < 2³²."""
    bits = np.uint64(F32(value + F32(0.0)).view(U32))  # −0 becomes +0
    if bits & np.uint64(0x80000000):
        bits = ~bits & np.uint64(0xFFFFFFFF)
    else:
        bits |= np.uint64(0x80000000)
    return (bits << np.uint64(32)) | np.uint64(number)


@kernel()
def key_distance(key: np.uint64) -> np.float32:
    """Return the distance in an `order_key`."""
    bits = key >> np.uint64(32)
    if bits & np.uint64(0x80000000):
        bits &= np.uint64(0x7FFFFFFF)
    else:
        bits = ~bits & np.uint64(0xFFFFFFFF)
    return U32(bits).view(F32)
