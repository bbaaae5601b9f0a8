from types import SimpleNamespace

import numpy as np

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.search.shards.routes import FARTHEST_SHARE, NEAREST_SHARE, Router, Routes


def test_a_query_probes_the_shards_of_its_nearest_partitions():
    centroids = np.array([[0, 0], [1, 0], [10, 0], [11, 0]], dtype=np.float32)
    shards = np.array([0, 0, 1, 1], dtype=np.uint32)
    queries = np.array([[0.4, 0], [10.4, 0], [5.4, 0]], dtype=np.float32)
    shares = Router(centroids, shards).shares(queries, 2)
    np.testing.assert_array_equal(shares == 1.0, [[True, False], [False, True], [True, False]])
    np.testing.assert_array_equal(shares > 0.0, [[True, False], [False, True], [True, True]])
    assert (Router(centroids, shards).shares(queries, 4) > 0.0).all()


def test_more_cells_may_be_asked_for_than_there_are():
    router = Router(np.eye(3, dtype=np.float32), np.array([0, 1, 2], dtype=np.uint32))
    for queries in (np.eye(3, dtype=np.float32)[:1], np.ones((9, 3), np.float32)):
        assert (router.shares(queries, 10**30) > 0.0).all()


def test_few_queries_are_routed_as_many_are():
    random = np.random.default_rng(4)
    centroids = random.standard_normal((40, 17)).astype(np.float32)
    router = Router(centroids, random.integers(0, 6, 40).astype(np.uint32))
    queries = random.standard_normal((60, 17)).astype(np.float32)
    for cells in (1, 5, 40):
        alone = [router.shares(queries[at : at + 1], cells) for at in range(len(queries))]
        np.testing.assert_array_equal(np.concatenate(alone), router.shares(queries, cells))


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


def test_by_inner_product_the_length_of_a_query_does_not_matter():
    random = np.random.default_rng(0)
    rows = random.standard_normal((400, 6)).astype(np.float32)
    rows *= np.exp(random.standard_normal((400, 1))).astype(np.float32)
    bound = float(np.linalg.norm(rows, axis=1).max())
    centroids = METRICS["ip"].to_search_space(rows[:40], bound)
    router = Router(centroids, (np.arange(40) % 8).astype(np.uint32))
    cells = SimpleNamespace(count=40)
    routing = SimpleNamespace(metric="ip", norm_bound=bound, shards=[], cells=cells)
    routes = Routes(None, SimpleNamespace(routing=routing))
    queries = random.standard_normal((50, 6)).astype(np.float32)

    expected = router.shares(routes.placed(queries), 3)

    assert (expected == 0).any()
    for scale in (2.0**-90, 2.0**-10, 2.0**10, 2.0**60):
        placed = routes.placed(queries * np.float32(scale))
        np.testing.assert_array_equal(router.shares(placed, 3), expected)
    assert np.isfinite(routes.placed(np.zeros((1, 6), np.float32))).all()
