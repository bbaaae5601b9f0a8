"""RobustPrune: which of many candidates become a node's neighbours."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.vamana.primitives import (
    F32,
    FAST,
    U64,
    Whole,
    candidate,
    prefetch,
    row_of,
    squared_l2,
    squared_of,
)

from numba import njit  # isort: skip  (after the primitives have configured it)

MAX_CANDIDATES = 750
"""Candidates considered for one node, the nearest; as in DiskANN."""


@njit(cache=True, nogil=True, fastmath=FAST)
def _occlusion(
    space: NDArray[np.float32],
    width: Whole,
    key: np.uint64,
    alpha: np.float32,
    chosen: NDArray[np.uint32],
    count: Whole,
) -> Whole:
    """Tell if a chosen neighbour makes a candidate needless: 0 no, 1 at slack 1 only, 2 at alpha.

    It does if it is nearer to the candidate, by a factor, than the node itself is.
    """
    row = row_of(key)
    squared = squared_of(key)
    found = 0
    for j in range(U64(count)):
        between = squared_l2(space, row * width, space, U64(chosen[j]) * width, width)
        if alpha * between <= squared:
            return 2
        if between <= squared:
            found = 1
    return found


@njit(cache=True, nogil=True, fastmath=FAST)
def robust_prune(
    space: NDArray[np.float32],
    width: Whole,
    candidates: NDArray[np.uint64],
    count: Whole,
    most: Whole,
    alpha: float,
    out: NDArray[np.uint32],
) -> Whole:
    """Choose neighbours: first those nothing occludes, then, as room allows, with slack alpha.

    Args:
        space: flat `(n · width,) float32` rows.
        width: numbers in a row.
        candidates: ascending, without doubles and without the node itself; changed.
        count: how many of them.
        most: neighbours wanted at most.
        alpha: slack, at least 1.
        out: `uint32`, room for `most`, written.

    Returns:
        How many were chosen.

    """
    w = U64(width)
    slack = F32(alpha)
    chosen = U64(0)
    left = U64(0)
    for i in range(U64(count)):
        if chosen == U64(most):
            break
        verdict = _occlusion(space, w, candidates[i], slack, out, chosen)
        if verdict == 0:
            out[chosen] = row_of(candidates[i])
            chosen += U64(1)
        elif verdict == 1:
            candidates[left] = candidates[i]
            left += U64(1)
    if alpha > 1.0:
        for i in range(left):
            if chosen == U64(most):
                break
            if _occlusion(space, w, candidates[i], slack, out, chosen) < 2:
                out[chosen] = row_of(candidates[i])
                chosen += U64(1)
    return chosen


@njit(cache=True, nogil=True)
def without_doubles(candidates: NDArray[np.uint64], count: Whole) -> Whole:
    """Remove doubles from ascending candidates, in place; return how many are left."""
    kept = U64(0)
    for i in range(U64(count)):
        if kept == U64(0) or row_of(candidates[i]) != row_of(candidates[kept - U64(1)]):
            candidates[kept] = candidates[i]
            kept += U64(1)
    return kept


@njit(cache=True, nogil=True, fastmath=FAST)
def measure(
    space: NDArray[np.float32],
    width: Whole,
    node: Whole,
    rows: NDArray[np.uint32],
    count: Whole,
    out: NDArray[np.uint64],
    at: Whole,
) -> Whole:
    """Write rows as candidates of a node from `out[at]` on, without itself; return the new end."""
    w = U64(width)
    for j in range(U64(count)):
        prefetch(space, U64(rows[j]) * w)
        prefetch(space, U64(rows[j]) * w + U64(16))
    end = U64(at)
    for j in range(U64(count)):
        row = U64(rows[j])
        if row != U64(node):
            squared = squared_l2(space, U64(node) * w, space, row * w, w)
            out[end] = candidate(squared, row)
            end += U64(1)
    return end
