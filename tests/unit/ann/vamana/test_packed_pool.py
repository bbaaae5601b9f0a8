"""The pool of a walk over packed nodes against sorted lists."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.ann.graph.primitives import candidate
from puffin_ann.ann.vamana.packed import kernels_pool


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=80),
)
@settings(max_examples=50, deadline=None)
def test_entering_keeps_a_pool_ascending(sizes):
    pool = np.zeros(len(sizes) + kernels_pool.LANES, np.uint64)
    expected = []
    for row, size in enumerate(sizes):
        key = candidate.py_func(np.float32(size), row)
        place = kernels_pool.enter(pool, len(expected), key)
        expected = sorted([*expected, int(key)])
        assert pool[: len(expected)].tolist() == expected
        assert expected[place] == key


@given(
    nodes=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=32), min_size=1, max_size=12),
    full=st.integers(1, 150),
)
@settings(max_examples=100, deadline=None)
def test_merging_keeps_the_nearest_candidates_ascending(nodes, full):
    pool = np.zeros(full + kernels_pool.BEYOND, np.uint64)
    fresh = np.zeros(kernels_pool.fresh_room.py_func(full), np.uint64)
    expected, size, row = [], 0, 0
    for sizes in nodes:
        for place, distance in enumerate(sizes):
            fresh[place] = candidate.py_func(np.float32(distance), row)
            row += 1
        least = int(fresh[: len(sizes)].min())
        everyone = sorted([*expected, *fresh[: len(sizes)].tolist()])
        size, first = kernels_pool.merge(pool, size, full, fresh, len(sizes))
        expected = everyone[:full]
        assert pool[:size].tolist() == expected
        assert everyone.index(least) == first


@given(
    nodes=st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=32), min_size=1, max_size=6),
    full=st.integers(1, 40),
)
@settings(max_examples=200, deadline=None)
def test_equal_candidates_of_a_damaged_node_count_once(nodes, full):
    pool = np.full(full + kernels_pool.BEYOND, 2**64 - 2, np.uint64)
    fresh = np.full(kernels_pool.fresh_room.py_func(full), 2**64 - 2, np.uint64)
    expected, size = [], 0
    for number, rows in enumerate(nodes):
        keys = [int(candidate.py_func(np.float32(row), 100 * number + row)) for row in rows]
        fresh[: len(keys)] = keys
        everyone = sorted([*expected, *set(keys)])
        size, first = kernels_pool.merge(pool, size, full, fresh, len(keys))
        expected = everyone[:full]
        assert pool[:size].tolist() == expected
        assert first == everyone.index(min(keys))
