"""Equal distances come in locator order, also where they run over the end of an answer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.search.shards.opening import tie_breaks


def keys_of(place):
    """Locators that order rows by `place`, told apart by the last key at the latest."""
    return lambda ids: (place[ids] // 6, place[ids] // 2 % 3, place[ids] % 2)


def engine(table):
    """Answer as engines do: ascending by distance and ordinal, padded; queries are line numbers."""

    def ask(queries, k, *, within=None):
        ids = np.full((len(queries), k), -1, np.int64)
        distances = np.full((len(queries), k), np.inf, np.float32)
        for line, query in enumerate(queries[:, 0].astype(int)):
            best = np.argsort(table[query], kind="stable")[:k]
            ids[line, : len(best)] = best
            distances[line, : len(best)] = table[query][best]
        return ids, distances

    return ask


@pytest.mark.parametrize("room", [1, 7, 1 << 22])
@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(0, 40), k=st.integers(1, 45))
def test_the_nearest_are_those_by_distance_and_locator(room, seed, rows, k):
    rng = np.random.default_rng(seed)
    table = rng.choice([0.0, 1.0, 2.0, np.inf], (5, rows)).astype(np.float32)
    place = rng.permutation(rows)
    queries = np.arange(5, dtype=np.float32)[:, None]
    patch = pytest.MonkeyPatch()
    patch.setattr(tie_breaks, "MOST_ANSWERS", room)

    ids, distances = tie_breaks.nearest(engine(table), queries, k, keys_of(place))
    patch.undo()

    assert ids.shape == distances.shape == (5, k)
    for line in range(5):
        best = np.lexsort((place, table[line]))[:k]
        assert ids[line].tolist() == [*best.tolist(), *[-1] * (k - len(best))]
        assert distances[line, : len(best)].tolist() == table[line][best].tolist()
        assert np.isinf(distances[line, len(best) :]).all()


def test_answers_without_ties_are_left_alone():
    answers = np.array([[3, 1, -1, -1]]), np.array([[1, 2, np.inf, np.inf]], np.float32)

    assert tie_breaks.by_locator(answers, lambda ids: pytest.fail("no key is needed")) is answers


def test_ties_that_nobody_wants_are_not_followed():
    table = np.ones((1, 400), np.float32)
    asked = []

    def ask(queries, k, *, within=None):
        asked.append(k)
        return engine(table)(queries, k)

    query, keys = np.zeros((1, 1), np.float32), keys_of(np.arange(400))
    tie_breaks.nearest(ask, query, 5, keys, np.array([0.5], np.float32))
    assert asked == [6]
    tie_breaks.nearest(ask, query, 5, keys, np.array([1.0], np.float32))
    assert len(asked) > 2
