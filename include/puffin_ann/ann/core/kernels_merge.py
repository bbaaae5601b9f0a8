"""Merge answers that are each in order of their distance."""

import numpy as np
from numpy.typing import NDArray

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
    places: NDArray[np.int64],
    tied: NDArray[np.bool_],
) -> None:
    """Write the places of the smallest distances of each line, in order; ties by place.

    Args:
        distances: `(q, m) float32`, the answers of all sources side by side; those of each ascend.
        ordinals: `(q, m) int64`, below 0 where there is no answer; behind the answers of a source.
        begins: `(s + 1,) int64`, where each source begins, and m.
        heads: `(s,) int64`, scratch.
        places: `(q, w) int64`, w ≤ m, written: -1 where no answers are left.
        tied: `(q,) bool`, written: whether two that follow each other are as far.
    """
    for line in range(len(distances)):
        for source in range(len(heads)):
            heads[source] = begins[source]
        tied[line] = False
        places[line] = -1
        for place in range(places.shape[1]):
            best = _nearest(distances[line], ordinals[line], begins, heads)
            if best < 0:
                break
            places[line, place] = heads[best]
            if place > 0:
                before = distances[line, places[line, place - 1]]
                tied[line] |= distances[line, heads[best]] == before
            heads[best] += 1
