"""Rows of one array or of several, in an order of their own, read where they lie."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.kernels_copy import copy_rows
from puffin_ann.ann.core.metrics import Floats, plain

Chosen = tuple[Floats, NDArray[np.int64]]
"""`(n, d) float32` vectors, and `(m,) int64` ordinals of some of them."""


@dataclass(frozen=True, eq=False)
class RowAddresses:
    """Where rows begin in memory.

    Attributes:
        starts: (n,) uint64, the address of each row.
        dimension: numbers in a row.
        held: the arrays that they are rows of: these stay where they are as long as this is there.
    """

    starts: NDArray[np.uint64]
    dimension: int
    held: tuple[Floats, ...]

    @classmethod
    def of(cls, vectors: Floats) -> "RowAddresses":
        """Return those of all vectors, (n, d) float32."""
        return cls.of_some([(vectors, np.arange(len(vectors)))])

    @classmethod
    def of_some(
        cls, parts: Sequence[Chosen], order: NDArray[np.int64] | None = None
    ) -> "RowAddresses":
        """Return those of some vectors of each of at least one array, all of one dimension.

        Args:
            parts: the arrays, and which of their vectors; trusted.
            order: (n,) int64, of all of them, in which they are wanted; None: as they are given.
        """
        held = tuple(plain(vectors) for vectors, _ in parts)
        starts, begin = np.empty(sum(len(ordinals) for _, ordinals in parts), np.uint64), 0
        for vectors, (_, ordinals) in zip(held, parts, strict=True):
            part = starts[begin : begin + len(ordinals)]
            np.multiply(ordinals, vectors.strides[0], out=part, casting="unsafe")
            part += np.uint64(vectors.ctypes.data)
            begin += len(ordinals)
        return cls(starts if order is None else starts[order], held[0].shape[1], held)

    def __len__(self) -> int:
        """Return n."""
        return len(self.starts)

    def between(self, first: int, last: int) -> "RowAddresses":
        """Return the rows from the first on, up to the last, which is not among them."""
        return RowAddresses(self.starts[first:last], self.dimension, self.held)

    def copied(self) -> Floats:
        """Return the rows side by side, (n, d) float32."""
        out = np.empty((len(self), self.dimension), np.float32)
        copy_rows(self.starts, out)
        return out
