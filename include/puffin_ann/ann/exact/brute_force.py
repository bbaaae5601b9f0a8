"""Exact nearest neighbours: as brute force over `Metric.distances`, but as fast as BLAS."""

import math
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import blas
from puffin_ann.ann.core.metrics import METRICS, Metric, frozen
from puffin_ann.ann.exact import kernels_scan as kernels
from puffin_ann.ann.exact.byte_rows import ByteQueries, ByteRows, bits_of
from puffin_ann.ann.exact.kernels_coding import BLOCK
from puffin_ann.errors import QueryError

QUERY_BLOCK = 256
PRODUCT_BYTES = 4 << 20
"""Float32 products held at once by one thread."""
VECTOR_BLOCK_BYTES = 1 << 20
"""Vectors looked at in one go; they stay in the cache of a core while they are."""
FEW = 16
"""Queries with which BLAS takes longer than to read each vector once: 36,000 × 384 are multiplied
with one in 1.6 ms rather than 5.0, with 4 in 2.7 rather than 13, with 32 in 24 rather than 20."""
FEW_BLOCK_BYTES = 16 << 20
"""The same for so few, by which vectors are read once anyway."""
ROWS_WORTH_A_THREAD = 16384


def search(
    queries: NDArray[np.float32],
    vectors: NDArray[np.float32],
    k: int,
    metric: Metric | str,
    *,
    allowed: NDArray[np.bool_] | None = None,
    squares: NDArray[np.float64] | None = None,
    coded: ByteRows | None = None,
    bits: NDArray[np.uint16] | None = None,
    within: NDArray[np.float32] | None = None,
    threads: int = 1,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the k nearest vectors of each query.

    Equal, to the last bit, to sorting all of `metric.distances(queries, vectors)` by (distance,
    id), whatever the number of threads.

    Args:
        queries: `(q, d) float32`, finite.
        vectors: `(n, d) float32`, finite; may be memory-mapped, it is read once per 256 queries.
        k: neighbours wanted, at least 0.
        metric: a metric or its name.
        allowed: `(n,) bool`, the rows that may be answered; all if None.
        squares: `(n,) float64`, squared norms of the vectors, and NaN where they are not known,
            which is replaced. To compute them takes as long as to compare all with one query, so
            that whoever searches the same vectors again keeps them.
        coded: the same rows by a byte a number, of the same metric; they are read first, and those
            rows alone as they are that may be answered.
        bits: `bits_of` those allowed, for whoever searches with the same again and again.
        within: `(q,) float32`, distances beyond which rows are not wanted: they may be left out.
        threads: threads to use.

    Returns:
        `(q, k) int64` ids and `(q, k) float32` distances, ascending by (distance, id); where fewer
        rows are allowed, padded with −1 and infinity.

    Raises:
        QueryError: the shapes do not fit each other, or k is negative.
    """
    if isinstance(metric, str):
        metric = METRICS[metric]
    _check(queries, vectors, k, allowed)
    known = unknown_squares(len(vectors)) if squares is None else squares
    least, mask, queries = min(k, len(vectors)), _mask(allowed), frozen(queries)
    if bits is None and len(mask):
        bits = None if coded is None else bits_of(mask)
    asked = None if coded is None else ByteQueries.of(coded, queries, bits, within)
    job = _Job(metric, queries, vectors, least, mask, known, asked)
    parts = max(1, min(threads, len(vectors) // ROWS_WORTH_A_THREAD))
    cuts = [len(vectors) * part // parts // BLOCK * BLOCK for part in range(parts)]
    has_products = asked is None and len(queries) > FEW
    with blas.single_thread() if has_products else nullcontext():
        found = list(blas.parallel(job.nearest_in, pairwise([*cuts, len(vectors)]), threads))
    return _merged(found, len(queries), k)


def unknown_squares(rows: int) -> NDArray[np.float64]:
    """Return what `search` takes as squares of so many vectors of which none is known yet."""
    return np.full(rows, np.nan)


def fill_squares(vectors: NDArray[np.float32], squares: NDArray[np.float64]) -> None:
    """Compute those of the squared norms that are not known, in place."""
    if np.isnan(squares).any():
        kernels.squares(frozen(vectors), squares)


@dataclass(frozen=True, eq=False)
class _Job:
    """One search; `allowed` is empty if every row is, `coded` None if rows are read as they are."""

    metric: Metric
    queries: NDArray[np.float32]
    vectors: NDArray[np.float32]
    k: int
    allowed: NDArray[np.bool_]
    squares: NDArray[np.float64]
    coded: ByteQueries | None

    def nearest_in(self, rows: tuple[int, int]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return `(q, k) uint64` keys, unordered, and how many of each line are used."""
        heaps = np.zeros((len(self.queries), self.k), dtype=np.uint64)
        sizes = np.zeros(len(self.queries), dtype=np.int64)
        if not self.k or not len(self.queries):
            return heaps, sizes
        if self.coded is not None:
            self.coded.offer(rows, heaps, sizes)
            return heaps, sizes
        for at in range(0, len(self.queries), QUERY_BLOCK):
            part = slice(at, at + QUERY_BLOCK)
            self._scan(self.queries[part], rows, heaps[part], sizes[part])
        return heaps, sizes

    def _scan(
        self,
        queries: NDArray[np.float32],
        rows: tuple[int, int],
        heaps: NDArray[np.uint64],
        sizes: NDArray[np.int64],
    ) -> None:
        first, last = rows
        dimension = max(1, queries.shape[1])
        is_few = len(queries) <= FEW
        block_bytes = FEW_BLOCK_BYTES if is_few else VECTOR_BLOCK_BYTES
        step = max(16, min(PRODUCT_BYTES // len(queries), block_bytes // dimension) // 4)
        query_squares = np.empty(len(queries))
        kernels.squares(queries, query_squares)
        most = min(step, last - first)
        room = np.empty(len(queries) * most, dtype=np.float32)
        measures = np.empty(most, np.float32)
        for at in range(first, last, step):
            end = min(at + step, last)
            allowed = self.allowed[at:end]
            if len(allowed) and not allowed.any():
                continue
            block, squares = frozen(self.vectors[at:end]), self.squares[at:end]
            largest = float(squares.max())
            if math.isnan(largest):
                kernels.squares(block, squares)
                largest = float(squares.max())
            products = room[: len(queries) * len(block)].reshape(len(queries), len(block))
            if is_few:
                kernels.few_products(queries, block, products)
            else:
                with np.errstate(over="ignore", invalid="ignore"):
                    np.dot(queries, block.T, out=products)
            kernels.scan(
                self.metric.code,
                queries,
                query_squares,
                block,
                squares,
                largest,
                products,
                at,
                allowed,
                measures,
                heaps,
                sizes,
            )


def _mask(allowed: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    mask = np.empty(0, np.bool_) if allowed is None else np.ascontiguousarray(allowed, np.bool_)
    mask = mask.view(np.ndarray)
    mask.flags.writeable = False
    return mask


def _merged(
    found: list[tuple[NDArray[np.uint64], NDArray[np.int64]]], queries: int, k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    unused = np.uint64(2**64 - 1)
    for heaps, sizes in found:
        if heaps.size and sizes.min() < heaps.shape[1]:
            heaps[np.arange(heaps.shape[1]) >= sizes[:, None]] = unused
    keys, counts = found[0]
    if len(found) > 1:  # a query alone of few rows takes hardly longer than what is spared here
        keys = np.concatenate([heaps for heaps, _ in found], axis=1)
        counts = np.minimum(np.sum([sizes for _, sizes in found], axis=0), keys.shape[1])
    keys.sort(axis=1)
    ids = np.empty((queries, k), dtype=np.int64)
    distances = np.empty((queries, k), dtype=np.float32)
    kernels.answers(keys, counts, ids, distances)
    return ids, distances


def _check(
    queries: NDArray[np.float32],
    vectors: NDArray[np.float32],
    k: int,
    allowed: NDArray[np.bool_] | None,
) -> None:
    if queries.ndim != 2 or vectors.ndim != 2 or queries.shape[1] != vectors.shape[1]:
        raise QueryError(
            f"queries of shape {queries.shape} do not fit vectors of shape {vectors.shape}"
        )
    if k < 0:
        raise QueryError(f"k is {k}; ask for 0 or more neighbours")
    if allowed is not None and allowed.shape != (len(vectors),):
        raise QueryError(f"a mask of shape {allowed.shape} for {len(vectors)} vectors")
