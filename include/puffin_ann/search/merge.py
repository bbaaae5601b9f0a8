"""Make one answer of the answers of many sources: arrays in, arrays out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LocatorKeys = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Source:
    """Answers of one shard, or of the scan, for all queries of a batch.

    Attributes:
        ordinals: (q, k) int64, numbers of rows in the source; -1 where there is no answer.
        distances: (q, k) float32, inf where there is no answer.
        keys: (ordinals) -> file rank, row group and row offset, by which ties are broken.
    """

    ordinals: NDArray[np.int64]
    distances: NDArray[np.float32]
    keys: Callable[[NDArray[np.int64]], LocatorKeys]


@dataclass(frozen=True)
class Merged:
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
        return Merged(np.where(ordinals < 0, -1, 0), ordinals, source.distances[:, :k])
    distances = np.concatenate([source.distances for source in sources], axis=1)
    ordinals = np.concatenate([source.ordinals for source in sources], axis=1)
    origin = np.repeat(np.arange(len(sources)), [source.ordinals.shape[1] for source in sources])
    # One more than k: whether the last of them is tied with what comes next.
    order = _first(distances, ordinals < 0, k + 1)
    starts = np.arange(len(ordinals))[:, None] * ordinals.shape[1]
    ordered = distances.ravel()[order + starts]
    tied = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] < np.inf)
    if tied.any():
        for row in np.flatnonzero(tied.any(axis=1)):
            order[row] = _order_with_ties(sources, origin, ordinals[row], distances[row])[: k + 1]
        ordered = distances.ravel()[order + starts]
    order = order[:, :k]
    answers = ordinals.ravel()[order + starts]
    return Merged(np.where(answers < 0, -1, origin[order]), answers, ordered[:, :k])


def _first(
    distances: NDArray[np.float32], nobody: NDArray[np.bool_], most: int
) -> NDArray[np.int64]:
    """Return the places of the smallest of each row, in order; empty places come last.

    To sort numbers that hold both, the distance and the place, takes a fifth of the time that it
    takes to sort places by distances.
    """
    bits = distances.view(np.uint32)
    negative = bits >> np.uint32(31) != 0
    ascending = np.where(negative, ~bits, bits | np.uint32(1 << 31))
    ascending[nobody] = np.uint32(0xFFFFFFFF)
    keys = ascending.astype(np.uint64) << np.uint64(32)
    keys |= np.arange(distances.shape[1], dtype=np.uint64)
    keys.sort(axis=1)
    return keys[:, :most].astype(np.uint32).astype(np.int64)


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
    keys = np.zeros((3, len(ordinals)), dtype=np.int64)
    for number, source in enumerate(sources):
        here = np.flatnonzero(origin == number)
        for line, found in zip(keys, source.keys(ordinals[here]), strict=True):
            line[here] = found
    return keys
