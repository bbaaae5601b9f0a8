"""Rows of every shard that a condition lets be answered, compared in one go."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.exact.row_addresses import Chosen
from puffin_ann.ann.signs.row_codes import RowCodes
from puffin_ann.ann.signs.selected_rows import SelectedRows, bytes_of
from puffin_ann.search.merge import LocatorKeys, Source

GATHERED_BYTES = 128 << 20
"""What gathered rows take, at most."""

BESIDE_BYTES = 40
"""Of a gathered row, its locator, shard and ordinal."""


class Part(NamedTuple):
    """Rows of one shard that may be answered.

    Attributes:
        shard_id: of the shard.
        metric: that they are compared by.
        ordinals: (n,) int64.
        vectors: an array that holds them, and the place of each in it.
        keys: (ordinals) -> file rank, row group and row offset.
    """

    shard_id: int
    metric: str
    ordinals: NDArray[np.int64]
    vectors: Chosen
    keys: Callable[[NDArray[np.int64]], LocatorKeys]


@dataclass(frozen=True, eq=False)
class Gathered:
    """Rows that may be answered, in the order of their locators, by which ties are broken.

    Attributes:
        rows: to be compared.
        keys: (3, m) int64: file rank, row group and row offset.
        shards: (m,) int64, ids of their shards.
        ordinals: (m,) int64, in those.
        shard_count: shards that have any of the rows.
    """

    rows: SelectedRows
    keys: NDArray[np.int64]
    shards: NDArray[np.int64]
    ordinals: NDArray[np.int64]
    shard_count: int

    @classmethod
    def of(cls, parts: Sequence[Part], known: RowCodes | None = None) -> "Gathered":
        """Gather the rows of at least one shard, of which signs may be known."""
        some = [part for part in parts if len(part.ordinals)] or parts[:1]
        keys = np.concatenate([np.stack(part.keys(part.ordinals)) for part in some], axis=1)
        order = _ordered(keys)
        counts = [len(part.ordinals) for part in some]
        shards = np.repeat(np.array([part.shard_id for part in some], np.int64), counts)
        ordinals = np.concatenate([part.ordinals for part in some])
        rows = SelectedRows([part.vectors for part in some], METRICS[some[0].metric], order, known)
        return cls(rows, keys[:, order], shards[order], ordinals[order], sum(map(bool, counts)))

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        arrays = self.keys, self.shards, self.ordinals
        return self.rows.size + sum(array.nbytes for array in arrays)

    def nearest(self, queries: NDArray[np.float32], k: int, threads: int) -> Source:
        """Return the k nearest rows; see `SelectedRows.nearest`."""
        places, distances = self.rows.nearest(queries, k, threads=threads)
        return Source(places, distances, self._keys, self.shards, self.ordinals)

    def _keys(self, chosen: NDArray[np.int64]) -> LocatorKeys:
        rank, group, offset = self.keys
        return rank[chosen], group[chosen], offset[chosen]


def fits(rows: int, dimension: int) -> bool:
    """Tell whether so many rows may be gathered now, if codes say enough of them."""
    return bytes_of(rows, dimension) + BESIDE_BYTES * rows <= GATHERED_BYTES


def _ordered(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the order of (3, m) keys, by the first, then the second, then the third."""
    most, count = keys.max(axis=1, initial=0) + 1, keys.shape[1]
    bits = count.bit_length()
    if math.prod(most.tolist()) << bits > np.iinfo(np.int64).max:
        return np.lexsort(keys[::-1])
    # Numbers alone are sorted in a third of the time that their places take.
    single = (keys[0] * most[1] + keys[1]) * most[2] + keys[2]
    order: NDArray[np.int64] = np.sort(single << bits | np.arange(count)) & ((1 << bits) - 1)
    return order
