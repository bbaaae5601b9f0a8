"""Put the rows of a shard in the order of its cells, so that those of a cell are one range.

Within a cell they stay in the order of their locators. Cells are found again from the vectors: a
shard has few of them, so that costs next to nothing beside building it, and nothing has to be
staged for it.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.clustering import kmeans
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.blobs.shards.cells import CellStarts
from puffin_ann.blobs.shards.rows import Rows
from puffin_ann.lifecycle.ingest.segments import VectorRows, mapped_rows

CHUNK_ROWS = 1 << 15


@dataclass(frozen=True)
class ShardCells:
    """The cells of one shard.

    Attributes:
        ids: (c,) uint32, their numbers in the index, ascending.
        centroids: (c, w) float32.
        metric: of the index.
        norm_bound: of the space of the centroids.
    """

    ids: NDArray[np.uint32]
    centroids: NDArray[np.float32]
    metric: str
    norm_bound: float

    @classmethod
    def of(
        cls,
        shard: int,
        centroids: NDArray[np.float32],
        partition_shards: NDArray[np.uint32],
        metric: str,
        norm_bound: float,
    ) -> "ShardCells":
        """Pick those of a shard.

        Args:
            shard: its number.
            centroids: (k, w) float32, of all cells.
            partition_shards: (k,) uint32, the shard each cell lies in.
            metric: of the index.
            norm_bound: of the space of the centroids.
        """
        ids = np.flatnonzero(partition_shards == shard)
        return cls(ids.astype(np.uint32), centroids[ids], metric, norm_bound)

    def nearest(self, vectors: NDArray[np.float32], threads: int) -> NDArray[np.uint32]:
        """Return (n,) uint32, the cell of each row; of a shard without cells nobody may ask."""
        if len(self.ids) == 1:
            return np.full(len(vectors), self.ids[0], np.uint32)
        space = METRICS[self.metric].to_search_space(vectors, self.norm_bound)
        found: NDArray[np.uint32] = self.ids[
            kmeans.assign(space, self.centroids, threads=threads)[0]
        ]
        return found


def in_cell_order(
    rows: VectorRows, cells: ShardCells, folder: Path, *, threads: int
) -> tuple[VectorRows, Rows]:
    """Return a shard's rows in the order of its cells, and where they are, with the cells' starts.

    Args:
        rows: in the order of their locators.
        cells: of the shard; without any, or with rows in one alone, what comes back are `rows`.
        folder: existing and empty; takes the rows once more, to be mapped from there.
        threads: threads to use.
    """
    count = len(rows.vectors)
    if not len(cells.ids) or not count:
        return rows, rows.located
    found = np.empty(count, np.uint32)
    for start in range(0, count, CHUNK_ROWS):
        part = slice(start, start + CHUNK_ROWS)
        found[part] = cells.nearest(np.asarray(rows.vectors[part]), threads)
    starts = CellStarts.of(np.sort(found))
    if len(starts.cells) == 1:
        return rows, replace(rows.located, cells=starts)
    order = np.argsort(found, kind="stable")
    result = mapped_rows(count, rows.vectors.shape[1], folder)
    for start in range(0, count, CHUNK_ROWS):
        part = slice(start, start + CHUNK_ROWS)
        result.vectors[part] = rows.vectors[order[part]]
        result.locators[part] = rows.locators[order[part]]
        result.identities[part] = rows.identities[order[part]]
    return result, replace(result.located, cells=starts)
