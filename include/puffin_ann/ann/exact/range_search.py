"""All rows nearer than a distance, exactly, at the speed of BLAS.

A product in float32, whatever the order of its additions, is off by at most γ·‖q‖·‖x‖, with
γ = d·2⁻²⁴ and a little more. Rows that cannot be near enough even so are left out; of the rest the
exact distances are taken, those that searches answer.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import blas
from puffin_ann.ann.core.metrics import METRICS, frozen

PRODUCTS = 1 << 20
"""Pairs looked at in one go."""
MOST_ROWS = 65_536
PAIRS = 4096
"""Pairs whose exact distance is taken in one go."""
TINY = 1.2e-38
"""What a product below the smallest normal float32 may lose."""
SLACK, SMALLEST = 3e-7, 1.5e-45
"""Relative and absolute: distances are rounded to float32 before they are compared."""

FEW_QUERIES = 4
"""For so few, all distances are taken sooner than most pairs are ruled out."""

Found = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]


def rows_nearer(
    queries: NDArray[np.float32],
    vectors: NDArray[np.float32],
    distance: float,
    metric: str,
    *,
    threads: int = 1,
) -> Found:
    """Return the pairs of query and row whose distance is below one given.

    Args:
        queries: `(q, d) float32`, finite.
        vectors: `(n, d) float32`, finite; may be memory-mapped.
        distance: compared with distances as they are answered, in float32.
        metric: name.
        threads: threads to use.

    Returns:
        `(m,) int64` queries, `(m,) int64` rows and `(m,) float32` distances, in order of rows.
    """
    step = min(MOST_ROWS, max(1, PRODUCTS // max(1, len(queries))))

    def block(at: int) -> Found:
        rows = frozen(vectors[at : at + step])
        if len(queries) <= FEW_QUERIES:
            near = METRICS[metric].distances(queries, rows)
            return _below(near, distance, at)
        query, row = _candidates(queries, rows, distance, metric)
        found = list(_exact(queries, rows, query, row, distance, metric))
        if not found:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32)
        query, row, near = (np.concatenate(part) for part in zip(*found, strict=True))
        return query, row + at, near

    with blas.single_thread():
        parts = list(blas.parallel(block, range(0, len(vectors), step), threads))
    if not parts:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32)
    query, row, near = (np.concatenate(part) for part in zip(*parts, strict=True))
    return query, row, near


def _below(near: NDArray[np.float32], distance: float, at: int) -> Found:
    row, query = np.nonzero(near.T.astype(np.float64) < distance)
    return query, row + at, near[query, row]


def _candidates(
    queries: NDArray[np.float32], rows: NDArray[np.float32], distance: float, metric: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    dimension = queries.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        inner = (rows @ queries.T).astype(np.float64)
        query_squares = np.einsum("ij,ij->i", queries, queries, dtype=np.float64)
        row_squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
        lengths = np.sqrt(row_squares[:, None] * query_squares[None, :])
        inner += 1.01 * dimension * 2.0**-24 * lengths + dimension * TINY
        if metric == "l2":
            squares = row_squares[:, None] + query_squares[None, :]
            least = np.sqrt(np.maximum(squares * (1 - 1e-12) - 2 * inner, 0.0))
        elif metric == "cosine":
            least = 1.0 - np.divide(inner, lengths, out=np.zeros_like(inner), where=lengths > 0)
            least -= 1e-12
        else:
            least = -inner
        # What overflowed is not a number: such a pair is looked at.
        near = ~(least - SLACK * np.abs(least) - SMALLEST >= distance)
    row, query = np.nonzero(near)
    return query, row


def _exact(
    queries: NDArray[np.float32],
    rows: NDArray[np.float32],
    query: NDArray[np.int64],
    row: NDArray[np.int64],
    distance: float,
    metric: str,
) -> Iterator[Found]:
    for at in range(0, len(query), PAIRS):
        here, there = query[at : at + PAIRS], row[at : at + PAIRS]
        found = METRICS[metric].pair_distances(queries[here], rows, there[:, None])[:, 0]
        near = found.astype(np.float64) < distance
        yield here[near], there[near], found[near]
