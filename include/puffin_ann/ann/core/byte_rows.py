"""Rows by a byte a number, to rule out by a quarter of the memory which are not the nearest."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import kernels_bytes as kernels
from puffin_ann.ann.core.metrics import frozen

WIDE = 256
"""Numbers in a row from which on a few queries wait for memory rather than for the processor."""
MOST_QUERIES = 4
"""Of more, products take longer than to read the rows as they are."""


@dataclass(frozen=True, eq=False)
class ByteRows:
    """Rows, each by its codes, which are multiples of its step.

    Attributes:
        codes: (n, w) uint8, w the dimension rounded up to a multiple of 16.
        steps: (n,) float32.
        doubts: (n,) float32, how far each row is from what its codes say, or a little more.
    """

    codes: NDArray[np.uint8]
    steps: NDArray[np.float32]
    doubts: NDArray[np.float32]

    @classmethod
    def of(cls, vectors: NDArray[np.float32]) -> "ByteRows":
        """Code rows, (n, d) float32, finite."""
        rows, wide = len(vectors), padded(vectors.shape[1])
        made = cls(
            np.empty((rows, wide), np.uint8), np.empty(rows, np.float32), np.empty(rows, np.float32)
        )
        kernels.write_byte_rows(frozen(vectors), made.codes, made.steps, made.doubts)
        return made

    def part(self, first: int, last: int) -> "ByteRows":
        """Return the rows from one up to another."""
        some = slice(first, last)
        return ByteRows(self.codes[some], self.steps[some], self.doubts[some])

    def write_products(self, queries: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Write the products of a few queries, (q, d) float32, and the rows by their codes, (q, n).

        Each is off by no more than the length of the query times the row's doubt, and rounding.
        """
        asked = np.zeros((len(queries), self.codes.shape[1]), np.float32)
        asked[:, : queries.shape[1]] = queries
        kernels.few_byte_products(asked, self.codes.reshape(-1), self.steps, out)


def padded(dimension: int) -> int:
    """Return how many bytes a row of so many numbers takes."""
    return (dimension + 15) // 16 * 16
