"""What is sifted out of near rows is what brute force leaves."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.ann.core.types import HORIZON, SEEN, THROUGH
from puffin_ann.ann.exact import brute_force
from puffin_ann.search.conditions import ways
from puffin_ann.search.conditions.sifted import MOST_APART, Sifted
from puffin_ann.search.shards.reach import Reach
from tests.support.indexes.blob_samples import sample_routing
from tests.support.indexes.shard_checks import opened


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 12), st.floats(0.0, 1.0))
def test_what_is_enough_is_what_brute_force_answers(seed, rows, k, share):
    """Distances are few, so that many are equal; two shards are sifted and held to all rows."""
    random = np.random.default_rng(seed)
    many = k + int(random.integers(0, 6))
    near, horizons, allowed = [], [], []
    for _ in range(2):
        distances = np.sort(random.integers(0, 9, (3, rows)).astype(np.float32), axis=1)
        ids = np.argsort(random.random((3, rows)), axis=1)
        excluded = random.random(rows) >= share
        found = ids[:, :many], distances[:, :many]
        (kept, left), sights = ways.sift(found, excluded, many, k)
        assert not excluded[kept[kept >= 0]].any()
        assert (np.isinf(left) == (kept < 0)).all()
        assert (np.sort(left, axis=1) == left).all()
        near.append(left)
        horizons.append(sights[:, HORIZON])
        assert (sights[:, SEEN] == (found[0] >= 0).sum(axis=1)).all()
        assert (sights[:, THROUGH] == (~excluded[found[0]]).sum(axis=1)).all()
        allowed.append(np.where(excluded[ids], np.inf, distances))
    truth = np.sort(np.concatenate(allowed, axis=1), axis=1)[:, :k]
    mine = np.sort(np.concatenate(near, axis=1), axis=1)[:, :k]
    enough = ways.is_enough(np.sort(np.concatenate(near, axis=1)), np.min(horizons, axis=0), k)
    np.testing.assert_array_equal(mine[enough], truth[enough, : mine.shape[1]])
    assert not enough[np.isinf(truth[:, -1])].any() or truth.shape[1] < k


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01])
def test_few_queries_are_left_short_where_the_condition_is_independent(share):
    many = ways.wanted(10, share)
    drawn = np.random.default_rng(3).binomial(many, share, 4000)
    assert (drawn < 10).mean() < 0.05


def test_rows_near_queries_tell_the_share_to_expect_and_who_asks_may_change():
    sifted = Sifted()
    assert sifted.near(0.5) == 0.5
    for allowed in (100, 0):
        for _ in range(200):
            sifted.add_rows(100, allowed)
            sifted.add(np.ones(1, np.bool_))
        assert abs(sifted.near(0.5) - allowed / 100) < 0.02
        assert 0.0 < sifted.near(0.5) <= 1.0


def turns_of(sifted, queries):
    """Return before which of the queries, asked one a call, one was sifted in vain."""
    taken = []
    for query in range(queries):
        if sifted.take_turn(1):
            sifted.add(np.zeros(1, np.bool_))
            sifted.add_rows(seen=1, allowed=0)
            taken.append(query + 1)
    return taken


def test_where_to_sift_does_not_pay_it_is_tried_ever_more_seldom():
    """One query of 32 for ever took a third of what all others do."""
    sifted = Sifted()
    first, *turns = turns_of(sifted, 10 * MOST_APART)
    turns = np.diff([first, *turns])
    assert first == 1
    doubling = ways.TRIED * 2 ** np.arange(5)
    assert turns.tolist() == [*doubling[:-1], *[MOST_APART] * (len(turns) - 4)]
    assert doubling[-1] == MOST_APART
    assert sifted.take_turn(4 * MOST_APART) == 4
    sifted.add(np.zeros(4, np.bool_))

    sifted.pay()

    assert turns_of(sifted, 3 * ways.TRIED) == [ways.TRIED, 3 * ways.TRIED]


def test_a_condition_that_leaves_queries_short_is_expected_to_do_so_again():
    sifted = Sifted()
    assert sifted.short_share < 0.2
    sifted.add(np.zeros(32, np.bool_))
    assert sifted.short_share > 0.8


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A graph of rows that a width of ten suffices for, with those, and queries."""
    rng = np.random.default_rng(0)
    real = rng.standard_normal((2000, 8)) @ rng.standard_normal((8, 32))
    real += 0.3 * rng.standard_normal(real.shape)
    one, other = real[rng.integers(len(real), size=(2, 20_200))]
    share = rng.uniform(0.6, 1.0, (len(one), 1))
    rows = share * one + (1 - share) * other
    rows = (rows + 0.1 * rng.standard_normal(rows.shape) * real.std(axis=0)).astype(np.float32)
    shard = opened("vamana", rows[200:], tmp_path_factory.mktemp("mixed"))
    return shard, rows[200:], rows[:200]


def _recall(distances, vectors, queries):
    _, exact_ones = brute_force.search(queries, vectors, 10, "l2")
    return float((distances <= exact_ones[:, -1:] * np.float32(1 + 1e-5)).mean())


@pytest.mark.parametrize("share", [0.5, 0.25])
def test_a_mask_widens_a_search_that_would_miss_answers(mixed, share):
    shard, vectors, queries = mixed
    allowed = np.random.default_rng(1).random(len(vectors)) < share
    narrow, wide = (
        _recall(
            shard.search(queries, 10, width=width, deleted=~allowed)[1], vectors[allowed], queries
        )
        for width in (10, max(10, ways.passing(share, share)))
    )
    assert narrow < 0.95 < wide


def test_more_rows_are_found_as_well_as_few_are(mixed):
    shard, vectors, queries = mixed
    allowed = np.random.default_rng(1).random(len(vectors)) < 0.1
    many = ways.wanted(10, 0.1)
    reach = Reach(replace(sample_routing(), search_width=10, wider=()))
    ids, distances = shard.search(queries, many, width=reach.wider(many, 10, 10))
    left = np.sort(np.where(allowed[ids], distances, np.inf), axis=1)[:, :10]
    few = _recall(shard.search(queries, 10, width=10)[1], vectors, queries)
    assert _recall(left, vectors[allowed], queries) >= few


def test_queries_left_short_are_expected_to_have_fewer_rows_near_them_than_others():
    sifted = Sifted()
    assert sifted.near_short(0.5) == sifted.near(0.5) == 0.5
    sifted.add_rows(seen=2000, allowed=1000)
    sifted.add_short(seen=1000, allowed=50)
    assert sifted.near(0.5) == 0.5
    assert sifted.near_short(0.5) < 0.1
    assert ways.passing(0.5, sifted.near_short(0.5)) > 3 * ways.passing(0.5, sifted.near(0.5))
