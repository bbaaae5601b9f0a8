"""How near the rows of a file can be to a query: proven lower bounds from coded centroids.

Every centroid c is kept as one byte a number: c = s·z + e, with the length of e known. A query u is
coded so, too, as u = t·y + f. Then ⟨y, z⟩ is a sum of integers, exact, over a quarter of the bytes
that float32 would take, and

    ‖u − c‖ ≥ ‖t·y − s·z‖ − ‖f‖ − ‖e‖        ⟨u, c⟩ ≤ t·s·⟨y, z⟩ + ‖f‖·‖s·z‖ + ‖u‖·‖e‖

A row x of the file lies within the radius r of its centroid, so that for `l2`, and for `cosine`
among unit vectors, ‖u − x‖ ≥ ‖u − c‖ − r, and for `ip` ⟨u, x⟩ ≤ ⟨u, c⟩ + ‖u‖·r. Where a bound by
code does not rule a file out, that by the centroid itself may. Bounds are lowered by more than
float64 sums, and the rounding of distances to float32, can be off by.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.clustering import kernels_bounds as kernels
from puffin_ann.ann.simd.kernels_distance import LARGEST

CODE = 127
QUERY_CODE = 8191
LANES = 64
CODED_BYTES = 16 << 20

SUMS = 1e-12
"""Relative error of a float64 sum of squares or products, a hundred times over."""
NARROWED = 2.0**-23
"""Twice what a distance loses when it is rounded to float32."""
SMALLEST = 1.5e-45
"""The least number of float32 and a little: what is rounded down there is off by up to half of it,
however small it is itself."""
COSINE = 1e-12
"""Absolute error of 1 − cos in float64, a hundred times over."""


class Bounds:
    """Centroids with radii, coded once, asked many times.

    Args:
        metric: `"l2"`, `"cosine"` or `"ip"`.
        centroids: `(n, d) float32`, as `centroids.of_rows` gives them.
        radii: `(n,) float32`, infinite if not known.
        owners: `(n,) int64` below `owned`, what each centroid stands for: a file, a cell.
        owned: how many owners there are; those without a centroid hold no row.
    """

    def __init__(
        self,
        metric: str,
        centroids: NDArray[np.float32],
        radii: NDArray[np.float32],
        owners: NDArray[np.int64],
        owned: int,
    ) -> None:
        order = np.argsort(owners, kind="stable")
        self.metric = metric
        self.owned = owned
        self._centroids = np.ascontiguousarray(centroids[order])
        self._radii = radii[order].astype(np.float64)
        self._owners = owners[order]
        self._starts = np.flatnonzero(np.diff(self._owners, prepend=-1))
        count, dimension = centroids.shape
        self._width = -(-dimension // LANES) * LANES
        self._most = min(QUERY_CODE, (2**31 - 1) // (CODE * self._width))
        self._codes = np.zeros((count, self._width), np.int8)
        self._steps = np.zeros(count)
        self._lengths = np.zeros(count)
        self._errors = np.zeros(count)
        block = max(1, CODED_BYTES // (8 * self._width))
        for at in range(0, count, block):
            self._code(slice(at, min(at + block, count)))

    def _code(self, part: slice) -> None:
        wide = self._centroids[part].astype(np.float64)
        steps = np.abs(wide).max(axis=1, initial=0.0) / CODE
        codes = np.rint(wide / np.where(steps > 0, steps, 1.0)[:, None])
        self._codes[part, : wide.shape[1]] = codes
        coded = steps[:, None] * codes
        self._steps[part] = steps
        self._lengths[part] = _norms(coded)
        self._errors[part] = _norms(wide - coded) * (1 + SUMS)

    def __len__(self) -> int:
        """Return the number of centroids."""
        return len(self._radii)

    @property
    def resident_bytes(self) -> int:
        """Bytes a probe reads: codes and what belongs to them."""
        return int(self._codes.nbytes + 4 * self._steps.nbytes)

    def lower(self, query: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return `(n,) float64`: no row of an entry is answered with a smaller distance.

        Args:
            query: `(d,) float32`, finite.
        """
        moved = self._moved(query)
        step = float(np.abs(moved).max(initial=0.0)) / self._most
        code = np.rint(moved / (step or 1.0))
        padded = np.zeros(self._width, np.int16)
        padded[: len(code)] = code
        sums = np.empty(len(self), np.int32)
        kernels.products(self._codes.reshape(-1), np.uint64(self._width), padded, sums)
        rest = _norm(moved - step * code) * (1 + SUMS)
        inner = (step * self._steps) * sums
        if self.metric == "ip":
            length = _norm(moved) * (1 + SUMS)
            spread = rest * self._lengths + length * (self._errors + self._radii)
            return _lowered(-(inner + spread) - SUMS * (np.abs(inner) + spread))
        own = (step * _norm(code)) ** 2
        squares = own + self._lengths**2
        apart = np.sqrt(np.maximum(squares - 2 * inner - SUMS * squares, 0.0))
        return self._from_apart(apart - rest - self._errors - self._radii)

    def exact(self, query: NDArray[np.float32], entries: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return `(len(entries),) float64`, the bounds by the centroids themselves."""
        moved = self._moved(query)
        chosen = self._centroids[entries].astype(np.float64)
        if self.metric == "ip":
            length = _norm(moved) * (1 + SUMS)
            inner = chosen @ moved
            spread = length * self._radii[entries]
            slack = SUMS * (length * _norms(chosen) + spread)
            return _lowered(-(inner + spread) - slack)
        apart = _norms(chosen - moved) * (1 - SUMS)
        return self._from_apart(apart - self._radii[entries])

    def of_owners(self, query: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return `(owned,) float64`, the least bound of each owner's entries; infinite for none."""
        found = np.full(self.owned, np.inf)
        if len(self):
            found[self._owners[self._starts]] = np.minimum.reduceat(self.lower(query), self._starts)
        return found

    def within(self, query: NDArray[np.float32], distance: float) -> NDArray[np.int64]:
        """Return the owners, ascending, that may hold a row nearer to a query than `distance`."""
        near = np.flatnonzero(self.lower(query) < distance)
        near = near[self.exact(query, near) < distance]
        return np.unique(self._owners[near])

    def nearest(
        self, query: NDArray[np.float32], count: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the `count` owners of least bound, by it, and the bounds."""
        bounds = self.of_owners(query)
        count = min(count, self.owned)
        if count < self.owned:
            chosen = np.argpartition(bounds, count)[:count]
        else:
            chosen = np.arange(self.owned)
        chosen = chosen[np.argsort(bounds[chosen], kind="stable")]
        return chosen, bounds[chosen]

    def _moved(self, query: NDArray[np.float32]) -> NDArray[np.float64]:
        wide = query.astype(np.float64)
        if self.metric != "cosine":
            return wide
        length = _norm(wide)
        return wide / length if length > 0 else wide

    def _from_apart(self, apart: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn lower bounds of Euclidean distance into bounds of the metric's."""
        apart = np.maximum(apart, 0.0) * (1 - SUMS)
        if self.metric == "cosine":
            return _lowered(apart * apart / 2) - COSINE
        return _lowered(apart)


def _lowered(bounds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Lower bounds below what a distance that was rounded to float32, or cut to it, may be."""
    lowered: NDArray[np.float64] = np.minimum(bounds, LARGEST)
    lowered -= NARROWED * np.abs(lowered) + SMALLEST
    lowered[np.isnan(lowered)] = -np.inf  # a query of zeros, a radius that is not known
    return lowered


def _norms(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    norms: NDArray[np.float64] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return norms


def _norm(row: NDArray[np.float64]) -> float:
    return float(np.sqrt(row @ row))
