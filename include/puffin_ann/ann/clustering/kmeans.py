"""k-means: the centroids that cut a table's vectors into cells."""

import math

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.clustering import kernels_kmeans as kernels
from puffin_ann.ann.core import blas
from puffin_ann.ann.core.metrics import frozen
from puffin_ann.errors import TooFewRowsError

PRODUCT_BYTES = 8 << 20
"""Float32 products held at once by one thread."""
FLAT_CENTROIDS = 4096
"""More centroids than this are trained in two levels: a round costs 2·√k a row instead of k."""


def train(
    sample: NDArray[np.float32], k: int, *, seed: int, iterations: int = 20, threads: int = 1
) -> NDArray[np.float32]:
    """Return `(k, d) float32` centroids; the same for a seed whatever the threads.

    Lloyd's algorithm from k random rows. A centroid that loses all its rows moves to the row
    furthest from its own centroid, as long as there is one that does not lie on it. Above
    `FLAT_CENTROIDS`, about √k cells are trained first, and each is divided by itself.

    Args:
        sample: `(n, d) float32`, in the search space.
        k: centroids wanted, at least 1.
        seed: of the random choice.
        iterations: at most so many rounds; fewer once nothing moves.
        threads: threads to use.

    Raises:
        TooFewRowsError: the sample has fewer rows than k.
    """
    sample = frozen(sample)
    if k < 1 or len(sample) < k:
        raise TooFewRowsError(f"{len(sample)} sampled rows cannot be cut into {k} partitions")
    if k <= FLAT_CENTROIDS:
        return _flat(sample, k, [seed], iterations, threads)
    cells = _flat(sample, math.isqrt(k), [seed], iterations, threads)
    ids, _ = assign(sample, cells, threads)
    members = np.bincount(ids, minlength=len(cells))
    order = np.argsort(ids, kind="stable")
    ends = np.cumsum(members)
    centroids = []
    for cell, share in enumerate(_shares(members, k)):
        if share:
            rows = sample[order[ends[cell] - members[cell] : ends[cell]]]
            centroids.append(_flat(rows, int(share), [seed, cell], iterations, threads))
    return np.concatenate(centroids)


def _flat(
    sample: NDArray[np.float32], k: int, seed: list[int], iterations: int, threads: int
) -> NDArray[np.float32]:
    generator = np.random.default_rng(seed)
    centroids = sample[np.sort(generator.choice(len(sample), k, replace=False))]
    for _ in range(iterations):
        ids, squared = assign(sample, centroids, threads)
        moved = _means(sample, ids, squared, centroids)
        if np.array_equal(moved, centroids):
            break
        centroids = moved
    return centroids


def _shares(members: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Divide k among cells by their members: none gets more than it has, in all exactly k."""
    wanted = k * members / members.sum()
    shares: NDArray[np.int64] = np.floor(wanted).astype(np.int64)
    order = np.argsort(shares - wanted, kind="stable")
    while missing := k - int(shares.sum()):
        roomy = order[shares[order] < members[order]]
        shares[roomy[:missing]] += 1
    return shares


def assign(
    vectors: NDArray[np.float32], centroids: NDArray[np.float32], threads: int = 1
) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
    """Return each vector's nearest centroid and its squared distance.

    Args:
        vectors: `(n, d) float32`; may be memory-mapped.
        centroids: `(k, d) float32`.
        threads: threads to use.

    Returns:
        `(n,) uint32` ids, the lowest of equally near ones, and `(n,) float32` squared distances.
    """
    ids = np.empty(len(vectors), dtype=np.uint32)
    squared = np.empty(len(vectors), dtype=np.float32)
    centroids = frozen(centroids)
    squares = np.einsum("ij,ij->i", centroids, centroids)
    # Blocks depend on shapes alone: a product split otherwise rounds otherwise.
    step = max(64, min(8192, PRODUCT_BYTES // (4 * len(centroids))))

    def block(at: int) -> None:
        part = slice(at, at + step)
        rows = frozen(vectors[part])
        products = rows @ centroids.T
        kernels.nearest(rows, centroids, squares, products, ids[part], squared[part])

    with blas.single_thread():
        for _ in blas.parallel(block, range(0, len(vectors), step), threads):
            pass
    return ids, squared


def _means(
    sample: NDArray[np.float32],
    ids: NDArray[np.uint32],
    squared: NDArray[np.float32],
    centroids: NDArray[np.float32],
) -> NDArray[np.float32]:
    sums = np.zeros(centroids.shape, dtype=np.float64)
    counts = np.zeros(len(centroids), dtype=np.int64)
    kernels.add_up(sample, ids, sums, counts)
    means = centroids.copy()
    there = counts > 0
    means[there] = sums[there] / counts[there, None]
    empty = np.flatnonzero(~there)
    if len(empty):
        furthest = np.argsort(-squared, kind="stable")[: len(empty)]
        furthest = furthest[squared[furthest] > 0]
        means[empty[: len(furthest)]] = sample[furthest]
    return means
