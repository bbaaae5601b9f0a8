import numpy as np
import pytest

from puffin_ann.ann.core.metrics import METRICS


def in_float64(metric, queries, vectors):
    """The definition, in numpy, with sums in float64."""
    q, x = queries.astype(np.float64), vectors.astype(np.float64)
    if metric == "l2":
        return np.sqrt(((q[:, None] - x[None]) ** 2).sum(-1))
    products = q @ x.T
    if metric == "ip":
        return -products
    sizes = np.sqrt((q**2).sum(1)[:, None] * (x**2).sum(1)[None])
    return 1 - np.divide(products, sizes, out=np.zeros_like(products), where=sizes > 0)


def some(n, d, seed):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 100, 1536, 4096])
@pytest.mark.parametrize("metric", METRICS)
def test_distances_are_float64_sums_rounded_once(metric, d):
    queries, vectors = some(5, d, 1), some(40, d, 2)
    found = METRICS[metric].distances(queries, vectors)
    expected = in_float64(metric, queries, vectors)
    assert found.dtype == np.float32
    # One rounding to float32 is half a unit; the order of summing in float64 may tip a tie.
    assert (np.abs(found - expected) <= np.abs(expected) * 2**-23 + 1e-14 * d).all()


@pytest.mark.parametrize("metric", METRICS)
def test_pair_distances_are_distances_to_the_last_bit(metric):
    queries, vectors = some(6, 33, 1), some(50, 33, 2)
    ids = np.random.default_rng(3).integers(-1, 50, (6, 12))
    every = METRICS[metric].distances(queries, vectors)
    expected = np.where(ids < 0, np.float32(np.inf), np.take_along_axis(every, ids, axis=1))
    found = METRICS[metric].pair_distances(queries, vectors, ids)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_a_vector_has_distance_zero_from_itself(metric):
    vectors = some(200, 100, 4) * np.float32(1e-3)
    assert (np.diag(METRICS[metric].distances(vectors, vectors)) == 0).all()


def test_a_zero_vector_has_cosine_distance_one_from_everything():
    zero, others = np.zeros((1, 5), np.float32), some(4, 5, 0)
    assert (METRICS["cosine"].distances(zero, others) == 1).all()
    assert (METRICS["cosine"].distances(others, zero) == 1).all()
    assert METRICS["cosine"].distances(zero, zero)[0, 0] == 1


@pytest.mark.parametrize("metric", METRICS)
def test_distances_of_vectors_as_large_or_small_as_float32_allows_are_finite(metric):
    largest = np.finfo(np.float32).max
    vectors = np.array([[largest] * 64, [-largest] * 64, [1e-45] * 64], np.float32)
    distances = METRICS[metric].distances(vectors, vectors)
    assert np.isfinite(distances).all()
    if metric == "cosine":
        np.testing.assert_allclose(distances, [[0, 2, 0], [2, 0, 2], [0, 2, 0]], atol=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_squared_l2_in_the_search_space_orders_as_the_metric_does(metric):
    queries, vectors = some(20, 16, 5), some(300, 16, 6) * some(300, 1, 7)
    bound = float(np.linalg.norm(vectors, axis=1).max())
    known = METRICS[metric]
    q, x = known.queries_to_search_space(queries), known.to_search_space(vectors, bound)
    assert q.dtype == x.dtype == np.float32
    assert q.shape[1] == x.shape[1] == known.search_dimension(16)
    squared = ((q[:, None].astype(np.float64) - x[None]) ** 2).sum(-1)
    order = np.argsort(squared, axis=1)
    along = np.take_along_axis(in_float64(metric, queries, vectors), order, axis=1)
    assert (np.diff(along, axis=1) >= -1e-4).all()


def test_zero_vectors_stay_zero_in_the_search_space_of_cosine():
    vectors = np.zeros((2, 8), np.float32)
    vectors[1] = 3
    unit = METRICS["cosine"].to_search_space(vectors, 0.0)
    assert (unit[0] == 0).all()
    assert np.linalg.norm(unit[1]) == pytest.approx(1)


def test_rows_beyond_the_norm_bound_lie_on_it():
    out = METRICS["ip"].to_search_space(np.full((1, 4), 2, np.float32), 1.0)
    np.testing.assert_array_equal(out, [[2, 2, 2, 2, 0]])


@pytest.mark.parametrize("metric", METRICS)
def test_search_space_of_a_transposed_or_read_only_view_is_the_same(metric):
    vectors = some(9, 6, 8)
    awkward = np.asfortranarray(vectors)
    awkward.flags.writeable = False
    known = METRICS[metric]
    np.testing.assert_array_equal(
        known.to_search_space(awkward, 5.0), known.to_search_space(vectors, 5.0)
    )
    np.testing.assert_array_equal(
        known.distances(awkward, awkward), known.distances(vectors, vectors)
    )
