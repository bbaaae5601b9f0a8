"""Merge answers that are each in order of their distance, or leave some out."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.types import SEEN, THROUGH
from puffin_ann.numba_kernels import inlined, kernel


@inlined
def _nearest(distances, ordinals, begins, heads):  # type: ignore[no-untyped-def]
    """Return which source has the nearest answer left, the first of equals; -1 if none has any."""
    best = -1
    for source in range(len(heads)):
        head = heads[source]
        if head == begins[source + 1] or ordinals[head] < 0:
            continue
        if best < 0 or distances[head] < distances[heads[best]]:
            best = source
    return best


@kernel()
def merge_ascending(
    distances: NDArray[np.float32],
    ordinals: NDArray[np.int64],
    begins: NDArray[np.int64],
    heads: NDArray[np.int64],
    nearest: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]],
    tied: NDArray[np.bool_],
) -> bool:
    """Write the nearest answers of each line, in order; ties by source. Return whether any tie.

    Args:
        distances: `(q, m) float32`, the answers of all sources side by side; those of each ascend.
        ordinals: `(q, m) int64`, below 0 where there is no answer; behind the answers of a source.
        begins: `(s + 1,) int64`, where each source begins, and m.
        heads: `(s,) int64`, scratch.
        nearest: written, `(q, k)` each: the source, the ordinal and the distance; -1, -1 and
            infinity where no answers are left.
        tied: `(q,) bool`, written: whether two that follow each other are as far, also the last of
            these and the first that is left.
    """
    sources, chosen, ordered = nearest
    any_tied = False
    for line in range(len(distances)):
        for source in range(len(heads)):
            heads[source] = begins[source]
        tied[line] = False
        sources[line] = -1
        chosen[line] = -1
        ordered[line] = np.inf
        for place in range(sources.shape[1] + 1):
            best = _nearest(distances[line], ordinals[line], begins, heads)
            if best < 0:
                break
            head = heads[best]
            if place > 0 and distances[line, head] == ordered[line, place - 1]:
                tied[line] = any_tied = True
            if place < sources.shape[1]:
                sources[line, place] = best
                chosen[line, place] = ordinals[line, head]
                ordered[line, place] = distances[line, head]
            heads[best] += 1
    return any_tied


@kernel()
def leave_out(
    ids: NDArray[np.int64],
    distances: NDArray[np.float32],
    excluded: NDArray[np.bool_],
    kept_ids: NDArray[np.int64],
    kept_distances: NDArray[np.float32],
    sights: NDArray[np.float32],
) -> None:
    """Write the first answers of each line that are not excluded.

    Args:
        ids: `(q, w) int64`, below 0 where there is no answer, behind those there are.
        distances: `(q, w) float32`.
        excluded: `(n,) bool`, by id.
        kept_ids: `(q, k) int64`, written: -1 where fewer are left.
        kept_distances: `(q, k) float32`, written: infinity there.
        sights: `(q, 3) float32`, see `Sight`; written: how many were seen, and are not excluded.
    """
    for line in range(len(ids)):
        kept_ids[line] = -1
        kept_distances[line] = np.inf
        seen = allowed = count = 0
        for place in range(ids.shape[1]):
            row = ids[line, place]
            if row < 0:
                break
            seen += 1
            if excluded[row]:
                continue
            allowed += 1
            if count < kept_ids.shape[1]:
                kept_ids[line, count] = row
                kept_distances[line, count] = distances[line, place]
                count += 1
        sights[line, SEEN], sights[line, THROUGH] = seen, allowed
