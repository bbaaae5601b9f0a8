"""Exact distances of pairs, compiled once and used wherever an answer's distance is made.

Brute force and reranking must agree to the last bit, so both run these very loops: eight float64
partial sums in a fixed order, without `fastmath`, the same on every machine.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.settings import configure_numba

configure_numba()  # Numba reads where to keep compiled code when it is imported

from numba import njit  # noqa: E402

F32, U32 = np.float32, np.uint32  # `.view` in a kernel takes a global only

L2, COSINE, IP = 0, 1, 2
"""Codes of the metrics inside kernels."""

LARGEST = float(np.finfo(np.float32).max)
"""Distances beyond float32 are cut to this: infinity means that there is no answer."""


@njit(cache=True, nogil=True)
def squared_l2(query: NDArray[np.float32], vector: NDArray[np.float32]) -> float:
    """Return the squared Euclidean distance of two `(d,) float32` vectors, in float64."""
    d = np.uint64(len(query))
    whole = d & ~np.uint64(7)
    a = b = c = e = f = g = h = i = 0.0
    at = np.uint64(0)
    while at < whole:
        t0 = np.float64(query[at]) - np.float64(vector[at])
        t1 = np.float64(query[at + np.uint64(1)]) - np.float64(vector[at + np.uint64(1)])
        t2 = np.float64(query[at + np.uint64(2)]) - np.float64(vector[at + np.uint64(2)])
        t3 = np.float64(query[at + np.uint64(3)]) - np.float64(vector[at + np.uint64(3)])
        t4 = np.float64(query[at + np.uint64(4)]) - np.float64(vector[at + np.uint64(4)])
        t5 = np.float64(query[at + np.uint64(5)]) - np.float64(vector[at + np.uint64(5)])
        t6 = np.float64(query[at + np.uint64(6)]) - np.float64(vector[at + np.uint64(6)])
        t7 = np.float64(query[at + np.uint64(7)]) - np.float64(vector[at + np.uint64(7)])
        a += t0 * t0
        b += t1 * t1
        c += t2 * t2
        e += t3 * t3
        f += t4 * t4
        g += t5 * t5
        h += t6 * t6
        i += t7 * t7
        at += np.uint64(8)
    while at < d:
        t0 = np.float64(query[at]) - np.float64(vector[at])
        a += t0 * t0
        at += np.uint64(1)
    return ((a + b) + (c + e)) + ((f + g) + (h + i))


@njit(cache=True, nogil=True)
def dot(query: NDArray[np.float32], vector: NDArray[np.float32]) -> float:
    """Return the inner product of two `(d,) float32` vectors, in float64."""
    d = np.uint64(len(query))
    whole = d & ~np.uint64(7)
    a = b = c = e = f = g = h = i = 0.0
    at = np.uint64(0)
    while at < whole:
        a += np.float64(query[at]) * np.float64(vector[at])
        b += np.float64(query[at + np.uint64(1)]) * np.float64(vector[at + np.uint64(1)])
        c += np.float64(query[at + np.uint64(2)]) * np.float64(vector[at + np.uint64(2)])
        e += np.float64(query[at + np.uint64(3)]) * np.float64(vector[at + np.uint64(3)])
        f += np.float64(query[at + np.uint64(4)]) * np.float64(vector[at + np.uint64(4)])
        g += np.float64(query[at + np.uint64(5)]) * np.float64(vector[at + np.uint64(5)])
        h += np.float64(query[at + np.uint64(6)]) * np.float64(vector[at + np.uint64(6)])
        i += np.float64(query[at + np.uint64(7)]) * np.float64(vector[at + np.uint64(7)])
        at += np.uint64(8)
    while at < d:
        a += np.float64(query[at]) * np.float64(vector[at])
        at += np.uint64(1)
    return ((a + b) + (c + e)) + ((f + g) + (h + i))


@njit(cache=True, nogil=True)
def distance(
    metric: int, query: NDArray[np.float32], query_square: float, vector: NDArray[np.float32]
) -> np.float32:
    """Return the distance of a metric, rounded once; `query_square` is `dot(query, query)`."""
    if metric == L2:
        value = np.sqrt(squared_l2(query, vector))
    elif metric == IP:
        value = 0.0 - dot(query, vector)
    else:
        # The root of the product of squares, not the product of roots, which is exact if both are
        # equal: a vector has distance 0 from itself.
        size = np.sqrt(query_square * dot(vector, vector))
        value = 1.0 if size == 0.0 else max(0.0, 1.0 - dot(query, vector) / size)
    return np.float32(min(max(value, -LARGEST), LARGEST))


@njit(cache=True, nogil=True)
def all_distances(
    metric: int,
    queries: NDArray[np.float32],
    vectors: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Write the distances of `(q, d)` queries and `(n, d)` vectors to `(q, n)` out."""
    for i in range(len(queries)):
        square = dot(queries[i], queries[i])
        for j in range(len(vectors)):
            out[i, j] = distance(metric, queries[i], square, vectors[j])


@njit(cache=True, nogil=True)
def chosen_distances(
    metric: int,
    queries: NDArray[np.float32],
    vectors: NDArray[np.float32],
    ids: NDArray[np.int64],
    out: NDArray[np.float32],
) -> None:
    """Write the distances of each query and its `(q, c)` chosen vectors; id −1 gets infinity."""
    for i in range(len(queries)):
        square = dot(queries[i], queries[i])
        for j in range(ids.shape[1]):
            chosen = ids[i, j]
            if chosen < 0:
                out[i, j] = np.float32(np.inf)
            else:
                out[i, j] = distance(metric, queries[i], square, vectors[chosen])


@njit(cache=True, nogil=True)
def order_key(value: np.float32, number: int) -> np.uint64:
    """Pack (distance, id) into one integer that sorts as the pair does; id < 2³²."""
    bits = np.uint64(F32(value + F32(0.0)).view(U32))  # −0 becomes +0
    if bits & np.uint64(0x80000000):
        bits = ~bits & np.uint64(0xFFFFFFFF)
    else:
        bits |= np.uint64(0x80000000)
    return (bits << np.uint64(32)) | np.uint64(number)


@njit(cache=True, nogil=True)
def key_distance(key: np.uint64) -> np.float32:
    """Return the distance in an `order_key`."""
    bits = key >> np.uint64(32)
    if bits & np.uint64(0x80000000):
        bits &= np.uint64(0x7FFFFFFF)
    else:
        bits = ~bits & np.uint64(0xFFFFFFFF)
    return U32(bits).view(F32)
