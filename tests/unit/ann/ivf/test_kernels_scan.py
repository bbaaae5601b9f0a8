"""Lists scanned for many queries at once, against the same queries one by one."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.ann.ivf import kernels, kernels_scan
from puffin_ann.ann.ivf.lists import Trained, fill, train
from puffin_ann.ann.ivf.search import Searcher, inverse_norms

WIDTH, LISTS, K = 12, 24, 10


def rows_of(seed, count, kind):
    """Rows of which many are equal, so that scores are."""
    generator = np.random.default_rng(seed)
    found = generator.standard_normal((count, WIDTH))
    if kind == "grid":
        found = np.round(found)
    if kind == "clustered":  # scores are relative to each centroid
        found += 20 * generator.standard_normal((LISTS // 3, WIDTH))[np.arange(count) % 8]
    found[count // 2 :] = found[: count - count // 2]
    return found.astype(np.float32)


def searcher_of(vectors, metric, reach=None):
    trained = train(vectors, metric, lists=LISTS, subspaces=6, seed=0, threads=1)
    filled = fill(trained, vectors, 1)
    norms = inverse_norms(vectors) if metric == "cosine" else None
    return Searcher(trained, filled, vectors, norms, reach=reach)


@pytest.fixture(scope="module")
def searchers():
    """By kind and metric: a searcher, and its rows."""
    made = {}
    for kind in ("even", "grid", "clustered"):
        for metric in ("l2", "cosine", "ip"):
            vectors = rows_of(3, 2000, kind)
            made[kind, metric] = searcher_of(vectors, metric), vectors
    return made


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(["even", "grid", "clustered"]),
    metric=st.sampled_from(["l2", "cosine", "ip"]),
    queries=st.integers(2, 150),
    probes=st.sampled_from([1, 3, 9, LISTS]),
    refined=st.sampled_from([1, 10, 25, 400, 2000]),
    excluded=st.sampled_from([0.0, 0.02, 0.6, 0.999]),
    seed=st.integers(0, 5),
)
def test_a_batch_is_answered_as_its_queries_are(
    searchers, kind, metric, queries, probes, refined, excluded, seed
):
    searcher, vectors = searchers[kind, metric]
    asked = rows_of(100 + seed, queries, kind)
    mask = None
    if excluded:
        mask = (np.random.default_rng(seed).random(len(vectors)) < excluded).astype(np.uint8)
        mask[np.argsort(((vectors - asked[0]) ** 2).sum(axis=1))[:300]] = 1  # lists of none else
    found = searcher.search(asked, K, probes=probes, refined=refined, excluded=mask)
    near = searcher.candidates(asked, probes=probes, wanted=refined, excluded=mask)
    for number in range(queries):
        one = asked[number : number + 1]
        alone = searcher.search(one, K, probes=probes, refined=refined, excluded=mask)
        np.testing.assert_array_equal(found[0][number], alone[0][0])
        np.testing.assert_array_equal(found[1][number], alone[1][0])
        rows = searcher.candidates(one, probes=probes, wanted=refined, excluded=mask)[0]
        np.testing.assert_array_equal(np.sort(near[number]), np.sort(rows))


def test_which_queries_are_together_changes_no_answer(searchers):
    """Of many equal scores at the limit, the same rows are candidates however lists are scanned."""
    searcher, _ = searchers["grid", "l2"]
    asked = rows_of(200, 300, "grid")
    whole = searcher.search(asked, K, probes=12, refined=15)
    parts = [
        searcher.search(np.ascontiguousarray(asked[first:last]), K, probes=12, refined=15)
        for first, last in pairwise([0, 1, 3, 8, 70, 200, 300])
    ]
    for at in range(2):
        np.testing.assert_array_equal(whole[at], np.concatenate([part[at] for part in parts]))
    threaded = searcher.search(asked, K, probes=12, refined=15, threads=2)
    np.testing.assert_array_equal(whole[0], threaded[0])


def test_equal_scores_of_nothing_are_told_apart_alike():
    """Where limit, base and scores are all 0, the least rows are candidates however scanned."""
    random = np.random.default_rng(0)
    axis = np.arange(-3.0, 4.0)
    places = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    places = random.permutation(places.astype(np.float32))
    offsets, words = np.array([0, 1, 2], np.uint32), np.zeros((2, 16, 1), np.float32)
    trained = Trained("l2", False, 1.0, np.zeros(2, np.float32), places, offsets, words)
    for wanted in (3, 19, 45, 70, 110):
        rows = random.permutation(np.repeat(places, 20, axis=0))
        searcher = Searcher(trained, fill(trained, rows, 1), rows)
        asked = rows[random.integers(0, len(rows), 64)].copy()
        found = searcher.candidates(asked, probes=30, wanted=wanted)
        for number in range(len(asked)):
            alone = searcher.candidates(asked[number : number + 1], probes=30, wanted=wanted)[0]
            np.testing.assert_array_equal(np.sort(found[number]), np.sort(alone))


def test_lists_are_scanned_for_all_where_many_look_through_them():
    """What these tests compare are two ways: with so many probes, both are taken."""
    assert kernels.GROUPED * 9 >= kernels_scan.SHARED * LISTS
    assert kernels_scan.SHARED * LISTS > 3
