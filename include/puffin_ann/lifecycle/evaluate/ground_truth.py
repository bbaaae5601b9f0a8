"""Exact answers of the gate's queries, found while the table is read anyway.

The queries are rows of the table. By distance and by angle a row with the same vector bits as a
query, itself included, is nearest and as good as always found: it is left out of the query's
answers, as a search that is measured leaves it out. By inner product it is a row like any other,
which lies elsewhere than the query does and may be missed, so it counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.exact import brute_force
from puffin_ann.lake.read.identity.row_identity import hash_rows
from puffin_ann.lifecycle.ingest.segments import VectorRows

MAX_DUPLICATES = 64
"""A query with more exact duplicates than this is not measured with."""

_NO_PAIRS = np.zeros((0, 2), np.int64)


@dataclass(frozen=True)
class Truth:
    """The nearest rows of each query among the rows seen so far.

    Attributes:
        distances: (q, k) float32, exact, ascending, inf where fewer rows were seen.
        duplicates: (m, 4) int64: query, file id, row group, offset of rows equal to a query; none
            by inner product.
        duplicate_counts: (q,) int64; `duplicates` holds at most `MAX_DUPLICATES` of each.
        cells: (q, k) int32, the cell that each of those rows lies in; -1 where none was seen, or
            where it is not known.
    """

    distances: NDArray[np.float32]
    duplicates: NDArray[np.int64]
    duplicate_counts: NDArray[np.int64]
    cells: NDArray[np.int32]


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
        np.full((queries, k), -1, dtype=np.int32),
    )


def of_rows(
    queries: NDArray[np.float32],
    rows: VectorRows,
    k: int,
    metric: str,
    *,
    threads: int,
    cells: NDArray[np.uint32] | None = None,
) -> Truth:
    """Return the exact answers among a batch of rows.

    Args:
        queries: (q, d) float32.
        rows: of the table.
        k: neighbours.
        metric: of the index.
        threads: threads to use.
        cells: (n,) uint32, of the rows, if they are known.
    """
    if not len(queries) or not len(rows.vectors):
        return empty(len(queries), k)
    pairs = _equal_pairs(queries, rows.vectors) if metric != "ip" else _NO_PAIRS
    counts = np.bincount(pairs[:, 0], minlength=len(queries))
    wanted = k + min(MAX_DUPLICATES, int(counts.max()))
    ids, distances = brute_force.search(
        queries, rows.vectors, wanted, METRICS[metric], threads=threads
    )
    firsts = np.arange(len(queries))[:, None] * len(rows.vectors)  # each pair as one number
    keep = (ids >= 0) & ~np.isin(firsts + ids, firsts[pairs[:, 0], 0] + pairs[:, 1])
    distances = np.where(keep, distances, np.inf).astype(np.float32)
    known = np.full(len(rows.vectors), -1, np.int32) if cells is None else cells.astype(np.int32)
    distances, near = _nearest(distances, np.where(keep, known[ids], np.int32(-1)), k)
    first = _first_of_each(pairs, MAX_DUPLICATES)
    locators = rows.locators[first[:, 1]].astype(np.int64)
    return Truth(
        distances, np.column_stack([first[:, :1], locators]), counts.astype(np.int64), near
    )


def merge(parts: Sequence[Truth]) -> Truth:
    """Return the answers among all rows of all parts, as many as each part has."""
    k = min(part.distances.shape[1] for part in parts)
    distances, cells = _nearest(
        np.concatenate([part.distances for part in parts], axis=1),
        np.concatenate([part.cells for part in parts], axis=1),
        k,
    )
    return Truth(
        distances,
        np.concatenate([part.duplicates for part in parts]),
        np.sum([part.duplicate_counts for part in parts], axis=0),
        cells,
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


def _nearest(
    distances: NDArray[np.float32], cells: NDArray[np.int32], k: int
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return the k smallest distances of each query, ascending, and their cells."""
    missing = ((0, 0), (0, max(0, k - distances.shape[1])))
    distances = np.pad(distances, missing, constant_values=np.inf)
    cells = np.pad(cells, missing, constant_values=-1)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(cells, order, axis=1)
