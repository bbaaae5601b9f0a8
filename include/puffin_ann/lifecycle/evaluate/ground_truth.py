"""Exact answers of the gate's queries, found while the table is read anyway.

The queries are rows of the table. A row with the same vector bits as a query, itself included, is
left out of its answers, as a search that is measured leaves it out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import exact
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.lake.read.row_identity import hash_rows
from puffin_ann.lifecycle.ingest.segments import VectorRows

MAX_DUPLICATES = 64
"""A query with more exact duplicates than this is not measured with."""


@dataclass(frozen=True)
class Truth:
    """The nearest rows of each query among the rows seen so far.

    Attributes:
        distances: (q, k) float32, exact, ascending, inf where fewer rows were seen.
        duplicates: (m, 4) int64: query, file id, row group, offset of rows equal to a query.
        duplicate_counts: (q,) int64; `duplicates` holds at most `MAX_DUPLICATES` of each.
    """

    distances: NDArray[np.float32]
    duplicates: NDArray[np.int64]
    duplicate_counts: NDArray[np.int64]


@dataclass(frozen=True)
class Queries:
    """Rows that serve as queries, (q, d) float32."""

    vectors: NDArray[np.float32]


def empty(queries: int, k: int) -> Truth:
    """Return the answers before any row was seen."""
    return Truth(
        np.full((queries, k), np.inf, dtype=np.float32),
        np.zeros((0, 4), dtype=np.int64),
        np.zeros(queries, dtype=np.int64),
    )


def of_rows(
    queries: NDArray[np.float32], rows: VectorRows, k: int, metric: str, *, threads: int
) -> Truth:
    """Return the exact answers among a batch of rows."""
    if not len(queries) or not len(rows.vectors):
        return empty(len(queries), k)
    pairs = _equal_pairs(queries, rows.vectors)
    counts = np.bincount(pairs[:, 0], minlength=len(queries))
    wanted = k + min(MAX_DUPLICATES, int(counts.max()))
    ids, distances = exact.search(queries, rows.vectors, wanted, METRICS[metric], threads=threads)
    left_out = set(map(tuple, pairs.tolist()))
    keep = np.array(
        [[(q, i) not in left_out and i >= 0 for i in row] for q, row in enumerate(ids.tolist())]
    )
    distances = np.where(keep, distances, np.inf).astype(np.float32)
    distances.sort(axis=1)
    first = _first_of_each(pairs, MAX_DUPLICATES)
    locators = rows.locators[first[:, 1]].astype(np.int64)
    return Truth(
        _padded(distances, k), np.column_stack([first[:, :1], locators]), counts.astype(np.int64)
    )


def merge(parts: Sequence[Truth]) -> Truth:
    """Return the answers among all rows of all parts."""
    k = parts[0].distances.shape[1]
    distances = np.concatenate([part.distances for part in parts], axis=1)
    distances.sort(axis=1)
    return Truth(
        distances[:, :k],
        np.concatenate([part.duplicates for part in parts]),
        np.sum([part.duplicate_counts for part in parts], axis=0),
    )


def _equal_pairs(queries: NDArray[np.float32], vectors: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return (query, row) for every row whose bits equal a query's, in order of query and row."""
    as_pairs = np.dtype([("a", np.uint64), ("b", np.uint64)])
    query_hashes = np.ascontiguousarray(hash_rows(queries, None)).view(as_pairs).reshape(-1)
    row_hashes = np.ascontiguousarray(hash_rows(vectors, None)).view(as_pairs).reshape(-1)
    candidates = np.flatnonzero(np.isin(row_hashes["a"], query_hashes["a"]))
    found = query_hashes[:, None] == row_hashes[candidates][None, :]
    query, place = np.nonzero(found)
    return np.column_stack([query, candidates[place]]).astype(np.int64)


def _first_of_each(pairs: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    if not len(pairs):
        return pairs
    starts = np.searchsorted(pairs[:, 0], pairs[:, 0], side="left")
    return pairs[np.arange(len(pairs)) - starts < limit]


def _padded(distances: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    if distances.shape[1] >= k:
        return distances[:, :k]
    missing = np.full((len(distances), k - distances.shape[1]), np.inf, dtype=np.float32)
    return np.concatenate([distances, missing], axis=1)
