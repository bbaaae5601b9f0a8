"""How many rows of a changed shard are searched for before its recall is believed."""

import numpy as np
import pytest

from puffin_ann.lifecycle.refresh.apply_changes.check_recall import (
    CHECKED_ROWS,
    DOUBTED_ROWS,
    recall_of,
)

ROWS, K, TARGET = 2000, 10, 0.95


class ShardThatMisses:
    """Compares all rows, and leaves out one neighbour for a share of its queries: by the row."""

    def __init__(self, share):
        self.rows = np.random.default_rng(1).normal(size=(ROWS, 8)).astype(np.float32)
        self.misses = np.random.default_rng(2).random(ROWS) < share
        self.asked = []

    def vectors(self, rows):
        return self.rows[rows]

    def exhaustive(self, queries, k, *, deleted, threads):
        distances = ((queries[:, None] - self.rows[None]) ** 2).sum(axis=2)
        if deleted is not None:
            distances[:, deleted] = np.inf
        ids = np.argsort(distances, axis=1)[:, :k]
        return ids, np.take_along_axis(distances, ids, axis=1)

    def search(self, queries, k, *, width, deleted, threads):
        ids, distances = self.exhaustive(queries, k + 1, deleted=deleted, threads=threads)
        self.asked += ids[:, 0].tolist()
        one_less = self.misses[ids[:, 0]]
        ids[one_less, k - 1], distances[one_less, k - 1] = ids[one_less, k], distances[one_less, k]
        return ids[:, :k], distances[:, :k]


def measured(shard, deleted=None):
    deleted = np.zeros(ROWS, np.bool_) if deleted is None else deleted
    return recall_of(shard, deleted, k=K, width=16, target=TARGET, seed=0, threads=1)


def test_few_rows_are_enough_where_the_target_is_reached():
    shard = ShardThatMisses(0.2)
    assert measured(shard).recall >= TARGET
    assert len(shard.asked) == CHECKED_ROWS


@pytest.mark.parametrize("share", [0.52, 0.9])  # recalls of 0.948 and 0.91
def test_more_rows_are_asked_under_the_target_none_twice_and_none_deleted(share):
    shard = ShardThatMisses(share)
    deleted = np.arange(ROWS) % 3 == 0
    found = measured(shard, deleted)
    assert len(shard.asked) == found.queries == DOUBTED_ROWS
    assert len(set(shard.asked)) == DOUBTED_ROWS
    assert not deleted[shard.asked].any()
    assert found.recall == pytest.approx(1 - shard.misses[shard.asked].mean() / K)
