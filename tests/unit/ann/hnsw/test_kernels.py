"""Each compiled loop of HNSW against a reference in Python; sums of whole numbers are exact."""

import numpy as np
import pytest

from puffin_ann.ann.graph.arguments import FlatAdjacency, Pools, Visited
from puffin_ann.ann.graph.primitives import row_of
from puffin_ann.ann.hnsw import hnswlib_index, kernels
from puffin_ann.ann.hnsw.layers import Layers, first_lists
from tests.support.indexes.graph_reference import is_deleted, leads_to_deleted, space_of, still_open

WIDTH, ROWS, LINKS = 16, 200, 4
SEEDS = range(6)


def whole_numbers(n, seed):
    return np.random.default_rng(seed).integers(-6, 7, (n, WIDTH)).astype(np.float32)


def apart(product, one, other):
    one, other = one.astype(np.float64), other.astype(np.float64)
    return float(-(one @ other) if product else ((one - other) ** 2).sum())


def padded(lists, most):
    out, degrees = np.zeros((len(lists), most), np.uint32), np.zeros(len(lists), np.uint16)
    for row, line in enumerate(lists):
        out[row, : len(line)], degrees[row] = line, len(line)
    return out, degrees


def some_lists(rows, counts, seed):
    """Lists that lead to some of `rows`, of up to 2 · LINKS of them, for `counts` rows."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(0, 2 * LINKS + 1, counts)
    return [generator.choice(rows, min(size, len(rows)), replace=False).tolist() for size in sizes]


def best_first(measure, lists, begin, entry, keep, deleted, most):
    """Expand the nearest not expanded yet; at the end, if there is room, once more from entry.

    Deleted rows are passed through as `graph_reference.best_first` does.
    """
    pools, seen, done = {False: [], True: []}, set(), set()
    while True:
        is_full, leads = len(pools[False]) == keep, True
        open_ones = still_open(pools, done, is_full)
        if not open_ones:
            if is_full or begin in seen:
                return pools[False]
            new, begin = [begin], entry
            pools[True] = pools[True][: most - is_deleted(deleted, new[0])]
        else:
            following = open_ones[0]
            done.add(following[1])
            leads = leads_to_deleted(pools, following, is_full)
            new = [row for row in lists[following[1]] if row not in seen]
        seen.update(new)
        for row in new:
            if leads or not is_deleted(deleted, row):
                pools[is_deleted(deleted, row)].append((measure(row), row))
        pools = {False: sorted(pools[False])[:keep], True: sorted(pools[True])[:most]}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("keep", [1, 7, 60, ROWS])
@pytest.mark.parametrize("product", [False, True])
@pytest.mark.parametrize("deleted_share", [0.0, 0.4])
def test_the_beam_keeps_what_its_reference_does(seed, keep, product, deleted_share):
    space, query = whole_numbers(ROWS, seed), whole_numbers(1, seed + 100)[0]
    space[30:50] = space[2]
    # Half of the rows lead to each other only; the other half, where the entry is, to all.
    island = np.arange(0, ROWS, 2)
    lists = some_lists(np.arange(ROWS), ROWS, seed)
    for row, line in zip(island, some_lists(island, len(island), seed + 1), strict=True):
        lists[row] = line
    neighbours, degrees = padded(lists, 2 * LINKS)
    deleted = np.random.default_rng(seed).random(ROWS if deleted_share else 0) < deleted_share
    pool = np.zeros(keep + 1, np.uint64)
    size = kernels.beam(
        product,
        space_of(space),
        FlatAdjacency(neighbours.reshape(-1), 2 * LINKS, degrees, 7),
        4,
        query,
        0,
        Pools(pool, keep, np.zeros(10, np.uint64), deleted.view(np.uint8)),
        Visited(np.zeros(ROWS, np.uint8), np.uint8(1), np.zeros(2 * LINKS + 1, np.uint32)),
    )
    expected = best_first(
        lambda row: apart(product, space[row], query), lists, 4, 7, keep, deleted, 9
    )
    assert [int(row_of.py_func(key)) for key in pool[:size]] == [row for _, row in expected]
    assert keep < ROWS or is_deleted(deleted, 7) or 7 in {row for _, row in expected}


def some_layers(seed):
    generator = np.random.default_rng(seed)
    levels = np.minimum(generator.geometric(0.5, ROWS) - 1, 5).astype(np.uint8)
    upper = []
    for row in range(ROWS):
        for layer in range(1, levels[row] + 1):
            there = np.flatnonzero(levels >= layer)
            line = generator.choice(there, min(LINKS, len(there)), replace=False)
            upper.append(line[: generator.integers(0, LINKS + 1)].tolist())
    neighbours, degrees = padded(some_lists(np.arange(ROWS), ROWS, seed), 2 * LINKS)
    upper_neighbours, upper_degrees = padded(upper, LINKS)
    entry = int(levels.argmax())
    return Layers(neighbours, degrees, levels, upper_neighbours, upper_degrees, entry), upper


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("product", [False, True])
def test_descending_arrives_where_its_reference_does(seed, product):
    space, queries = whole_numbers(ROWS, seed), whole_numbers(20, seed + 100)
    layers, upper = some_layers(seed)
    first = first_lists(layers.levels)
    for number, query in enumerate(queries):
        node = layers.entry
        for layer in range(layers.top, 0, -1):
            while True:
                line = upper[first[node] + layer - 1]
                near = min(line, key=lambda row: apart(product, space[row], query), default=node)
                if apart(product, space[near], query) >= apart(product, space[node], query):
                    break
                node = near
        upper_layers = kernels.UpperLayers(
            layers.upper_neighbours.reshape(-1), LINKS, layers.upper_degrees, first, layers.top
        )
        found = kernels.descend(
            product,
            space_of(space),
            upper_layers,
            layers.entry,
            queries.reshape(-1),
            number * WIDTH,
        )
        assert found == node


@pytest.mark.parametrize("seed", SEEDS)
def test_the_tail_of_a_file_of_hnswlib_is_read_as_it_was_written(seed):
    layers, upper = some_layers(seed)
    tail, lists = [], iter(upper)
    for level in layers.levels.tolist():
        tail.append(4 * level * (LINKS + 1))
        for _ in range(level):
            line = next(lists)
            tail += [len(line), *line, *[0] * (LINKS - len(line))]
    assert hnswlib_index._tail(layers).tolist() == tail

    levels = np.zeros(ROWS, np.uint8)
    assert kernels.tail_levels(np.array(tail, np.uint32), LINKS, levels) == len(upper)
    degrees = np.zeros(len(upper), np.uint16)
    found = np.zeros((len(upper), LINKS), np.uint32)
    kernels.tail_lists(np.array(tail, np.uint32), levels, degrees, found)
    np.testing.assert_array_equal(levels, layers.levels)
    np.testing.assert_array_equal(degrees, layers.upper_degrees)
    np.testing.assert_array_equal(found, layers.upper_neighbours)


@pytest.mark.parametrize(
    "corrupt", [lambda t: t[:-1], lambda t: [*t, 0], lambda t: [t[0] + 4, *t[1:]]]
)
def test_a_tail_of_another_form_is_told(corrupt):
    layers, _ = some_layers(0)
    tail = corrupt(hnswlib_index._tail(layers).tolist())
    levels = np.zeros(ROWS, np.uint8)
    found = kernels.tail_levels(np.array(tail, np.uint32), LINKS, levels)
    assert found == kernels.BAD_TAIL
