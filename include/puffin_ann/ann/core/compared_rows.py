"""Rows side by side that queries are compared with again and again."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import exact
from puffin_ann.ann.core.byte_rows import MOST_QUERIES, WIDE, ByteRows, padded
from puffin_ann.ann.core.metrics import Metric
from puffin_ann.ann.core.types import Answers

WORTH_CODING = 12
"""Few queries are compared so many times before rows are coded: it takes as long as that saves."""


class ComparedRows:
    """Rows, and what was found out about them; for several threads.

    Attributes:
        vectors: (n, d) float32, finite.

    Args:
        vectors: as above.
    """

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        self.vectors = vectors
        self._squares = exact.unknown_squares(len(vectors))
        self._coded: ByteRows | None = None
        self._asked = 0

    @property
    def size(self) -> int:
        """Bytes that it takes, or will take."""
        rows, dimension = self.vectors.shape
        coded = rows * (padded(dimension) + 8) if dimension >= WIDE else 0
        return self.vectors.nbytes + self._squares.nbytes + coded

    def nearest(
        self, queries: NDArray[np.float32], k: int, metric: Metric, threads: int
    ) -> Answers:
        """Return the k nearest rows of each query, exactly; see `exact.search`."""
        is_few = len(queries) <= MOST_QUERIES and self.vectors.shape[1] >= WIDE
        if is_few and self._coded is None:
            self._asked += 1  # threads may lose one
            if self._asked > WORTH_CODING:
                self._coded = ByteRows.of(self.vectors)
        return exact.search(
            queries,
            self.vectors,
            k,
            metric,
            squares=self._squares,
            coded=self._coded if is_few else None,
            threads=threads,
        )
