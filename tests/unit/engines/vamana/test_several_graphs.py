"""Several graphs asked together answer what each does alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.ann.vamana.several import Several
from tests.support.indexes.several_graphs import ask_together
from tests.support.indexes.shard_checks import opened

ROWS, WIDTHS, K = (900, 1500, 400), (40, 300), 7


def normal(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


@pytest.fixture(scope="module", params=[("l2", 96), ("cosine", 100), ("ip", 96), ("l2", 272)])
def shards(request, tmp_path_factory):
    """Metric and shards of rows that are of quite different lengths, so that frames differ."""
    metric, dimension = request.param
    return metric, [
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
    metric, shards = shards
    masks = [mask(rows, share, seed) for rows, share in zip(ROWS, shares, strict=True)]
    several = Several([shard.packed_searcher for shard in shards], masks)
    queries = normal(len(asked), shards[0].dimension, seed + 100) * np.float32(10.0 ** (seed % 7))
    widths = np.array(asked, np.int64).T.copy()
    found = ask_together(several, metric, queries, K, widths)
    if found is None:  # some rows have to be compared
        return
    asked_of = zip(shards, masks, widths, *found[:2], strict=True)
    for shard, deleted, wide, ids, distances in asked_of:
        for q, width in enumerate(wide.tolist()):
            if width:
                expected = shard.search(queries[q : q + 1], K, width=width, deleted=deleted)
                np.testing.assert_array_equal(ids[q], expected[0][0])
                np.testing.assert_array_equal(distances[q], expected[1][0])
            else:
                assert (ids[q] == -1).all()
                assert np.isinf(distances[q]).all()


@given(
    shares=st.tuples(*[st.sampled_from([0.0, 0.002, 0.3])] * 3),
    excluded=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    width=st.sampled_from([7, 20, 60]),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_what_is_sifted_is_near_let_through_and_exact(shards, shares, excluded, width, seed):
    metric, shards = shards
    masks = [mask(rows, share, seed) for rows, share in zip(ROWS, shares, strict=True)]
    sieves = []
    for rows, dead in zip(ROWS, masks, strict=True):
        sieve = (np.random.default_rng(seed + rows).random(rows) < excluded).astype(np.uint8)
        sieves.append(sieve if dead is None else sieve | dead)
    several = Several([shard.packed_searcher for shard in shards], masks)
    queries = normal(2, shards[0].dimension, seed + 100) * np.float32(10.0 ** (seed % 7))
    widths = np.full((3, 2), width, np.int64)
    found = ask_together(several, metric, queries, K, widths, sieves)
    if found is None:
        return
    for place, shard in enumerate(shards):
        ids, distances, sights = (of[place] for of in found)
        alone = shard.packed_searcher.sift(
            queries, K, widths=widths[place], sieve=sieves[place], deleted=masks[place]
        )
        for one, other in zip((ids, distances, sights), (*alone[0], alone[1]), strict=True):
            np.testing.assert_array_equal(one, other)
        assert not sieves[place][ids[ids >= 0]].any()
        exact = shard.exhaustive(queries, ROWS[place], deleted=masks[place])
        for q in range(2):
            there = ids[q] >= 0
            known = dict(zip(exact[0][q].tolist(), exact[1][q].tolist(), strict=True))
            assert [known[row] for row in ids[q][there].tolist()] == distances[q][there].tolist()
            horizon, seen, through = sights[q].tolist()
            is_cut_off = horizon == -np.inf  # by deleted rows: then nothing is told
            assert there.sum() == (0 if is_cut_off else min(K, through)) <= seen
            assert (distances[q][~there] == np.inf).all()
            assert is_cut_off or horizon == np.inf or horizon in known.values()


def test_more_searches_than_there_are_stamps_find_the_same(shards):
    metric, shards = shards
    several = Several([shard.packed_searcher for shard in shards], [None] * len(shards))
    query = normal(1, shards[0].dimension, 5)
    widths = np.full((len(shards), 1), 20, np.int64)
    first = ask_together(several, metric, query, K, widths)
    for _ in range(300):
        again = ask_together(several, metric, query, K, widths)
        np.testing.assert_array_equal(again[0], first[0])
