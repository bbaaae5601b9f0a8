"""The scan of exact search, compiled: which rows a float32 product cannot rule out."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.simd.kernels_distance import (
    COSINE,
    L2,
    LARGEST,
    distance,
    dot,
    key_distance,
    order_key,
)
from puffin_ann.numba_kernels import kernel

_UNIT = 2.0**-24
_TINY = 2.0**-126


@kernel()
def squares(vectors: NDArray[np.float32], out: NDArray[np.float64]) -> None:
    """Write the squared norms of `(n, d)` vectors, in float64."""
    for i in range(len(vectors)):
        out[i] = dot(vectors, i, vectors, i)


@kernel()
def _sift_down(heap: NDArray[np.uint64], size: int, key: np.uint64) -> None:
    """Put `key` in the place of the greatest of a heap."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= key:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = key


@kernel()
def _sift_up(heap: NDArray[np.uint64], at: int, key: np.uint64) -> None:
    """Put `key` at the free end of a heap."""
    while at > 0:
        parent = (at - 1) >> 1
        if heap[parent] >= key:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = key


@kernel()
def _limit(metric: int, worst: np.float32) -> float:
    """Return what a surrogate may be at most if its exact distance can round to `worst`."""
    w = np.float64(worst)
    if w >= LARGEST:  # whatever is beyond was cut to the same value
        return np.inf
    if metric == L2:
        return w * w * (1.0 + 2.0**-21) + 2.0**-290
    return w + abs(w) * 2.0**-22 + 2.0**-148


@kernel()
def _least(metric: int, product: float, error: float, square: float, other: float) -> float:
    """Return what a surrogate is at least: squared L2, 1 − cos or the negated inner product."""
    if not np.isfinite(product):  # it overflowed and says nothing
        return -np.inf
    if metric == L2:
        both = square + other
        return both * (1.0 - 1e-13) - 2.0 * (product + error)
    if metric == COSINE:
        size = np.sqrt(square * other)
        return 1.0 - 1e-13 - (product + error) / size if size > 0.0 else 1.0
    return -product - error


@kernel()
def _offer(heap: NDArray[np.uint64], used: int, key: np.uint64) -> int:
    """Bring a key into a heap of the least keys and return how many it then holds."""
    if used < len(heap):
        _sift_up(heap, used, key)
        return used + 1
    if key < heap[0]:
        _sift_down(heap, used, key)
    return used


@kernel()
def scan(
    metric: int,
    queries: NDArray[np.float32],
    query_squares: NDArray[np.float64],
    vectors: NDArray[np.float32],
    vector_squares: NDArray[np.float64],
    products: NDArray[np.float32],
    first: int,
    allowed: NDArray[np.bool_],
    heaps: NDArray[np.uint64],
    sizes: NDArray[np.int64],
) -> None:
    """Bring a block of vectors into each query's heap of the nearest.

    A float32 product of d terms is off by at most γ·|q|·|x| with γ = d·u / (1 − d·u), u = 2⁻²⁴, in
    whatever order it was summed (Higham, Accuracy and Stability, 3.1), and by d underflows. A row
    whose surrogate less that bound exceeds what could still enter is passed over; the distance of
    every other row is computed exactly.

    Args:
        metric: code.
        queries: `(q, d) float32`.
        query_squares: `(q,) float64`.
        vectors: `(b, d) float32`, the block.
        vector_squares: `(b,) float64`.
        products: `(q, b) float32`, queries times vectors; not finite where it overflowed.
        first: id of the block's first row.
        allowed: `(b,) bool`, or empty if all are.
        heaps: `(q, k) uint64`, greatest first, `order_key`s; changed.
        sizes: `(q,) int64`, entries of each heap; changed.
    """
    d = queries.shape[1]
    k = heaps.shape[1]
    gamma = 1.01 * d * _UNIT / (1.0 - d * _UNIT)
    everyone = len(allowed) == 0
    for i in range(len(queries)):
        heap = heaps[i]
        square = query_squares[i]
        limit = _limit(metric, key_distance(heap[0])) if sizes[i] == k else np.inf
        for j in range(len(vectors)):
            if not everyone and not allowed[j]:
                continue
            product = np.float64(products[i, j])
            error = gamma * np.sqrt(square * vector_squares[j]) + d * _TINY
            if _least(metric, product, error, square, vector_squares[j]) > limit:
                continue
            key = order_key(distance(metric, queries, i, square, vectors, j), first + j)
            sizes[i] = _offer(heap, sizes[i], key)
            if sizes[i] == k:
                limit = _limit(metric, key_distance(heap[0]))


@kernel()
def answers(
    keys: NDArray[np.uint64],
    counts: NDArray[np.int64],
    ids: NDArray[np.int64],
    distances: NDArray[np.float32],
) -> None:
    """Write sorted `(q, c)` keys as `(q, k)` ids and distances, padded with −1 and infinity."""
    for i in range(len(ids)):
        for j in range(ids.shape[1]):
            if j < counts[i]:
                ids[i, j] = np.int64(keys[i, j] & np.uint64(0xFFFFFFFF))
                distances[i, j] = key_distance(keys[i, j])
            else:
                ids[i, j] = -1
                distances[i, j] = np.float32(np.inf)
