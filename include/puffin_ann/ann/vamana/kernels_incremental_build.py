"""The loops of building by insertion."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.kernels_beam import beam
from puffin_ann.ann.graph.kernels_prune import measure, robust_prune
from puffin_ann.ann.graph.primitives import FAST, U64, Whole

from numba import njit  # isort: skip  (after the primitives have configured it)


@njit(cache=True, nogil=True, fastmath=FAST)
def find_places(
    space: NDArray[np.float32],
    width: Whole,
    lists: NDArray[np.uint32],
    degrees: NDArray[np.uint16],
    entry: Whole,
    batch: NDArray[np.int64],
    keep: Whole,
    alpha: float,
    stamps: NDArray[np.uint8],
    stamp: Whole,
    chosen: NDArray[np.uint32],
    counts: NDArray[np.uint16],
) -> Whole:
    """Choose neighbours for rows that are not in the graph yet.

    Args:
        space: flat `(n · width,) float32`.
        width: numbers in a row.
        lists: `(n, s) uint32`, the graph.
        degrees: `(n,) uint16`.
        entry: row to begin at.
        batch: `(b,) int64`, the new rows.
        keep: L.
        alpha: slack.
        stamps: `(n,) uint8` scratch, kept from call to call.
        stamp: the last one used; 0 at first, with `stamps` all 0.
        chosen: `(b, R) uint32`, written.
        counts: `(b,) uint16`, written.

    Returns:
        The last stamp used.
    """
    pool = np.empty(keep + 1, np.uint64)
    passed, nobody = np.empty(1, np.uint64), np.empty(0, np.uint8)
    trail = np.empty(8 * keep + 64, np.uint64)
    fresh = np.empty(lists.shape[1] + 1, np.uint32)
    flat = lists.reshape(-1)
    for b in range(len(batch)):
        stamp += 1
        if stamp == 256:
            stamps[:] = 0
            stamp = 1
        _, found = beam(
            space,
            width,
            flat,
            lists.shape[1],
            degrees,
            entry,
            space,
            batch[b] * width,
            pool,
            keep,
            passed,
            nobody,
            stamps,
            np.uint8(stamp),
            fresh,
            trail,
        )
        ordered = np.sort(trail[:found])
        counts[b] = robust_prune(space, width, ordered, found, chosen.shape[1], alpha, chosen[b])
    return stamp


@njit(cache=True, nogil=True)
def put_lists(
    batch: NDArray[np.int64],
    chosen: NDArray[np.uint32],
    counts: NDArray[np.uint16],
    lists: NDArray[np.uint32],
    degrees: NDArray[np.uint16],
) -> None:
    """Give the rows of a batch the neighbours chosen for them."""
    for b in range(len(batch)):
        degrees[batch[b]] = counts[b]
        for j in range(counts[b]):
            lists[batch[b], j] = chosen[b, j]


@njit(cache=True, nogil=True)
def _known(line: NDArray[np.uint32], count: Whole, row: Whole) -> bool:
    found = False
    for j in range(U64(count)):
        found |= U64(line[j]) == row
    return found


@njit(cache=True, nogil=True, fastmath=FAST)
def add_edges(
    space: NDArray[np.float32],
    width: Whole,
    edges: NDArray[np.uint64],
    starts: NDArray[np.int64],
    most: Whole,
    alpha: float,
    lists: NDArray[np.uint32],
    degrees: NDArray[np.uint16],
) -> None:
    """Add edges; a list that overflows is pruned to `most`.

    Args:
        space: flat `(n · width,) float32`.
        width: numbers in a row.
        edges: `(e,) uint64`, from row (upper half) to row (lower half), ascending.
        starts: `(g + 1,) int64`, where the edges from each row begin.
        most: R.
        alpha: slack.
        lists: `(n, s) uint32`, changed.
        degrees: `(n,) uint16`, changed.
    """
    room = lists.shape[1]
    keys = np.empty(0, np.uint64)
    new = np.empty(0, np.uint32)
    for g in range(len(starts) - 1):
        size = starts[g + 1] - starts[g]
        if size + room > len(keys):
            keys = np.empty(2 * (size + room), np.uint64)
            new = np.empty(len(keys), np.uint32)
        node = np.int64(edges[starts[g]] >> U64(32))
        line = lists[node]
        count = 0
        for e in range(starts[g], starts[g + 1]):
            row = edges[e] & U64(0xFFFFFFFF)
            if not _known(line, degrees[node], row):
                new[count] = row
                count += 1
        if degrees[node] + count <= room:
            for j in range(count):
                line[degrees[node] + j] = new[j]
            degrees[node] += count
            continue
        end = measure(space, width, node, line, degrees[node], keys, 0)
        end = measure(space, width, node, new, count, keys, end)
        ordered = np.sort(keys[:end])
        degrees[node] = robust_prune(space, width, ordered, end, most, alpha, line)


@njit(cache=True, nogil=True, fastmath=FAST)
def prune_lists(
    space: NDArray[np.float32],
    width: Whole,
    first: Whole,
    last: Whole,
    alpha: float,
    lists: NDArray[np.uint32],
    degrees: NDArray[np.uint16],
    neighbours: NDArray[np.uint32],
) -> None:
    """Bring the lists of rows `first` to `last` to their final width, `(n, R)` neighbours."""
    most = neighbours.shape[1]
    keys = np.empty(lists.shape[1], np.uint64)
    for i in range(first, last):
        if degrees[i] <= most:
            for j in range(degrees[i]):
                neighbours[i, j] = lists[i, j]
            continue
        end = measure(space, width, i, lists[i], degrees[i], keys, 0)
        ordered = np.sort(keys[:end])
        degrees[i] = robust_prune(space, width, ordered, end, most, alpha, neighbours[i])
