"""`algorithm: vamana`: a graph over full vectors, with codes beside it where searches read them.

What only builds and insertions need is imported there: a search's first answer waits for imports.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from puffin_ann.ann.clustering import product_quantisation
from puffin_ann.ann.core.types import Answers, Width
from puffin_ann.ann.graph import space as spaces
from puffin_ann.ann.vamana import append_files
from puffin_ann.ann.vamana.packed import layout as packed_layout
from puffin_ann.ann.vamana.packed.layout import PackedNodes, degree_of
from puffin_ann.ann.vamana.packed_policy import reads_codes
from puffin_ann.ann.vamana.search import Beam, Codes, Linked, Searcher
from puffin_ann.blobs.encoding import mapped
from puffin_ann.blobs.encoding.stored_vectors import PLAIN, Stored
from puffin_ann.blobs.shards import graph as graph_blob
from puffin_ann.blobs.shards.graph import Graph
from puffin_ann.engines.base import (
    Progress,
    RowMask,
    check_parameters,
    check_search,
    check_subspaces,
    exclude,
)
from puffin_ann.engines.exact import StoredVectors
from puffin_ann.engines.vamana_unpacked import (
    LINKS,
    SPACE,
    neighbours_of,
    rows_of_zeros,
    searched_files,
    vectors_of,
)
from puffin_ann.errors import BlobFormatError, LocalCopyError
from puffin_ann.settings import settings

REBUILT_SHARE = 0.5
"""A batch larger than this share of a shard costs more to insert than to build all again."""


class VamanaShard(StoredVectors):
    """An opened shard.

    Args:
        graph: as `blobs.graph.open` gives it, its neighbours and degrees checked.
        space: `(n, w) float32`, the rows as they are searched; None where packed nodes do instead.
        zero_rows: `(z,) int64`, those of them without a direction, if that matters.
        packed: of the graph, if there are any.
        beam: what the beam reads; see `Searcher`.
        folder: it was opened from, if that may be written to.
    """

    def __init__(
        self,
        graph: Graph,
        space: NDArray[np.float32] | None,
        *,
        zero_rows: NDArray[np.int64] | None = None,
        packed: PackedNodes | None = None,
        beam: Beam = "auto",
        folder: Path | None = None,
    ) -> None:
        super().__init__(graph)
        codes = None
        if graph.codes is not None and graph.codebook is not None:
            offsets = graph.subspace_offsets
            if offsets is None:
                offsets = product_quantisation.subspace_offsets(
                    graph.dimension, len(graph.codebook)
                )
            codes = Codes(graph.codebook, offsets, graph.codes)
        self._searcher = Searcher(
            Linked(
                graph.metric,
                vectors_of(graph),
                space,
                graph.neighbours,
                graph.degrees,
                graph.max_degree,
                graph.entry,
            ),
            codes=codes,
            packed=packed,
            zero_rows=zero_rows,
            beam=beam,
            folder=folder,
        )
        self._has_zero_rows = zero_rows is not None and len(zero_rows) > 0
        touched = [self._vectors]
        if self.beam == "edges" and packed is not None:
            touched.append(packed.array)
        elif graph.neighbours is not None:
            touched += [graph.neighbours, graph.degrees]
            if space is not None and not np.may_share_memory(space, self._vectors):
                touched.append(space)
            touched += [codes.codes] if self.beam == "pq" and codes is not None else []
        self._resident = sum(array.nbytes for array in touched)

    @property
    def beam(self) -> str:
        """What searches read: `full`, `pq` or `edges`."""
        return self._searcher.beam

    @property
    def resident_bytes(self) -> int:
        """Bytes that searches touch: the vectors, and what the beam reads."""
        return self._resident

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

    @property
    def packed_searcher(self) -> Searcher | None:
        """What searches it by packed nodes alone; None if it does not, or rows have no place there.

        Those are rows without a direction, of which the graph knows nothing.
        """
        return self._searcher if self.beam == "edges" and not self._has_zero_rows else None

    def expect(self, deleted: RowMask) -> None:
        """Make at once what many searches with a mask are quicker by."""
        mask = exclude(deleted, None, self.rows)
        if mask is not None:
            self._searcher.expect(mask)


class VamanaEngine:
    """Builds, stores and opens Vamana shards."""

    algorithm = "vamana"
    blob_type = graph_blob.TYPE

    def check(self, parameters: Mapping[str, Any], dimension: int | None) -> BaseModel:
        """Validate parameters; `DeclarationError` names the one that is wrong."""
        model = check_parameters(self.algorithm, parameters)
        if dimension is not None:
            check_subspaces(self.algorithm, model, dimension)
        return model

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
        deleted: NDArray[np.uint8] | None = None,
    ) -> Graph:
        """Build a shard; see `ShardEngine.build`.

        Rows that are `deleted`, if any are given, can be reached but hold nothing: they get no
        neighbours. The norm bound is not used: within a shard the longest of its own rows is a
        tighter one.
        """
        from puffin_ann.ann.vamana import product_edges  # see the module
        from puffin_ann.ann.vamana.build import build as build_graph

        tell = progress or (lambda stage, share: None)
        rows, dimension = vectors.shape
        space = spaces.of_rows(vectors, metric, scratch / SPACE, lasting=False)
        most = degree_of(parameters.R, space.shape[1])
        adjacency = build_graph(
            space,
            most=most,
            keep=parameters.L,
            alpha=parameters.alpha,
            seed=seed,
            threads=threads,
            deleted=deleted,
            folder=scratch,
            progress=tell,
        )
        if metric == "ip":
            product_edges.add(
                space,
                adjacency,
                dimension,
                deleted=deleted,
                threads=threads,
                progress=lambda share: tell("products", share),
            )
        offsets, codebook, codes = None, None, None
        if rows and reads_codes(parameters.beam, rows, metric, dimension, most):
            tell("codes", 0.0)
            offsets = product_quantisation.subspace_offsets(
                dimension, parameters.pq_m or max(1, dimension // 4)
            )
            codebook = product_quantisation.train(
                space, offsets, parameters.pq_nbits, seed=seed, threads=threads
            )
            codes = product_quantisation.encode(space, codebook, offsets, threads)
            tell("codes", 1.0)
        return Graph(
            metric=metric,
            max_degree=most,
            build_width=parameters.L,
            alpha=parameters.alpha,
            entry=adjacency.entry,
            codebook=codebook,
            codes=codes,
            degrees=adjacency.degrees,
            neighbours=adjacency.neighbours,
            vectors=vectors,
            dimension=dimension,
            subspace_offsets=offsets,
            properties=_properties(parameters, seed),
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
        """Add a batch of rows greedily; see `ShardEngine.insert`.

        The stored codebook, if there is one, encodes the added rows. A batch larger than half the
        shard is built together with it instead, codebook and all, which is faster and better.
        """
        from puffin_ann.ann.graph.arguments import Adjacency  # see the module
        from puffin_ann.ann.vamana import product_edges
        from puffin_ann.ann.vamana.incremental.insert import insert

        tell = progress or (lambda stage, share: None)
        stored = graph_blob.open(directory)
        first, dimension = stored.rows, stored.dimension
        if added.ndim != 2 or added.shape[1] != dimension:
            raise BlobFormatError(
                f"rows of shape {added.shape} cannot be added to a shard of {dimension} dimensions"
            )
        if not stored.max_degree:
            raise BlobFormatError(f"{directory}: the shard has no graph to add rows to")
        mask = exclude(deleted, None, first)
        vectors = append_files.append_vectors(vectors_of(stored), added, scratch / "vectors.npy")
        if not first or len(added) > REBUILT_SHARE * first:
            return self.build(
                vectors,
                metric=stored.metric,
                parameters=parameters,
                norm_bound=norm_bound,
                seed=seed,
                threads=threads,
                scratch=scratch,
                progress=progress,
                deleted=mask,
            )
        space = append_files.extend_space(
            directory / SPACE, vectors, first, stored.metric, scratch / SPACE
        )
        adjacency = Adjacency(
            np.zeros((len(vectors), stored.max_degree), np.uint32),
            np.zeros(len(vectors), np.uint16),
            stored.entry,
        )
        if stored.neighbours is None:
            raise LocalCopyError(f"{directory} was unpacked for searches: rows are added to others")
        adjacency.neighbours[:first] = stored.neighbours
        adjacency.degrees[:first] = stored.degrees
        if len(added):
            insert(
                space,
                adjacency,
                first,
                keep=parameters.L,
                alpha=stored.alpha,
                deleted=mask,
                threads=threads,
                progress=lambda share: tell("insert", share),
            )
            if stored.metric == "ip":
                product_edges.add(
                    space,
                    adjacency,
                    dimension,
                    first=first,
                    deleted=mask,
                    threads=threads,
                    progress=lambda share: tell("products", share),
                )
        codes = stored.codes
        if codes is not None and stored.codebook is not None:
            tell("codes", 0.0)
            offsets = stored.subspace_offsets
            if offsets is None:
                offsets = product_quantisation.subspace_offsets(dimension, len(stored.codebook))
            new = product_quantisation.encode(space[first:], stored.codebook, offsets, threads)
            codes = np.concatenate([codes, new])
            tell("codes", 1.0)
        return replace(
            stored,
            entry=adjacency.entry,
            codes=codes,
            degrees=adjacency.degrees,
            neighbours=adjacency.neighbours,
            vectors=vectors,
        )

    def encode(self, built: Graph, out: BinaryIO, stored: Stored = PLAIN) -> int:
        """Write the blob and return its length in bytes; see `ShardEngine.encode`."""
        return graph_blob.write(built, out, stored)

    def unpack(self, source: BinaryIO, directory: Path, *, searched: bool = True) -> None:
        """Turn a blob into files to be memory-mapped, and add what `prepare` does."""
        graph_blob.unpack(source, directory)
        self.prepare(directory, searched=searched)

    def prepare(self, directory: Path, *, searched: bool = True) -> None:
        """Add to an unpacked graph what searches read.

        That is packed nodes where they are worth it, see `packed_policy`: then what they make
        needless goes, see `LINKS`. Else it is the rows as they are searched. If few searches
        are to come, it is those, and nothing goes: insertions read it all.
        """
        graph = graph_blob.open(directory)
        if searched:
            packed, _ = searched_files(graph, directory, _beam(graph))
            if packed is not None:
                mapped.leave_out(directory, LINKS)
        else:
            spaces.of_rows(vectors_of(graph), graph.metric, directory / SPACE, lasting=False)
            packed_layout.refuse(directory)

    def open(self, directory: Path, beam: Beam | None = None) -> VamanaShard:
        """Open an unpacked shard.

        Args:
            directory: what `unpack` filled.
            beam: what the beam reads, see `Searcher`; None for what the index declares. What the
                folder lacks for it is made.

        Raises:
            LocalCopyError: The folder does not hold a whole unpacked shard.
        """
        graph = graph_blob.open(directory)
        beam = beam or _beam(graph)
        if beam == "pq" and graph.neighbours is None:
            raise LocalCopyError(
                f"{directory} has packed nodes, and no codes to search by: unpack a shard whose "
                "index declares beam 'pq'"
            )
        packed, space = searched_files(graph, directory, beam)
        if space is not None:
            neighbours = neighbours_of(graph, directory)
            if beam == "edges" and graph.rows and graph.max_degree:
                packed = packed_layout.make(
                    vectors_of(graph),
                    space,
                    neighbours,
                    graph.degrees,
                    threads=settings().thread_count,
                )
            graph = replace(graph, neighbours=neighbours)
        zero_rows = rows_of_zeros(graph, directory)
        return VamanaShard(
            graph, space, zero_rows=zero_rows, packed=packed, beam=beam, folder=directory
        )


def _properties(parameters: Any, seed: int) -> dict[str, str]:
    told = {"builder": "partitioned", "seed": str(seed)}
    return told if parameters.beam == "auto" else told | {"beam": parameters.beam}


def _beam(graph: Graph) -> Beam:
    """Return the beam that a shard's index declares; another version may know others."""
    told = graph.properties.get("beam")
    return told if told in get_args(Beam) else "auto"  # type: ignore[return-value]
