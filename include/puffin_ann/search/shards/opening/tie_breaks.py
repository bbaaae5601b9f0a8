"""Equal distances in locator order, from engines that know rows by their ordinals alone.

An engine orders ties by ordinal. In shards whose ordinals are not in locator order (those of
several cells, after a remap or a merge, or where a file came later whose path sorts earlier) ties
are put right here, unless answers of other shards are merged with them, which does it anyway; and
where a tie runs over the end of an answer, the rows beyond it have to be seen to know which belong
to it.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.types import Answers
from puffin_ann.search.merge import LocatorKeys

Keys = Callable[[NDArray[np.int64]], LocatorKeys]

MOST_ANSWERS = 1 << 22
"""Answers held at once while ties are followed beyond the end of an answer."""


class Ask(Protocol):
    """Finds the k nearest rows by distance, ties anyhow."""

    def __call__(
        self, queries: NDArray[np.float32], k: int, /, *, within: NDArray[np.float32] | None
    ) -> Answers:
        """Return the rows; those farther than `within`, (q,) float32, may be left out."""


def by_locator(answers: Answers, keys: Keys) -> Answers:
    """Return answers that ascend by distance with equal distances in locator order."""
    ids, distances = answers
    tied = _tied(answers)
    if not tied.any():
        return answers
    lines = np.flatnonzero(tied.any(axis=1))
    place, there = np.nonzero(ids[lines] >= 0)
    mine = ids[lines[place], there]
    rank, group, offset = keys(mine)
    ids = ids.copy()
    order = np.lexsort((offset, group, rank, distances[lines[place], there], place))
    ids[lines[place], there] = mine[order]
    return ids, distances


def nearest(
    ask: Ask,
    queries: NDArray[np.float32],
    k: int,
    keys: Keys,
    within: NDArray[np.float32] | None = None,
) -> Answers:
    """Return the k nearest rows of each query by distance and locator.

    Args:
        ask: finds the k nearest by distance.
        queries: (q, d) float32.
        k: neighbours.
        keys: (ids) -> file rank, row group and row offset.
        within: (q,) float32, distances beyond which rows are not wanted; None: all are.
    """
    answers = ask(queries, k + 1, within=within)
    if not _tied(answers).any():
        return answers[0][:, :k], answers[1][:, :k]
    ids, distances = by_locator(answers, keys)
    is_open = (ids[:, k] >= 0) & (distances[:, k] == distances[:, k - 1])
    if within is not None:  # beyond it nobody asks which rows they are
        is_open &= distances[:, k - 1] <= within
    open_ended = np.flatnonzero(is_open)
    ids, distances = ids[:, :k].copy(), distances[:, :k]
    wanted = 2 * (k + 1)
    while len(open_ended):
        left = []
        step = max(1, MOST_ANSWERS // wanted)
        for start in range(0, len(open_ended), step):
            lines = open_ended[start : start + step]
            near = None if within is None else within[lines]
            more_ids, more = ask(queries[lines], wanted, within=near)
            ends = (more_ids[:, -1] < 0) | (more[:, -1] > more[:, k - 1])
            left.append(lines[~ends])
            ids[lines[ends]] = by_locator((more_ids[ends], more[ends]), keys)[0][:, :k]
        open_ended = np.concatenate(left)
        wanted *= 4
    return ids, distances


def _tied(answers: Answers) -> NDArray[np.bool_]:
    """Mark the answers, all but the first of each query, that are as far as the one before."""
    ids, distances = answers
    found: NDArray[np.bool_] = (distances[:, 1:] == distances[:, :-1]) & (ids[:, 1:] >= 0)
    return found
