"""What an algorithm must offer to be the engine of an index's shards."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from puffin_ann.ann.core.memmap import as_asked
from puffin_ann.ann.core.types import Answers, Width
from puffin_ann.ann.exact.compared_rows import Coding
from puffin_ann.blobs.encoding.stored_vectors import PLAIN, Stored
from puffin_ann.declaration import PARAMETERS, in_words
from puffin_ann.errors import DeclarationError, QueryError

RowMask = NDArray[np.bool_] | NDArray[np.uint8] | None
"""`(n,)` bool or uint8, non-zero for the rows that are meant; made once, passed to many calls."""

Built = Any
"""A shard as its engine has just built it: arrays, some of them mapped from the build's scratch."""

Progress = Callable[[str, float], None]
"""Called with the name of a phase and the share of it that is done."""


class SearchableShard(Protocol):
    """A shard opened for search; safe to use from several threads."""

    @property
    def rows(self) -> int:
        """Number of rows n, deleted ones included."""

    @property
    def dimension(self) -> int:
        """Numbers d in a vector."""

    @property
    def metric(self) -> str:
        """Name of the metric that distances are measured by."""

    @property
    def resident_bytes(self) -> int:
        """Memory, mostly mapped, that searches touch."""

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
        """Return min(k, rows that may be answered) near rows of each query, with exact distances.

        Args:
            queries: `(q, d) float32`, finite.
            k: answers wanted, at least 1.
            width: effort: larger finds more of the true neighbours and takes longer. One number,
                or one for each query, `(q,) int64`.
            deleted: rows that are passed through but never answered.
            allowed: the only rows that may be answered, e.g. by a filter; None means all.
            threads: threads to use; the answers do not depend on it.

        Raises:
            QueryError: The queries are of another width, or k is below 1.
        """

    def coding_after(self, queries: int) -> Coding:
        """Return whether `exhaustive` compares rows by a byte a number, once some more asked.

        Args:
            queries: that ask at once; 0: as it is now.
        """

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
        """Return the k nearest rows of each query that may be answered, exactly.

        Rows farther than `within`, (q,) float32, may be left out.
        """

    def vectors(self, ordinals: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the stored vectors of rows, `(m, d) float32`."""

    def find_vectors(
        self, ordinals: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return an array with the vectors of rows, `(w, d) float32`, and the place of each in it.

        It is that of all vectors, mapped, if the shard has them as they are.
        """


class ShardEngine(Protocol):
    """Builds, stores and opens shards by one algorithm."""

    @property
    def algorithm(self) -> str:
        """Name in index declarations."""

    @property
    def blob_type(self) -> str:
        """Type of the blob that `encode` writes, and that `inspect` shows."""

    def check(self, parameters: Mapping[str, Any], dimension: int | None) -> BaseModel:
        """Validate parameters; `DeclarationError` names the parameter and what is allowed."""

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
    ) -> Built:
        """Build a shard.

        Args:
            vectors: `(n, d) float32`, finite; may be memory-mapped.
            metric: `"l2"`, `"cosine"` or `"ip"`.
            parameters: what `check` returned.
            norm_bound: largest norm in the index, as far as it is known; matters to `ip`.
            seed: the same seed and vectors give the same shard, whatever the number of threads.
            threads: threads to use.
            scratch: existing folder for files of the build; the result may be mapped from it.
            progress: told how far the build is.
        """

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
    ) -> Built:
        """Add a batch of rows to an unpacked shard, without building it again.

        Rows of the shard keep their ordinals; the added ones follow them in the order given.

        Args:
            directory: what `unpack` filled, not to be searched; it is left as it is.
            added: `(m, d) float32`, finite.
            deleted: rows of the shard that are deleted; they stay, and nothing new rests on them.
            parameters: what `check` returned for the declaration the shard was built by.
            norm_bound: as for `build`.
            seed: as for `build`.
            threads: threads to use; the result does not depend on it.
            scratch: as for `build`.
            progress: told how far it is.

        Raises:
            LocalCopyError: The folder does not hold a whole unpacked shard.
        """

    def encode(self, built: Built, out: BinaryIO, stored: Stored = PLAIN) -> int:
        """Write a built shard as a blob and return its length in bytes.

        Args:
            built: the shard.
            out: takes the bytes in order.
            stored: the form of its vectors. A shard that has nothing else to be searched by keeps
                them as they are, whatever the form.

        Raises:
            BadVectorsError: a number is beyond the form.
        """

    def unpack(self, source: BinaryIO, directory: Path, *, searched: bool = True) -> None:
        """Turn a blob into the files it is searched from, in an existing folder.

        Args:
            source: the blob.
            directory: to fill.
            searched: False if this process alone uses the folder, to `insert`, to read vectors or
                for a few queries: what only makes searches faster may be left out, and nothing
                waits for the disk. Else what only insertions read may be left out.

        Raises:
            FormatError: The blob is not sound.
        """

    def open(self, directory: Path) -> SearchableShard:
        """Open an unpacked shard.

        Raises:
            LocalCopyError: The folder does not hold a whole unpacked shard.
        """


