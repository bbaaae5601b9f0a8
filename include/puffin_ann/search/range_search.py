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
    """

    vectors: NDArray[np.float32]
    keys: Callable[[NDArray[np.int64]], LocatorKeys]
    asking: NDArray[np.int64]
    unit: int | None


def pairs_within(
    queries: NDArray[np.float32], distance: float, metric: str, parts: Iterable[Part]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32], NDArray[np.int64], int]:
    """Compare all parts.

    Returns:
        By query, distance and locator: queries (m,) int64, ranks (m,) int64 from 1, distances (m,)
        float32 and keys (3, m) int64; and how many shards or files were compared.
    """
    found_queries, found_distances = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
    found_keys = [np.zeros((3, 0), np.int64)]
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
    enter("merge answers")
    query, near = np.concatenate(found_queries), np.concatenate(found_distances)
    keys = np.concatenate(found_keys, axis=1)
    order = np.lexsort((keys[2], keys[1], keys[0], near, query))
    query = query[order]
    rank = np.arange(len(query)) - np.searchsorted(query, query, side="left") + 1
    return query, rank, near[order], keys[:, order], len(units)


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
