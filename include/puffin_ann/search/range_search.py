"""Every live row nearer than a distance, exactly, whatever the index is built by."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.clustering.bounds import Bounds
from puffin_ann.ann.core.range_search import rows_nearer
from puffin_ann.blobs.routing import Routing
from puffin_ann.search.brute_force import RowBatch
from puffin_ann.search.merge import LocatorKeys
from puffin_ann.search.row_locators import FileRanks
from puffin_ann.search.shards.load import LoadedShard
from puffin_ann.settings import settings

BLOCK_ROWS = 32_768
"""Rows of a shard compared in one go."""


@dataclass(frozen=True, eq=False)
class Part:
    """Rows to compare with some queries.

    Attributes:
        vectors: (n, d) float32.
        keys: (ids) -> file rank, row group and row offset of rows.
        asking: (m,) int64, numbers of the queries.
        barred: (n,) uint8, non-zero for rows that are not to be answered.
        unit: the shard or file they are of; None for rows outside the index.
    """

    vectors: NDArray[np.float32]
    keys: Callable[[NDArray[np.int64]], LocatorKeys]
    asking: NDArray[np.int64]
    barred: NDArray[np.uint8] | None
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
            barred=part.barred,
            threads=settings().thread_count,
        )
        found_queries.append(part.asking[query])
        found_distances.append(near)
        found_keys.append(np.stack(part.keys(row)))
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

    return Part(batch.vectors, keys, asking, None, unit)


def scan_parts(batches: Iterable[RowBatch], queries: int) -> Iterator[Part]:
    """Give the live rows outside the index, to be compared with every query."""
    everyone = np.arange(queries)
    for batch in batches:
        yield batch_part(batch, everyone, None)


def shard_parts(
    shard: LoadedShard,
    dead: NDArray[np.bool_] | None,
    ranks: FileRanks,
    asking: NDArray[np.int64],
) -> Iterator[Part]:
    """Give the rows of a shard, block by block.

    Args:
        shard: its stored vectors are read.
        dead: (n,) bool, rows that are not to be answered.
        ranks: places of covered files among the view's.
        asking: (m,) int64, numbers of the queries to compare.
    """
    for start in range(0, shard.engine.rows, BLOCK_ROWS):
        ordinals = np.arange(start, min(start + BLOCK_ROWS, shard.engine.rows))
        barred = None if dead is None else dead[ordinals].view(np.uint8)
        if barred is not None and barred.all():
            continue

        def keys(ids: NDArray[np.int64], start: int = start) -> LocatorKeys:
            return shard.locators.keys(ranks, ids + start)

        vectors = shard.engine.vectors(ordinals)
        yield Part(vectors, keys, asking, barred, shard.entry.shard_id)


def shards_within(
    routing: Routing, queries: NDArray[np.float32], distance: float
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Give the shards that may hold a row nearer than a distance, and to which queries.

    A shard is left out where each of its partitions is, by centroid and radius. Deltas hold rows
    that came after the radii were measured, and are always asked.

    Yields:
        The shard's place in `routing.shards`, and the (m,) int64 numbers of queries.
    """
    near = np.ones((len(queries), len(routing.shards)), dtype=np.bool_)
    if len(routing.centroids):
        place = {shard.shard_id: number for number, shard in enumerate(routing.shards)}
        owners = np.array([place[int(one)] for one in routing.partition_shards], dtype=np.int64)
        bounds = Bounds(
            routing.metric,
            routing.centroids,
            routing.partition_radii,
            owners,
            len(routing.shards),
        )
        # For ip the centroids live among augmented vectors, and the query's last number is 0.
        ends = 1 if routing.metric == "ip" else 0
        moved = np.pad(queries, ((0, 0), (0, ends)))
        for number, query in enumerate(moved):
            near[number] = False
            near[number, bounds.within(query, distance)] = True
        near[:, [shard.kind == "delta" for shard in routing.shards]] = True
    for number in range(len(routing.shards)):
        asking = np.flatnonzero(near[:, number])
        if len(asking):
            yield number, asking
