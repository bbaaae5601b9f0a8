"""What searches with a mask that stays are quicker by: made once, beside them, when it is repaid.

A mask stays as long as a snapshot of an index is open, and a process that answers many queries asks
them all with it. Then it pays to do once, for all its deleted rows, what each search would do again
for those that it meets. A process that asks few, and one that asks under many conditions, each with
a mask of its own, are not to pay for it: so queries are counted first.
"""

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.known_masks import KnownMask, KnownMasks

LEAST_ROWS = 16_384
"""Searches of fewer rows are quick anyway."""
LEAST_SHARE, MOST_SHARE = 1 / 50, 1 / 2
"""Of rows deleted: fewer are hardly met; if more are, the shard is long due to be built again."""
MOST = 4
"""Masks of a shard, as of several snapshots, that have something made at a time."""

T = TypeVar("T")
log = logging.getLogger("puffin_ann")

_one_at_a_time = threading.Lock()


class LastingMasks(Generic[T]):
    """Makes something for masks that stay; safe to use from several threads.

    Args:
        rows: how many the masks are of.
        make: given a mask, makes it; None if it cannot be.
            It must not hold the mask.
        masks: all that are known.
        repaid: after how many queries for each deleted row it is begun: about as many as save what
            it takes.
    """

    def __init__(
        self,
        rows: int,
        make: Callable[[NDArray[np.uint8]], T | None],
        masks: KnownMasks,
        *,
        repaid: float,
    ) -> None:
        self._rows, self._make, self._masks, self._repaid = rows, make, masks, repaid

    def find(self, known: KnownMask, deleted: NDArray[np.uint8], queries: int) -> T | None:
        """Return what was made for a mask, and count queries; it is begun once they are enough."""
        if not known.is_decided:
            known.queries += queries
            if known.queries >= self._repaid * (self._rows - known.live):
                self._begin(known, deleted)
        made: T | None = known.made
        return made

    def make_now(self, deleted: NDArray[np.uint8]) -> None:
        """Make it at once, for however few rows and queries, if searches meet deleted ones."""
        known = self._masks.of(deleted)
        if self._is_met(known) and known.made is None:
            known.is_decided = True
            with _one_at_a_time:
                known.made = self._make(deleted)
            known.is_settled = True

    def _is_met(self, known: KnownMask) -> bool:
        share = 1 - known.live / max(1, self._rows)
        made = sum(other.made is not None for other in self._masks.all)
        return LEAST_SHARE <= share <= MOST_SHARE and made < MOST

    def _begin(self, known: KnownMask, deleted: NDArray[np.uint8]) -> None:
        if self._rows < LEAST_ROWS or not self._is_met(known):
            known.is_decided = known.is_settled = True
        elif _one_at_a_time.acquire(blocking=False):  # or by one of the next calls
            known.is_decided = True
            # Nothing waits for it, neither a search nor the end of the process.
            threading.Thread(
                target=self._work, args=(known, deleted), name="puffin-ann-mask", daemon=True
            ).start()

    def _work(self, known: KnownMask, deleted: NDArray[np.uint8]) -> None:
        try:
            known.made = self._make(deleted)
        except (OSError, ValueError, MemoryError) as error:  # a disk that is full, or lost bits
            log.warning("searched past deleted rows one by one: %s", error)
        finally:
            known.is_settled = True
            _one_at_a_time.release()
