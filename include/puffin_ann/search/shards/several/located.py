"""Where answers of several shards are: one call of a kernel for all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.search.merge import LocatorKeys, Source, known_places
from puffin_ann.search.shards.opening.snapshot_shard import SnapshotShard
from puffin_ann.search.shards.several.kernels_located import LOCATED

Answered = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""Of answers: the place of the shard, the ordinal in it, and the distance."""


@dataclass(frozen=True, eq=False)
class Located:
    """Locators of the rows of several shards.

    Attributes:
        where: (shards,) LOCATED.
        shard_ids: (shards,) int64.
        held: what lies there.
    """

    where: NDArray[np.void]
    shard_ids: NDArray[np.int64]
    held: Sequence[object]

    @classmethod
    def of(cls, shards: Sequence[SnapshotShard]) -> "Located":
        """Look up the locators of at least one shard."""
        where = np.zeros(len(shards), LOCATED)
        held: list[object] = []
        for at, shard in enumerate(shards):
            locators = shard.loaded.locators
            ranks = np.ascontiguousarray(shard.file_ranks)
            of_rows = locators.places, locators.row_groups, locators.offsets
            arrays: list[NDArray[Any]] = [
                ranks,
                *(np.ascontiguousarray(array) for array in of_rows),
            ]
            where[at] = (*(array.ctypes.data for array in arrays), len(locators), len(ranks))
            held.append(arrays)
        ids = np.array([shard.entry.shard_id for shard in shards], np.int64)
        return cls(where, ids, held)

    def source(self, answers: Answered, keys: NDArray[np.int64]) -> Source:
        """Return answers of all the shards as those of one source.

        Args:
            answers: (q, k) of each: place of the shard, ordinal and distance; -1, -1 and infinity
                where there is none.
            keys: (3, q · k) int64, where they are.
        """
        places, ordinals, distances = answers
        numbers = places >> 63 | _numbers(*ordinals.shape)  # -1 where the place is
        in_shards = known_places(self.shard_ids[places.reshape(-1)], ordinals.reshape(-1))
        return Source(numbers, distances, partial(_chosen, keys), in_shards=in_shards)


def _chosen(keys: NDArray[np.int64], chosen: NDArray[np.int64]) -> LocatorKeys:
    rank, group, offset = keys[:, chosen]
    return rank, group, offset


@lru_cache(64)
def _numbers(queries: int, k: int) -> NDArray[np.int64]:
    return np.arange(queries * k).reshape(queries, k)
