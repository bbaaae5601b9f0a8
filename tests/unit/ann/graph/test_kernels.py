"""Each compiled loop of Vamana against a reference in plain Python that shows what it means.

Vectors hold small whole numbers, so that float32 sums are exact in any order and both must agree to
the last decision.
"""

import numpy as np
import pytest

from puffin_ann.ann.graph import kernels_prune
from puffin_ann.ann.graph.arguments import FlatAdjacency, Pools, Visited
from puffin_ann.ann.graph.kernels_beam import beam
from puffin_ann.ann.graph.primitives import candidate, row_of, squared_of, squared_of_four
from puffin_ann.ann.vamana.bulk import kernels_bulk_build
from tests.support.indexes.graph_reference import (
    NONE,
    WIDTH,
    best_first,
    pruned,
    space_of,
    squared,
    whole_numbers,
)

SEEDS = range(8)


def keys_of(space, node, rows):
    """Return rows as ascending candidates of a node, and as (squared distance, row) pairs."""
    pairs = sorted((squared(space[node], space[row]), int(row)) for row in rows if row != node)
    keys = [candidate.py_func(np.float32(distance), row) for distance, row in pairs]
    return np.array(keys, np.uint64), pairs


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("most", "alpha"), [(4, 1.0), (8, 1.25), (64, 1.25), (64, 2.0)])
def test_pruning_chooses_what_its_reference_does(seed, most, alpha):
    space = whole_numbers(120, seed)
    space[50:60] = space[0]  # doubles of the node itself
    space[70:90] = space[3]
    keys, pairs = keys_of(space, 0, np.arange(120))
    out = np.zeros(most, np.uint32)
    count = kernels_prune.robust_prune(space_of(space), keys, len(keys), most, alpha, out)
    assert out[:count].tolist() == pruned(space, pairs, most, alpha)


def test_measuring_leaves_the_node_itself_out_and_doubles_are_removed():
    space = whole_numbers(30, 0)
    rows = np.array([4, 9, 4, 2, 7, 2, 2], np.uint32)
    keys = np.zeros(20, np.uint64)
    end = kernels_prune.measure(space_of(space), 7, rows, len(rows), keys, 0)
    ordered = np.sort(keys[:end])
    count = int(kernels_prune.without_doubles(ordered, end))
    _, pairs = keys_of(space, 7, [2, 4, 9])
    found = [(float(squared_of.py_func(key)), int(row_of.py_func(key))) for key in ordered[:count]]
    assert found == pairs


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("keep", [1, 5, 40, 300])
@pytest.mark.parametrize("deleted_share", [0.0, 0.3, 0.9])
def test_the_beam_keeps_and_expands_what_its_reference_does(seed, keep, deleted_share):
    generator = np.random.default_rng(seed)
    space = whole_numbers(200, seed)
    space[20:40] = space[1]
    degrees = generator.integers(0, 9, 200).astype(np.uint16)
    lists = [generator.choice(200, degree, replace=False).tolist() for degree in degrees]
    neighbours = np.zeros((200, 8), np.uint32)
    for row, line in enumerate(lists):
        neighbours[row, : len(line)] = line
    query = whole_numbers(1, seed + 100)
    deleted = (generator.random(200 if deleted_share else 0) < deleted_share).astype(np.uint8)
    pool, trail = np.zeros(keep + 1, np.uint64), np.zeros(1000, np.uint64)
    size, expanded = beam(
        space_of(space),
        FlatAdjacency(neighbours.reshape(-1), 8, degrees, 3),
        query.reshape(-1),
        0,
        Pools(pool, keep, np.zeros(8, np.uint64), deleted),
        Visited(np.zeros(200, np.uint8), np.uint8(1), np.zeros(9, np.uint32)),
        trail,
    )
    expected_pool, expected_trail = best_first(space, lists, 3, query[0], keep, deleted, 7)

    def unpacked(keys):
        return [(float(squared_of.py_func(key)), int(row_of.py_func(key))) for key in keys]

    assert unpacked(pool[:size]) == expected_pool
    assert unpacked(trail[:expanded]) == expected_trail


