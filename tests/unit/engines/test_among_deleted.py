"""Queries among deleted rows: a cluster is gone, and what is near now lies on all sides of it."""

import numpy as np
import pytest

from tests.support.indexes.shard_checks import assert_answers_are_sound, nearest, opened, recall
from tests.support.params import long_but_first

ROWS, DIMENSION, CLUSTERS, K = 9000, 96, 15, 10
SHARDS = {
    "vamana by records": ("vamana", {"beam": "edges"}),
    "vamana by vectors": ("vamana", {"beam": "full"}),
    "vamana by codes": ("vamana", {"beam": "pq"}),
    "hnsw": ("hnsw", {}),
    "ivf_pq": ("ivf_pq", {}),
}
WIDTH = 40


def clusters():
    """Rows in clusters far apart, and queries about the middle of the first one."""
    rng = np.random.default_rng(3)
    middles = 1.5 * rng.normal(size=(CLUSTERS, DIMENSION))
    labels = rng.integers(0, CLUSTERS, ROWS)
    rows = middles[labels] + rng.normal(size=(ROWS, DIMENSION))
    queries = middles[0] + rng.normal(size=(60, DIMENSION))
    return rows.astype(np.float32), labels, queries.astype(np.float32)


@pytest.mark.parametrize("name", SHARDS)
def test_as_much_is_found_from_within_a_deleted_cluster_as_elsewhere(name, tmp_path):
    """A width that finds 0.95 of rows around them found 0.6 to 0.85 of those."""
    algorithm, parameters = SHARDS[name]
    rows, labels, queries = clusters()
    shard = opened(algorithm, rows, tmp_path, **parameters)
    before = nearest(rows, queries, K, "l2")[1]
    assert recall(shard.search(queries, K, width=WIDTH)[1], before) >= 0.85
    deleted = labels == 0
    truth = nearest(rows, queries, K, "l2", deleted)[1]
    together = shard.search(queries, K, width=WIDTH, deleted=deleted)
    assert_answers_are_sound(together, rows, queries, K, "l2", deleted)
    assert recall(together[1], truth) >= 0.93
    for place, query in enumerate(queries[:5]):
        alone = shard.search(query[None], K, width=WIDTH, deleted=deleted)
        np.testing.assert_array_equal(alone[0][0], together[0][place])
        np.testing.assert_array_equal(alone[1][0], together[1][place])


@pytest.mark.parametrize("name", SHARDS)
@pytest.mark.parametrize("metric", long_but_first(["l2", "cosine"]))
def test_what_many_searches_are_quicker_by_finds_as_much_among_deleted_rows(name, metric, tmp_path):
    """Lists that lead past deleted rows told no search that it began among them."""
    algorithm, parameters = SHARDS[name]
    rows, labels, queries = clusters()
    shard = opened(algorithm, rows, tmp_path, metric=metric, **parameters)
    deleted = labels == 0
    truth = nearest(rows, queries, K, metric, deleted)[1]
    before = recall(shard.search(queries, K, width=WIDTH, deleted=deleted)[1], truth)
    shard.expect(deleted)
    together = shard.search(queries, K, width=WIDTH, deleted=deleted, threads=2)
    assert_answers_are_sound(together, rows, queries, K, metric, deleted)
    assert recall(together[1], truth) >= before - 0.01
    for place, query in enumerate(queries[:5]):
        alone = shard.search(query[None], K, width=WIDTH, deleted=deleted)
        np.testing.assert_array_equal(alone[0][0], together[0][place])
        np.testing.assert_array_equal(alone[1][0], together[1][place])


@pytest.mark.parametrize("name", SHARDS)
def test_rows_deleted_here_and_there_leave_answers_as_they_were(name, tmp_path):
    """A row that is gone from beside a query is not a cluster that is: nothing is repeated."""
    algorithm, parameters = SHARDS[name]
    rows, _, queries = clusters()
    shard = opened(algorithm, rows, tmp_path, **parameters)
    before = recall(shard.search(queries, K, width=WIDTH)[1], nearest(rows, queries, K, "l2")[1])
    deleted = np.zeros(ROWS, np.bool_)
    deleted[nearest(rows, queries, 1, "l2")[0][:, 0]] = True
    truth = nearest(rows, queries, K, "l2", deleted)[1]
    answers = shard.search(queries, K, width=WIDTH, deleted=deleted)
    assert_answers_are_sound(answers, rows, queries, K, "l2", deleted)
    assert recall(answers[1], truth) == pytest.approx(before, abs=0.05)