def check_parameters(algorithm: str, parameters: Mapping[str, Any]) -> BaseModel:
    """Validate an algorithm's parameters; `DeclarationError` names the first that is wrong."""
    try:
        return PARAMETERS[algorithm].model_validate(dict(parameters))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise DeclarationError(
            f"algorithm {algorithm!r}: parameter {name!r}: {first['input']!r} is not allowed: "
            f"{in_words(first)}"
        ) from None


def check_subspaces(algorithm: str, parameters: BaseModel, dimension: int) -> None:
    """Refuse a product quantiser of more sub-spaces than vectors have dimensions.

    A run that is planned asks this, which loads no engine's kernels.

    Raises:
        DeclarationError: names the parameter, and how many are allowed.
    """
    subspaces = getattr(parameters, "pq_m", None)
    if subspaces is not None and subspaces > dimension:
        raise DeclarationError(
            f"algorithm {algorithm!r}: parameter 'pq_m': {subspaces} is not allowed: vectors of "
            f"{dimension} dimensions have at most {dimension} sub-spaces"
        )


def check_search(queries: NDArray[np.float32], k: int, dimension: int) -> NDArray[np.float32]:
    """Return queries as kernels take them, float32; `QueryError` if they or k cannot be."""
    if queries.ndim != 2 or queries.shape[1] != dimension:
        raise QueryError(
            f"queries have shape {queries.shape}; this index has vectors of {dimension} dimensions"
        )
    if k < 1:
        raise QueryError(f"k is {k}; at least 1 is needed")
    return as_asked(np.ascontiguousarray(queries, np.float32))


_UINT8 = np.dtype(np.uint8)


def exclude(deleted: RowMask, allowed: RowMask, rows: int) -> NDArray[np.uint8] | None:
    """Return `(n,) uint8`, non-zero for rows that may not be answered; None means that all may.

    Costs nothing where no row is excluded by `allowed`: `deleted` itself is returned, not a copy.
    """
    if deleted is not None:
        _check_mask("deleted", deleted, rows)
    if allowed is None:
        return None if deleted is None else deleted.view(_UINT8)
    _check_mask("allowed", allowed, rows)
    excluded: NDArray[np.bool_] = allowed.view(np.uint8) == 0
    if deleted is not None:
        excluded |= deleted.view(np.uint8) != 0
    return excluded.view(np.uint8)


def _check_mask(name: str, mask: NDArray[np.generic], rows: int) -> None:
    if mask.ndim != 1 or len(mask) != rows or mask.itemsize != 1:
        raise QueryError(
            f"{name} has shape {mask.shape} and type {mask.dtype}; the shard has {rows} rows, "
            "each marked by a bool or uint8"
        )
