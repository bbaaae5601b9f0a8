"""What is done to a graph as a whole: equal rows, long edges, and that every row can be reached."""

import numpy as np
import pytest

from puffin_ann.ann.graph import kernels_connectivity
from puffin_ann.ann.graph.arguments import Adjacency
from puffin_ann.ann.vamana import build
from puffin_ann.ann.vamana.bulk import bulk_build, kernels_bulk_build
from puffin_ann.ann.vamana.incremental import incremental_build
from tests.support.indexes.graph_reference import space_of


def padded(vectors):
    out = np.zeros((len(vectors), 16), np.float32)
    out[:, : vectors.shape[1]] = vectors
    out.flags.writeable = False
    return out


def normal(n, d=8, seed=0):
    return padded(np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32))


def lists_of(neighbours, degrees):
    return [line[:degree].tolist() for line, degree in zip(neighbours, degrees, strict=True)]


def reached(neighbours, degrees, entry):
    seen, waiting = {entry}, [entry]
    while waiting:
        node = waiting.pop()
        for row in neighbours[node, : degrees[node]].tolist():
            if row not in seen:
                seen.add(row)
                waiting.append(row)
    return seen


def repaired(space, neighbours, degrees, entry):
    graph = Adjacency(neighbours, degrees, entry)
    none_deleted = kernels_connectivity.NONE_DELETED
    return kernels_connectivity.make_reachable(space_of(space), graph, 32, none_deleted)


def test_rows_without_any_edges_are_all_made_reachable():
    space = normal(500)
    neighbours, degrees = np.zeros((500, 3), np.uint32), np.zeros(500, np.uint16)

    added = repaired(space, neighbours, degrees, 7)

    assert added == 499
    assert len(reached(neighbours, degrees, 7)) == 500
    assert degrees.max() <= 3


@pytest.mark.parametrize("most", [1, 2, 5])
def test_full_lists_are_spliced_and_nothing_is_lost(most):
    """Two rings, every list full: the second can only be had by taking an edge of the first."""
    rows = 200
    space = normal(rows)
    half = rows // 2
    neighbours = np.empty((rows, most), np.uint32)
    for row in range(rows):
        ring, place = divmod(row, half)
        neighbours[row] = [ring * half + (place + 1 + j) % half for j in range(most)]
    degrees = np.full(rows, most, np.uint16)

    added = repaired(space, neighbours, degrees, 0)

    assert added >= 1
    assert len(reached(neighbours, degrees, 0)) == rows
    for row, line in enumerate(lists_of(neighbours, degrees)):
        assert len(set(line)) == len(line)
        assert row not in line


def test_a_whole_graph_is_left_alone():
    graph = incremental_build.build(normal(300), most=8, keep=20, alpha=1.2, seed=[1], threads=1)
    repaired(normal(300), graph.neighbours, graph.degrees, graph.entry)
    before = graph.neighbours.copy()

    assert repaired(normal(300), graph.neighbours, graph.degrees, graph.entry) == 0
    assert np.array_equal(graph.neighbours, before)


@pytest.mark.parametrize("colliding", [False, True])
def test_equal_rows_are_named_by_their_first(colliding):
    words = np.random.default_rng(0).integers(0, 3, (400, 3)).astype(np.uint32)
    hashes = np.zeros(400, np.uint64)
    if not colliding:
        kernels_connectivity.hash_rows(words, hashes)
    first = np.empty(400, np.uint32)

    doubles = kernels_connectivity.find_equal(
        words, hashes, np.argsort(hashes, kind="stable"), first
    )

    assert np.array_equal(words[first], words)
    assert (first <= np.arange(400)).all()
    assert doubles == (first != np.arange(400)).sum()
    if not colliding:
        assert len(np.unique(first)) == len(np.unique(words, axis=0))


@pytest.mark.parametrize(("most", "arity"), [(4, 1), (8, 3), (16, 4)])
def test_equal_rows_hang_below_their_first_and_lead_out_again(most, arity):
    neighbours, degrees = np.zeros((60, most), np.uint32), np.zeros(60, np.uint16)
    neighbours[5, :2] = [50, 51]
    degrees[5] = 2
    members = np.array([5, *range(10, 40)], np.uint32)

    kernels_connectivity.hang_equal(members, arity, neighbours, degrees)

    assert reached(neighbours, degrees, 5) >= set(members.tolist()) | {50, 51}
    for member in members[1:].tolist():
        assert 5 in reached(neighbours, degrees, member)
        assert 50 in neighbours[member, : degrees[member]]


def test_long_edges_take_the_place_of_the_last_ones_only_if_they_must():
    neighbours = np.zeros((10, 4), np.uint32)
    neighbours[2], neighbours[3, :2] = [4, 5, 6, 7], [2, 9]
    degrees = np.zeros(10, np.uint16)
    degrees[2], degrees[3] = 4, 2

    kernels_connectivity.add_long_edges(
        np.array([2, 3, 8], np.uint32),
        np.array([[1, 2], [0, 2]], np.uint32),
        np.array([2, 2], np.uint16),
        neighbours,
        degrees,
    )

    assert lists_of(neighbours, degrees)[2] == [4, 5, 3, 8]
    assert lists_of(neighbours, degrees)[3] == [2, 9, 8]
    assert not neighbours[3, 3:].any()


@pytest.mark.parametrize(("width", "most"), [(6, 6), (6, 4), (9, 2)])
def test_lists_are_moved_together(width, most):
    generator = np.random.default_rng(0)
    lists = generator.integers(1, 99, (50, width)).astype(np.uint32)
    degrees = generator.integers(0, most + 1, 50).astype(np.uint16)
    reference = np.where(np.arange(most) < degrees[:, None], lists[:, :most], 0)

    kernels_bulk_build.compact(lists.reshape(-1), width, most, degrees)

    assert np.array_equal(lists.reshape(-1)[: 50 * most].reshape(50, most), reference)


@pytest.mark.parametrize("rows", [1500, 6000])
def test_a_graph_is_the_same_whatever_the_threads(rows):
    """By insertion and in bulk."""
    space = normal(rows)
    one, three = (
        build.build(space, most=16, keep=32, alpha=1.2, seed=9, threads=threads)
        for threads in (1, 3)
    )

    assert one.entry == three.entry
    assert one.neighbours.tobytes() == three.neighbours.tobytes()
    assert one.degrees.tobytes() == three.degrees.tobytes()


def test_wide_rows_are_built_from_smaller_leaves_and_no_row_is_lost():
    space = np.random.default_rng(0).standard_normal((5000, 272)).astype(np.float32)
    space.flags.writeable = False

    graph = build.build(space, most=16, keep=32, alpha=1.2, seed=9, threads=2)

    assert bulk_build.Plan.of_dim(272).leaf < bulk_build.Plan.of_dim(112).leaf
    assert len(reached(graph.neighbours, graph.degrees, graph.entry)) == 5000


def test_half_of_the_entry_leads_to_other_clusters():
    generator = np.random.default_rng(0)
    centres = 100 * generator.standard_normal((12, 8))
    labels = np.repeat(np.arange(12), 500)
    points = centres[labels] + generator.standard_normal((6000, 8))

    graph = build.build(
        padded(points.astype(np.float32)), most=32, keep=32, alpha=1.2, seed=0, threads=2
    )

    seen = labels[graph.neighbours[graph.entry, : graph.degrees[graph.entry]]]
    assert len(np.unique(seen)) >= 9
