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
from puffin_ann.ann.simd.vectors import (
    F32X16,
    fill_of,
    less_mask,
    load_of,
    lowest_bit,
    multiply_add,
)
from puffin_ann.numba_kernels import FAST, inlined, kernel

F32, U64, I64 = np.float32, np.uint64, np.int64

_UNIT = 2.0**-24
TINY = 2.0**-126
_SLACK = 2.0**-19
"""Of the squares, or of the product of the roots: more than sums of float32 err by. Were it twice
as much, three rows more in a million would be measured."""
LARGE, LARGE_PRODUCT = 1e37, 1e75
"""Of squared norms, and of two of them multiplied: no float32 leaves its range below."""

_load, _fill, _whole = load_of(F32X16), fill_of(F32X16), U64(16)
_STEP = 32


@kernel()
def squares(vectors: NDArray[np.float32], out: NDArray[np.float64]) -> None:
    """Write the squared norms of `(n, d)` vectors, in float64."""
    for i in range(len(vectors)):
        out[i] = dot(vectors, i, vectors, i)


@kernel(fastmath=FAST)
def few_products(
    queries: NDArray[np.float32], vectors: NDArray[np.float32], out: NDArray[np.float32]
) -> None:
    """Write the products of a few `(q, d)` queries and `(n, d)` vectors, `(q, n)`.

    Each vector is read once, in order, which is what memory is fast at.
    """
    many, d = queries.shape
    for j in range(len(vectors)):
        i = 0
        while i + 4 <= many:
            one, two, three, four = F32(0), F32(0), F32(0), F32(0)
            for z in range(d):
                value = vectors[j, z]
                one += value * queries[i, z]
                two += value * queries[i + 1, z]
                three += value * queries[i + 2, z]
                four += value * queries[i + 3, z]
            out[i, j], out[i + 1, j], out[i + 2, j], out[i + 3, j] = one, two, three, four
            i += 4
        while i < many:
            one = F32(0)
            for z in range(d):
                one += vectors[j, z] * queries[i, z]
            out[i, j] = one
            i += 1


@kernel()
def replace_greatest(heap: NDArray[np.uint64], size: int, key: np.uint64) -> None:
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
def limit_of(metric: int, worst: np.float32) -> float:
    """Return what a surrogate may be at most if its exact distance can round to `worst`."""
    w = np.float64(worst)
    if w >= LARGEST:  # whatever is beyond was cut to the same value
        return np.inf
    if metric == L2:
        return w * w * (1.0 + 2.0**-21) + 2.0**-290
    return w + abs(w) * 2.0**-22 + 2.0**-148


@kernel()
def least_of(metric: int, product: float, error: float, square: float, other: float) -> float:
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
def offer(heap: NDArray[np.uint64], used: int, key: np.uint64) -> int:
    """Bring a key into a heap of the least keys and return how many it then holds."""
    if used < len(heap):
        _sift_up(heap, used, key)
        return used + 1
    if key < heap[0]:
        replace_greatest(heap, used, key)
    return used


@inlined
def line_of(metric, root, longest, limit, gamma, doubt, tiny):  # type: ignore[no-untyped-def]
    """Return (a, b, most): rows of which a · measure + b · product is not below `most` are too far.

    A measure is that of `measure_of`, of a row of the length `longest` at most. No row is too far
    by this that is not by `least_of`: for squared L2 the error may be as large as of the mean of
    both squares, which is no less than the product of the roots. Products may be off by `doubt`
    more.
    """
    if metric == L2:
        a, b, most = 1.0, -2.0, limit - root * root * (1.0 - gamma - _SLACK)
    elif metric == COSINE:
        a, b, most = (1.0 - limit - gamma - 4.0 * _SLACK) * root, -1.0, 0.0
    else:
        a, b, most = -(gamma + _SLACK) * root, -1.0, limit
    # Below the least float32 a factor or a measure loses more than its last digit.
    lost = 4.0 * tiny + (abs(a) + longest) * 2.0**-148
    return a, b, most + abs(most) * 2.0**-22 + abs(b) * doubt + lost


@inlined
def measure_of(metric, square, gamma):  # type: ignore[no-untyped-def]
    """Return what `line_of` needs of a row: its squared norm, a little less, or its norm."""
    if metric == L2:
        return np.float32(square * (1.0 - gamma - _SLACK))
    return np.float32(np.sqrt(square))


@inlined
def _maybe_near(products, at, measures, begin, line):  # type: ignore[no-untyped-def]
    """Return bits of the 32 rows from `begin` on: those that are not too far by `line_of`."""
    a, b, most, none = _fill(line[0]), _fill(line[1]), _fill(line[2]), _fill(0.0)
    low = multiply_add(a, _load(measures, begin), none)
    low = multiply_add(b, _load(products, at), low)
    high = multiply_add(a, _load(measures, begin + _whole), none)
    high = multiply_add(b, _load(products, at + _whole), high)
    return less_mask(low, most) | (less_mask(high, most) << _whole)


