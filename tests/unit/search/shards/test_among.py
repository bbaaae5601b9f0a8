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


def test_what_the_first_of_a_batch_tell_decides_on_the_others():
    allowed = SimpleNamespace(sifted=Sifted(), settled=0.0, asked=8, decisions=Decisions())
    asked = object.__new__(_Asked)
    asked._allowed, asked._wanted, asked._share = allowed, Wanted(K, None, None), SHARE
    asked._sifting = "sift"
    asked._weigh = lambda: (allowed.sifted.short == 0, 0.0)
    none = Source(np.full((8, K), -1), np.full((8, K), np.inf, np.float32), None)
    sights = np.tile(np.array([1.0, 40, 0], np.float32), (8, 1))
    asked._sift_apart = lambda queries, _: ([none], sights)
    assert asked.pays()
    first = np.arange(8) < 2
    _, enough = asked.sift(first, SHARE)
    allowed.sifted.add(enough[first])
    assert not asked.pays()
