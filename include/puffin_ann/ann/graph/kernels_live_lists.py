"""The loops of `live_lists`: live rows near each deleted one, and lists chosen among these."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.arguments import Adjacency, Space
from puffin_ann.ann.graph.kernels_prune import measure, robust_prune
from puffin_ann.ann.graph.primitives import U32, U64, Whole, row_of
from puffin_ann.numba_kernels import FAST, inlined, kernel


@inlined
def _add_new(row, seen, stamp, out, count):  # type: ignore[no-untyped-def]
    """Write a row behind the others unless it was seen; return how many there are."""
    if seen[row] == stamp:
        return count
    seen[row] = stamp
    out[count] = row
    return count + U64(1)


@inlined
def _candidates(line, degree, deleted, place, near, counts, taken, seen, stamp, out):  # type: ignore[no-untyped-def]
    """Write what a live row may lead to, if any neighbour is deleted; return how many."""
    count = U64(0)
    for j in range(degree):
        if not deleted[line[j]]:
            count = _add_new(line[j], seen, stamp, out, count)
    if count == U64(degree):
        return U64(0)
    for j in range(degree):
        if deleted[line[j]]:
            beside = place[line[j]]
            for i in range(min(np.int64(counts[beside]), taken)):
                count = _add_new(near[beside, i], seen, stamp, out, count)
    return count


@kernel(fastmath=FAST, allocates=True)
def find_near_live(
    space: Space,
    graph: Adjacency,
    deleted: NDArray[np.uint8],
    rows: NDArray[np.uint32],
    place: NDArray[np.uint32],
    near: NDArray[np.uint32],
    counts: NDArray[np.uint16],
) -> None:
    """Find live rows near each deleted row: its live neighbours, and what its deleted ones found.

    Called again, it reaches farther into where all are deleted.

    Args:
        space: the rows.
        graph: their neighbours.
        deleted: `(n,) uint8`.
        rows: `(g,) uint32`, the deleted rows.
        place: `(n,) uint32`, where each of them is in `rows`.
        near: `(g, m) uint32`, changed: of each the nearest found so far, ascending.
        counts: `(g,) uint16`, changed: how many.
    """
    neighbours, degrees = graph.neighbours, graph.degrees
    most = near.shape[1]
    seen = np.zeros(len(deleted), np.uint32)
    found = np.empty((neighbours.shape[1] + 2) * most + neighbours.shape[1], np.uint32)
    keys = np.empty(len(found), np.uint64)
    for g in range(len(rows)):
        stamp = U32(g + 1)
        node = rows[g]
        line = neighbours[node]
        count = U64(0)
        for j in range(counts[g]):
            count = _add_new(near[g, j], seen, stamp, found, count)
        for j in range(degrees[node]):
            row = line[j]
            if not deleted[row]:
                count = _add_new(row, seen, stamp, found, count)
                continue
            beside = place[row]
            for i in range(counts[beside]):
                count = _add_new(near[beside, i], seen, stamp, found, count)
        ordered = np.sort(keys[: measure(space, node, found, count, keys, 0)])
        counts[g] = min(len(ordered), most)
        for j in range(counts[g]):
            near[g, j] = U32(row_of(ordered[j]))


@kernel(fastmath=FAST, allocates=True)
def choose_live(
    space: Space,
    graph: Adjacency,
    deleted: NDArray[np.uint8],
    place: NDArray[np.uint32],
    near: NDArray[np.uint32],
    counts: NDArray[np.uint16],
    taken: Whole,
    alpha: float,
    chosen: Adjacency,
) -> Whole:
    """Choose the lists anew that have deleted rows in them; return how many those are.

    Args:
        space: the rows.
        graph: their neighbours.
        deleted: `(n,) uint8`.
        place: `(n,) uint32`, where each deleted row is in `near`.
        near: `(g, m) uint32`, live rows near each deleted one, ascending.
        counts: `(g,) uint16`, how many.
        taken: how many of them are candidates in the place of a deleted neighbour.
        alpha: slack of pruning.
        chosen: a copy of the graph, changed. Where no live row is found, a list stays.
    """
    neighbours, degrees = graph.neighbours, graph.degrees
    most = neighbours.shape[1]
    seen = np.zeros(len(deleted), np.uint32)
    found = np.empty(max(most * (max(1, taken) + 1), near.shape[1]), np.uint32)
    keys = np.empty(len(found), np.uint64)
    changed = 0
    for node in range(len(deleted)):
        stamp = U32(node + 1)
        count = U64(0)
        if deleted[node]:
            for j in range(counts[place[node]]):
                count = _add_new(near[place[node], j], seen, stamp, found, count)
        else:
            count = _candidates(
                neighbours[node], degrees[node], deleted, place, near, counts, taken, seen, stamp,
                found,
            )  # fmt: skip
        end = measure(space, node, found, count, keys, 0)
        if end == U64(0):
            continue
        ordered = np.sort(keys[:end])
        chosen.degrees[node] = robust_prune(
            space, ordered, end, most, alpha, chosen.neighbours[node]
        )
        changed += 1
    return changed