@inlined
def gamma_of(terms):  # type: ignore[no-untyped-def]
    """Return how much a float32 sum of so many products is off at most, by their sizes."""
    return 1.01 * terms * _UNIT / (1.0 - terms * _UNIT)


@kernel()
def scan(
    metric: int,
    queries: NDArray[np.float32],
    query_squares: NDArray[np.float64],
    vectors: NDArray[np.float32],
    vector_squares: NDArray[np.float64],
    largest: float,
    products: NDArray[np.float32],
    first: int,
    allowed: NDArray[np.bool_],
    measures: NDArray[np.float32],
    heaps: NDArray[np.uint64],
    sizes: NDArray[np.int64],
) -> None:
    """Bring a block of vectors into each query's heap of the nearest.

    A float32 product of d terms is off by at most γ·|q|·|x| with γ = d·u / (1 − d·u), u = 2⁻²⁴, in
    whatever order it was summed (Higham, Accuracy and Stability, 3.1), and by d underflows. A row
    whose surrogate less that bound exceeds what could still enter is passed over, most of them by
    a look at many at once; the distance of every other row is computed exactly.

    Args:
        metric: code.
        queries: `(q, d) float32`.
        query_squares: `(q,) float64`.
        vectors: `(b, d) float32`, the block.
        vector_squares: `(b,) float64`.
        largest: of these.
        products: `(q, b) float32`, queries times vectors; not finite where it overflowed.
        first: id of the block's first row.
        allowed: `(b,) bool`, or empty if all are.
        measures: `(b,) float32`, scratch.
        heaps: `(q, k) uint64`, greatest first, `order_key`s; changed.
        sizes: `(q,) int64`, entries of each heap; changed.
    """
    d, count, k = queries.shape[1], len(vectors), heaps.shape[1]
    gamma = gamma_of(d)
    everyone = len(allowed) == 0
    flat, longest = products.reshape(-1), np.sqrt(largest)
    for row in range(count):
        measures[row] = measure_of(metric, vector_squares[row], gamma)
    for i in range(len(queries)):
        heap, square = heaps[i], query_squares[i]
        limit = limit_of(metric, key_distance(heap[0])) if sizes[i] == k else np.inf
        line = line_of(metric, np.sqrt(square), longest, limit, gamma, 0.0, d * TINY)
        is_usual = max(square, largest) < LARGE and square * largest < LARGE_PRODUCT
        for begin in range(0, count, _STEP):
            many = min(_STEP, count - begin)
            mask = (U64(1) << U64(many)) - U64(1)
            if is_usual and many == _STEP and sizes[i] == k:
                mask = _maybe_near(flat, U64(i * count + begin), measures, U64(begin), line)
            while mask != U64(0):
                j = begin + I64(lowest_bit(mask))
                mask &= mask - U64(1)
                if not everyone and not allowed[j]:
                    continue
                product = np.float64(products[i, j])
                error = gamma * np.sqrt(square * vector_squares[j]) + d * TINY
                if least_of(metric, product, error, square, vector_squares[j]) > limit:
                    continue
                key = order_key(distance(metric, queries, i, square, vectors, j), first + j)
                sizes[i] = offer(heap, sizes[i], key)
                if sizes[i] == k:
                    limit = limit_of(metric, key_distance(heap[0]))
                    line = line_of(metric, np.sqrt(square), longest, limit, gamma, 0.0, d * TINY)


@kernel()
def answers(
    heaps: NDArray[np.uint64],
    sizes: NDArray[np.int64],
    ids: NDArray[np.int64],
    distances: NDArray[np.float32],
) -> None:
    """Write the nearest rows of several heaps of each query, padded with −1 and infinity.

    Args:
        heaps: `(p, q, c) uint64`, each of `c` keys at most, greatest first; changed.
        sizes: `(p, q) int64`, entries of each heap; at least 1 array.
        ids: `(q, k) int64`, written; k is c or more.
        distances: `(q, k) float32`, written.
    """
    for i in range(len(ids)):
        heap, used = heaps[0, i], sizes[0, i]
        for part in range(1, len(heaps)):
            for j in range(sizes[part, i]):
                used = offer(heap, used, heaps[part, i, j])
        for j in range(used, ids.shape[1]):
            ids[i, j] = -1
            distances[i, j] = np.float32(np.inf)
        for j in range(used - 1, -1, -1):
            key = heap[0]
            ids[i, j] = np.int64(key & np.uint64(0xFFFFFFFF))
            distances[i, j] = key_distance(key)
            replace_greatest(heap, j, heap[j])
