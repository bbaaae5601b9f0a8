"""RobustPrune: which of many candidates become a node's neighbours."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.arguments import Space
from puffin_ann.ann.graph.primitives import (
    F32,
    LANES,
    U64,
    Whole,
    candidate,
    row_of,
    squared_of,
    squared_of_four,
)
from puffin_ann.ann.simd.vectors import prefetch
from puffin_ann.numba_kernels import FAST, kernel

MAX_CANDIDATES = 750
"""Candidates considered for one node, the nearest; as in DiskANN."""


@kernel(fastmath=FAST)
def _occlusion(
    space: Space,
    key: np.uint64,
    alpha: np.float32,
    chosen: NDArray[np.uint32],
    first: Whole,
    count: Whole,
) -> Whole:
    """Tell if a chosen neighbour makes a candidate needless: 0 no, 1 at slack 1 only, 2 at alpha.

    It does if it is nearer to the candidate, by a factor, than the node itself is. Looked at are
    those chosen from the `first` on.
    """
    rows, dim = space.rows, U64(space.dim)
    squared = squared_of(key)
    if U64(first) >= U64(count):
        return 0
    last = U64(count) - U64(1)
    least = squared + squared
    for j in range(U64(first), U64(count), U64(4)):
        between = squared_of_four(
            rows,
            row_of(key) * dim,
            rows,
            U64(chosen[j]) * dim,
            U64(chosen[min(j + U64(1), last)]) * dim,
            U64(chosen[min(j + U64(2), last)]) * dim,
            U64(chosen[min(j + U64(3), last)]) * dim,
            dim,
        )
        nearest = min(min(between[0], between[1]), min(between[2], between[3]))
        if alpha * nearest <= squared:
            return 2
        least = min(least, nearest)
    return 1 if least <= squared else 0


@kernel(fastmath=FAST, allocates=True)
def robust_prune(
    space: Space,
    candidates: NDArray[np.uint64],
    count: Whole,
    most: Whole,
    alpha: float,
    out: NDArray[np.uint32],
) -> Whole:
    """Choose neighbours: first those nothing occludes, then, as room allows, with slack alpha.

    Args:
        space: the rows.
        candidates: ascending, without doubles and without the node itself; changed.
        count: how many of them.
        most: neighbours wanted at most.
        alpha: slack, at least 1.
        out: `uint32`, room for `most`, written.

    Returns:
        How many were chosen.
    """
    slack = F32(alpha)
    chosen = U64(0)
    left = U64(0)
    compared = np.empty(count, np.uint16)  # how many were chosen when a candidate was left over
    for i in range(U64(count)):
        if chosen == U64(most):
            break
        verdict = _occlusion(space, candidates[i], slack, out, 0, chosen)
        if verdict == 0:
            out[chosen] = row_of(candidates[i])
            chosen += U64(1)
        elif verdict == 1:
            candidates[left] = candidates[i]
            compared[left] = chosen
            left += U64(1)
    if alpha > 1.0:
        for i in range(left):
            if chosen == U64(most):
                break
            # What was chosen before leaves it a neighbour, or it would not have been left over.
            if _occlusion(space, candidates[i], slack, out, compared[i], chosen) < 2:
                out[chosen] = row_of(candidates[i])
                chosen += U64(1)
    return chosen


@kernel()
def is_among(line: NDArray[np.uint32], count: Whole, row: Whole) -> bool:
    """Tell whether a row is one of the first `count` of a list."""
    found = False
    for j in range(U64(count)):
        found |= U64(line[j]) == U64(row)
    return found


@kernel()
def without_doubles(candidates: NDArray[np.uint64], count: Whole) -> Whole:
    """Remove doubles from ascending candidates, in place; return how many are left."""
    kept = U64(0)
    for i in range(U64(count)):
        if kept == U64(0) or row_of(candidates[i]) != row_of(candidates[kept - U64(1)]):
            candidates[kept] = candidates[i]
            kept += U64(1)
    return kept


@kernel(fastmath=FAST)
def measure(
    space: Space,
    node: Whole,
    rows: NDArray[np.uint32],
    count: Whole,
    out: NDArray[np.uint64],
    at: Whole,
) -> Whole:
    """Write rows as candidates of a node from `out[at]` on, without itself; return the new end."""
    vectors, w = space.rows, U64(space.dim)
    for j in range(U64(count)):
        prefetch(vectors, U64(rows[j]) * w)
        prefetch(vectors, U64(rows[j]) * w + U64(LANES))
    end = U64(at)
    last = U64(count) - U64(1)
    for j in range(U64(0), U64(count), U64(4)):
        four = (
            U64(rows[j]),
            U64(rows[min(j + U64(1), last)]),
            U64(rows[min(j + U64(2), last)]),
            U64(rows[min(j + U64(3), last)]),
        )
        squared = squared_of_four(
            vectors, U64(node) * w, vectors, four[0] * w, four[1] * w, four[2] * w, four[3] * w, w
        )
        for z in range(min(U64(4), U64(count) - j)):
            if four[z] != U64(node):
                out[end] = candidate(squared[z], four[z])
                end += U64(1)
    return end