@pytest.mark.parametrize("width", [16, 48, 400])
def test_four_distances_at_once_are_those_of_one_at_a_time(width):
    rows = np.random.default_rng(width).integers(-9, 9, (6, width)).astype(np.float32)
    found = squared_of_four(
        rows[5:].reshape(-1), 0, rows.reshape(-1), 3 * width, 0, 4 * width, 3 * width, width
    )
    assert list(found) == [squared(rows[5], rows[row]) for row in (3, 0, 4, 3)]


@pytest.mark.parametrize("columns", [5, 60, 300])
@pytest.mark.parametrize("count", [1, 8, 16, 40, 64, 100])
def test_the_lowest_of_equally_near_columns_are_taken(columns, count):
    generator = np.random.default_rng(columns)
    products = generator.integers(0, 3, (4, columns)).astype(np.float32)
    products[3] = 1.0
    squares = np.full(columns, 4.0, np.float32)
    places = np.zeros((4, count), np.uint32)
    kernels_bulk_build.nearest(products, squares, 1, places)
    for i in range(4):
        order = np.argsort(-products[i], kind="stable").tolist()
        order = [column for column in order if column != 1 + i][:count]
        assert places[i].tolist() == order + [NONE] * (count - len(order))


@pytest.mark.parametrize("columns", [1, 3, 15, 16, 17, 100, 300, 1000])
@pytest.mark.parametrize("own", [0, 2, -(1 << 40)])
def test_the_nearest_columns_are_those_of_sorting_all(columns, own):
    generator = np.random.default_rng(columns)
    # Whole numbers far apart: no two scores of a line are equal.
    products = np.stack([generator.permutation(columns) * 7.0 for _ in range(5)])
    squares = generator.integers(0, 7, columns).astype(np.float32)
    places = np.zeros((5, 6), np.uint32)
    kernels_bulk_build.nearest(products.astype(np.float32), squares, own, places)
    for i in range(5):
        scores = squares - 2 * products[i]
        order = [c for c in np.argsort(scores, kind="stable").tolist() if c != own + i][:6]
        assert places[i].tolist() == order + [NONE] * (6 - len(order))


def test_gathered_rows_are_moved_by_their_mean():
    space = whole_numbers(64, 0)
    rows = np.array([5, 1, 60, 33], np.uint32)
    out, squares = np.empty((4, WIDTH), np.float32), np.empty(4, np.float32)
    kernels_bulk_build.gather(space, rows, out, squares)
    expected = space[rows] - space[rows].mean(axis=0)
    np.testing.assert_allclose(out, expected, atol=1e-6)
    np.testing.assert_allclose(squares, (expected**2).sum(axis=1), rtol=1e-6)


def test_grouping_turning_round_and_tidying_lists():
    leaders = np.array([2, 0, NONE, 2, 1, 0, 2], np.uint32)
    starts, members = np.zeros(4, np.int64), np.zeros(7, np.uint32)
    kernels_bulk_build.group(leaders, starts, members)
    assert starts.tolist() == [0, 2, 3, 6]
    assert members[:6].tolist() == [1, 5, 4, 0, 3, 6]

    forward = np.array([[2, 1, 2, NONE], [NONE] * 4, [1, NONE, 1, 0]], np.uint32)
    counts = np.zeros(3, np.int32)
    seen_by = np.zeros(3, np.uint32)
    kernels_bulk_build.tidy(forward, 0, 2, counts, seen_by)
    kernels_bulk_build.tidy(forward, 2, 3, counts, seen_by)
    assert [line[:count].tolist() for line, count in zip(forward, counts, strict=True)] == [
        [2, 1],
        [],
        [1, 0],
    ]
    starts, sources = np.zeros(4, np.int64), np.zeros(4, np.uint32)
    kernels_bulk_build.turn_round(forward, counts, starts, sources)
    assert starts.tolist() == [0, 1, 3, 4]
    assert sources.tolist() == [2, 0, 2, 0]
