"""Rows of every shard that a condition lets be answered, side by side: compared in one go."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.exact.compared_rows import ComparedRows
from puffin_ann.engines import SearchableShard
from puffin_ann.search.merge import LocatorKeys, Source

GATHERED_BYTES = 64 << 20
"""Vectors that are copied side by side, at most."""


class Part(NamedTuple):
    """Rows of one shard that may be answered.

    Attributes:
        shard_id: of the shard.
        engine: that has their vectors as they are.
        ordinals: (n,) int64.
        keys: (ordinals) -> file rank, row group and row offset.
    """

    shard_id: int
    engine: SearchableShard
    ordinals: NDArray[np.int64]
    keys: Callable[[NDArray[np.int64]], LocatorKeys]


@dataclass(frozen=True, eq=False)
class Gathered:
    """Rows that may be answered, in the order of their locators, by which ties are broken.

    Attributes:
        rows: their vectors.
        keys: (3, m) int64: file rank, row group and row offset.
        shards: (m,) int64, ids of their shards.
        ordinals: (m,) int64, in those.
    """

    rows: ComparedRows
    keys: NDArray[np.int64]
    shards: NDArray[np.int64]
    ordinals: NDArray[np.int64]

    @classmethod
    def of(cls, parts: Sequence[Part]) -> "Gathered":
        """Copy the rows of at least one shard."""
        some = [part for part in parts if len(part.ordinals)] or parts[:1]
        keys = np.concatenate([np.stack(part.keys(part.ordinals)) for part in some], axis=1)
        order = _ordered(keys)
        counts = [len(part.ordinals) for part in some]
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        vectors = np.empty((len(order), some[0].engine.dimension), np.float32)
        for part, at in zip(some, np.split(places, np.cumsum(counts)[:-1]), strict=True):
            part.engine.copy_vectors(part.ordinals, vectors, at)
        metric = METRICS[some[0].engine.metric]
        shards = np.repeat(np.array([part.shard_id for part in some], np.int64), counts)
        ordinals = np.concatenate([part.ordinals for part in some])
        rows = ComparedRows(vectors, metric, are_copied=True)
        return cls(rows, keys[:, order], shards[order], ordinals[order])

    @cached_property
    def size(self) -> int:
        """Bytes that it takes."""
        arrays = self.keys, self.shards, self.ordinals
        return self.rows.vectors.nbytes + self.rows.size + sum(array.nbytes for array in arrays)

    @cached_property
    def shard_count(self) -> int:
        """Shards that have any of the rows."""
        return len(np.unique(self.shards))

    def nearest(self, queries: NDArray[np.float32], k: int, threads: int) -> Source:
        """Return the k nearest rows, exactly."""
        places, distances = self.rows.nearest(queries, k, threads=threads)
        return Source(places, distances, self._keys, self.shards, self.ordinals)

    def _keys(self, chosen: NDArray[np.int64]) -> LocatorKeys:
        rank, group, offset = self.keys[:, chosen]
        return rank, group, offset


def _ordered(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the order of (3, m) keys, by the first, then the second, then the third."""
    most = keys.max(axis=1, initial=0) + 1
    if math.prod(most.tolist()) > np.iinfo(np.int64).max:
        return np.lexsort(keys[::-1])
    # Each shard's are nearly in order, of which a stable sort of single numbers makes the most.
    return np.argsort((keys[0] * most[1] + keys[1]) * most[2] + keys[2], kind="stable")
