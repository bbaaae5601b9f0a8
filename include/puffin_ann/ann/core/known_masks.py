"""What is known of the masks that rows are searched with, and forgotten with them.

The same mask comes with every call while a snapshot of an index is open; under conditions others
come and go between.
"""

import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(eq=False)
class KnownMask:
    """What was learnt of a mask.

    Attributes:
        owner: the mask, or what it is a view of.
        live: how many rows it leaves.
        made: what was made for it, by `LastingMasks` where there are; None as long as nothing was.
        queries: how many came with it, as `LastingMasks` counts them.
        is_decided: whether it was begun, or will not be.
        is_settled: whether nothing is made from now on: it was, or will not be.
    """

    owner: weakref.ref[NDArray[np.uint8]]
    live: int
    made: Any = field(default=None, repr=False)
    queries: int = 0
    is_decided: bool = False
    is_settled: bool = False


class KnownMasks:
    """The masks that live; safe to use from several threads.

    Masks must not change while they are in use. They are `(n,) uint8`, non-zero for the rows that
    do not live.
    """

    def __init__(self) -> None:
        self._masks: dict[int, KnownMask] = {}
        self._last: KnownMask | None = None

    def of(self, deleted: NDArray[np.uint8]) -> KnownMask:
        """Return what is known of a mask, which may be a view of one that came before."""
        base = deleted.base
        owner = base if isinstance(base, np.ndarray) and base.nbytes == deleted.nbytes else deleted
        last = self._last
        if last is None or last.owner() is not owner:
            last = self._masks.get(id(owner))
            if last is None or last.owner() is not owner:
                last = self._note(owner, deleted)
            self._last = last
        return last

    @property
    def all(self) -> list[KnownMask]:
        """Every mask that lives."""
        return list(self._masks.values())

    def _note(self, owner: NDArray[np.uint8], deleted: NDArray[np.uint8]) -> KnownMask:
        number = id(owner)

        def forget(gone: weakref.ref[NDArray[np.uint8]]) -> None:
            known = self._masks.get(number)
            if known is not None and known.owner is gone:  # another may have got its number since
                self._masks.pop(number, None)

        live = len(deleted) - int(np.count_nonzero(deleted.view(np.bool_)))
        known = self._masks[number] = KnownMask(weakref.ref(owner, forget), live)
        return known
