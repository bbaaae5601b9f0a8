"""Rows that a deletion mask leaves: counted once a mask, compared one by one where they are few.

The same mask comes with every call while an index is open, so what is known of the last one is
kept: how many rows it leaves and, if these are few and were all compared once, a copy of them.
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.known_masks import KnownMask, KnownMasks
from puffin_ann.ann.core.metrics import Metric
from puffin_ann.ann.core.types import Answers
from puffin_ann.ann.exact import brute_force

GATHERED_BYTES = 32 << 20
"""Live rows are copied side by side if they take no more; else each call picks them out again."""


_Gathered = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float64]]
"""Numbers of live rows, ascending, their vectors, and the squared norms of these."""


class LiveRows:
    """Rows, of which masks leave some alive; safe to use from several threads.

    Masks must not change while they are in use. They are `(n,) uint8`, non-zero for the rows that
    do not live.

    Args:
        metric: of the rows.
        vectors: `(n, d) float32`.

    Attributes:
        masks: what is known of them.
    """

    def __init__(self, metric: Metric, vectors: NDArray[np.float32]) -> None:
        self._metric = metric
        self._vectors = vectors
        self.masks = KnownMasks()
        self._gathered: tuple[KnownMask, _Gathered] | None = None

    def count(self, deleted: NDArray[np.uint8] | None) -> int:
        """Return how many rows live."""
        return len(self._vectors) if deleted is None else self.masks.of(deleted).live

    def nearest(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        deleted: NDArray[np.uint8] | None = None,
        threads: int = 1,
    ) -> Answers:
        """Return the k nearest live rows of each query, exactly; see `brute_force.search`."""
        if deleted is None:
            return brute_force.search(
                queries, self._vectors, k, self._metric, squares=self._squares, threads=threads
            )
        known = self.masks.of(deleted)
        if known.live * self._vectors.itemsize * self._vectors.shape[1] > GATHERED_BYTES:
            return brute_force.search(
                queries,
                self._vectors,
                k,
                self._metric,
                allowed=deleted == 0,
                squares=self._squares,
                threads=threads,
            )
        gathered = self._gathered  # of the last mask alone: it is as large as the rows
        if gathered is None or gathered[0] is not known:
            live = np.flatnonzero(deleted == 0)
            vectors = np.ascontiguousarray(self._vectors[live])
            self._gathered = gathered = known, (live, vectors, self._squares[live])
        numbers, vectors, squares = gathered[1]
        places, distances = brute_force.search(
            queries, vectors, k, self._metric, squares=squares, threads=threads
        )
        # Place -1, where there is none, takes the number put behind the last.
        return np.append(numbers, -1)[places], distances

    @cached_property
    def _squares(self) -> NDArray[np.float64]:
        """Squared norms of the rows, as far as searches have filled them in."""
        return brute_force.unknown_squares(len(self._vectors))
