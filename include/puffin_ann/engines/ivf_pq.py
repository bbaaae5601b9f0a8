"""`algorithm: ivf_pq`: inverted lists of 4-bit codes, refined from the stored vectors."""

import math
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from puffin_ann.ann.core.types import Answers, Width
from puffin_ann.ann.ivf import lists as inverted
from puffin_ann.ann.ivf.candidates import coarseness_of
from puffin_ann.ann.ivf.lists import Lists, Trained
from puffin_ann.ann.ivf.search import Searcher
from puffin_ann.blobs.encoding.stored_vectors import PLAIN, Stored
from puffin_ann.blobs.shards import ivf as ivf_blob
from puffin_ann.blobs.shards.ivf import Ivf
from puffin_ann.engines.base import (
    Progress,
    RowMask,
    check_parameters,
    check_search,
    check_subspaces,
    exclude,
)
from puffin_ann.engines.exact import StoredVectors, append_vectors
from puffin_ann.engines.ivf_unpacked import open_beside, write_beside
from puffin_ann.errors import BlobFormatError, LocalCopyError

KEPT_EFFORTS = 1024
SCANNED = 16
"""Rows whose codes are scanned in the time in which one is compared exactly; between what that is
for a query alone and for one of a large batch. Where fewer live than that, they are compared."""


