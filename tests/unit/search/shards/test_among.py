"""A query alone is judged in fewer steps, and just as one of several."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.search.conditions.decisions import Decisions
from puffin_ann.search.conditions.sifted import Sifted
from puffin_ann.search.conditions.ways import tried
from puffin_ann.search.merge import Source
from puffin_ann.search.shards.among import Wanted, _Asked
from puffin_ann.search.shards.sifting import sift_first

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


def batches(near, count=1):
    """Return how often a way was weighed for batches of 100, and how many queries were sifted."""
    many, weighed, sifted = 100, [], []
    allowed = SimpleNamespace(sifted=Sifted(), settled=0.0, asked=many, decisions=Decisions())
    asked = object.__new__(_Asked)
    asked._allowed, asked._wanted, asked._share = allowed, Wanted(K, None, None), SHARE
    asked._sifting = "sift"
    distances = np.full((many, K), 0.0 if near else np.inf, np.float32)
    source = Source(np.zeros((many, K), np.int64), distances, None)
    sights = np.tile(np.array([1.0, 40, 40 if near else 0], np.float32), (many, 1))

    def weigh():
        weighed.append(allowed.sifted.queries)
        return allowed.sifted.short == 0, 0.0

    def sift_apart(queries, _):
        sifted.append(int(queries.sum()))
        return [source], sights

    asked._weigh, asked._sift_apart = weigh, sift_apart
    asked._sift_together = lambda _: None
    for _ in range(count):
        queries = np.zeros((many, 2), np.float32)
        sift_first(queries, asked.sift, asked.pays, lambda _: [], allowed.sifted, SHARE)
    return len(weighed), sum(sifted)


def test_no_more_of_a_batch_is_sifted_where_its_first_queries_are_left_short():
    assert batches(near=False) == (2, tried(100))


def test_what_pays_is_not_found_out_again_where_the_first_of_a_batch_have_enough():
    assert batches(near=True, count=5) == (1, 500)
