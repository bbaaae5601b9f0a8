"""Rows that a deletion mask leaves: counted once a mask, compared one by one where they are few.

The same mask comes with every call while an index is open, so what is known of the last one is
kept: how many rows it leaves and, if these are few and were all compared once, a copy of them.
"""

import weakref
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import exact
from puffin_ann.ann.core.metrics import Metric
from puffin_ann.ann.core.types import Answers

GATHERED_BYTES = 32 << 20
"""Live rows are copied side by side if they take no more; else each call picks them out again."""


@dataclass(eq=False)
class _Known:
    """What was learnt of a mask.

    Attributes:
        owner: the mask, or what it is a view of.
        count: how many rows live.
        gathered: their numbers, ascending, and vectors; None as long as nobody asked.
    """

    owner: weakref.ref[NDArray[np.uint8]]
    count: int
    gathered: tuple[NDArray[np.int64], NDArray[np.float32]] | None = None


class LiveRows:
    """Rows, of which masks leave some alive; safe to use from several threads.

    Masks must not change while they are in use. They are `(n,) uint8`, non-zero for the rows that
    do not live.

    Args:
        metric: of the rows.
        vectors: `(n, d) float32`.
    """

    def __init__(self, metric: Metric, vectors: NDArray[np.float32]) -> None:
        self._metric = metric
        self._vectors = vectors
        self._last: _Known | None = None

    def count(self, deleted: NDArray[np.uint8] | None) -> int:
        """Return how many rows live."""
        return len(self._vectors) if deleted is None else self._known(deleted).count

    def nearest(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        deleted: NDArray[np.uint8] | None = None,
        threads: int = 1,
    ) -> Answers:
        """Return the k nearest live rows of each query, exactly; see `exact.search`."""
        if deleted is None:
            return exact.search(queries, self._vectors, k, self._metric, threads=threads)
        known = self._known(deleted)
        if known.count * self._vectors.itemsize * self._vectors.shape[1] > GATHERED_BYTES:
            return exact.search(
                queries, self._vectors, k, self._metric, allowed=deleted == 0, threads=threads
            )
        if known.gathered is None:
            numbers = np.flatnonzero(deleted == 0)
            known.gathered = numbers, np.ascontiguousarray(self._vectors[numbers])
        numbers, vectors = known.gathered
        places, distances = exact.search(queries, vectors, k, self._metric, threads=threads)
        # Place -1, where there is none, takes the number put behind the last.
        return np.append(numbers, -1)[places], distances

    def _known(self, deleted: NDArray[np.uint8]) -> _Known:
        """Return what is known of a mask, which may be a view of one that came before."""
        base = deleted.base
        owner = base if isinstance(base, np.ndarray) and base.nbytes == deleted.nbytes else deleted
        last = self._last
        if last is None or last.owner() is not owner:
            live = len(deleted) - int(np.count_nonzero(deleted.view(np.bool_)))
            self._last = last = _Known(weakref.ref(owner), live)
        return last
