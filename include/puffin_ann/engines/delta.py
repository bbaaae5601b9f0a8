"""Deltas: rows added since their neighbours were built, as a small shard of its own.

A delta lives until a merge, and every query asks it beside the shards it is routed to. So it is the
same for every algorithm: rows compared one by one while they are few, a graph where they are many.
"""

from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.types import Answers, Width
from puffin_ann.ann.exact.compared_rows import Coding
from puffin_ann.blobs.shards import delta as delta_blob
from puffin_ann.blobs.shards.delta import Delta
from puffin_ann.engines import engine
from puffin_ann.engines.base import Progress, RowMask, SearchableShard
from puffin_ann.engines.exact import ExactShard

COMPARED_ROWS = 4096
"""Most rows that are compared one by one. Measured on one core at 100 dimensions: 4,096 rows take
0.11 ms a query alone and 0.025 ms in a batch, a graph 0.03 and 0.023 ms at width 64; but the graph
takes 0.3 s to build and a third more bytes. At 8,192 rows a batch takes twice the graph's time."""


class DeltaShard:
    """An opened delta, searched as any shard.

    Attributes:
        cells: `(n,) uint32`, the cell of each row, by the routing blob.
    """

    def __init__(self, shard: SearchableShard, cells: NDArray[np.uint32]) -> None:
        self._shard = shard
        self.cells = cells

    @property
    def rows(self) -> int:
        """Number of rows n, deleted ones included."""
        return self._shard.rows

    @property
    def dimension(self) -> int:
        """Numbers d in a vector."""
        return self._shard.dimension

    @property
    def metric(self) -> str:
        """Name of the metric that distances are measured by."""
        return self._shard.metric

    @property
    def resident_bytes(self) -> int:
        """Memory, mostly mapped, that searches touch."""
        return self._shard.resident_bytes

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        width: Width,
        deleted: RowMask = None,
        allowed: RowMask = None,
        threads: int = 1,
    ) -> Answers:
        """Return near rows of each query; see `SearchableShard.search`."""
        return self._shard.search(
            queries, k, width=width, deleted=deleted, allowed=allowed, threads=threads
        )

    def coding_after(self, queries: int) -> Coding:
        """Return whether `exhaustive` compares rows by a byte a number, once some more asked."""
        return self._shard.coding_after(queries)

    def exhaustive(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        deleted: RowMask = None,
        allowed: RowMask = None,
        within: NDArray[np.float32] | None = None,
        threads: int = 1,
    ) -> Answers:
        """Return the k nearest rows of each query that may be answered, exactly."""
        return self._shard.exhaustive(
            queries, k, deleted=deleted, allowed=allowed, within=within, threads=threads
        )

    def vectors(self, ordinals: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the stored vectors of rows, `(m, d) float32`."""
        return self._shard.vectors(ordinals)

    def find_vectors(
        self, ordinals: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return all vectors, `(n, d) float32`, and the ordinals, which are places in it."""
        return self._shard.find_vectors(ordinals)


class DeltaEngine:
    """Builds, stores and opens deltas, whatever algorithm their index has."""

    blob_type = delta_blob.TYPE

    def build(
        self,
        vectors: NDArray[np.float32],
        cells: NDArray[np.uint32],
        *,
        metric: str,
        norm_bound: float,
        seed: int,
        threads: int,
        scratch: Path,
        progress: Progress | None = None,
    ) -> Delta:
        """Build a delta.

        Args:
            vectors: `(n, d) float32`, finite; kept, not copied.
            cells: `(n,) uint32`, the cell nearest to each row, by the routing blob.
            metric: `l2`, `cosine` or `ip`.
            norm_bound: as for `ShardEngine.build`.
            seed: as above.
            threads: as above.
            scratch: an existing folder that outlives what is returned.
            progress: told how far the build is.
        """
        made = engine("exact" if len(vectors) <= COMPARED_ROWS else "vamana")
        graph = made.build(
            vectors,
            metric=metric,
            parameters=made.check({}, vectors.shape[1]),
            norm_bound=norm_bound,
            seed=seed,
            threads=threads,
            scratch=scratch,
            progress=progress,
        )
        return Delta(graph, cells)

    def encode(self, built: Delta, out: BinaryIO) -> int:
        """Write the blob and return its length in bytes.

        Raises:
            BlobFormatError: there is not one cell to a row.
        """
        return delta_blob.write(built, out)

    def unpack(self, source: BinaryIO, directory: Path) -> None:
        """Turn a blob into the files it is searched from, in an existing folder.

        Raises:
            FormatError: The blob is not sound.
        """
        delta_blob.unpack(source, directory)
        if delta_blob.open(directory).graph.max_degree:
            from puffin_ann.engines.vamana import VamanaEngine

            VamanaEngine().prepare(directory)

    def open(self, directory: Path) -> DeltaShard:
        """Open an unpacked delta.

        Raises:
            LocalCopyError: The folder does not hold a whole unpacked delta.
        """
        delta = delta_blob.open(directory)
        if delta.graph.max_degree:
            return DeltaShard(engine("vamana").open(directory), delta.cells)
        return DeltaShard(ExactShard(delta.graph), delta.cells)


DELTA = DeltaEngine()
