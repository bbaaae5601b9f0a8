"""Rows of every shard that a condition lets be answered, compared in one go."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.exact.row_addresses import Chosen
from puffin_ann.ann.signs.row_codes import RowCodes
from puffin_ann.ann.signs.selected_rows import SelectedRows, bytes_of
from puffin_ann.search.merge import InShards, LocatorKeys, Source

GATHERED_BYTES = 128 << 20
"""What gathered rows take, at most."""

BESIDE_BYTES = 24
"""Of a gathered row, its locator, where it is, and its ordinal there."""


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


class _Keys(NamedTuple):
    """File ranks, row groups and row offsets of rows.

    Attributes:
        arrays: (m,) int64 each of the three; or one array of single numbers of all three.
        most: as many groups and offsets as such a number tells apart.
    """

    arrays: tuple[NDArray[np.int64], ...]
    most: tuple[int, int] = 0, 0

    def of(self, chosen: NDArray[np.int64]) -> LocatorKeys:
        """Return those of some rows, by their numbers."""
        if len(self.arrays) == 3:
            rank, group, offset = (array[chosen] for array in self.arrays)
            return rank, group, offset
        upper, offset = np.divmod(self.arrays[0][chosen], self.most[1])
        rank, group = np.divmod(upper, self.most[0])
        return rank, group, offset


@dataclass(frozen=True, eq=False)
class Gathered:
    """Rows that may be answered, in the order of their locators, by which ties are broken.

    Attributes:
        rows: to be compared.
        keys: of their locators.
        order: (m,) int64, of each its number among the rows of all shards, one behind the other.
        ordinals: (m,) int64, of those in their shards.
        shards: (s,) int64, ids of the shards.
        ends: (s,) int64, the number behind the last row of each.
    """

    rows: SelectedRows
    keys: _Keys
    order: NDArray[np.int64]
    ordinals: NDArray[np.int64]
    shards: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, parts: Sequence[Part], known: RowCodes | None = None) -> "Gathered":
        """Gather the rows of at least one shard, of which signs may be known."""
        some = [part for part in parts if len(part.ordinals)] or parts[:1]
        order, keys = _ordered([part.keys(part.ordinals) for part in some])
        rows = SelectedRows([part.vectors for part in some], METRICS[some[0].metric], order, known)
        shards = np.array([part.shard_id for part in some], np.int64)
        ends = np.cumsum([len(part.ordinals) for part in some])
        return cls(
            rows, keys, order, np.concatenate([part.ordinals for part in some]), shards, ends
        )

    @property
    def shard_count(self) -> int:
        """Shards that have any of the rows."""
        return len(self.shards) if len(self.rows) else 0

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        arrays = *self.keys.arrays, self.order, self.ordinals
        return self.rows.size + sum(array.nbytes for array in arrays)

    def nearest(self, queries: NDArray[np.float32], k: int, threads: int) -> Source:
        """Return the k nearest rows; see `SelectedRows.nearest`."""
        places, distances = self.rows.nearest(queries, k, threads=threads)
        return Source(places, distances, self.keys.of, in_shards=self._in_shards)

    def _in_shards(self, chosen: NDArray[np.int64]) -> InShards:
        numbers = self.order[chosen]
        return self.shards[self.ends.searchsorted(numbers, side="right")], self.ordinals[numbers]


def fits(rows: int, dimension: int) -> bool:
    """Tell whether so many rows may be gathered now, if codes say enough of them."""
    return bytes_of(rows, dimension) + BESIDE_BYTES * rows <= GATHERED_BYTES


def _ordered(parts: Sequence[LocatorKeys]) -> tuple[NDArray[np.int64], _Keys]:
    """Return the order of the rows of some parts, (m,) int64, by their keys, and these so."""
    most = [1 + max(int(keys[of].max(initial=0)) for keys in parts) for of in range(3)]
    ends = list(accumulate(len(rank) for rank, _, _ in parts))
    bits = ends[-1].bit_length()
    if math.prod(most) << bits > np.iinfo(np.int64).max:
        rank, group, offset = map(np.concatenate, zip(*parts, strict=True))
        order = np.lexsort((offset, group, rank))
        return order, _Keys((rank[order], group[order], offset[order]))
    # Numbers alone are sorted in a third of the time that their places take: so these are in them.
    single = np.empty(ends[-1], np.int64)
    for end, (rank, group, offset) in zip(ends, parts, strict=True):
        part = single[end - len(rank) : end]
        np.multiply(rank, most[1], out=part)
        part += group
        part *= most[2]
        part += offset
        part <<= bits
        part |= np.arange(end - len(rank), end)
    single.sort()
    order = single & ((1 << bits) - 1)
    single >>= bits
    return order, _Keys((single,), (most[1], most[2]))
