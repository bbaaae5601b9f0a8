"""Several graphs asked together answer what each does alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.ann.vamana.several import Several
from tests.support.shard_checks import opened

ROWS, WIDTHS, K = (900, 1500, 400), (40, 300), 7


def normal(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


@pytest.fixture(scope="module", params=[("l2", 96), ("cosine", 100), ("ip", 96), ("l2", 272)])
def shards(request, tmp_path_factory):
    """Shards of rows that are of quite different lengths, so that their frames differ."""
    metric, dimension = request.param
    return [
        opened(
            "vamana",
            normal(rows, dimension, seed) * np.float32(10.0 ** (3 * seed)),
            tmp_path_factory.mktemp("several"),
            metric=metric,
            beam="edges",
        )
        for seed, rows in enumerate(ROWS)
    ]


def mask(rows, share, seed):
    if share == 0.0:
        return None
    return (np.random.default_rng(seed).random(rows) < share).astype(np.uint8)


@given(
    shares=st.tuples(*[st.sampled_from([0.0, 0.002, 0.3])] * 3),
    asked=st.lists(
        st.tuples(*[st.sampled_from([0, 7, 20, 60])] * 3), min_size=1, max_size=4
    ).filter(lambda lines: any(map(any, lines))),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_several_answer_as_each_alone(shards, shares, asked, seed):
    masks = [mask(rows, share, seed) for rows, share in zip(ROWS, shares, strict=True)]
    several = Several([shard.packed_searcher for shard in shards], masks)
    queries = normal(len(asked), shards[0].dimension, seed + 100) * np.float32(10.0 ** (seed % 7))
    widths = np.array(asked, np.int64).T.copy()
    found = several.search(queries, K, widths)
    if found is None:  # some rows have to be compared
        return
    for shard, deleted, wide, ids, distances in zip(shards, masks, widths, *found, strict=True):
        for q, width in enumerate(wide.tolist()):
            if width:
                expected = shard.search(queries[q : q + 1], K, width=width, deleted=deleted)
                np.testing.assert_array_equal(ids[q], expected[0][0])
                np.testing.assert_array_equal(distances[q], expected[1][0])
            else:
                assert (ids[q] == -1).all()
                assert np.isinf(distances[q]).all()


def test_more_searches_than_there_are_stamps_find_the_same(shards):
    several = Several([shard.packed_searcher for shard in shards], [None] * len(shards))
    query = normal(1, shards[0].dimension, 5)
    widths = np.full((len(shards), 1), 20, np.int64)
    first = several.search(query, K, widths)
    for _ in range(300):
        again = several.search(query, K, widths)
        np.testing.assert_array_equal(again[0], first[0])


def test_graphs_are_not_asked_of_what_has_to_be_compared(shards):
    deleted = np.ones(ROWS[2], np.uint8)
    deleted[:100] = 0
    searchers = [shard.packed_searcher for shard in shards]
    query = normal(1, shards[0].dimension)
    widths = np.full((3, 1), 20, np.int64)
    assert Several(searchers, [None, None, deleted]).search(query, K, widths) is None
    widths[2] = 0  # nor is it asked of then
    assert Several(searchers, [None, None, deleted]).search(query, K, widths) is not None
    assert Several(searchers, [None] * 3).search(query, K, np.full((3, 1), 400, np.int64)) is None
