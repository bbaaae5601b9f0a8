"""Where the live rows of an index are, by their places in data files: in which shard, and where."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.search.version.consistency import CoveredRows
from puffin_ann.search.version.row_locators import Locators

FEW_SHARE = 2
"""Rows are looked up one by one if they are no more than one in so many, else shard by shard."""


class ShardLocators(NamedTuple):
    """The rows of a shard.

    Attributes:
        shard_id: of the shard.
        locators: of its rows.
        deleted: (n,) bool, those that are not live; None if all are.
    """

    shard_id: int
    locators: Locators
    deleted: NDArray[np.bool_] | None


class LivePlaces:
    """Finds the live rows of covered files in the shards of a version.

    Args:
        covered: the files' rows.
        shards: all of the version.

    Attributes:
        is_sound: whether no two live rows are said to be in one place.
    """

    def __init__(self, covered: CoveredRows, shards: Sequence[ShardLocators]) -> None:
        sizes = [len(shard.locators) for shard in shards]
        self._shards = shards
        self._starts = np.append(0, np.cumsum(sizes, dtype=np.int64))
        form = np.int32 if self._starts[-1] <= np.iinfo(np.int32).max else np.int64
        self._places: NDArray[Any] = np.full(int(covered.group_rows.sum(dtype=np.int64)), -1, form)
        places, live = self._places, 0
        for shard, start in zip(shards, self._starts[:-1].tolist(), strict=True):
            ordinals = np.arange(len(shard.locators))
            if shard.deleted is not None:  # such rows may name any place
                ordinals = ordinals[~shard.deleted]
            numbers = covered.numbers(shard.locators, ordinals).astype(np.int64)
            places[numbers] = ordinals + start
            live += len(ordinals)
        self.is_sound = live == int(np.count_nonzero(places >= 0))

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return self._places.nbytes

    def of(
        self, numbers: NDArray[np.int64]
    ) -> list[tuple[ShardLocators, NDArray[np.signedinteger[Any]]]]:
        """Return the rows in some places of files that are live, by shard, ascending.

        Args:
            numbers: (m,) int64, of rows counted through all covered files, each once.
        """
        places = np.sort(self._places[numbers])
        starts = self._starts.astype(places.dtype)
        bounds = np.searchsorted(places, starts)
        return [
            (shard, places[bounds[at] : bounds[at + 1]] - starts[at])
            for at, shard in enumerate(self._shards)
        ]
