"""Vamana on data that graphs are known to break on, large enough for the bulk build."""

import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from puffin_ann.engines import engine
from puffin_ann.errors import DeclarationError
from tests.support.indexes.graph_checks import assert_is_a_graph_all_of_which_can_be_reached
from tests.support.indexes.shard_checks import (
    METRIC_NAMES,
    assert_answers_are_sound,
    nearest,
    opened,
    recall,
)

ROWS = 6000


def normal(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def far_clusters():
    centres = 1000 * normal(300, 12)
    return (centres[:, None] + normal(300 * 20, 12, 1).reshape(300, 20, 12)).reshape(-1, 12)


def copies():
    return np.concatenate([np.tile(normal(5, 12), (1000, 1)), normal(5000, 12, 1)])


def almost_copies():
    return (np.tile(normal(10, 12), (600, 1)) + 1e-3 * normal(ROWS, 12, 1)).astype(np.float32)


def a_line():
    return np.linspace(-1, 1, ROWS, dtype=np.float32)[:, None] * normal(1, 12) + normal(1, 12, 3)


def a_grid():
    points = np.stack(np.meshgrid(*[np.arange(18)] * 3), axis=-1).reshape(-1, 3)
    return np.concatenate([points, np.zeros((len(points), 9))], axis=1).astype(np.float32)


def norms_of_many_sizes():
    return normal(ROWS, 12) * np.exp(2 * normal(ROWS, 1, 1))


def mostly_zeros():
    vectors = normal(ROWS, 12)
    vectors[np.random.default_rng(1).random(ROWS) < 0.9] = 0
    return vectors


def far_from_the_origin():
    return (10_000 + normal(ROWS, 12)).astype(np.float32)


def sorted_rows():
    vectors = normal(ROWS, 12)
    return vectors[np.argsort(vectors[:, 0])]


KINDS = [
    far_clusters,
    copies,
    almost_copies,
    a_line,
    a_grid,
    norms_of_many_sizes,
    mostly_zeros,
    far_from_the_origin,
    sorted_rows,
]


def built(vectors, folder, *, metric="l2", seed=0, threads=2, **parameters):
    made = engine("vamana")
    folder.mkdir(exist_ok=True, parents=True)
    return made.build(
        vectors,
        metric=metric,
        parameters=made.check(parameters, vectors.shape[1]),
        norm_bound=float(np.linalg.norm(vectors, axis=1).max(initial=0)),
        seed=seed,
        threads=threads,
        scratch=folder,
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_answers_on_hard_data(kind, metric, tmp_path):
    vectors = kind()
    queries = vectors[:: len(vectors) // 50] + np.float32(1e-3) * normal(1, 12, 7)
    assert_is_a_graph_all_of_which_can_be_reached(built(vectors, tmp_path / "g", metric=metric))
    shard = opened("vamana", vectors, tmp_path, metric=metric)
    answers = shard.search(queries, 10, width=100)
    assert_answers_are_sound(answers, vectors, queries, 10, metric)
    assert recall(answers[1], nearest(vectors, queries, 10, metric)[1]) >= 0.9


@pytest.mark.parametrize("kind", [far_clusters, copies, a_line], ids=lambda kind: kind.__name__)
def test_the_narrowest_graph_reaches_every_row(kind, tmp_path):
    graph = built(kind(), tmp_path, R=4, L=8, alpha=1.0)
    assert_is_a_graph_all_of_which_can_be_reached(graph)


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 400),
    dimension=st.integers(1, 5),
    spread=st.sampled_from([1, 2, 20]),
    most=st.integers(4, 12),
    metric=st.sampled_from(METRIC_NAMES),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_graph_is_sound_and_whole(tmp_path, seed, rows, dimension, spread, most, metric):
    generator = np.random.default_rng(seed)
    vectors = generator.integers(-spread, spread, (rows, dimension)).astype(np.float32)
    graph = built(vectors, tmp_path, metric=metric, R=most, L=16, pq_m=1)
    assert_is_a_graph_all_of_which_can_be_reached(graph)
    engine("vamana").encode(graph, io.BytesIO())  # refuses doubles and what is out of range


def test_another_seed_gives_another_graph(tmp_path):
    one, other = (built(normal(500, 6), tmp_path / str(seed), seed=seed) for seed in (1, 2))
    assert not np.array_equal(one.neighbours, other.neighbours)


def test_every_parameter_changes_what_it_says(tmp_path):
    vectors = normal(1000, 16)

    def made(**parameters):
        folder = tmp_path / "-".join(f"{name}{value}" for name, value in parameters.items())
        return built(vectors, folder, **parameters)

    def mean_degree(**parameters):
        return float(made(R=16, **parameters).degrees.mean())

    assert made(R=8).degrees.max() == 8
    assert 16 < made(R=32).degrees.max() <= 32
    assert mean_degree(L=8) < mean_degree(L=32) < mean_degree(L=200)
    assert mean_degree(alpha=1.0) < mean_degree(alpha=1.2) < mean_degree(alpha=2.0)
    assert made(beam="pq", pq_m=5).codes.shape == (1000, 5)
    assert made(beam="pq", pq_m=5, pq_nbits=4).codebook.shape == (5, 16, 4)
    assert made(beam="pq", pq_m=5, pq_nbits=6).codes.max() > 31


def test_slack_and_degree_count_where_rows_are_built_by_partitions(tmp_path):
    vectors = normal(6000, 12)
    few, some, many = (
        built(vectors, tmp_path / f"{most}-{alpha}", R=most, alpha=alpha).degrees
        for most, alpha in [(16, 1.0), (16, 1.5), (32, 1.5)]
    )
    assert few.mean() < some.mean() < many.mean()
    assert some.max() == 16
    assert 16 < many.max() <= 32


def test_vectors_may_be_memory_mapped_and_are_left_alone(tmp_path):
    vectors = normal(ROWS, 10)
    np.save(tmp_path / "vectors.npy", vectors)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    for metric in METRIC_NAMES:
        one = built(vectors, tmp_path / f"{metric}-1", metric=metric, beam="pq")
        other = built(mapped, tmp_path / f"{metric}-2", metric=metric, beam="pq")
        np.testing.assert_array_equal(one.neighbours, other.neighbours)
        np.testing.assert_array_equal(one.codes, other.codes)
    np.testing.assert_array_equal(mapped, vectors)


def test_codes_cannot_have_more_parts_than_a_vector_has_numbers():
    with pytest.raises(DeclarationError, match="pq_m"):
        engine("vamana").check({"pq_m": 9}, 8)


@pytest.mark.parametrize(("pq_m", "pq_nbits"), [(1, 4), (3, 5), (7, 8), (12, 6)])
def test_codes_of_any_shape_are_searched(pq_m, pq_nbits, tmp_path):
    vectors, queries = normal(3000, 12), normal(20, 12, 1)
    shard = opened("vamana", vectors, tmp_path, beam="pq", pq_m=pq_m, pq_nbits=pq_nbits)
    answers = shard.search(queries, 5, width=200)
    assert_answers_are_sound(answers, vectors, queries, 5, "l2")
    assert recall(answers[1], nearest(vectors, queries, 5, "l2")[1]) >= (0.4 if pq_m < 3 else 0.9)


def test_one_shard_is_searched_by_many_threads_at_once(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    vectors, queries = normal(3000, 12), normal(200, 12, 1)
    shard = opened("vamana", vectors, tmp_path)
    expected, _ = shard.search(queries, 10, width=50)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda q: shard.search(q[None], 10, width=50)[0], queries))
    np.testing.assert_array_equal(np.concatenate(found), expected)


@pytest.mark.parametrize("beam", ["full", "pq", "edges"])
@pytest.mark.parametrize("zeros", [1, pytest.param(100, marks=pytest.mark.long), 5000])
def test_rows_without_a_direction_do_not_crowd_others_out(zeros, beam, tmp_path):
    # In 64 dimensions even the nearest rows are further than a half: beyond where zeros would be.
    vectors = np.concatenate([np.zeros((zeros, 64), np.float32), normal(3000, 64)])
    queries = normal(50, 64, 1)
    shard = opened("vamana", vectors, tmp_path, metric="cosine", beam=beam)
    answers = shard.search(queries, 10, width=100)
    assert_answers_are_sound(answers, vectors, queries, 10, "cosine")
    enough = 0.93 if beam == "edges" else 0.95
    assert recall(answers[1], nearest(vectors, queries, 10, "cosine")[1]) >= enough


def test_rows_without_a_direction_are_nearer_than_those_that_point_away(tmp_path):
    query = np.eye(1, 8, dtype=np.float32)
    vectors = np.concatenate([-query - 0.1 * abs(normal(3000, 8)), np.zeros((300, 8), np.float32)])
    deleted = np.zeros(3300, np.bool_)
    deleted[3000::2] = True
    shard = opened("vamana", vectors, tmp_path, metric="cosine")
    for mask in (None, deleted):
        answers = shard.search(query, 200, width=200, deleted=mask)
        expected = nearest(vectors, query, 200, "cosine", mask)
        np.testing.assert_array_equal(answers[0][:, :150], expected[0][:, :150])
        assert_answers_are_sound(answers, vectors, query, 200, "cosine", mask)


@pytest.mark.parametrize("spread", [1e-2, 3e-3])
def test_near_copies_of_wide_rows_are_told_apart(tmp_path, spread):
    """Packed nodes have wide rows by a byte a number, which near copies may share."""
    middles = np.repeat(normal(40, 384), 100, axis=0) / np.float32(20)
    rows = middles + spread * normal(4000, 384, 1) / np.float32(20)
    queries = middles[::80] + spread * normal(50, 384, 2) / np.float32(20)
    shard = opened("vamana", rows, tmp_path, beam="edges")
    found = shard.search(queries, 10, width=128)[1]
    assert recall(found, nearest(rows, queries, 10, "l2")[1]) >= 0.95
