"""The loops that add rows to a graph, or choose what bulk building found, against references."""

import numpy as np
import pytest

from puffin_ann.ann.clustering import kernels_kmeans
from puffin_ann.ann.graph.arguments import Adjacency
from puffin_ann.ann.vamana.bulk import kernels_bulk_build
from puffin_ann.ann.vamana.incremental import kernels_incremental_build, kernels_insert
from tests.support.indexes.graph_reference import (
    NONE,
    best_first,
    pruned,
    space_of,
    squared,
    whole_numbers,
)

ROWS, MOST = 160, 8
SEEDS = range(4)
NONE_DELETED = np.empty(0, np.uint8)


def some_graph(rows, room, seed, degree=None):
    generator = np.random.default_rng(seed)
    lists, degrees = np.zeros((rows, room), np.uint32), np.zeros(rows, np.uint16)
    for row in range(rows):
        degrees[row] = generator.integers(0, room + 1) if degree is None else degree
        others = np.setdiff1d(np.arange(rows), [row])
        lists[row, : degrees[row]] = generator.choice(others, degrees[row], replace=False)
    return lists, degrees


def named(lists, degrees):
    return [line[:degree].tolist() for line, degree in zip(lists, degrees, strict=True)]


def nearest_to(space, node, rows):
    """(squared distance, row) of each row but the node itself, ascending, doubles taken out."""
    return sorted({(squared(space[node], space[row]), int(row)) for row in rows if row != node})


def insertion(rows, *, near=None, deleted=NONE_DELETED, keep, alpha):
    """New rows, and room for what is found for them."""
    return kernels_insert.Insertion(
        rows=rows,
        near=np.empty((len(rows), 0), np.uint32) if near is None else near,
        deleted=deleted,
        keep=keep,
        alpha=alpha,
        chosen=np.zeros((len(rows), MOST), np.uint32),
        counts=np.zeros(len(rows), np.uint16),
        twins=np.zeros(len(rows), np.uint32),
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("keep", "alpha"), [(4, 1.0), (30, 1.25)])
def test_new_rows_choose_among_what_their_search_expanded(seed, keep, alpha):
    space = whole_numbers(ROWS, seed)
    lists, degrees = some_graph(ROWS, MOST, seed)
    new = insertion(np.array([3, 50, 51, 159], np.uint32), keep=keep, alpha=alpha)
    stamp = kernels_insert.find_places(
        space_of(space), Adjacency(lists, degrees, 7), new, np.zeros(ROWS, np.uint8), 254, 0, 4
    )
    assert stamp == 3, "after 255 stamps begin with 1 again"
    graph = named(lists, degrees)
    for b, row in enumerate(new.rows.tolist()):
        trail = best_first(space, graph, 7, space[row], keep)[1]
        expected = pruned(space, sorted(trail), MOST, alpha)
        assert new.chosen[b, : new.counts[b]].tolist() == expected


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("some_deleted", [False, True])
def test_rows_of_a_batch_choose_among_live_rows_and_each_other(seed, some_deleted):
    space = whole_numbers(ROWS, seed)
    generator = np.random.default_rng(seed)
    known = 140
    space[150] = space[7]  # equal to the entry
    lists, degrees = some_graph(known, MOST, seed)
    lists = np.concatenate([lists, np.zeros((ROWS - known, MOST), np.uint32)])
    degrees = np.concatenate([degrees, np.zeros(ROWS - known, np.uint16)])
    rows = np.arange(known, ROWS, dtype=np.uint32)
    near = generator.integers(0, len(rows), (len(rows), 5)).astype(np.uint32)
    near[near == np.arange(len(rows))[:, None]] = NONE
    deleted = np.zeros(ROWS if some_deleted else 0, np.uint8)
    deleted[: len(deleted) : 3] = 1
    new = insertion(rows, near=near, deleted=deleted, keep=20, alpha=1.25)
    kernels_insert.find_places(
        space_of(space),
        Adjacency(lists, degrees, 7),
        new,
        np.zeros(ROWS, np.uint8),
        0,
        2,
        len(rows),
    )
    assert not new.counts[:2].any(), "the first two were not asked for"
    graph = named(lists, degrees)
    for b, row in enumerate(rows.tolist()):
        if b < 2:
            continue
        live = [
            near_row for _, near_row in best_first(space, graph, 7, space[row], 20, deleted, 20)[1]
        ]
        beside = [int(rows[place]) for place in near[b] if place != NONE]
        expected = pruned(space, nearest_to(space, row, live + beside), MOST, 1.25)
        assert new.chosen[b, : new.counts[b]].tolist() == expected
        equal = [near_row for near_row in live if (space[near_row] == space[row]).all()]
        assert new.twins[b] == min(equal, default=NONE)


