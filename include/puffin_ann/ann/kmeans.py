"""k-means by Lloyd's iterations: deterministic for a seed, whatever the number of threads."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann import kmeans_kernels
from puffin_ann.ann import threads as threading
from puffin_ann.ann.metrics import frozen
from puffin_ann.errors import BadInputError

Rows = NDArray[np.float32]

FLAT_CENTROIDS = 4096
"""More centroids than this are trained in two levels: the cost per row falls to 2·√k."""
SCORE_BYTES = 4 << 20


def train(
    sample: Rows, k: int, *, seed: int, iterations: int = 20, threads: int = 1
) -> NDArray[np.float32]:
    """Return k centroids, `(k, d) float32`.

    Args:
        sample: `(n, d) float32`, n ≥ k.
        k: Centroids wanted; above `FLAT_CENTROIDS` they are trained in two levels.
        seed: The same seed and sample give the same bits.
        iterations: Most of Lloyd's iterations; fewer if nothing changes any more.
        threads: Threads to use.

    Raises:
        BadInputError: There are fewer rows than centroids.

    """
    if not 1 <= k <= len(sample):
        raise BadInputError(f"k-means: {k} centroids of {len(sample)} rows")
    if k <= FLAT_CENTROIDS:
        return _flat(sample, k, seed, iterations, threads)
    return _two_levels(sample, k, seed, iterations, threads)


def assign(
    vectors: Rows, centroids: Rows, threads: int = 1
) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
    """Return the nearest centroid of each row and its squared distance.

    Args:
        vectors: `(n, d) float32`; may be memory-mapped.
        centroids: `(k, d) float32`, k ≥ 1.
        threads: Threads to use.

    Returns:
        ids `(n,) uint32`, the lowest of those equally near; squared distances `(n,) float32`.

    """
    ids = np.empty(len(vectors), np.uint32)
    squared = np.empty(len(vectors), np.float32)
    halves = np.einsum("ij,ij->i", centroids, centroids) / np.float32(2)
    turned = np.ascontiguousarray(centroids.T)
    size = max(16, SCORE_BYTES // (4 * len(centroids)))

    def nearest(part: slice) -> None:
        rows = np.ascontiguousarray(vectors[part])
        scores = halves - rows @ turned
        best = scores.argmin(axis=1)
        least = np.take_along_axis(scores, best[:, None], axis=1)[:, 0]
        ids[part] = best
        squared[part] = np.maximum(np.einsum("ij,ij->i", rows, rows) + 2 * least, 0)

    threading.run(nearest, threading.ranges(len(vectors), size), threads)
    return ids, squared


def _flat(sample: Rows, k: int, seed: int, iterations: int, threads: int) -> Rows:
    generator = np.random.default_rng([seed, k])
    centroids = np.ascontiguousarray(sample[np.sort(generator.permutation(len(sample))[:k])])
    before: NDArray[np.uint32] | None = None
    for _ in range(iterations):
        ids, squared = assign(sample, centroids, threads)
        if before is not None and np.array_equal(ids, before):
            break
        before = ids
        centroids = _means(sample, ids, squared, centroids)
    return centroids


def _means(
    sample: Rows, ids: NDArray[np.uint32], squared: NDArray[np.float32], centroids: Rows
) -> Rows:
    """Return the mean of each cluster; an empty one takes the row farthest from its centroid."""
    sums = np.zeros(centroids.shape, np.float64)
    counts = np.zeros(len(centroids), np.int64)
    kmeans_kernels.add_rows(frozen(sample), frozen(ids), sums, counts)
    means = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        farthest = np.lexsort((np.arange(len(squared)), -squared))[: len(empty)]
        means[empty] = sample[farthest]
    return means


def _two_levels(sample: Rows, k: int, seed: int, iterations: int, threads: int) -> Rows:
    coarse = _flat(sample, int(np.sqrt(k)), seed, iterations, threads)
    ids, _ = assign(sample, coarse, threads)
    members = np.bincount(ids, minlength=len(coarse))
    shares = _shares(members, k)
    order = np.argsort(ids, kind="stable")
    starts = np.cumsum(members) - members

    def split(cell: int) -> Rows:
        rows = sample[np.sort(order[starts[cell] : starts[cell] + members[cell]])]
        return _flat(rows, int(shares[cell]), seed + cell + 1, iterations, 1)

    cells = [cell for cell in range(len(coarse)) if shares[cell]]
    return np.concatenate(threading.run(split, cells, threads))


def _shares(members: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Share k among cells by their members, none more than it has members, in all exactly k."""
    wanted = k * members / members.sum()
    shares: NDArray[np.int64] = np.floor(wanted).astype(np.int64)
    order = np.lexsort((np.arange(len(members)), shares - wanted))
    while (missing := k - int(shares.sum())) > 0:
        open_cells = order[shares[order] < members[order]]
        shares[open_cells[:missing]] += 1
    return shares
