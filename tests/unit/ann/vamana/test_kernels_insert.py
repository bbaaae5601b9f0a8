"""The kernels of batch insertion, against references in plain NumPy."""

import numpy as np
import pytest

from puffin_ann.ann.graph.arguments import Adjacency
from puffin_ann.ann.vamana.incremental import kernels_insert as kernels
from tests.support.indexes.graph_reference import space_of


def points(n, seed=0):
    space = np.zeros((n, 16), np.float32)
    space[:, :4] = np.random.default_rng(seed).integers(-20, 20, (n, 4))  # distances are exact
    space.flags.writeable = False
    return space


def squared(space, one, other):
    return np.square(space[one] - space[other]).sum(axis=-1)


def linked_back(space, edges, alpha, lists, degrees):
    """Reference of `link_back`."""
    most = lists.shape[1]
    for edge in edges.tolist():
        node, row = edge >> 32, edge & 0xFFFFFFFF
        line = lists[node]
        if row in line[: degrees[node]]:
            continue
        if degrees[node] < most:
            line[degrees[node]] = row
            degrees[node] += 1
            continue
        own, between = squared(space, node, line), squared(space, row, line)
        length = squared(space, node, row)
        slack = np.float32(alpha)
        if ((own <= length) & (slack * between <= length)).any():
            continue
        needless = (own > length) & (slack * between <= own)
        if needless.any():
            line[np.where(needless, own, -1).argmax()] = row
        elif own.max() > length:
            line[own.argmax()] = row


@pytest.mark.parametrize("most", [2, 5, 16])
def test_edges_back_take_the_place_of_those_they_make_needless(most):
    generator = np.random.default_rng(1)
    space = points(300)
    lists = np.stack([generator.permutation(200)[:most] for _ in range(300)]).astype(np.uint32)
    degrees = generator.integers(0, most + 1, 300).astype(np.uint16)
    targets = np.sort(generator.integers(0, 200, 900)).astype(np.uint64)
    edges = (targets << np.uint64(32)) | generator.integers(200, 300, 900).astype(np.uint64)
    edges.sort()
    heads = edges >> np.uint64(32)
    starts = np.flatnonzero(np.diff(heads, prepend=np.uint64(2**63), append=np.uint64(2**63)))
    reference_lists, reference_degrees = lists.copy(), degrees.copy()

    kernels.link_back(space_of(space), Adjacency(lists, degrees, 0), edges, starts, 1.25)

    linked_back(space, edges, 1.25, reference_lists, reference_degrees)
    np.testing.assert_array_equal(degrees, reference_degrees)
    np.testing.assert_array_equal(lists, reference_lists)


@pytest.mark.parametrize(("most", "arity"), [(4, 1), (8, 3)])
def test_hanging_equal_rows_loses_nothing_that_could_be_reached(most, arity):
    space = points(60).copy()
    space[30:] = space[0]
    space.flags.writeable = False
    lists, degrees = np.zeros((60, most), np.uint32), np.zeros(60, np.uint16)
    lists[0] = np.arange(1, most + 1)
    degrees[0] = most

    for row in range(30, 60):
        kernels.link_duplicate_below(space_of(space), Adjacency(lists, degrees, 0), row, 0, arity)

    seen, waiting = {0}, [0]
    while waiting:
        node = waiting.pop()
        line = lists[node, : degrees[node]].tolist()
        assert len(set(line)) == len(line)
        assert node not in line
        waiting += [row for row in line if row not in seen]
        seen.update(line)
    assert seen >= {*range(30, 60), *range(1, most + 1)}
    assert sum(row >= 30 for row in lists[0, : degrees[0]]) == arity
