import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.search.merge import FARTHEST_SHARE, NEAREST_SHARE, Router, Source, merge

K = 4


def _source(rows, rank):
    """A source of one query: rows are (distance, row group, offset), already sorted."""
    rows = sorted(rows)[:K]
    ids = np.full((1, K), -1, dtype=np.int64)
    distances = np.full((1, K), np.inf, dtype=np.float32)
    ids[0, : len(rows)] = np.arange(len(rows))
    distances[0, : len(rows)] = [row[0] for row in rows]
    groups = np.array([row[1] for row in rows], dtype=np.int64)
    offsets = np.array([row[2] for row in rows], dtype=np.int64)
    return Source(
        ids,
        distances,
        lambda chosen: (np.full(chosen.shape, rank), groups[chosen], offsets[chosen]),
    )


distances = st.sampled_from([-3e38, -1.5, -1e-45, -0.0, 0.0, 1e-45, 1.0, 3e38])
rows = st.lists(st.tuples(distances, st.integers(0, 2), st.integers(0, 9)), unique=True)


@given(st.lists(rows, min_size=1, max_size=4))
def test_merging_orders_by_distance_and_ties_by_locator(sources):
    ranks = list(reversed(range(len(sources))))  # later sources hold files that sort earlier
    merged = merge([_source(r, rank) for r, rank in zip(sources, ranks, strict=True)], K)
    expected = sorted(
        (distance, rank, group, offset)
        for source, rank in zip(sources, ranks, strict=True)
        for distance, group, offset in source
    )[:K]
    found = []
    for number, answer, distance in zip(
        merged.sources[0], merged.ids[0], merged.distances[0], strict=True
    ):
        if number >= 0:
            _, group, offset = sorted(sources[number])[answer]
            found.append((distance, ranks[number], group, offset))
    assert [(np.float32(first), *rest) for first, *rest in expected] == found


def test_a_query_probes_the_shards_of_its_nearest_partitions():
    centroids = np.array([[0, 0], [1, 0], [10, 0], [11, 0]], dtype=np.float32)
    shards = np.array([0, 0, 1, 1], dtype=np.uint32)
    queries = np.array([[0.4, 0], [10.4, 0], [5.4, 0]], dtype=np.float32)
    shares = Router(centroids, shards).shares(queries, 2)
    np.testing.assert_array_equal(shares == 1.0, [[True, False], [False, True], [True, False]])
    np.testing.assert_array_equal(shares > 0.0, [[True, False], [False, True], [True, True]])
    assert (Router(centroids, shards).shares(queries, 4) > 0.0).all()


def test_a_shard_is_searched_the_less_widely_the_farther_its_nearest_partition():
    centroids = np.array([[0, 0], [10, 0], [0, 10]], dtype=np.float32)
    shards = np.array([2, 0, 3], dtype=np.uint32)
    queries = np.array([[4.9, 0], [4.85, 0], [1, 0], [0, 0]], dtype=np.float32)
    shares = Router(centroids, shards).shares(queries, 3)
    np.testing.assert_array_equal(shares[:, 1], 0.0)  # a shard without partitions
    np.testing.assert_array_equal(shares[:, 2], 1.0)
    assert FARTHEST_SHARE < shares[1, 0] < shares[0, 0] < NEAREST_SHARE
    np.testing.assert_allclose(shares[2:, 0], FARTHEST_SHARE, rtol=1e-6)
    np.testing.assert_allclose(shares[0, 3], FARTHEST_SHARE, rtol=1e-6)


def test_queries_are_routed_whatever_their_scale():
    centroids = np.array([[1, 0], [0, 1]], dtype=np.float32)
    shards = np.array([0, 1], dtype=np.uint32)
    for scale in (1e-30, 1.0, 1e18, 1e30):
        queries = np.array([[2, 1]], dtype=np.float32) * np.float32(scale)
        with np.errstate(over="ignore", invalid="ignore"):
            shares = Router(centroids, shards).shares(queries, 2)
        assert shares.max() == 1.0
        assert np.isfinite(shares).all()


def test_rows_infinitely_far_away_are_answers_too():
    far, near = _source([(np.inf, 0, 0)], 0), _source([(1.0, 0, 0)], 1)
    merged = merge([far, near], K)
    assert merged.sources.tolist() == [[1, 0, -1, -1]]
    assert merge([far], K).sources.tolist() == [[0, -1, -1, -1]]
