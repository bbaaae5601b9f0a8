"""Promises that hold for any engine."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from puffin_ann.engines import engine
from puffin_ann.errors import DeclarationError, QueryError
from tests.support.indexes.shard_checks import (
    METRIC_NAMES,
    assert_answers_are_sound,
    nearest,
    opened,
    recall,
)

ALGORITHMS = ["exact", "ivf_pq", "hnsw", "vamana"]


@pytest.fixture(params=ALGORITHMS)
def algorithm(request):
    return request.param


def normal(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_answers_are_sound_and_mostly_the_nearest(algorithm, metric, tmp_path):
    vectors, queries = normal(1500, 24), normal(40, 24, seed=1)
    shard = opened(algorithm, vectors, tmp_path, metric=metric)
    answers = shard.search(queries, 10, width=100)
    assert_answers_are_sound(answers, vectors, queries, 10, metric)
    assert recall(answers[1], nearest(vectors, queries, 10, metric)[1]) > 0.95


@pytest.mark.parametrize("metric", METRIC_NAMES)
@pytest.mark.parametrize("kind", ["none", "third", "all but few", "all"])
def test_deleted_rows_are_never_answered_and_live_ones_fill_up(algorithm, metric, kind, tmp_path):
    vectors, queries = normal(1200, 12), normal(25, 12, seed=1)
    share = {"none": 0.0, "third": 1 / 3, "all but few": 0.997, "all": 1.0}[kind]
    deleted = np.random.default_rng(2).permutation(1200) < share * 1200
    shard = opened(algorithm, vectors, tmp_path, metric=metric)
    answers = shard.search(queries, 10, width=32, deleted=deleted)
    assert_answers_are_sound(answers, vectors, queries, 10, metric, deleted)
    assert recall(answers[1], nearest(vectors, queries, 10, metric, deleted)[1]) > 0.9


@pytest.mark.parametrize("threads", [1, 3])
def test_each_query_of_a_batch_may_have_a_width_of_its_own(algorithm, threads, tmp_path):
    vectors, queries = normal(1500, 24), normal(30, 24, seed=1)
    deleted = np.random.default_rng(2).random(1500) < 0.3
    widths = np.random.default_rng(3).choice([1, 12, 40, 10**6], 60)[::2]
    shard = opened(algorithm, vectors, tmp_path)
    for mask in (None, deleted):
        ids, distances = shard.search(queries, 5, width=widths, deleted=mask, threads=threads)
        for place, width in enumerate(widths.tolist()):
            alone = shard.search(queries[place : place + 1], 5, width=width, deleted=mask)
            np.testing.assert_array_equal(ids[place], alone[0][0])
            np.testing.assert_array_equal(distances[place], alone[1][0])
    nobody = shard.search(queries[:0], 5, width=widths[:0])
    assert [answer.shape for answer in nobody] == [(0, 5), (0, 5)]


def test_a_deleted_neighbourhood_is_crossed(algorithm, tmp_path):
    vectors, queries = normal(1500, 8), normal(1, 8, seed=1)
    near, _ = nearest(vectors, queries, 400, "l2")
    deleted = np.zeros(1500, np.bool_)
    deleted[near[0]] = True
    shard = opened(algorithm, vectors, tmp_path)
    answers = shard.search(queries, 10, width=20, deleted=deleted)
    assert_answers_are_sound(answers, vectors, queries, 10, "l2", deleted)


@pytest.mark.parametrize("metric", METRIC_NAMES)
@pytest.mark.parametrize("kind", ["none allowed", "few", "a third", "all but few", "all"])
def test_only_allowed_rows_that_live_are_answered(algorithm, metric, kind, tmp_path):
    vectors, queries = normal(1200, 12), normal(25, 12, seed=1)
    share = {"none allowed": 0.0, "few": 0.01, "a third": 1 / 3, "all but few": 0.99, "all": 1.0}
    allowed = np.random.default_rng(2).permutation(1200) < share[kind] * 1200
    deleted = np.random.default_rng(3).random(1200) < 0.2
    shard = opened(algorithm, vectors, tmp_path, metric=metric)
    for mask in (None, deleted):
        excluded = ~allowed if mask is None else ~allowed | mask
        answers = shard.search(queries, 10, width=64, deleted=mask, allowed=allowed)
        assert_answers_are_sound(answers, vectors, queries, 10, metric, excluded)
        assert recall(answers[1], nearest(vectors, queries, 10, metric, excluded)[1]) > 0.9
        expected = nearest(vectors, queries, 10, metric, excluded)
        for found, wanted in zip(
            shard.exhaustive(queries, 10, deleted=mask, allowed=allowed), expected, strict=True
        ):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("metric", METRIC_NAMES)
@pytest.mark.parametrize("seed", [1, 3])
def test_a_search_as_wide_as_the_shard_finds_the_nearest(algorithm, metric, seed, tmp_path):
    """Few of the lists of long rows lead to short ones, and those that live are the short ones."""
    vectors = normal(1000, 4, seed) * np.exp(2 * normal(1000, 1, seed + 100))
    vectors[np.random.default_rng(seed).random(1000) < 0.3] = 0
    norms = np.linalg.norm(vectors, axis=1)
    deleted = norms > np.quantile(norms, 0.5)
    narrow = {"hnsw": {"M": 2}, "vamana": {"R": 4}}.get(algorithm, {})
    queries = normal(40, 4, seed=7)
    shard = opened(algorithm, vectors, tmp_path, metric=metric, **narrow)
    for mask in (None, deleted):
        answers = shard.search(queries, 10, width=10**9, deleted=mask)
        np.testing.assert_array_equal(
            answers[1], nearest(vectors, queries, 10, metric, mask)[1], strict=True
        )


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_exhaustive_search_is_brute_force(algorithm, metric, tmp_path):
    vectors, queries = normal(700, 9), normal(11, 9, seed=1)
    deleted = np.random.default_rng(2).random(700) < 0.5
    shard = opened(algorithm, vectors, tmp_path, metric=metric)
    for mask in (None, deleted):
        ids, distances = shard.exhaustive(queries, 13, deleted=mask, threads=2)
        expected_ids, expected = nearest(vectors, queries, 13, metric, mask)
        np.testing.assert_array_equal(ids, expected_ids)
        np.testing.assert_array_equal(distances, expected)


@pytest.mark.parametrize("metric", METRIC_NAMES)
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 17, 65, 200])
def test_small_shards_answer_exactly(algorithm, metric, rows, tmp_path):
    vectors, queries = normal(rows, 7), normal(5, 7, seed=1)
    shard = opened(algorithm, vectors, tmp_path, metric=metric)
    assert (shard.rows, shard.dimension) == (rows, 7)
    ids, distances = shard.search(queries, 5, width=256)
    expected_ids, expected = nearest(vectors, queries, 5, metric)
    np.testing.assert_array_equal(distances, expected)
    np.testing.assert_array_equal(ids, expected_ids)


@pytest.mark.parametrize(("number", "dimension"), enumerate([1, 2, 3, 15, 16, 17, 129, 1536, 4096]))
def test_any_dimension(algorithm, number, dimension, tmp_path):
    """Each dimension meets every algorithm and every metric, and those meet each other."""
    metric = METRIC_NAMES[(ALGORITHMS.index(algorithm) + number) % len(METRIC_NAMES)]
    vectors, queries = normal(300, dimension), normal(4, dimension, seed=1)
    shard = opened(algorithm, vectors, tmp_path, metric=metric)
    answers = shard.search(queries, 5, width=64)
    assert_answers_are_sound(answers, vectors, queries, 5, metric)
    assert recall(answers[1], nearest(vectors, queries, 5, metric)[1]) > 0.8


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_thousands_of_equal_vectors(algorithm, metric, tmp_path):
    vectors = np.concatenate([np.tile(normal(1, 10), (5000, 1)), normal(500, 10, seed=1)])
    queries = normal(20, 10, seed=2)
    shard = opened(algorithm, vectors, tmp_path, metric=metric)
    answers = shard.search(queries, 10, width=100)
    assert_answers_are_sound(answers, vectors, queries, 10, metric)
    assert recall(answers[1], nearest(vectors, queries, 10, metric)[1]) > 0.9


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_zero_vectors_beside_others_and_zero_queries(algorithm, metric, tmp_path):
    vectors = normal(600, 6)
    vectors[::3] = 0
    queries = np.concatenate([np.zeros((1, 6), np.float32), normal(4, 6, seed=1)])
    shard = opened(algorithm, vectors, tmp_path, metric=metric)
    answers = shard.search(queries, 8, width=64)
    assert_answers_are_sound(answers, vectors, queries, 8, metric)


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_nothing_but_zero_vectors(algorithm, metric, tmp_path):
    vectors = np.zeros((400, 5), np.float32)
    shard = opened(algorithm, vectors, tmp_path, metric=metric)
    answers = shard.search(np.ones((2, 5), np.float32), 7, width=32)
    assert_answers_are_sound(answers, vectors, np.ones((2, 5), np.float32), 7, metric)


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_far_clusters_are_all_reached(algorithm, metric, tmp_path):
    centres = 100 * normal(12, 8)
    vectors = (centres[:, None] + 0.1 * normal(12 * 60, 8, 1).reshape(12, 60, 8)).reshape(-1, 8)
    shard = opened(algorithm, vectors, tmp_path, metric=metric)
    answers = shard.search(vectors[::20], 5, width=64)
    assert_answers_are_sound(answers, vectors, vectors[::20], 5, metric)
    assert recall(answers[1], nearest(vectors, vectors[::20], 5, metric)[1]) > 0.95


def test_more_neighbours_than_width_and_than_rows(algorithm, tmp_path):
    vectors, queries = normal(90, 4), normal(3, 4, seed=1)
    shard = opened(algorithm, vectors, tmp_path)
    answers = shard.search(queries, 200, width=10)
    assert_answers_are_sound(answers, vectors, queries, 200, "l2")


def test_answers_do_not_depend_on_the_threads_or_on_the_batch(algorithm, tmp_path):
    vectors, queries = normal(900, 16), normal(64, 16, seed=1)
    shard = opened(algorithm, vectors, tmp_path)
    together = shard.search(queries, 10, width=40, threads=1)
    threaded = shard.search(queries, 10, width=40, threads=3)
    single = [shard.search(query[None], 10, width=40) for query in queries]
    np.testing.assert_array_equal(together[0], threaded[0])
    np.testing.assert_array_equal(together[0], np.concatenate([ids for ids, _ in single]))


def test_stored_vectors_come_back_to_the_last_bit(algorithm, tmp_path):
    vectors = normal(50, 5)
    shard = opened(algorithm, vectors, tmp_path, metric="cosine")
    ordinals = np.array([49, 0, 7, 7], np.int64)
    np.testing.assert_array_equal(shard.vectors(ordinals), vectors[ordinals])


@pytest.mark.parametrize(
    ("queries", "k"),
    [(np.zeros((1, 3), np.float32), 1), (np.zeros(4, np.float32), 1), (normal(1, 4), 0)],
)
def test_searches_that_cannot_be_are_refused(algorithm, queries, k, tmp_path):
    shard = opened(algorithm, normal(20, 4), tmp_path)
    with pytest.raises(QueryError):
        shard.search(queries, k, width=10)


def test_a_mask_of_another_length_is_refused(algorithm, tmp_path):
    shard = opened(algorithm, normal(20, 4), tmp_path)
    with pytest.raises(QueryError, match="deleted has shape"):
        shard.search(normal(1, 4), 1, width=10, deleted=np.zeros(19, np.bool_))


def test_unknown_parameters_are_refused_by_name(algorithm):
    with pytest.raises(DeclarationError, match="frobnicate"):
        engine(algorithm).check({"frobnicate": 3}, 8)


def test_unknown_algorithms_are_refused_and_known_ones_named():
    with pytest.raises(DeclarationError, match=r"'voronoi'.*exact.*vamana"):
        engine("voronoi")


values = st.sampled_from([0.0, 1.0, -1.0, 0.5]) | st.floats(-100, 100, width=32)


@given(data=st.data(), metric=st.sampled_from(METRIC_NAMES))
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_vectors_any_mask(algorithm, data, metric, tmp_path_factory):
    rows, dimension = data.draw(st.integers(0, 60)), data.draw(st.integers(1, 9))
    # Few distinct rows, so that duplicates are the rule.
    base = data.draw(
        st.lists(st.lists(values, min_size=dimension, max_size=dimension), min_size=1, max_size=12)
    )
    chosen = data.draw(st.lists(st.integers(0, len(base) - 1), min_size=rows, max_size=rows))
    vectors = np.array(base, np.float32)[chosen].reshape(rows, dimension)
    deleted = np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)), np.bool_)
    k = data.draw(st.integers(1, 70))
    shard = opened(algorithm, vectors, tmp_path_factory.mktemp("shard"), metric=metric)
    queries = np.array(base, np.float32)[:3]
    answers = shard.search(queries, k, width=data.draw(st.integers(1, 80)), deleted=deleted)
    assert_answers_are_sound(answers, vectors, queries, k, metric, deleted)
