"""Vectors as long and as short as float32 allows: built over, answered exactly, by every engine."""

import numpy as np
import pyarrow as pa
import pytest

from puffin_ann import open_index
from puffin_ann.errors import QueryError, TooFewRowsError
from puffin_ann.lake.read.data.vectors import LARGEST_NORM
from tests.support.lifecycle import builds

DIRECTIONS = np.random.default_rng(3).normal(size=(80, builds.DIMENSION))
DIRECTIONS /= np.linalg.norm(DIRECTIONS, axis=1, keepdims=True)
LONGEST = 0.99 * LARGEST_NORM
LENGTHS = {
    "one of the longest among others": lambda: np.where(np.arange(80) == 7, LONGEST, 1.0),
    "all as long as can be": lambda: np.full(80, LONGEST),
    "all below the normal numbers": lambda: np.full(80, 1e-40),
    "of every length": lambda: 10.0 ** np.random.default_rng(4).uniform(-44, 18.6, 80),
}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("algorithm", ["vamana", "hnsw", "ivf_pq", "centroid"])
def test_rows_of_extreme_lengths_are_built_over_and_answered(words, algorithm, metric, lengths):
    vectors = (DIRECTIONS * lengths()[:, None]).astype(np.float32)
    words.overwrite(
        pa.table(
            {"id": range(80), "word": ["w"] * 80, "embedding": vectors.tolist()},
            schema=builds.rows([]).schema,
        )
    )
    declared = builds.declaration(
        metric=metric,
        algorithm=algorithm,
        parameters=builds.PARAMETERS.get(algorithm, {}),
        recall_target=0.5,
    )
    builds.build(declared, "run")
    index = open_index(words.refresh(), builds.INDEX)
    assert index.coverage == 1.0
    for length in (1.0, 1e-40, 1e18):
        queries = (DIRECTIONS[:4] * length).astype(np.float32)
        current = words.current_snapshot().snapshot_id
        builds.assert_answers(index, words, current, queries, 5, np.float32)


def test_inner_products_beyond_float32_are_refused_since_they_have_no_order(words):
    rows = {"id": [900], "word": ["long"], "embedding": [[LONGEST] + [0.0] * 7]}
    words.append(pa.table(rows, schema=builds.rows([]).schema))
    builds.build(builds.declaration(metric="ip"), "run")
    index = open_index(words.refresh(), builds.INDEX)
    queries = np.zeros((2, builds.DIMENSION), np.float32)
    queries[0, 0], queries[1, 0] = 1.0, 1e25
    assert len(index.search(queries[:1], 3)) == 3
    for exhaustive in (True, False):
        with pytest.raises(QueryError, match="query 1 has inner products beyond float32"):
            index.search(queries, 3, exhaustive=exhaustive)

    with pytest.raises(QueryError, match="query 0 has inner products beyond float32"):
        index.within(queries[1:], -1e30)


@pytest.mark.parametrize("algorithm", ["vamana", "exact", "centroid"])
def test_queries_longer_than_rows_may_be_are_refused_where_distances_leave_float32(
    words, algorithm
):
    builds.build(builds.declaration(algorithm=algorithm), "run")
    index = open_index(words.refresh(), builds.INDEX)
    current = words.current_snapshot().snapshot_id
    longest = np.zeros(builds.DIMENSION, np.float32)
    longest[3] = LARGEST_NORM
    beyond = np.nextafter(longest, np.float32(np.inf), where=longest > 0, out=longest.copy())
    builds.assert_answers(index, words, current, longest[None, :], 5, np.float32)
    for long in (beyond, np.full(builds.DIMENSION, 1e38), np.full(builds.DIMENSION, 1e19)):
        queries = np.stack([longest, long.astype(np.float32)])
        with pytest.raises(QueryError, match=r"query 1 has length .*at most 4\.6e\+18 long.*scale"):
            index.search(queries, 3)
        with pytest.raises(QueryError, match="query 1 has length"):
            index.within(queries, 1.0)


@pytest.mark.parametrize("algorithm", ["vamana", "hnsw", "ivf_pq"])
def test_by_inner_product_the_length_of_a_query_does_not_count(words, algorithm):
    """Powers of two change no digit; beside squares of them, products had none left.

    Of one shard: how widely others are searched goes by distances, in which the length counts.
    """
    words.append(builds.rows(range(60, 700)))
    declared = builds.declaration(
        metric="ip", algorithm=algorithm, parameters=builds.PARAMETERS.get(algorithm, {}), shards=1
    )
    builds.build(declared, "run")
    index = open_index(words.refresh(), builds.INDEX)
    queries = DIRECTIONS.astype(np.float32)
    expected = index.search(queries, 5)
    for power in (-60, -30, 30, 39, 60):
        found = index.search(queries * np.float32(2.0**power), 5)
        assert found["locator"].equals(expected["locator"])


@pytest.mark.parametrize("metric", ["cosine", "ip"])
def test_queries_as_long_as_float32_has_them_are_answered_where_only_directions_count(
    words, metric
):
    builds.build(builds.declaration(algorithm="vamana", metric=metric), "run")
    index = open_index(words.refresh(), builds.INDEX)
    short = DIRECTIONS[:4].astype(np.float32)
    expected = index.search(short, 5, columns=["id"], exhaustive=True)["id"]
    for exhaustive in (True, False):
        found = index.search(short * np.float32(1e37), 5, columns=["id"], exhaustive=exhaustive)
        assert found["id"].equals(expected)


def test_a_table_of_unusable_vectors_alone_says_what_is_wrong_with_them(words):
    words.overwrite(
        pa.table(
            {"id": [1, 2], "word": ["a", "b"], "embedding": [[1e19] * 8, None]},
            schema=builds.rows([]).schema,
        )
    )
    with pytest.raises(TooFewRowsError, match=r"no sampled row.*longer than 4\.6e\+18"):
        builds.build(builds.declaration(), "run")
