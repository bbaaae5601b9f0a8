"""The metrics: how each measures, and the space in which squared L2 orders as it does.

Graphs, centroids and codes know squared L2 only; `to_search_space` brings vectors there. What a
caller gets to see comes from `distances` and `pair_distances`, which are exact: accumulated in
float64 over the stored float32 values and rounded once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.simd import kernels_distance as kernels

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Metric:
    """One metric; smaller distances are nearer.

    Attributes:
        name: `"l2"` (Euclidean, not squared), `"cosine"` (1 − cos; a zero vector has distance 1)
            or `"ip"` (the inner product, negated).
        code: the metric inside kernels.
        to_search_space: `((n, d) float32, norm_bound) -> (n, dc) float32`; `norm_bound`, the
            largest norm of the rows, matters for `ip` only. Rows may exceed it: they are treated
            as if they lay on it.
        queries_to_search_space: `(q, d) float32 -> (q, dc) float32`.
    """

    name: str
    code: int
    to_search_space: Callable[[Floats, float], Floats]
    queries_to_search_space: Callable[[Floats], Floats]

    def search_dimension(self, dimension: int) -> int:
        """Return dc, how many numbers a vector has in the search space."""
        return dimension + 1 if self.name == "ip" else dimension

    def distances(self, queries: Floats, vectors: Floats) -> Floats:
        """Return the exact distances of `(q, d)` queries and `(n, d)` vectors: `(q, n) float32`."""
        out = np.empty((len(queries), len(vectors)), dtype=np.float32)
        kernels.all_distances(self.code, frozen(queries), frozen(vectors), out)
        return out

    def pair_distances(self, queries: Floats, vectors: Floats, ids: NDArray[np.int64]) -> Floats:
        """Return the exact distances of each query and the vectors chosen for it.

        Args:
            queries: `(q, d) float32`.
            vectors: `(n, d) float32`; may be memory-mapped, only chosen rows are read.
            ids: `(q, c) int64` rows of `vectors`; −1 for none, whose distance is infinite.

        Returns:
            `(q, c) float32`, to the last bit what `distances` gives.
        """
        out = np.empty(ids.shape, dtype=np.float32)
        chosen = np.ascontiguousarray(ids, dtype=np.int64)
        kernels.chosen_distances(self.code, frozen(queries), frozen(vectors), chosen, out)
        return out


def plain(array: Floats) -> Floats:
    """Return the array as contiguous float32 of the base class, copied only if it must be."""
    return np.ascontiguousarray(array, dtype=np.float32).view(np.ndarray)


def frozen(array: Floats) -> Floats:
    """Return the array as kernels take what they only read: `plain`, and a read-only view.

    A kernel is compiled again for every kind of array, so that a memory map, a map opened
    read-only and an ordinary array would cost it three times, seconds each.
    """
    view = plain(array)
    view.flags.writeable = False
    return view


def _norms(vectors: Floats) -> NDArray[np.float64]:
    wide = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64, casting="same_kind")
    norms: NDArray[np.float64] = np.sqrt(wide)
    return norms


def _same(vectors: Floats, norm_bound: float) -> Floats:
    return plain(vectors)


def _queries_same(queries: Floats) -> Floats:
    return plain(queries)


def _unit(vectors: Floats) -> Floats:
    norms = _norms(vectors)
    norms[norms == 0.0] = 1.0
    out = np.empty(vectors.shape, dtype=np.float32)
    # Divided in float64, but never held so: numpy goes through a small buffer.
    return np.divide(vectors, norms[:, None], out=out, dtype=np.float64, casting="same_kind")


def _unit_rows(vectors: Floats, norm_bound: float) -> Floats:
    return _unit(vectors)


def _augmented(vectors: Floats, norm_bound: float) -> Floats:
    norms = _norms(vectors)
    out = np.empty((len(vectors), vectors.shape[1] + 1), dtype=np.float32)
    out[:, :-1] = vectors
    out[:, -1] = np.sqrt(np.maximum(0.0, float(norm_bound) ** 2 - norms**2))
    return out


def _queries_augmented(queries: Floats) -> Floats:
    out = np.zeros((len(queries), queries.shape[1] + 1), dtype=np.float32)
    out[:, :-1] = queries
    return out


METRICS: Mapping[str, Metric] = {
    "l2": Metric("l2", kernels.L2, _same, _queries_same),
    "cosine": Metric("cosine", kernels.COSINE, _unit_rows, _unit),
    "ip": Metric("ip", kernels.IP, _augmented, _queries_augmented),
}
