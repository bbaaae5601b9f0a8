"""Turn Arrow lists of floats into a matrix of float32, without a Python object per row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puffin_ann.errors import UnsupportedTableError

REASONS = ("", "null", "wrong-length", "not-finite", "too-long")
"""Why a row has no usable vector. An empty list is of wrong length; not finite is NaN, infinite,
beyond float32, or a null inside the list; too long is a norm above `LARGEST_NORM`."""
_NULL, _WRONG_LENGTH, _NOT_FINITE, _TOO_LONG = 1, 2, 3, 4

LARGEST_NORM = 2.0**62
"""The Euclidean norm up to which a vector is indexed, 4.6e18. The squared distance of two such
vectors, also with the component that maximum inner product search adds to them, is at most 2^126,
which float32 holds."""


@dataclass(frozen=True)
class VectorBatch:
    """The vectors of one row group.

    Attributes:
        matrix: (n, d) float32, C-contiguous, a row per row of the row group; rows that are not
            valid are zero. d is 0 if no dimension was given and no row tells it.
        flaws: (n,) uint8, 0 for a valid row, else the place of its reason in `REASONS`.
    """

    matrix: NDArray[np.float32]
    flaws: NDArray[np.uint8]

    @property
    def valid(self) -> NDArray[np.bool_]:
        """(n,) bool: rows that have a usable vector."""
        valid: NDArray[np.bool_] = self.flaws == 0
        return valid

    def reasons(self, rows: NDArray[np.bool_] | None = None) -> dict[str, int]:
        """Count the rows that are not valid by reason, among `rows` (n,) bool or all."""
        flaws = self.flaws if rows is None else self.flaws[rows]
        counts = np.bincount(flaws, minlength=len(REASONS)).tolist()
        return {reason: n for reason, n in zip(REASONS[1:], counts[1:], strict=True) if n}


def vectors_of(
    column: pa.ChunkedArray, dimension: int | None = None, *, view: bool = False
) -> VectorBatch:
    """Turn a column of lists of floats into a matrix, without a Python object per row.

    Args:
        column: of one row group.
        dimension: of the vectors; None for that of most of them.
        view: the matrix may be read-only and share its memory with the column.
    """
    chunks = [_list_chunk(chunk) for chunk in column.chunks]
    if view and dimension and len(chunks) == 1:
        whole = _as_it_is(chunks[0], dimension)
        if whole is not None:
            return VectorBatch(whole, np.zeros(len(whole), np.uint8))
    if dimension is None:
        dimension = _usual_length(chunks)
    rows = sum(len(chunk.valid) for chunk in chunks)
    matrix = np.zeros((rows, dimension), dtype=np.float32)
    flaws = np.zeros(rows, dtype=np.uint8)
    first = 0
    for chunk in chunks:
        last = first + len(chunk.valid)
        _fill(chunk, matrix[first:last], flaws[first:last])
        first = last
    return VectorBatch(matrix, flaws)


@dataclass(frozen=True)
class _ListChunk:
    """A list array taken apart.

    Attributes:
        valid: (n,) bool, False where the list is null.
        offsets: (n + 1,) int64, row i is `values[offsets[i]:offsets[i + 1]]`. The range of a null
            row need not be empty.
        values: float32 or float64, null elements as NaN.
    """

    valid: NDArray[np.bool_]
    offsets: NDArray[np.int64]
    values: NDArray[Any]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)


def _list_chunk(array: pa.Array) -> _ListChunk:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        # `values` disregards the array's own offset, as it does for the other kinds.
        rows = np.arange(array.offset, array.offset + len(array) + 1, dtype=np.int64)
        offsets = rows * kind.list_size
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        width = np.int64 if pa.types.is_large_list(kind) else np.int32
        start = array.offset
        buffer = array.buffers()[1]
        whole = np.frombuffer(buffer, dtype=width) if buffer is not None else np.zeros(1, width)
        offsets = whole[start : start + len(array) + 1].astype(np.int64)
    else:
        raise UnsupportedTableError(f"a vector column is stored as {kind}, not as a list")
    if len(offsets) == 0:
        offsets = np.zeros(1, dtype=np.int64)
    values = array.values
    if not pa.types.is_floating(values.type):
        raise UnsupportedTableError(f"a vector column is stored as {kind}, not as floats")
    return _ListChunk(
        valid=array.is_valid().to_numpy(zero_copy_only=False),
        offsets=offsets,
        values=values.to_numpy(zero_copy_only=False),
    )


def _as_it_is(chunk: _ListChunk, dimension: int) -> NDArray[np.float32] | None:
    """Return a chunk of sound float32 vectors, all of one width, without copying it; else None."""
    if chunk.values.dtype != np.float32 or not chunk.valid.all():
        return None
    if not (chunk.lengths == dimension).all():
        return None
    elements: NDArray[np.float32] = chunk.values[chunk.offsets[0] : chunk.offsets[-1]]
    vectors = elements.reshape(-1, dimension)
    return vectors if _surely_sound(vectors) else None


def _surely_sound(vectors: NDArray[np.float32]) -> bool:
    """Tell from the extreme elements that no vector can be unsound; False leaves that open."""
    if vectors.size == 0:
        return True
    bound = LARGEST_NORM / np.sqrt(vectors.shape[1])
    return bool(vectors.min() >= -bound and vectors.max() <= bound)  # False of a NaN among them


def _usual_length(chunks: Sequence[_ListChunk]) -> int:
    """Return the length that most vectors have, of equals the first one's; 0 if all are empty."""
    lengths = np.concatenate(
        [np.zeros(0, np.int64), *(chunk.lengths[chunk.valid] for chunk in chunks)]
    )
    found, firsts, counts = np.unique(lengths[lengths > 0], return_index=True, return_counts=True)
    return int(found[np.lexsort((firsts, -counts))[0]]) if len(found) else 0


def _fill(chunk: _ListChunk, matrix: NDArray[np.float32], flaws: NDArray[np.uint8]) -> None:
    """Write a chunk's vectors and flaws into its slices of the batch."""
    lengths = chunk.lengths
    dimension = matrix.shape[1]
    fits = chunk.valid & (lengths == dimension) & (lengths > 0)
    flaws[~chunk.valid] = _NULL
    flaws[chunk.valid & ~fits] = _WRONG_LENGTH
    if dimension == 0:
        return
    elements = chunk.values[chunk.offsets[0] : chunk.offsets[-1]]
    if not fits.all():
        # Row ranges are adjacent, so the elements of the rows that fit are picked by repetition.
        elements = elements[np.repeat(fits, lengths)]
    with np.errstate(over="ignore"):  # a double beyond float32 becomes infinite, counted below
        vectors = elements.reshape(-1, dimension).astype(np.float32, copy=False)
    if not _surely_sound(vectors):
        norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
        unsound = ~(norms <= LARGEST_NORM)
        bad = np.flatnonzero(fits)[unsound]
        # In float64 the norm of any finite float32 vector is finite.
        flaws[bad] = np.where(np.isfinite(norms[unsound]), _TOO_LONG, _NOT_FINITE)
        fits[bad] = False
        vectors = vectors[~unsound]
    if len(vectors) == len(matrix):
        matrix[:] = vectors
    else:
        matrix[fits] = vectors


def all_null(rows: int, dimension: int) -> VectorBatch:
    """Return the batch of a row group whose file was written before the column was added."""
    return VectorBatch(
        matrix=np.zeros((rows, dimension), dtype=np.float32),
        flaws=np.full(rows, _NULL, dtype=np.uint8),
    )
