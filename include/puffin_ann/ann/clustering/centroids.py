"""Centroids with radii: what stands for the rows of a data file, or of a cell.

A radius is a promise: no row lies further from its centroid. All a bound says rests on it, so radii
are measured in float64 over the rows as they are, and rounded up.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.clustering import kmeans
from puffin_ann.ann.core.metrics import METRICS

BLOCK_BYTES = 16 << 20
"""Float64 differences held at once."""

UNIT_ERROR = 1e-7
"""Rows of length 1 in float32 lie this near to the true directions: each number is off by 2⁻²⁴ of
itself at most, so the row is by 2⁻²⁴."""

ROUNDING = 1e-9
"""Far above what sums of up to 65,536 squares in float64 are off by, relatively."""


def of_rows(
    vectors: NDArray[np.float32], metric: str, count: int, *, seed: int, threads: int = 1
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return centroids of rows and their radii.

    They lie in the space that bounds are taken in: of unit rows for `cosine`, the vectors' own for
    `l2` and `ip`.

    Args:
        vectors: `(n, d) float32`, finite.
        metric: name.
        count: centroids wanted; there are fewer if there are fewer rows.
        seed: of k-means, if there is more than one.
        threads: threads to use.

    Returns:
        `(c, d) float32` and `(c,) float32`; no entry stands for no row.
    """
    if not len(vectors):
        return np.zeros((0, vectors.shape[1]), np.float32), np.zeros(0, np.float32)
    space = METRICS[metric].to_search_space(vectors, 0.0) if metric == "cosine" else vectors
    if count == 1:
        centroids = space.mean(axis=0, dtype=np.float64).astype(np.float32)[None, :]
        ids = np.zeros(len(space), np.uint32)
    else:
        centroids = kmeans.train(space, min(count, len(space)), seed=seed, threads=threads)
        ids, _ = kmeans.assign(space, centroids, threads=threads)
    largest = radii(space, centroids, ids, metric)
    used = np.bincount(ids, minlength=len(centroids)) > 0
    return centroids[used], largest[used]


def radii(
    space: NDArray[np.float32],
    centroids: NDArray[np.float32],
    ids: NDArray[np.uint32],
    metric: str,
) -> NDArray[np.float32]:
    """Return `(c,) float32`, the largest distance of each centroid to its rows, rounded up.

    Args:
        space: `(n, w) float32`, rows in the space of the centroids; may be memory-mapped.
        centroids: `(c, w) float32`.
        ids: `(n,) uint32`, the centroid of each row.
        metric: name; unit rows are allowed for having been rounded.
    """
    largest = np.zeros(len(centroids))
    step = max(1, BLOCK_BYTES // (8 * max(1, space.shape[1])))
    for at in range(0, len(space), step):
        mine = ids[at : at + step]
        difference = space[at : at + step].astype(np.float64) - centroids[mine]
        np.maximum.at(largest, mine, np.einsum("ij,ij->i", difference, difference))
    wide = np.sqrt(largest) * (1 + ROUNDING)
    if metric == "cosine":
        wide += UNIT_ERROR
    with np.errstate(over="ignore"):
        narrow: NDArray[np.float32] = wide.astype(np.float32)
    return np.where(narrow < wide, np.nextafter(narrow, np.float32(np.inf)), narrow)
