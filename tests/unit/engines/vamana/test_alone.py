"""A query alone is answered as it is in a batch, by whichever way it takes."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.ann.vamana.packed.kernels_search import search_packed, search_several
from tests.support.indexes.shard_checks import opened

ROWS, K = 1500, 7


def normal(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


@pytest.fixture(
    scope="module", params=[("l2", 96), ("cosine", 100), ("ip", 96), ("l2", 272), ("ip", 272)]
)
def shard(request, tmp_path_factory):
    metric, dimension = request.param
    folder = tmp_path_factory.mktemp("alone")
    return opened("vamana", normal(ROWS, dimension), folder, metric=metric, beam="edges")


def assert_alike(shard, query, *, width, deleted=None):
    alone = shard.search(query, K, width=width, deleted=deleted)
    both = shard.search(np.repeat(query, 2, axis=0), K, width=width, deleted=deleted)
    assert alone[0].shape == (1, K)
    np.testing.assert_array_equal(alone[0], both[0][:1])
    np.testing.assert_array_equal(alone[1], both[1][:1])


@given(
    width=st.sampled_from([1, 7, 20, 60, 140, 400, 2000]),
    share=st.sampled_from([None, 0.0, 0.002, 0.3, 0.9]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_one_is_answered_as_two_are(shard, width, share, seed):
    query = normal(1, shard.dimension, seed + 100) * np.float32(10.0 ** (seed % 7))
    deleted = None
    if share is not None:
        deleted = (np.random.default_rng(seed).random(ROWS) < share).astype(np.uint8)
    assert_alike(shard, query, width=width, deleted=deleted)


def test_past_deleted_rows_it_takes_the_way_that_was_made_for_them(shard):
    query = normal(1, shard.dimension, 5)
    masks = [np.zeros(ROWS, np.uint8) for _ in range(2)]
    near = shard.exhaustive(query, 500)[0][0]
    masks[0][near[:300]] = masks[1][near[200:]] = 1
    for _ in range(2):
        for deleted in masks:
            assert_alike(shard, query, width=30, deleted=deleted)
        shard.expect(masks[0])


def test_more_searches_than_there_are_stamps_find_the_same(shard):
    queries = normal(3, shard.dimension, 6)
    expected = shard.search(queries, K, width=20)
    for _ in range(150):
        found = shard.search(queries[:1], K, width=20)
        np.testing.assert_array_equal(found[0], expected[0][:1])
        np.testing.assert_array_equal(shard.search(queries, K, width=20)[0], expected[0])


def test_several_threads_ask_at_once(shard):
    queries = normal(64, shard.dimension, 7)
    expected = shard.search(queries, K, width=20)

    def ask(number):
        return shard.search(queries[number : number + 1], K, width=20)

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ask, list(range(64)) * 8))
    for number, (ids, distances) in enumerate(found):
        np.testing.assert_array_equal(ids[0], expected[0][number % 64])
        np.testing.assert_array_equal(distances[0], expected[1][number % 64])


@pytest.mark.parametrize("count", [1, 2])
def test_queries_that_cannot_be_written_have_no_kernels_compiled(shard, count):
    queries = normal(count, shard.dimension, 8)
    expected = shard.search(queries, K, width=20)
    before = len(search_several.signatures), len(search_packed.signatures)
    queries.flags.writeable = False
    found = shard.search(queries, K, width=20)
    np.testing.assert_array_equal(found[0], expected[0])
    assert (len(search_several.signatures), len(search_packed.signatures)) == before
