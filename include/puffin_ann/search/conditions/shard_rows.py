"""The rows of one shard that may be answered: a mask, their number, and a copy of them if few."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import exact
from puffin_ann.ann.core.metrics import Metric
from puffin_ann.ann.core.types import Answers
from puffin_ann.engines import SearchableShard

GATHERED_BYTES = 64 << 20
"""Rows are copied side by side if they take no more, else picked out again for each search."""


class _Copied(NamedTuple):
    """Rows side by side.

    Attributes:
        ordinals: (m + 1,) int64; the last is -1, which place -1, where there is no answer, takes.
        vectors: (m, d) float32.
        squares: (m,) float64, their squared norms, which the first search fills in.
    """

    ordinals: NDArray[np.int64]
    vectors: NDArray[np.float32]
    squares: NDArray[np.float64]


@dataclass(eq=False)
class ShardRows:
    """Rows of a shard that may be answered.

    Attributes:
        excluded: (n,) bool, the others. Not to be changed: engines know it again.
        count: how many may be answered.
    """

    excluded: NDArray[np.bool_]
    count: int
    _gathered: _Copied | None = field(default=None, repr=False)

    @classmethod
    def of(cls, excluded: NDArray[np.bool_]) -> "ShardRows":
        """Return the rows that a mask leaves."""
        return cls(excluded, len(excluded) - int(np.count_nonzero(excluded)))

    @property
    def is_gathered(self) -> bool:
        """Whether they lie side by side already."""
        return self._gathered is not None

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        gathered = 0 if self._gathered is None else sum(part.nbytes for part in self._gathered)
        return self.excluded.nbytes + gathered

    def nearest(
        self,
        shard: SearchableShard,
        queries: NDArray[np.float32],
        k: int,
        metric: Metric,
        threads: int,
    ) -> Answers:
        """Return the k nearest of these rows, exactly, by comparing all; see `exact.search`."""
        ordinals, vectors, squares = self._gathered or self._gather(shard)
        places, distances = exact.search(
            queries, vectors, k, metric, squares=squares, threads=threads
        )
        return ordinals[places], distances

    def _gather(self, shard: SearchableShard) -> _Copied:
        ordinals = np.flatnonzero(~self.excluded)
        vectors = np.ascontiguousarray(shard.vectors(ordinals))
        squares = exact.unknown_squares(len(vectors))
        gathered = _Copied(np.append(ordinals, -1), vectors, squares)
        if vectors.nbytes <= GATHERED_BYTES:
            self._gathered = gathered
        return gathered
