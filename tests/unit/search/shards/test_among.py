"""A query alone is judged in fewer steps, and just as one of several."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.search.conditions.decisions import Decisions
from puffin_ann.search.conditions.sifted import Sifted
from puffin_ann.search.merge import Source
from puffin_ann.search.shards.among import Wanted, _Asked

K, SHARE = 3, 0.25


def judged(queries, distances, sight):
    """Return whether each of some equal queries has enough, and what was noted of them."""
    allowed = SimpleNamespace(sifted=Sifted(), settled=0.0)
    asked = object.__new__(_Asked)
    asked._allowed, asked._wanted, asked._share = allowed, Wanted(K, None, None), SHARE
    asked._weighed = lambda: (True, 0.75)
    found = np.tile(np.array(distances, np.float32), (queries, 1))
    source = Source(np.zeros(found.shape, np.int64), found, None)
    sights = np.tile(np.array(sight, np.float32), (queries, 1))
    asked._sift_together = lambda _: ([source], sights)
    sources, enough = asked.sift(np.ones(queries, np.bool_), SHARE)
    assert sources == [source]
    noted = allowed.sifted
    return enough.tolist(), [
        noted.seen, noted.allowed, noted.seen_short, noted.allowed_short, allowed.settled,
    ]  # fmt: skip


@given(
    st.lists(st.floats(0, 4, width=16), max_size=K).map(sorted),
    st.tuples(
        st.sampled_from([0.0, 1.0, 2.0, 4.0, np.inf]), st.integers(0, 40), st.integers(0, 40)
    ),
)
def test_a_query_alone_is_judged_as_each_of_two(distances, sight):
    (alone,), noted = judged(1, distances, sight)
    both, noted_of_both = judged(2, distances, sight)
    assert both == [alone, alone]
    assert noted_of_both == [2 * number for number in noted]


def of_a_batch(near):
    """Return queries of which none has enough unless they are near, and how often was weighed."""
    allowed = SimpleNamespace(sifted=Sifted(), settled=0.0, asked=8, decisions=Decisions())
    asked, weighed = object.__new__(_Asked), []
    asked._allowed, asked._wanted, asked._share = allowed, Wanted(K, None, None), SHARE
    asked._sifting = "sift"

    def weigh():
        weighed.append(allowed.sifted.queries)
        return allowed.sifted.short == 0, 0.0

    asked._weigh = weigh
    distances = np.zeros((8, K), np.float32) if near else np.full((8, K), np.inf, np.float32)
    source = Source(np.zeros((8, K), np.int64), distances, None)
    sights = np.tile(np.array([1.0, 40, 40 if near else 0], np.float32), (8, 1))
    asked._sift_apart = lambda queries, _: ([source], sights)
    return asked, weighed


def sift(asked, part):
    _, enough = asked.sift(part, SHARE)
    asked._allowed.sifted.add(enough[part])


def test_what_the_first_of_a_batch_tell_decides_on_the_others():
    asked, _ = of_a_batch(near=False)
    assert asked.pays()
    sift(asked, np.arange(8) < 2)
    assert not asked.pays()


def test_what_pays_is_not_found_out_again_where_the_first_of_a_batch_have_enough():
    asked, weighed = of_a_batch(near=True)
    for _ in range(5):
        for part in (np.arange(8) < 2, np.arange(8) >= 2):
            assert asked.pays()
            sift(asked, part)
    assert len(weighed) == 1


def test_what_pays_is_found_out_once_more_a_batch_where_the_first_have_not():
    asked, weighed = of_a_batch(near=False)
    asked.pays()
    sift(asked, np.arange(8) < 2)
    sift(asked, np.arange(8) >= 2)
    asked.pays()
    asked.pays()
    assert len(weighed) == 2
