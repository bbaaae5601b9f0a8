import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.ann.clustering import kmeans, shard_assignment
from puffin_ann.errors import TooFewRowsError


def blobs(centres, per_blob, seed=0):
    generator = np.random.default_rng(seed)
    spread = 0.01 * generator.standard_normal((len(centres), per_blob, centres.shape[1]))
    return (centres[:, None] + spread).reshape(-1, centres.shape[1]).astype(np.float32)


def mean_loss(vectors, centroids):
    return float(kmeans.assign(vectors, centroids)[1].mean())


def test_training_depends_on_the_seed_and_not_on_the_threads():
    sample = np.random.default_rng(1).standard_normal((20_000, 12)).astype(np.float32)
    one = kmeans.train(sample, 40, seed=7, threads=1)
    three = kmeans.train(sample, 40, seed=7, threads=3)
    other = kmeans.train(sample, 40, seed=8)
    np.testing.assert_array_equal(one, three)
    assert not np.array_equal(one, other)


def test_training_lowers_the_loss_below_that_of_random_rows():
    sample = np.random.default_rng(1).standard_normal((5000, 8)).astype(np.float32)
    assert mean_loss(sample, kmeans.train(sample, 32, seed=0)) < 0.9 * mean_loss(
        sample, sample[:32]
    )


def test_clusters_that_lost_their_rows_move_to_where_rows_are_far():
    sample = np.concatenate([np.zeros((1000, 2)), [[5, 0]], [[0, 7]]]).astype(np.float32)
    centroids = kmeans.train(sample, 3, seed=0)
    assert mean_loss(sample, centroids) == 0.0


def test_equal_rows_give_finite_centroids():
    centroids = kmeans.train(np.ones((50, 3), np.float32), 8, seed=0)
    np.testing.assert_array_equal(centroids, np.ones((8, 3), np.float32))


def test_as_many_centroids_as_rows_are_the_rows():
    sample = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
    centroids = kmeans.train(sample, 20, seed=0)
    np.testing.assert_array_equal(np.sort(centroids, axis=0), np.sort(sample, axis=0))


def test_more_centroids_than_rows_are_refused():
    with pytest.raises(TooFewRowsError, match="3 sampled rows"):
        kmeans.train(np.zeros((3, 2), np.float32), 4, seed=0)


@pytest.mark.parametrize("k", [50, 63, 150])
def test_two_levels_give_exactly_as_many_centroids_and_about_the_same_loss(k, monkeypatch):
    sample = np.random.default_rng(1).standard_normal((4000, 6)).astype(np.float32)
    flat = kmeans.train(sample, k, seed=0)
    monkeypatch.setattr(kmeans, "FLAT_CENTROIDS", 10)
    nested = kmeans.train(sample, k, seed=0)
    assert nested.shape == flat.shape
    assert mean_loss(sample, nested) < 1.3 * mean_loss(sample, flat)


def test_assignment_is_to_the_nearest_and_the_lowest_id_of_equals():
    generator = np.random.default_rng(2)
    vectors = generator.standard_normal((3000, 10)).astype(np.float32)
    centroids = np.repeat(generator.standard_normal((20, 10)).astype(np.float32), 2, axis=0)
    ids, squared = kmeans.assign(vectors, centroids, threads=2)
    every = ((vectors[:, None].astype(np.float64) - centroids[None]) ** 2).sum(-1)
    assert ids.dtype == np.uint32
    np.testing.assert_array_equal(ids, every.argmin(axis=1))
    np.testing.assert_allclose(squared, every.min(axis=1), rtol=1e-6)


def test_squared_distances_keep_their_digits_far_from_the_origin():
    centroids = np.full((1, 4), 1000, np.float32)
    vectors = centroids + np.float32(0.125)
    assert kmeans.assign(vectors, centroids)[1][0] == np.float32(4 * 0.125**2)


def test_assignment_of_no_rows():
    ids, squared = kmeans.assign(np.zeros((0, 3), np.float32), np.zeros((2, 3), np.float32))
    assert len(ids) == len(squared) == 0


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_every_shard_gets_a_partition_whatever_the_sizes(data):
    partitions = data.draw(st.integers(1, 40))
    shards = data.draw(st.integers(1, partitions))
    sizes = data.draw(st.lists(st.integers(0, 1000), min_size=partitions, max_size=partitions))
    centroids = np.random.default_rng(partitions).standard_normal((partitions, 3))
    found = shard_assignment.assign_cells_to_shards(centroids.astype(np.float32), sizes, shards)
    assert found.dtype == np.uint32
    assert set(found.tolist()) == set(range(shards))


def test_shards_are_balanced_by_rows_and_not_by_partitions():
    generator = np.random.default_rng(0)
    centroids = generator.standard_normal((256, 5)).astype(np.float32)
    sizes = generator.integers(10, 1000, 256)
    found = shard_assignment.assign_cells_to_shards(centroids, sizes, 8)
    rows = np.bincount(found, weights=sizes)
    assert rows.max() / rows.min() < 1.15


def test_partitions_near_each_other_share_a_shard():
    corners = np.array([[0, 0], [0, 100], [50, 0], [50, 100]], np.float32)
    found = shard_assignment.assign_cells_to_shards(blobs(corners, 8), np.full(32, 10), 4)
    assert all(len(set(found[at : at + 8].tolist())) == 1 for at in range(0, 32, 8))


def test_equal_centroids_are_spread_all_the_same():
    found = shard_assignment.assign_cells_to_shards(np.ones((6, 3), np.float32), [5] * 6, 3)
    np.testing.assert_array_equal(np.bincount(found), [2, 2, 2])


def test_more_shards_than_partitions_are_refused():
    with pytest.raises(TooFewRowsError, match="2 partitions"):
        shard_assignment.assign_cells_to_shards(np.zeros((2, 3), np.float32), [1, 1], 3)


@given(st.integers(1, 70), st.integers(1, 5), st.integers(0, 5))
def test_an_order_of_cells_has_each_once(cells, dimension, copies):
    centroids = np.random.default_rng(cells).normal(size=(cells, dimension)).astype(np.float32)
    centroids[:copies] = centroids[0]
    order = shard_assignment.near_in_order(centroids)
    np.testing.assert_array_equal(np.sort(order), np.arange(cells))


def test_cells_near_each_other_are_side_by_side():
    generator = np.random.default_rng(4)
    centres = 10 * generator.normal(size=(16, 6)).astype(np.float32)
    centroids = generator.permutation(blobs(centres, 8))
    group = ((centroids[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    ordered = group[shard_assignment.near_in_order(centroids)]
    assert np.count_nonzero(np.diff(ordered)) == 15
