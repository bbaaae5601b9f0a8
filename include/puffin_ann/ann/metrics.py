"""The metrics by name: exact distances, and the space in which squared L2 orders as they do.

| metric | distance | search space |
|---|---|---|
| `l2` | Euclidean, not squared | the vectors themselves |
| `cosine` | 1 − cos; a zero vector has cos 0 | unit vectors; zero stays zero |
| `ip` | −⟨q, x⟩ | one dimension more: √(bound² − ‖x‖²) for rows, 0 for queries |

Distances are float32, smaller is nearer; their last bit is defined (see `exact_kernels`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann import exact_kernels

Rows = NDArray[np.float32]
Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True)
class Metric:
    """One way to compare vectors.

    Attributes:
        name: As declared.
        code: As told to kernels.
        extra_dimensions: By how much the search space is wider than the vectors.
        to_search_space: (rows `(n, d) float32`, norm bound) -> `(n, dc) float32`. The bound
            matters to `ip` only; rows longer than it are taken for rows of its length, which
            costs recall, never exactness.
        queries_to_search_space: queries `(q, d) float32` -> `(q, dc) float32`.

    """

    name: str
    code: int
    extra_dimensions: int
    to_search_space: Callable[[Rows, float], Rows]
    queries_to_search_space: Callable[[Rows], Rows]

    def distances(self, queries: Rows, vectors: Rows) -> Rows:
        """Return the exact distances `(q, n) float32` of all pairs."""
        out = np.empty((len(queries), len(vectors)), np.float32)
        exact_kernels.all_pairs(self.code, frozen(queries), frozen(vectors), out)
        return out

    def pair_distances(self, queries: Rows, vectors: Rows, ids: NDArray[np.int64]) -> Rows:
        """Return the exact distances of each query to its own rows.

        Args:
            queries: `(q, d) float32`.
            vectors: `(n, d) float32`, may be memory-mapped.
            ids: `(q, c) int64` rows of `vectors`; a negative one gives infinity.

        Returns:
            `(q, c) float32`.

        """
        out = np.empty(ids.shape, np.float32)
        exact_kernels.named_pairs(self.code, frozen(queries), frozen(vectors), frozen(ids), out)
        return out


def frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return a C-contiguous read-only view: kernels are then compiled once, not twice."""
    view = np.ascontiguousarray(array).view(np.ndarray)
    view.flags.writeable = False
    return view


def _same(vectors: Rows, norm_bound: float = 0.0) -> Rows:
    return vectors


def _unit(vectors: Rows, norm_bound: float = 0.0) -> Rows:
    norms = np.sqrt(squared_norms(vectors))
    norms[norms == 0.0] = 1.0
    return (vectors / norms[:, None]).astype(np.float32)


def _augmented(vectors: Rows, norm_bound: float) -> Rows:
    out = np.empty((len(vectors), vectors.shape[1] + 1), np.float32)
    out[:, :-1] = vectors
    out[:, -1] = np.sqrt(np.maximum(float(norm_bound) ** 2 - squared_norms(vectors), 0.0))
    return out


def _augmented_queries(queries: Rows) -> Rows:
    out = np.zeros((len(queries), queries.shape[1] + 1), np.float32)
    out[:, :-1] = queries
    return out


def squared_norms(vectors: Rows) -> NDArray[np.float64]:
    """Return |x|² of each row, `(n,) float64`."""
    squared: NDArray[np.float64] = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    return squared


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "l2": Metric("l2", exact_kernels.L2, 0, _same, _same),
        "cosine": Metric("cosine", exact_kernels.COSINE, 0, _unit, _unit),
        "ip": Metric("ip", exact_kernels.IP, 1, _augmented, _augmented_queries),
    }
)
