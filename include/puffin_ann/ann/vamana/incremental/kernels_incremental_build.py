"""The loops of building by insertion."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.arguments import Adjacency, Space
from puffin_ann.ann.graph.kernels_prune import is_among, measure, robust_prune
from puffin_ann.ann.graph.primitives import U64, Whole
from puffin_ann.numba_kernels import FAST, kernel


@kernel()
def put_lists(
    graph: Adjacency,
    batch: NDArray[np.uint32],
    chosen: NDArray[np.uint32],
    counts: NDArray[np.uint16],
) -> None:
    """Give the rows of a batch the neighbours chosen for them."""
    for b in range(len(batch)):
        graph.degrees[batch[b]] = counts[b]
        for j in range(counts[b]):
            graph.neighbours[batch[b], j] = chosen[b, j]


@kernel(fastmath=FAST, allocates=True)
def add_edges(
    space: Space,
    graph: Adjacency,
    edges: NDArray[np.uint64],
    starts: NDArray[np.int64],
    most: Whole,
    alpha: float,
) -> None:
    """Add edges; a list that overflows is pruned to `most`.

    Args:
        space: the rows.
        graph: changed.
        edges: `(e,) uint64`, from row (upper half) to row (lower half), ascending.
        starts: `(g + 1,) int64`, where the edges from each row begin.
        most: R.
        alpha: slack.
    """
    lists, degrees = graph.neighbours, graph.degrees
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
            if not is_among(line, degrees[node], row):
                new[count] = row
                count += 1
        if degrees[node] + count <= room:
            for j in range(count):
                line[degrees[node] + j] = new[j]
            degrees[node] += count
            continue
        end = measure(space, node, line, degrees[node], keys, 0)
        end = measure(space, node, new, count, keys, end)
        ordered = np.sort(keys[:end])
        degrees[node] = robust_prune(space, ordered, end, most, alpha, line)


@kernel(fastmath=FAST, allocates=True)
def prune_lists(
    space: Space,
    graph: Adjacency,
    first: Whole,
    last: Whole,
    alpha: float,
    neighbours: NDArray[np.uint32],
) -> None:
    """Bring the lists of rows `first` to `last` to their final length, `(n, R)` neighbours."""
    lists, degrees = graph.neighbours, graph.degrees
    most = neighbours.shape[1]
    keys = np.empty(lists.shape[1], np.uint64)
    for i in range(first, last):
        if degrees[i] <= most:
            for j in range(degrees[i]):
                neighbours[i, j] = lists[i, j]
            continue
        end = measure(space, i, lists[i], degrees[i], keys, 0)
        ordered = np.sort(keys[:end])
        degrees[i] = robust_prune(space, ordered, end, most, alpha, neighbours[i])