def test_chosen_neighbours_are_put_in_their_rows():
    lists, degrees = some_graph(20, MOST, 0)
    before, batch = named(lists, degrees), np.array([4, 9], np.uint32)
    chosen = np.array([[1, 2, 3], [8, 0, 0]], np.uint32)
    kernels_incremental_build.put_lists(
        Adjacency(lists, degrees, 0), batch, chosen, np.array([3, 1], np.uint16)
    )
    before[4], before[9] = [1, 2, 3], [8]
    assert named(lists, degrees) == before


@pytest.mark.parametrize("seed", SEEDS)
def test_edges_are_added_and_lists_that_overflow_are_pruned(seed):
    space, room = whole_numbers(ROWS, seed), 12
    lists, degrees = some_graph(ROWS, room, seed)
    expected = named(lists, degrees)
    generator = np.random.default_rng(seed)
    pairs = {tuple(pair) for pair in generator.integers(0, ROWS, (900, 2)).tolist()}
    pairs = sorted((head, other) for head, other in pairs if head != other)
    heads = np.array([head for head, _ in pairs])
    edges = np.array([(head << 32) | other for head, other in pairs], np.uint64)
    starts = np.append(np.unique(heads, return_index=True)[1], len(edges)).astype(np.int64)
    for node in np.unique(heads).tolist():
        new = [row for head, row in pairs if head == node and row not in expected[node]]
        expected[node] = expected[node] + new
        if len(expected[node]) > room:
            expected[node] = pruned(space, nearest_to(space, node, expected[node]), MOST, 1.25)
    kernels_incremental_build.add_edges(
        space_of(space), Adjacency(lists, degrees, 0), edges, starts, MOST, 1.25
    )
    assert named(lists, degrees) == expected


def test_lists_are_brought_to_their_final_width():
    space = whole_numbers(ROWS, 0)
    lists, degrees = some_graph(ROWS, 12, 0)
    expected = [
        pruned(space, nearest_to(space, row, line), MOST, 1.25) if len(line) > MOST else line
        for row, line in enumerate(named(lists, degrees))
    ]
    neighbours = np.zeros((ROWS, MOST), np.uint32)
    for first, last in [(0, 50), (50, ROWS)]:
        kernels_incremental_build.prune_lists(
            space_of(space), Adjacency(lists, degrees, 0), first, last, 1.25, neighbours
        )
    assert named(neighbours, degrees) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_bulk_building_prunes_what_was_found_both_ways(seed):
    space = whole_numbers(ROWS, seed)
    forward, degrees = some_graph(ROWS, 10, seed)
    counts, found = degrees.astype(np.int32), named(forward, degrees)
    starts, sources = np.zeros(ROWS + 1, np.int64), np.zeros(counts.sum(), np.uint32)
    kernels_bulk_build.turn_round(forward, counts, starts, sources)
    chosen = np.zeros(ROWS, np.uint16)
    kernels_bulk_build.choose(
        space_of(space),
        kernels_bulk_build.Found(forward, counts, starts, sources),
        np.random.default_rng(seed).permutation(ROWS).astype(np.uint32),
        MOST,
        1.25,
        chosen,
    )
    for row in range(ROWS):
        both_ways = [*found[row], *(number for number in range(ROWS) if row in found[number])]
        expected = pruned(space, nearest_to(space, row, both_ways), MOST, 1.25)
        assert forward[row, : chosen[row]].tolist() == expected


def test_neighbours_found_in_a_leaf_go_to_the_slots_of_its_rows():
    rows, slots = np.array([5, 2, 9], np.uint32), np.array([0, 2, 1], np.uint32)
    places = np.array([[1, 2], [0, NONE], [NONE, 1]], np.uint32)
    forward = np.full((10, 4), 77, np.uint32)
    kernels_bulk_build.put_neighbours(rows, slots, places, forward)
    assert forward[[5, 2, 9]].tolist() == [[2, 9, 77, 77], [77, 77, 5, NONE], [77, NONE, 2, 77]]
    assert (np.delete(forward, rows, axis=0) == 77).all()


def test_vectors_are_added_to_the_sums_of_their_centroids():
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((500, 7)).astype(np.float32)
    ids = generator.integers(0, 9, 500).astype(np.uint32)
    sums, counts = np.ones((11, 7)), np.zeros(11, np.int64)
    kernels_kmeans.add_up(vectors, ids, sums, counts)
    expected = np.ones((11, 7))
    np.add.at(expected, ids, vectors.astype(np.float64))
    np.testing.assert_array_equal(sums, expected)
    np.testing.assert_array_equal(counts, np.bincount(ids, minlength=11))
