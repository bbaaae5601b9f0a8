"""Exact nearest neighbours: as brute force over `Metric.distances`, but as fast as BLAS."""

import math
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import blas
from puffin_ann.ann.core.metrics import METRICS, Metric, frozen
from puffin_ann.ann.core.types import Answers
from puffin_ann.ann.exact import kernels_scan as kernels
from puffin_ann.ann.exact.byte_rows import ByteRows, bits_of
from puffin_ann.ann.exact.nearest_in import nearest_in
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
) -> Answers:
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
    if coded is not None:
        if bits is None and allowed is not None:
            bits = bits_of(allowed)
        found = coded.nearest(queries, k, bits=bits, within=within, threads=threads)
        if found is not None:
            return found
    known = unknown_squares(len(vectors)) if squares is None else squares
    job = _Job(metric, frozen(queries), vectors, _mask(allowed), known)
    # With few queries nothing is multiplied by BLAS.
    with blas.single_thread() if len(queries) > FEW else nullcontext():
        return nearest_in(job.look, len(vectors), len(queries), k, threads)


def unknown_squares(rows: int) -> NDArray[np.float64]:
    """Return what `search` takes as squares of so many vectors of which none is known yet."""
    return np.full(rows, np.nan)


def fill_squares(vectors: NDArray[np.float32], squares: NDArray[np.float64]) -> None:
    """Compute those of the squared norms that are not known, in place."""
    if np.isnan(squares).any():
        kernels.squares(frozen(vectors), squares)


@dataclass(frozen=True, eq=False)
class _Job:
    """One search by vectors as they are; `allowed` is empty if every row is."""

    metric: Metric
    queries: NDArray[np.float32]
    vectors: NDArray[np.float32]
    allowed: NDArray[np.bool_]
    squares: NDArray[np.float64]

    def look(
        self, first: int, last: int, heaps: NDArray[np.uint64], sizes: NDArray[np.int64]
    ) -> None:
        """Bring rows into the heaps of the nearest; see `nearest_in.Look`."""
        for at in range(0, len(self.queries), QUERY_BLOCK):
            part = slice(at, at + QUERY_BLOCK)
            self._scan(self.queries[part], (first, last), heaps[part], sizes[part])

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
