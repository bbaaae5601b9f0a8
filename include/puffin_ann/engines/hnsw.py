"""`algorithm: hnsw`: a graph in layers that hnswlib builds, searched by our own kernels."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.core.types import Answers, Width
from puffin_ann.ann.graph import space as spaces
from puffin_ann.ann.hnsw import hnswlib_index
from puffin_ann.ann.hnsw.layers import Layers
from puffin_ann.ann.hnsw.search import Searcher, space_metric
from puffin_ann.blobs.encoding.stored_vectors import PLAIN, Stored
from puffin_ann.blobs.shards import hnsw as hnsw_blob
from puffin_ann.blobs.shards.hnsw import Hnsw
from puffin_ann.engines.base import (
    Progress,
    RowMask,
    check_parameters,
    check_search,
    exclude,
)
from puffin_ann.engines.exact import StoredVectors, append_vectors
from puffin_ann.errors import LocalCopyError

SPACE = "space.npy"
"""Written beside the unpacked blob where the searched rows differ from the stored ones."""


class HnswShard(StoredVectors):
    """An opened shard.

    Args:
        blob: as `blobs.hnsw.open` gives it, checked.
        space: `(n, w) float32`, the rows as they are searched.
        zero_rows: `(z,) int64`, those of them without a direction, if that matters.
    """

    def __init__(
        self,
        blob: Hnsw,
        space: NDArray[np.float32],
        zero_rows: NDArray[np.int64] | None = None,
    ) -> None:
        self._vectors = blob.vectors.view(np.ndarray)
        self._metric = METRICS[blob.metric]
        self._resident = space.nbytes + blob.neighbours.nbytes + 7 * blob.rows
        self._searcher = Searcher(
            metric=blob.metric,
            vectors=self._vectors,
            space=space,
            layers=_layers(blob),
            zero_rows=zero_rows,
        )

    @property
    def resident_bytes(self) -> int:
        """Bytes that searches touch: the searched rows and layer 0."""
        return int(self._resident)

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
        """Return min(k, rows that may be answered) near rows of each query, exact distances."""
        queries = check_search(queries, k, self.dimension)
        mask = exclude(deleted, allowed, self.rows)
        return self._searcher.search(queries, k, width=width, deleted=mask, threads=threads)

    def expect(self, deleted: RowMask) -> None:
        """Make at once what many searches with a mask are quicker by."""
        mask = exclude(deleted, None, self.rows)
        if mask is not None:
            self._searcher.expect(mask)


class HnswEngine:
    """Builds, stores and opens HNSW shards."""

    algorithm = "hnsw"
    blob_type = hnsw_blob.TYPE

    def check(self, parameters: Mapping[str, Any], dimension: int | None) -> BaseModel:
        """Validate parameters; `DeclarationError` names the one that is wrong."""
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
    ) -> Hnsw:
        """Build a shard; see `ShardEngine.build`.

        Rows are added by one thread unless the parameters give up that the same seed and rows make
        the same shard. The norm bound is not used: inner products are taken as they are.
        """
        tell = progress or (lambda stage, share: None)
        layers = hnswlib_index.build(
            spaces.of_rows(vectors, space_metric(metric), scratch / SPACE),
            product=metric == "ip",
            links=parameters.M,
            ef_construction=parameters.ef_construction,
            seed=seed,
            threads=1 if parameters.reproducible else threads,
            scratch=scratch,
            progress=lambda share: tell("graph", share),
        )
        return _blob(layers, vectors, metric, parameters.ef_construction, seed)

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
    ) -> Hnsw:
        """Add a batch of rows; see `ShardEngine.insert`."""
        tell = progress or (lambda stage, share: None)
        blob = hnsw_blob.open(directory)
        vectors = append_vectors(blob.vectors.view(np.ndarray), added, scratch / "vectors.npy")
        if not blob.rows:
            return self.build(
                vectors,
                metric=blob.metric,
                parameters=parameters,
                norm_bound=norm_bound,
                seed=seed,
                threads=threads,
                scratch=scratch,
                progress=progress,
            )
        layers = hnswlib_index.insert(
            spaces.of_rows(vectors, space_metric(blob.metric), scratch / SPACE),
            _layers(blob),
            product=blob.metric == "ip",
            deleted=exclude(deleted, None, blob.rows),
            ef_construction=blob.ef_construction,
            threads=1 if parameters.reproducible else threads,
            scratch=scratch,
            progress=lambda share: tell("graph", share),
        )
        return _blob(layers, vectors, blob.metric, blob.ef_construction, seed)

    def encode(self, built: Hnsw, out: BinaryIO, stored: Stored = PLAIN) -> int:
        """Write the blob and return its length in bytes; see `ShardEngine.encode`."""
        return hnsw_blob.write(built, out, stored)

    def unpack(self, source: BinaryIO, directory: Path, *, searched: bool = True) -> None:
        """Turn a blob into files to be memory-mapped, and add the rows as they are searched."""
        hnsw_blob.unpack(source, directory)
        blob = hnsw_blob.open(directory)
        vectors = blob.vectors.view(np.ndarray)
        spaces.of_rows(vectors, space_metric(blob.metric), directory / SPACE, lasting=searched)

    def open(self, directory: Path) -> HnswShard:
        """Open an unpacked shard.

        Raises:
            LocalCopyError: The folder does not hold a whole unpacked shard.
        """
        blob = hnsw_blob.open(directory)
        metric = space_metric(blob.metric)
        dim = spaces.padded_dim(metric, blob.dimension)
        if not blob.rows or not spaces.is_needed(metric, blob.dimension):
            space = blob.vectors if blob.rows else np.zeros((0, dim), np.float32)
            return HnswShard(blob, space)
        try:
            space = spaces.open_space(directory / SPACE)
            zeros = spaces.zero_rows(directory / SPACE) if metric == "cosine" else None
        except (OSError, ValueError) as error:
            raise LocalCopyError(f"{directory} is not a whole unpacked shard: {error}") from None
        if space.shape != (blob.rows, dim):
            raise LocalCopyError(
                f"{directory / SPACE}: shape {space.shape}, not {(blob.rows, dim)}"
            )
        return HnswShard(blob, space, zeros)


def _layers(blob: Hnsw) -> Layers:
    return Layers(
        blob.neighbours,
        blob.degrees,
        blob.levels,
        blob.upper_neighbours,
        blob.upper_degrees,
        blob.entry,
    )


def _blob(
    layers: Layers, vectors: NDArray[np.float32], metric: str, ef_construction: int, seed: int
) -> Hnsw:
    return Hnsw(
        metric=metric,
        ef_construction=ef_construction,
        entry=layers.entry,
        neighbours=layers.neighbours,
        degrees=layers.degrees,
        levels=layers.levels,
        upper_neighbours=layers.upper_neighbours,
        upper_degrees=layers.upper_degrees,
        vectors=vectors,
        dimension=int(vectors.shape[1]),
        properties={"builder": "hnswlib 0.8", "seed": str(seed)},
    )
