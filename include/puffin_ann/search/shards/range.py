"""The shards that may hold a row nearer than a distance, and their rows, block by block."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.clustering.bounds import Bounds
from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.engines.reranked import Reranked, blocks_of
from puffin_ann.search.merge import LocatorKeys
from puffin_ann.search.range_search import Part
from puffin_ann.search.shards.opening.load import LoadedShard
from puffin_ann.search.version.row_locators import FileRanks

BLOCK_ROWS = 32_768
"""Rows of a shard compared in one go."""


def shard_parts(
    shard: LoadedShard,
    excluded: NDArray[np.bool_] | None,
    ranks: FileRanks,
    asking: NDArray[np.int64],
    within: tuple[NDArray[np.float32], float],
) -> Iterator[Part]:
    """Give the rows of a shard, block by block; those that stored vectors rule out may lack.

    Args:
        shard: its stored vectors are read.
        excluded: (n,) bool, rows that are not to be answered.
        ranks: places of covered files among the view's.
        asking: (m,) int64, numbers of the queries to compare.
        within: (q, d) float32 queries, and the distance to which rows are wanted.
    """
    engine = shard.engine
    if isinstance(engine, Reranked):
        yield from _parts_of_table(shard, engine, excluded, ranks, asking, within)
        return
    every = np.arange(engine.rows) if excluded is None else np.flatnonzero(~excluded)
    for start in range(0, len(every), BLOCK_ROWS):
        ordinals = every[start : start + BLOCK_ROWS]

        yield _part(shard, engine.vectors(ordinals), ordinals, ranks, asking)


def _parts_of_table(
    shard: LoadedShard,
    engine: Reranked,
    deleted: NDArray[np.bool_] | None,
    ranks: FileRanks,
    asking: NDArray[np.int64],
    within: tuple[NDArray[np.float32], float],
) -> Iterator[Part]:
    """Give the rows that what is stored does not rule out, as the table has them.

    Read in the order of the table; without a row to read, a part tells that the shard was asked.
    """
    queries, distance = within
    mask = None if deleted is None else deleted.view(np.uint8)
    nobody = np.zeros((0, engine.dimension), np.float32)
    yield Part(nobody, lambda ids: (ids, ids, ids), asking, shard.entry.shard_id)
    for block in blocks_of(engine.order, mask):
        ordinals = engine.maybe_nearer(queries[asking], distance, block)
        if len(ordinals):
            yield _part(shard, engine.vectors(ordinals), ordinals, ranks, asking)


def _part(
    shard: LoadedShard,
    vectors: NDArray[np.float32],
    ordinals: NDArray[np.int64],
    ranks: FileRanks,
    asking: NDArray[np.int64],
) -> Part:
    """Return rows of a shard, by their ordinals, as a part."""

    def keys(ids: NDArray[np.int64]) -> LocatorKeys:
        return shard.locators.keys(ranks, ordinals[ids])

    return Part(vectors, keys, asking, shard.entry.shard_id, ordinals.__getitem__)


def shards_within(
    shards: Sequence[ShardEntry],
    cells: Partitions | None,
    queries: NDArray[np.float32],
    distance: float,
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Give the shards that may hold a row nearer than a distance, and to which queries.

    A shard is left out where each of its cells is, by centroid and radius. Deltas hold rows
    that came after the radii were measured, and are always asked.

    Args:
        shards: of a version.
        cells: that lie in them; None leaves no shard out.
        queries: (q, d) float32.
        distance: in the unit of the metric.

    Yields:
        The shard's place among them, and the (m,) int64 numbers of queries.
    """
    near = np.ones((len(queries), len(shards)), dtype=np.bool_)
    if cells is not None and cells.count:
        place = {shard.shard_id: number for number, shard in enumerate(shards)}
        owners = np.array([place[number] for number in cells.shards.tolist()], dtype=np.int64)
        bounds = Bounds(cells.metric, cells.centroids, cells.radii, owners, len(shards))
        # For ip the centroids live among augmented vectors, and the query's last number is 0.
        ends = 1 if cells.metric == "ip" else 0
        moved = np.pad(queries, ((0, 0), (0, ends)))
        for number, query in enumerate(moved):
            near[number] = False
            near[number, bounds.within(query, distance)] = True
        near[:, [shard.kind == "delta" for shard in shards]] = True
    for number in range(len(shards)):
        asking = np.flatnonzero(near[:, number])
        if len(asking):
            yield number, asking
