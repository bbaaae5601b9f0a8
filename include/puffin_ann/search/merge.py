"""Make one answer of the answers of many sources: arrays in, arrays out."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.kernels_merge import merge_ascending

LocatorKeys = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]

InShards = tuple[NDArray[np.int64], NDArray[np.int64]]
"""`(n,) int64` twice: ids of shards, -1 for none, and ordinals in them."""


class Source(NamedTuple):
    """Answers of one shard, or of the scan, for all queries of a batch.

    Attributes:
        ordinals: (q, k) int64, numbers of rows in the source; -1 where there is no answer, behind
            those there are.
        distances: (q, k) float32, ascending; inf where there is no answer.
        keys: (ordinals) -> file rank, row group and row offset, by which ties are broken.
        shard: id of the shard that the rows are of, by the same ordinals; -1 if they are of none.
        in_shards: (ordinals) -> where they are, if they are of several.
    """

    ordinals: NDArray[np.int64]
    distances: NDArray[np.float32]
    keys: Callable[[NDArray[np.int64]], LocatorKeys]
    shard: int = -1
    in_shards: Callable[[NDArray[np.int64]], InShards] | None = None


class Merged(NamedTuple):
    """The k best of all sources.

    Attributes:
        sources: (q, k) int64, index of the source, -1 where there are fewer than k.
        ordinals: (q, k) int64, in that source.
        distances: (q, k) float32.
    """

    sources: NDArray[np.int64]
    ordinals: NDArray[np.int64]
    distances: NDArray[np.float32]


def merge(sources: Sequence[Source], k: int) -> Merged:
    """Merge the answers of all sources by distance, ties by locator.

    Every query has at least one source: without sources there are no queries.
    """
    if not sources:
        none = np.empty((0, k), dtype=np.int64)
        return Merged(none, none, none.astype(np.float32))
    if len(sources) == 1:
        (source,) = sources
        ordinals = source.ordinals[:, :k]
        # The sign of an ordinal, spread over all bits: -1 where there is none, else 0.
        return Merged(ordinals >> 63, ordinals, source.distances[:, :k])
    distances = np.concatenate([source.distances for source in sources], axis=1)
    ordinals = np.concatenate([source.ordinals for source in sources], axis=1)
    shape = len(ordinals), min(k, ordinals.shape[1])
    begins = np.array([0, *accumulate(source.ordinals.shape[1] for source in sources)], np.int64)
    nearest = np.empty(shape, np.int64), np.empty(shape, np.int64), np.empty(shape, np.float32)
    tied = np.empty(len(ordinals), np.bool_)
    heads = np.empty(len(sources), np.int64)
    if merge_ascending(distances, ordinals, begins, heads, nearest, tied):
        origin = begins.searchsorted(np.arange(begins[-1]), side="right") - 1
        for row in tied.nonzero()[0].tolist():
            order = _order_with_ties(sources, origin, ordinals[row], distances[row])[: shape[1]]
            is_there = ordinals[row, order] >= 0
            nearest[0][row] = np.where(is_there, origin[order], -1)
            nearest[1][row] = np.where(is_there, ordinals[row, order], -1)
            nearest[2][row] = np.where(is_there, distances[row, order], np.inf)
    return Merged(*nearest)


def count_found(sources: Sequence[Source], queries: int, k: int) -> NDArray[np.int64]:
    """Return (queries,) int64, how many rows were found; k where one source alone found as many."""
    for source in sources:
        if source.ordinals.shape[1] >= k and (
            len(source.ordinals) and source.ordinals[:, k - 1].min() >= 0
        ):
            return np.full(queries, k, np.int64)
    found = np.zeros(queries, np.int64)
    for source in sources:
        found += (source.ordinals >= 0).sum(axis=1)
    return found


def farthest_of(sources: Sequence[Source], queries: int, k: int) -> NDArray[np.float32]:
    """Return (queries,) float32, the distance of the k-th row found; infinite where none is."""
    lines = [np.full((queries, k), np.inf, np.float32), *(source.distances for source in sources)]
    found: NDArray[np.float32] = np.partition(np.concatenate(lines, axis=1), k - 1, axis=1)
    return found[:, k - 1]


def _order_with_ties(
    sources: Sequence[Source],
    origin: NDArray[np.int64],
    ordinals: NDArray[np.int64],
    distances: NDArray[np.float32],
) -> NDArray[np.int64]:
    keys = keys_of(sources, np.where(ordinals >= 0, origin, -1), ordinals)
    return np.lexsort((keys[2], keys[1], keys[0], distances))


def keys_of(
    sources: Sequence[Source], origin: NDArray[np.int64], ordinals: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return (3, n) int64: file rank, row group and row offset of answers.

    Args:
        sources: which gave them.
        origin: (n,) int64, index of the source of each; -1 where there is no answer, whose keys
            are 0.
        ordinals: (n,) int64, in the sources.
    """
    if len(sources) == 1 and len(origin) and origin.min() == 0:
        return np.array(sources[0].keys(ordinals))
    keys = np.zeros((3, len(ordinals)), dtype=np.int64)
    for number, source in enumerate(sources):
        here = (origin == number).nonzero()[0]
        if len(here):
            keys[0, here], keys[1, here], keys[2, here] = source.keys(ordinals[here])
    return keys


def in_shards(
    sources: Sequence[Source], origin: NDArray[np.int64], ordinals: NDArray[np.int64]
) -> InShards:
    """Return where answers are.

    Args:
        sources: which gave them.
        origin: (n,) int64, index of the source of each.
        ordinals: (n,) int64, in the sources.
    """
    shards, found = np.empty(len(origin), np.int64), ordinals.copy()
    for number, source in enumerate(sources):
        here = np.flatnonzero(origin == number)
        if source.in_shards is None:
            shards[here] = source.shard
        else:
            shards[here], found[here] = source.in_shards(ordinals[here])
    return shards, found


def known_places(
    shards: NDArray[np.int64], ordinals: NDArray[np.int64]
) -> Callable[[NDArray[np.int64]], InShards]:
    """Return what tells the shards of rows, (m,) int64, and their ordinals in these."""
    return lambda chosen: (shards[chosen], ordinals[chosen])
