"""What batches took corrects the figures that ways are chosen by, slowly and within bounds."""

from types import SimpleNamespace

import numpy as np
import pytest

from puffin_ann.ann.exact.compared_rows import Coding
from puffin_ann.search.conditions import paces, ways
from puffin_ann.search.conditions.paces import LEAST_QUERIES, MOST, STEP, Work, note, pace
from puffin_ann.search.shards.costs import Costs


def learn(seconds: float, times: int = 1, queries: int = LEAST_QUERIES) -> None:
    """Let batches take so long that were expected to take a second, at the pace of before."""
    for _ in range(times):
        note(Work.WALK, "vamana", pace(Work.WALK, "vamana"), seconds, queries)


def test_batches_that_take_twice_as_long_are_expected_to_after_a_few():
    before = ways.walked("vamana", 100, 50, 1000)
    learn(2.0)
    assert pace(Work.WALK, "vamana") == STEP
    learn(2.0, times=20)
    assert ways.walked("vamana", 100, 50, 1000) == pytest.approx(2 * before)
    learn(0.5, times=20)
    assert ways.walked("vamana", 100, 50, 1000) == pytest.approx(before / 2)


def test_one_batch_that_was_held_up_moves_little_and_none_moves_all():
    learn(1e6)
    assert pace(Work.WALK, "vamana") == STEP
    learn(1e6, times=100)
    assert pace(Work.WALK, "vamana") == MOST
    learn(1e-6, times=100)
    assert pace(Work.WALK, "vamana") == 1 / MOST


def test_nothing_is_learned_of_few_queries_or_of_nothing():
    learn(2.0, queries=LEAST_QUERIES - 1)
    note(Work.WALK, "vamana", 0.0, 1.0, 1000)
    assert pace(Work.WALK, "vamana") == 1.0


def test_walks_of_few_queries_have_a_pace_of_their_own():
    few, many = (ways.walked("vamana", 100, 50, queries) for queries in (1, 1000))
    paces.learn(Work.WALK_ALONE, "vamana", 1.0, 9.0, paces.STEP_ALONE)
    assert ways.walked("vamana", 100, 50, 1) == pytest.approx(paces.STEP_ALONE * few)
    assert ways.walked("vamana", 100, 50, 1000) == many


def test_walks_of_few_queries_are_learned_of_whatever_shards_there_are():
    routing = SimpleNamespace(algorithm="vamana", dimension=100)
    costs = Costs(SimpleNamespace(routing=routing, vectors=10**6), lambda: Coding.LATER)
    for shards, queries in ((40, 1), (1, 3)):
        widths = np.full((shards, queries), 400, np.int64)
        expected = queries * ways.sifted("vamana", 100, 400.0 * shards, 10.0 * shards, queries)
        costs.note_walk_of_few(widths, 10, expected)
        assert pace(Work.WALK_ALONE, "vamana") == pytest.approx(1.0)
    costs.note_walk_of_few(widths, 10, 9 * expected)
    assert pace(Work.WALK_ALONE, "vamana") == pytest.approx(paces.STEP_ALONE)
    paces.forget()
    costs.note_walk_of_few(np.full((1, 1), 10, np.int64), 10, 1.0)  # most is the way there
    costs.note_walk_of_few(np.full((1, LEAST_QUERIES), 400, np.int64), 10, 1.0)
    assert not paces._paces


def test_one_query_compared_by_signs_tells_their_pace():
    routing = SimpleNamespace(algorithm="vamana", dimension=128)
    costs = Costs(SimpleNamespace(routing=routing, vectors=10**6), lambda: Coding.LATER)
    rows = 300_000
    signs, codes = (ways.compared(rows, 128, 1, float("inf"), by_signs=by) for by in (True, False))
    costs.note_comparison(rows, 1, 9 * signs, 1, by_signs=True)
    slower = paces.STEP_ALONE * signs
    assert ways.compared(rows, 128, 1, float("inf"), by_signs=True) == pytest.approx(slower)
    assert ways.compared(rows, 128, 1, float("inf"), by_signs=False) == codes
    costs.note_comparison(rows, 1, slower / 2, 2, by_signs=True)  # by two threads
    costs.note_comparison(1000, 1, 1.0, 1, by_signs=True)
    assert ways.compared(rows, 128, 1, float("inf"), by_signs=True) == pytest.approx(slower)


def test_engines_and_comparisons_have_a_pace_each():
    learn(2.0)
    assert pace(Work.WALK, "ivf_pq") == pace(Work.COMPARE) == 1.0
    before = ways.compared(1000, 100, 100, float("inf"), by_signs=False)
    note(Work.COMPARE, "", 1.0, 2.0, LEAST_QUERIES)
    assert ways.compared(1000, 100, 100, float("inf"), by_signs=False) == pytest.approx(
        STEP * before
    )


def test_each_test_begins_with_the_figures_as_they_are():
    assert not paces._paces
