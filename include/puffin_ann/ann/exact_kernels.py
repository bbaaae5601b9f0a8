"""Exact distances: float32 vectors, sums in float64, rounded to float32 once.

The order of the additions is part of the definition, so that a pair of vectors has one distance
whatever batch, thread or machine computes it: eight running sums, sum j over the places j, j + 8,
j + 16, …; then ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7)); then the places after the last
multiple of eight, one by one. No fast-math: the compiler may neither reorder nor fuse.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.settings import configure_numba

configure_numba()  # Numba reads where to keep compiled code when it is imported

from numba import njit  # noqa: E402

L2, COSINE, IP = 1, 2, 3
"""How a metric is told to a kernel."""

LARGEST = float(np.finfo(np.float32).max)
"""Distances beyond float32 are cut to this: infinity means that there is no answer."""

_u64 = np.uint64
_f64 = np.float64


@njit(cache=True, nogil=True)
def _joined(s: NDArray[np.float64]) -> float:
    return float(((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])))


@njit(cache=True, nogil=True)
def _difference(q: NDArray[np.float32], x: NDArray[np.float32], s: NDArray[np.float64]) -> float:
    """Return |q − x|²; `s` is scratch of 8."""
    n = _u64(len(q))
    whole = n & ~_u64(7)
    s[:] = 0.0
    for i in range(_u64(0), whole, _u64(8)):
        for j in range(_u64(8)):
            t = _f64(q[i + j]) - _f64(x[i + j])
            s[j] += t * t
    total = _joined(s)
    for i in range(whole, n):
        t = _f64(q[i]) - _f64(x[i])
        total += t * t
    return total


@njit(cache=True, nogil=True)
def _product(q: NDArray[np.float32], x: NDArray[np.float32], s: NDArray[np.float64]) -> float:
    """Return ⟨q, x⟩; `s` is scratch of 8."""
    n = _u64(len(q))
    whole = n & ~_u64(7)
    s[:] = 0.0
    for i in range(_u64(0), whole, _u64(8)):
        for j in range(_u64(8)):
            s[j] += _f64(q[i + j]) * _f64(x[i + j])
    total = _joined(s)
    for i in range(whole, n):
        total += _f64(q[i]) * _f64(x[i])
    return total


@njit(cache=True, nogil=True)
def squared_norm(q: NDArray[np.float32], s: NDArray[np.float64]) -> float:
    """Return |q|²; `s` is float64 scratch of 8."""
    return _product(q, q, s)


@njit(cache=True, nogil=True)
def distance(
    metric: int,
    q: NDArray[np.float32],
    q_squared: float,
    x: NDArray[np.float32],
    s: NDArray[np.float64],
) -> np.float32:
    """Return the distance of two `(d,) float32` vectors.

    Args:
        metric: `L2`, `COSINE` or `IP`.
        q: The query.
        q_squared: `squared_norm(q)`; only used by `COSINE`.
        x: The other vector.
        s: float64 scratch of 8.

    """
    if metric == L2:
        value = np.sqrt(_difference(q, x, s))
    elif metric == IP:
        value = 0.0 - _product(q, x, s)
    else:
        product = _product(q, x, s)
        # √(a·a) is exactly a, so a vector has distance 0 from itself and from its multiples by 2ⁱ
        norms = np.sqrt(q_squared * _product(x, x, s))
        value = 1.0 if norms == 0.0 else max(0.0, 1.0 - product / norms)
    return np.float32(min(max(value, -LARGEST), LARGEST))


@njit(cache=True, nogil=True)
def all_pairs(
    metric: int,
    queries: NDArray[np.float32],
    vectors: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Write the distances of `(q, d)` and `(n, d)` vectors to `out`, `(q, n) float32`."""
    s = np.empty(8, np.float64)
    for i in range(len(queries)):
        q = queries[i]
        q_squared = squared_norm(q, s)
        for j in range(len(vectors)):
            out[i, j] = distance(metric, q, q_squared, vectors[j], s)


@njit(cache=True, nogil=True)
def named_pairs(
    metric: int,
    queries: NDArray[np.float32],
    vectors: NDArray[np.float32],
    ids: NDArray[np.int64],
    out: NDArray[np.float32],
) -> None:
    """Write the distances of each query to the rows named in its line of `ids`, `(q, c) int64`.

    A negative id gives infinity. Ids are trusted to be below `len(vectors)`.
    """
    s = np.empty(8, np.float64)
    for i in range(len(queries)):
        q = queries[i]
        q_squared = squared_norm(q, s)
        for j in range(ids.shape[1]):
            row = ids[i, j]
            if row < 0:
                out[i, j] = np.inf
            else:
                out[i, j] = distance(metric, q, q_squared, vectors[row], s)
