"""Every live row nearer than a distance, exactly, whatever the index is built by."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.exact.range_search import rows_nearer
from puffin_ann.search.brute_force import RowBatch
from puffin_ann.search.explain.recorder import enter
from puffin_ann.search.merge import LocatorKeys
from puffin_ann.settings import settings


@dataclass(frozen=True, eq=False)
class Part:
    """Rows to compare with some queries.

    Attributes:
        vectors: (n, d) float32.
        keys: (ids) -> file rank, row group and row offset of rows.
        asking: (m,) int64, numbers of the queries.
        unit: the shard or file they are of; None for rows outside the index.
        ordinals: (ids) -> (n,) int64, ordinals of rows in the shard; None if they are in none.
    """

    vectors: NDArray[np.float32]
    keys: Callable[[NDArray[np.int64]], LocatorKeys]
    asking: NDArray[np.int64]
    unit: int | None
    ordinals: Callable[[NDArray[np.int64]], NDArray[np.int64]] | None = None


@dataclass(frozen=True, eq=False)
class Pairs:
    """Queries and rows near them, by query, distance and locator.

    Attributes:
        query: (m,) int64.
        rank: (m,) int64, from 1.
        distances: (m,) float32.
        keys: (3, m) int64: file rank, row group and row offset.
        shards: (m,) int64, id of each row's shard; -1: it is in none.
        ordinals: (m,) int64, in that shard.
        units: shards or files that were compared.
    """

    query: NDArray[np.int64]
    rank: NDArray[np.int64]
    distances: NDArray[np.float32]
    keys: NDArray[np.int64]
    shards: NDArray[np.int64]
    ordinals: NDArray[np.int64]
    units: int


def pairs_within(
    queries: NDArray[np.float32], distance: float, metric: str, parts: Iterable[Part]
) -> Pairs:
    """Compare queries with the rows of all parts, and return those nearer than a distance."""
    found_queries, found_distances = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
    found_keys, found_rows = [np.zeros((3, 0), np.int64)], [np.zeros((2, 0), np.int64)]
    units: set[int] = set()
    for part in parts:
        if part.unit is not None:
            units.add(part.unit)
        query, row, near = rows_nearer(
            queries[part.asking],
            part.vectors,
            distance,
            metric,
            threads=settings().thread_count,
        )
        found_queries.append(part.asking[query])
        found_distances.append(near)
        found_keys.append(np.stack(part.keys(row)))
        found_rows.append(_in_shard(part, row))
    enter("merge answers")
    query, near = np.concatenate(found_queries), np.concatenate(found_distances)
    keys, rows = np.concatenate(found_keys, axis=1), np.concatenate(found_rows, axis=1)
    order = np.lexsort((keys[2], keys[1], keys[0], near, query))
    query = query[order]
    rank = np.arange(len(query)) - np.searchsorted(query, query, side="left") + 1
    shards, ordinals = rows[:, order]
    return Pairs(query, rank, near[order], keys[:, order], shards, ordinals, len(units))


def _in_shard(part: Part, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return (2, n) int64, the shard of each row and its ordinal there; -1 if it is in none."""
    found = np.full((2, len(ids)), -1, np.int64)
    if part.ordinals is not None and part.unit is not None:
        found[0], found[1] = part.unit, part.ordinals(ids)
    return found


def batch_part(batch: RowBatch, asking: NDArray[np.int64], unit: int | None) -> Part:
    """Return rows of one row group as a part."""

    def keys(ids: NDArray[np.int64]) -> LocatorKeys:
        return (
            np.full(ids.shape, batch.rank, dtype=np.int64),
            np.full(ids.shape, batch.row_group, dtype=np.int64),
            batch.offsets[ids],
        )

    return Part(batch.vectors, keys, asking, unit)


def scan_parts(batches: Iterable[RowBatch], queries: int) -> Iterator[Part]:
    """Give the live rows outside the index, to be compared with every query."""
    enter("scan rows outside the index")
    everyone = np.arange(queries)
    for batch in batches:
        yield batch_part(batch, everyone, None)