class IvfShard(StoredVectors):
    """An opened shard.

    Args:
        ivf: as `blobs.ivf.open` gives it.
        searcher: over its lists; None if it has none, and every row is compared.
        candidates: how many are enough, as `measure_candidates` found; None goes by the codes.
    """

    def __init__(self, ivf: Ivf, searcher: Searcher | None, candidates: int | None = None) -> None:
        super().__init__(ivf)
        self._searcher = searcher
        self._coarseness = coarseness(ivf) if candidates is None else coarseness_of(candidates)
        self._efforts: dict[tuple[int, int], tuple[int, int]] = {}

    @property
    def resident_bytes(self) -> int:
        """Bytes that searches touch: vectors, codes and centroids."""
        return super().resident_bytes if self._searcher is None else self._searcher.resident_bytes

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
        searcher = self._searcher
        if searcher is None:
            return self.exhaustive(queries, k, deleted=deleted, allowed=allowed, threads=threads)
        queries = check_search(queries, k, self.dimension)
        mask = exclude(deleted, allowed, self.rows)
        if isinstance(width, np.ndarray):
            some = partial(self.search, k=k, deleted=mask, threads=threads)
            return _by_width(some, queries, width)
        probes, refined = self.effort(k, width)
        known = None if mask is None else searcher.live_rows.masks.of(mask)
        rows, live = self.rows, self.rows if known is None else known.live
        if live < rows:
            # A list gives as much as if it had only the rows that may be answered, and those are
            # spread thinner: more lists hold the same number of them.
            probes = min(probes * rows // max(1, live), searcher.lists)
            if live <= probes * rows // searcher.lists // SCANNED:
                return searcher.live_rows.nearest(queries, k, deleted=mask, threads=threads)
        return searcher.search(
            queries, k, probes=probes, refined=refined, excluded=mask, known=known, threads=threads
        )

    def expect(self, deleted: RowMask) -> None:
        """Make at once what many searches with a mask are quicker by."""
        mask = exclude(deleted, None, self.rows)
        if mask is not None and self._searcher is not None:
            self._searcher.expect(mask)

    def effort(self, k: int, width: int) -> tuple[int, int]:
        """Return (lists to look through, candidates to refine); neither falls as width grows.

        Measured on word vectors of 100 and sentence vectors of 384 dimensions: recall is bought by
        lists, and cheapest with few candidates, as many as codes were found to ask for. A width
        beyond all lists adds candidates, up to every row.
        """
        known = self._efforts.get((k, width))
        if known is not None:
            return known
        lists = 0 if self._searcher is None else self._searcher.lists
        effort = effort_of(k, width, lists, self.rows, self._coarseness)
        if len(self._efforts) < KEPT_EFFORTS:
            self._efforts[k, width] = effort
        return effort


class CodedShard:
    """An opened shard whose vectors are not stored: its codes tell which rows may be near.

    Args:
        ivf: as `blobs.ivf.open` gives it.
        trained: by which its lists were made.
        lists: its.
        searcher: over them.
    """

    def __init__(self, ivf: Ivf, trained: Trained, lists: Lists, searcher: Searcher) -> None:
        self._trained, self._lists = trained, lists
        self.rows, self.dimension, self.metric = ivf.rows, ivf.dimension, ivf.metric
        self._searcher = searcher
        self._coarseness = coarseness(ivf)

    @property
    def resident_bytes(self) -> int:
        """Bytes that searches touch: codes and centroids."""
        return self._searcher.resident_bytes

    def candidates(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        width: int,
        excluded: NDArray[np.uint8] | None = None,
        threads: int = 1,
    ) -> NDArray[np.int64]:
        """Return rows among which the nearest are to be looked for, `(q, c) int64`.

        There are k of each query, or all that may be answered, unless numbers were too large for
        codes; −1 is none.
        """
        queries = check_search(queries, k, self.dimension)
        probes, wanted = effort_of(k, width, self._searcher.lists, self.rows, self._coarseness)
        if excluded is not None:
            live = self.rows - int(np.count_nonzero(excluded))
            probes = min(probes * self.rows // max(1, live), self._searcher.lists)
        return self._searcher.candidates(
            queries, probes=probes, wanted=wanted, excluded=excluded, threads=threads
        )

    def vectors(self, ordinals: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return about what the vectors of rows are, by their codes, `(m, d) float32`."""
        return self._decoded[ordinals]

    @cached_property
    def _decoded(self) -> NDArray[np.float32]:
        return inverted.decoded(self._trained, self._lists)


class IvfPqEngine:
    """Builds, stores and opens shards of inverted lists."""

    algorithm = "ivf_pq"
    blob_type = ivf_blob.TYPE

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
    ) -> Ivf:
        """Build a shard; see `ShardEngine.build`.

        The norm bound is not used: within a shard the longest of its own rows is a tighter one.
        """
        tell = progress or (lambda stage, share: None)
        rows, dimension = vectors.shape
        tell("train", 0.0)
        trained = inverted.train(
            vectors,
            metric,
            lists=parameters.lists or inverted.default_lists(rows),
            subspaces=parameters.pq_m or inverted.default_subspaces(dimension),
            seed=seed,
            threads=threads,
        )
        tell("train", 1.0)
        properties = {"seed": str(seed)}
        if trained is None:
            return Ivf(metric, vectors, properties=properties)
        lists = inverted.fill(trained, vectors, threads)
        tell("codes", 1.0)
        return _joined(trained, lists, vectors, properties)

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
    ) -> Ivf:
        """Add rows to the lists as they were trained; see `ShardEngine.insert`.

        A shard that was too small for lists is built again.
        """
        tell = progress or (lambda stage, share: None)
        ivf = ivf_blob.open(directory)
        trained, lists = _parts(ivf)
        vectors = None
        if ivf.vectors is not None:
            vectors = append_vectors(ivf.vectors, added, scratch / "vectors.npy")
        elif added.ndim != 2 or added.shape[1] != ivf.dimension:
            raise BlobFormatError(
                f"rows of shape {added.shape} cannot be added to a shard of {ivf.dimension} "
                "dimensions"
            )
        if vectors is not None and (trained is None or lists is None):
            return self.build(
                vectors,
                metric=ivf.metric,
                parameters=parameters,
                norm_bound=norm_bound,
                seed=seed,
                threads=threads,
                scratch=scratch,
                progress=progress,
            )
        if trained is None or lists is None:
            raise LocalCopyError(f"{directory} has neither lists nor vectors")
        lists = inverted.extend(trained, lists, added, threads)
        tell("codes", 1.0)
        return _joined(trained, lists, vectors, ivf.properties)

    def encode(self, built: Ivf, out: BinaryIO, stored: Stored = PLAIN) -> int:
        """Write the blob and return its length in bytes; see `ShardEngine.encode`."""
        if stored.form == "none" and not built.has_lists:
            stored = PLAIN  # some rows, or numbers beyond codes: nothing else tells of them
        return ivf_blob.write(built, out, stored)

    def unpack(self, source: BinaryIO, directory: Path, *, searched: bool = True) -> None:
        """Turn a blob into files to be memory-mapped, and add what searches are quick by."""
        ivf_blob.unpack(source, directory)
        ivf = ivf_blob.open(directory)
        trained, lists = _parts(ivf)
        if trained is None or lists is None:
            return
        write_beside(directory, trained, lists, ivf.vectors, searched=searched)

    def open(self, directory: Path) -> "IvfShard | CodedShard":
        """Open an unpacked shard; a `CodedShard` if its vectors are not stored.

        Raises:
            LocalCopyError: The folder does not hold a whole unpacked shard.
        """
        ivf = ivf_blob.open(directory)
        trained, lists = _parts(ivf)
        if trained is None or lists is None:
            return IvfShard(ivf, None)
        stored = ivf.vectors is not None
        try:
            beside = open_beside(directory, trained, lists, ivf.rows, vectors=stored)
        except (OSError, ValueError) as error:
            raise LocalCopyError(f"{directory} is not a whole unpacked shard: {error}") from None
        vectors = np.zeros((0, ivf.dimension), np.float32) if ivf.vectors is None else ivf.vectors
        searcher = Searcher(
            trained,
            lists,
            vectors,
            beside.inverse_norms,
            beside.packed,
            beside.coded,
            beside.reach,
        )
        if not stored:
            return CodedShard(ivf, trained, lists, searcher)
        return IvfShard(ivf, searcher, beside.candidates)


def coarseness(ivf: Ivf) -> float:
    """Return how much more candidates codes ask for than those of a number each."""
    return 1.0 if ivf.codebook is None else float((ivf.dimension / len(ivf.codebook)) ** 1.5)


def effort_of(k: int, width: int, lists: int, rows: int, coarseness: float) -> tuple[int, int]:
    """Return (lists to look through, candidates); see `IvfShard.effort`."""
    probes = max(1, min(-(-width // 2), lists))
    refined = k + k // 2 + math.ceil(math.sqrt(max(width, 1)) * coarseness)
    return probes, min(refined + max(0, width - 2 * lists), max(rows, 1))


def _by_width(
    search: Callable[..., Answers], queries: NDArray[np.float32], widths: NDArray[np.int64]
) -> Answers:
    """Search for the queries of each width at a time, `(q,)`: a scan has one effort for all."""
    if not len(queries):
        return search(queries, width=1)
    if len(queries) == 1 or widths.min() == widths.max():
        return search(queries, width=int(widths[0]))
    groups = [np.flatnonzero(widths == width) for width in np.unique(widths)]
    found = [search(queries[group], width=int(widths[group[0]])) for group in groups]
    back = np.argsort(np.concatenate(groups))
    ids, distances = (np.concatenate(parts)[back] for parts in zip(*found, strict=True))
    return ids, distances


def _parts(ivf: Ivf) -> tuple[Trained | None, Lists | None]:
    """Return what the shard's lists are made of; None if it has none."""
    trained = ivf.origin, ivf.centroids, ivf.subspace_offsets, ivf.codebook
    listed = ivf.starts, ivf.ordinals, ivf.codes, ivf.biases
    if any(array is None for array in (*trained, *listed)):
        return None, None
    return Trained(ivf.metric, ivf.relative, ivf.scale, *trained), Lists(*listed)  # type: ignore[arg-type]


def _joined(
    trained: Trained,
    lists: Lists,
    vectors: NDArray[np.float32] | None,
    properties: Mapping[str, str],
) -> Ivf:
    return Ivf(
        metric=trained.metric,
        vectors=vectors,
        relative=trained.relative,
        scale=trained.scale,
        origin=trained.origin,
        centroids=trained.centroids,
        subspace_offsets=trained.offsets,
        codebook=trained.codebook,
        starts=lists.starts,
        ordinals=lists.ordinals,
        codes=lists.codes,
        biases=lists.biases,
        properties=properties,
    )
