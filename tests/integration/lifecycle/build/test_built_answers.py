"""What a built index answers: as brute force does, in one order, for any number of queries."""

import os

import numpy as np
import pytest

from puffin_ann import open_index
from puffin_ann.errors import (
    ColumnNotFoundError,
    IndexNotFoundError,
    QueryError,
    SnapshotNotFoundError,
)
from puffin_ann.search.questions.checks import MOST_WIDTH
from puffin_ann.settings import settings
from tests.support.lifecycle import builds

QUERIES = np.random.default_rng(5).normal(size=(6, builds.DIMENSION)).astype(np.float32)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("algorithm", ["exact", "vamana", "hnsw", "ivf_pq", "centroid"])
def test_a_built_index_answers_as_brute_force_does(words, metric, algorithm):
    parameters = builds.PARAMETERS.get(algorithm, {})
    declared = builds.declaration(metric=metric, algorithm=algorithm, parameters=parameters)
    builds.build(declared, "run")
    words.refresh()
    index = open_index(words, builds.INDEX)
    assert index.coverage == 1.0
    current = words.current_snapshot().snapshot_id
    for k in (1, 5, 60):
        builds.assert_answers(index, words, current, QUERIES, k)


def test_exact_compares_every_row_of_every_shard_for_queries_far_from_all_rows(words):
    words.append(builds.rows(range(60, 600)))
    gate = {"queries": 100, "k": 5}
    declared = builds.declaration(shards=4, partitions_per_shard=1, recall_target=0.5, gate=gate)
    builds.build(declared, "run")
    index = open_index(words.refresh(), builds.INDEX)
    queries = 4 * np.random.default_rng(5).normal(size=(50, builds.DIMENSION)).astype(np.float32)
    found = index.search(queries, 10).select(["query", "rank", "distance", "locator"])
    every = index.search(queries, 10, exhaustive=True).select(found.column_names)
    assert found.to_pylist() == every.to_pylist()


def test_equal_distances_are_ordered_by_locator(words):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    found = index.search(builds.rows([8]).column("embedding").to_pylist(), 60, exhaustive=True)
    keys = [
        (row["distance"], row["locator"]["file"], row["locator"]["row_group"],
         row["locator"]["row_offset"])
        for row in found.to_pylist()
    ]  # fmt: skip
    assert keys == sorted(keys)
    assert len({key[0] for key in keys}) < 60


@pytest.mark.parametrize("algorithm", ["exact", "vamana", "hnsw", "ivf_pq"])
def test_cached_shards_that_were_cut_short_are_unpacked_anew(words, algorithm):
    parameters = builds.PARAMETERS.get(algorithm, {})
    builds.build(builds.declaration(algorithm=algorithm, parameters=parameters), "run")
    found = open_index(words.refresh(), builds.INDEX).search(QUERIES, 5).to_pylist()
    arrays = [*(settings().cache_dir / "shards").rglob("*.npy")]
    assert arrays
    for array in arrays:
        os.truncate(array, array.stat().st_size // 2)
    assert open_index(words, builds.INDEX).search(QUERIES, 5).to_pylist() == found


def test_an_empty_batch_of_queries_has_an_empty_answer(words):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    found = index.search(np.zeros((0, builds.DIMENSION), dtype=np.float32), 3, columns=["word"])
    assert len(found) == 0
    assert found.column_names == ["query", "rank", "distance", "word", "locator"]


def test_bad_searches_are_named(words):
    with pytest.raises(IndexNotFoundError, match="no readable version of an index named 'x'"):
        open_index(words, "x")
    builds.build(builds.declaration(), "run")
    words.refresh()
    with pytest.raises(IndexNotFoundError, match=f"'x'; it has: {builds.INDEX}"):
        open_index(words, "x")
    with pytest.raises(SnapshotNotFoundError, match="no snapshot 5"):
        open_index(words, builds.INDEX, 5)
    index = open_index("test.demo.words", builds.INDEX)
    wrong = [
        (QUERIES, 0, "k is 0"),
        (QUERIES, -1, "k is -1"),
        (QUERIES, 1.5, "k is 1.5"),
        (QUERIES, 61, "k is 61, but only 60 rows are live"),
        (QUERIES[:, :7], 5, r"shape \(6, 7\).*\(n, 8\)"),
        ([["a"] * 8], 5, "queries hold text; give numbers"),
        ([[1j] * 8], 5, "complex numbers"),
        ([[0.5] * 8, [1.0]], 5, "not numbers of one dimension"),
        ([[float("nan")] * 8], 5, "query 0 holds a NaN"),
        ([[1e300] * 8], 5, "query 0 holds a NaN or infinite"),
    ]
    for queries, k, message in wrong:
        with pytest.raises(QueryError, match=message):
            index.search(queries, k)
    for distance, message in ((10**400, "beyond float64"), ("1", "must be a number")):
        with pytest.raises(QueryError, match=message):
            index.within(QUERIES, distance)
    with pytest.raises(QueryError, match="width is 0"):
        index.search(QUERIES, 5, width=0)
    widest = index.search(QUERIES, 5, width=MOST_WIDTH, probe_partitions=10**30)
    assert widest.equals(index.search(QUERIES, 5, exhaustive=True))
    with pytest.raises(ColumnNotFoundError, match="'price'"):
        index.search(QUERIES, 5, columns=["price"])
    for columns, message in (
        (("id", "word", "id"), "columns: 'id' named twice"),
        (("id", "rank"), "'rank' has the name of a result column"),
    ):
        with pytest.raises(QueryError, match=message):
            index.search(QUERIES, 5, columns=columns)
        with pytest.raises(QueryError, match=message):
            index.within(QUERIES, 1.0, columns=columns)
    assert len(index.search(QUERIES, 61, allow_fewer=True)) == 6 * 60
