"""Selecting and sorting by counting, against NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.ann.simd.kernels_order import FAR, GROUPS, bound_of, in_order, select
from puffin_ann.numba_kernels import kernel

BITS = st.sampled_from([2, 31, 63, 64])


@kernel(allocates=True)
def sort(keys, count, spare):
    in_order(keys, count, spare)


@pytest.mark.parametrize("count", [1, 2, 40, 500])
def test_the_least_keys_are_brought_to_the_front(count):
    generator = np.random.default_rng(count)
    keys = generator.integers(0, 30, 600).astype(np.uint64)
    for wanted in {1, count // 3 + 1, count}:
        mixed = keys.copy()
        select(mixed, count, wanted)
        assert sorted(mixed[:wanted]) == sorted(keys[:count])[:wanted]
        assert sorted(mixed[:count]) == sorted(keys[:count])
        np.testing.assert_array_equal(mixed[count:], keys[count:])


@given(st.data(), BITS, st.integers(1, 150))
def test_any_keys_are_selected(data, bits, count):
    every = st.lists(st.integers(0, 2**bits - 1), min_size=count, max_size=count)
    keys = np.array(data.draw(every), np.uint64)
    wanted = data.draw(st.integers(1, count))
    mixed = keys.copy()
    select(mixed, count, wanted)
    assert sorted(mixed[:wanted]) == sorted(keys)[:wanted]
    assert sorted(mixed) == sorted(keys)


@pytest.mark.parametrize("count", [0, 1, 15, 64, 65, 300])
@pytest.mark.parametrize("most", [3, 1 << 50])
def test_keys_are_sorted(count, most):
    keys = np.random.default_rng(count).integers(0, most, 400).astype(np.uint64)
    found = keys.copy()
    sort(found, count, np.empty(GROUPS, np.uint64))
    np.testing.assert_array_equal(found[:count], np.sort(keys[:count]))
    np.testing.assert_array_equal(found[count:], keys[count:])


@pytest.mark.parametrize("ranked", [0, 5, 15, 16, 40, 63, 64, 100])
def test_a_bound_has_as_many_lesser_ones(ranked):
    least = np.random.default_rng(ranked).standard_normal(GROUPS).astype(np.float32)
    bound = bound_of(least.copy(), ranked)
    if ranked >= GROUPS:
        assert bound == FAR
    elif ranked >= 16:
        assert bound == np.sort(least)[ranked]
    else:
        assert bound in least[least >= np.sort(least)[ranked]]
