"""`algorithm: exact`: no structure, every row is compared; the oracle, and right for small tables.

The blob is a graph blob of maximum degree 0: vectors alone.
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.core.types import Answers, Width
from puffin_ann.ann.exact.compared_rows import Coding, ComparedRows
from puffin_ann.ann.vamana import append_files
from puffin_ann.blobs.encoding.stored_vectors import PLAIN, Stored
from puffin_ann.blobs.shards import graph as graph_blob
from puffin_ann.blobs.shards.graph import Graph
from puffin_ann.engines.base import (
    Progress,
    RowMask,
    SearchableShard,
    check_parameters,
    check_search,
    exclude,
)
from puffin_ann.errors import BlobFormatError


def append_vectors(
    stored: NDArray[np.float32], added: NDArray[np.float32], path: Path
) -> NDArray[np.float32]:
    """Write `(n, d)` rows and `(m, d)` added ones to a new file; return it mapped.

    Raises:
        BlobFormatError: the widths differ.
    """
    if added.ndim != 2 or added.shape[1] != stored.shape[1]:
        raise BlobFormatError(
            f"rows of shape {added.shape} cannot be added to a shard of "
            f"{stored.shape[1]} dimensions"
        )
    return append_files.append_vectors(stored, added, path)


class HasVectors(Protocol):
    """A shard as its blob is opened."""

    @property
    def metric(self) -> str:
        """Name of the metric."""

    @property
    def vectors(self) -> NDArray[np.float32] | None:
        """`(n, d) float32` as stored."""


class StoredVectors:
    """The vectors of a shard, searched by comparison with every row."""

    def __init__(self, shard: HasVectors) -> None:
        if shard.vectors is None:
            raise BlobFormatError("graph blob: the shard has no vectors")
        self._vectors = shard.vectors.view(np.ndarray)
        self._metric = METRICS[shard.metric]

    @property
    def rows(self) -> int:
        """Number of rows n."""
        return len(self._vectors)

    @property
    def dimension(self) -> int:
        """Numbers d in a vector."""
        return int(self._vectors.shape[1])

    @property
    def metric(self) -> str:
        """Name of the metric that distances are measured by."""
        return self._metric.name

    @property
    def resident_bytes(self) -> int:
        """Bytes of the vectors."""
        return int(self._vectors.nbytes)

    def expect(self, deleted: RowMask) -> None:
        """Make at once what many searches with a mask are quicker by; none where all are compared.

        It is made by itself in the background, once enough queries came with the mask.

        Args:
            deleted: the mask that searches will be given.
        """

    def coding_after(self, queries: int) -> Coding:
        """Return whether `exhaustive` compares rows by a byte a number, once some more asked."""
        return self._compared.coding_after(queries)

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
        return self._compared.nearest(
            check_search(queries, k, self.dimension),
            k,
            excluded=exclude(deleted, allowed, self.rows),
            within=within,
            threads=threads,
        )

    @cached_property
    def _compared(self) -> ComparedRows:
        """The rows, and what was found out by searches that compared them."""
        return ComparedRows(self._vectors, self._metric)

    @property
    def all_vectors(self) -> NDArray[np.float32]:
        """`(n, d) float32`, mapped."""
        return self._vectors

    def vectors(self, ordinals: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the stored vectors of rows, `(m, d) float32`."""
        return self._vectors[ordinals]

    def find_vectors(
        self, ordinals: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return all vectors, `(n, d) float32`, and the ordinals, which are places in it."""
        return self._vectors, ordinals


class ExactShard(StoredVectors):
    """A shard without a graph."""

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
        """Return what `exhaustive` does, whatever the width."""
        return self.exhaustive(queries, k, deleted=deleted, allowed=allowed, threads=threads)


class ExactEngine:
    """Stores vectors as they are."""

    algorithm = "exact"
    blob_type = graph_blob.TYPE

    def check(self, parameters: Mapping[str, Any], dimension: int | None) -> BaseModel:
        """Validate parameters: there are none."""
        return check_parameters(self.algorithm, parameters)

    def build(
        self,
        vectors: NDArray[np.float32],
        *,
        metric: str,
        parameters: Any,
        norm_bound: float,
        seed: int,
        threads: int,
        scratch: Path,
        progress: Progress | None = None,
    ) -> Graph:
        """Return a graph without edges over the vectors."""
        rows, dimension = vectors.shape
        return Graph(
            metric=metric,
            max_degree=0,
            build_width=0,
            alpha=1.0,
            entry=0,
            codebook=None,
            codes=None,
            degrees=np.zeros(rows, np.uint16),
            neighbours=np.zeros((rows, 0), np.uint32),
            vectors=vectors,
            dimension=dimension,
        )

    def insert(
        self,
        directory: Path,
        added: NDArray[np.float32],
        *,
        deleted: RowMask = None,
        parameters: Any,
        norm_bound: float,
        seed: int,
        threads: int,
        scratch: Path,
        progress: Progress | None = None,
    ) -> Graph:
        """Return the stored vectors with the added ones behind them."""
        graph = graph_blob.open(directory)
        return self.build(
            append_vectors(StoredVectors(graph).all_vectors, added, scratch / "vectors.npy"),
            metric=graph.metric,
            parameters=parameters,
            norm_bound=norm_bound,
            seed=seed,
            threads=threads,
            scratch=scratch,
        )

    def encode(self, built: Graph, out: BinaryIO, stored: Stored = PLAIN) -> int:
        """Write the blob and return its length in bytes; see `ShardEngine.encode`."""
        return graph_blob.write(built, out, stored)

    def unpack(self, source: BinaryIO, directory: Path, *, searched: bool = True) -> None:
        """Turn a blob into files to be memory-mapped."""
        graph_blob.unpack(source, directory)

    def open(self, directory: Path) -> SearchableShard:
        """Open an unpacked shard."""
        return ExactShard(graph_blob.open(directory))
