"""Centroid bounds never rule out what is near, and rule out what is far."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from puffin_ann.ann.clustering import centroids, kernels_bounds
from puffin_ann.ann.clustering.bounds import Bounds
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.exact.range_search import FEW_QUERIES, rows_nearer

NAMES = sorted(METRICS)


def normal(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def bounds_of(groups, metric, count):
    made = [centroids.of_rows(group, metric, count, seed=1) for group in groups]
    owners = np.repeat(np.arange(len(groups)), [len(made_of_group[0]) for made_of_group in made])
    return Bounds(
        metric,
        np.concatenate([made_of_group[0] for made_of_group in made]),
        np.concatenate([made_of_group[1] for made_of_group in made]),
        owners,
        len(groups),
    )


def least(groups, query, metric):
    return np.array(
        [METRICS[metric].distances(query[None], group).min(initial=np.inf) for group in groups]
    )


numbers = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 0.5, 3e38, -3e38, 1e-38, 1e-45, 1e19]),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(-2, 2, width=32),
)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), metric=st.sampled_from(NAMES), count=st.integers(1, 3))
def test_no_row_is_nearer_than_its_bound(data, metric, count):
    d = data.draw(st.integers(1, 7))
    shapes = st.tuples(st.integers(0, 6), st.just(d))
    group = arrays.arrays(np.float32, shapes, elements=numbers)
    groups = data.draw(st.lists(group, min_size=1, max_size=4))
    query = data.draw(arrays.arrays(np.float32, (d,), elements=numbers))
    with np.errstate(over="ignore", invalid="ignore"):
        bounds = bounds_of(groups, metric, count)
        true = least(groups, query, metric)
        assert (bounds.of_owners(query) <= true).all()
        exact = np.full(len(groups), np.inf)
        np.minimum.at(exact, bounds._owners, bounds.exact(query, np.arange(len(bounds))))
        assert (exact <= true).all()
        for threshold in [*true[np.isfinite(true)].tolist(), 0.5]:
            wanted = set(np.flatnonzero(true < threshold).tolist())
            assert wanted <= set(bounds.within(query, threshold).tolist())


@pytest.mark.parametrize("metric", NAMES)
@pytest.mark.parametrize("dimension", [2, 63, 64, 100, 768, 4096])
def test_bounds_hold_and_prune_in_any_dimension(metric, dimension):
    rng = np.random.default_rng(dimension)
    centres = rng.standard_normal((60, dimension)).astype(np.float32)
    groups = [centre + 0.05 * normal(20, dimension, seed) for seed, centre in enumerate(centres)]
    bounds = bounds_of(groups, metric, 1)
    for query in centres[:10] + 0.01 * normal(10, dimension, 99):
        true = least(groups, query, metric)
        found = bounds.of_owners(query)
        assert (found <= true).all()
        exact = bounds.exact(query, np.arange(60))
        assert (exact <= true).all()
        assert np.abs(exact - found).max() < 0.05 * np.abs(true).max()
        if metric != "ip" and dimension >= 63:
            assert (found > true.min()).sum() == 59, "only the file with the nearest row is left"


@pytest.mark.parametrize("metric", NAMES)
def test_the_owners_within_are_those_that_can_be(metric):
    groups = [normal(30, 16, seed) for seed in range(40)]
    bounds = bounds_of(groups, metric, 4)
    query = groups[7][3] * np.float32(1.01)
    true = least(groups, query, metric)
    threshold = float(np.median(true))
    found = bounds.within(query, threshold)
    assert set(np.flatnonzero(true < threshold)) <= set(found.tolist())
    chosen, lower = bounds.nearest(query, 5)
    everything = bounds.of_owners(query)
    np.testing.assert_array_equal(np.sort(everything)[:5], lower)
    np.testing.assert_array_equal(everything[chosen], lower)


@pytest.mark.parametrize("metric", NAMES)
@pytest.mark.parametrize("query", [1e-45, -1e-45, 3e-45])
def test_bounds_hold_where_distances_are_the_least_there_are(metric, query):
    rows, one = np.array([[1.5], [-1.5]], np.float32), np.array([query], np.float32)
    groups = [rows[:1], rows[1:]]
    assert (bounds_of(groups, metric, 1).of_owners(one) <= least(groups, one, metric)).all()


def test_owners_without_rows_are_infinitely_far():
    bounds = bounds_of([normal(3, 4), np.zeros((0, 4), np.float32)], "l2", 1)
    assert np.isinf(bounds.of_owners(normal(1, 4)[0])).tolist() == [False, True]
    nobody = bounds_of([np.zeros((0, 4), np.float32)], "ip", 1)
    assert np.isinf(nobody.of_owners(normal(1, 4)[0])).all()
    assert not len(nobody.within(normal(1, 4)[0], 1e9))


def test_products_are_those_of_integers():
    rng = np.random.default_rng(0)
    for width in (64, 128, 4096):
        codes = rng.integers(-127, 128, (37, width)).astype(np.int8)
        most = min(8191, (2**31 - 1) // (127 * width))
        for query in (
            rng.integers(-most, most + 1, width).astype(np.int16),
            np.full(width, most, np.int16),
        ):
            out = np.empty(37, np.int32)
            kernels_bounds.products(codes.reshape(-1), np.uint64(width), query, out)
            np.testing.assert_array_equal(out, codes.astype(np.int64) @ query.astype(np.int64))
    extreme = np.full((1, 4096), -127, np.int8)
    out = np.empty(1, np.int32)
    kernels_bounds.products(
        extreme.reshape(-1), np.uint64(4096), np.full(4096, 4128, np.int16), out
    )
    assert out[0] == -127 * 4096 * 4128


@pytest.mark.parametrize("metric", NAMES)
@pytest.mark.parametrize("count", [1, 5, 400])
def test_centroids_stand_for_every_row(metric, count):
    rows = np.concatenate(
        [normal(300, 9), np.zeros((20, 9), np.float32), np.tile(normal(1, 9), (30, 1))]
    )
    made, radii = centroids.of_rows(rows, metric, count, seed=3)
    assert 1 <= len(made) <= count
    space = METRICS[metric].to_search_space(rows, 0.0)[:, :9] if metric == "cosine" else rows
    apart = np.linalg.norm(space[:, None].astype(np.float64) - made, axis=2)
    assert (apart <= radii[None, :]).any(axis=1).all()
    again = centroids.of_rows(rows, metric, count, seed=3, threads=3)
    np.testing.assert_array_equal(made, again[0])


@settings(max_examples=150, deadline=None)
@given(data=st.data(), metric=st.sampled_from(NAMES))
def test_rows_nearer_are_those_of_brute_force(data, metric):
    d = data.draw(st.integers(1, 6))
    rows = data.draw(arrays.arrays(np.float32, (data.draw(st.integers(0, 9)), d), elements=numbers))
    count = data.draw(st.sampled_from([0, 1, FEW_QUERIES, FEW_QUERIES + 1]))
    queries = data.draw(arrays.arrays(np.float32, (count, d), elements=numbers))
    distances = METRICS[metric].distances(queries, rows)
    with np.errstate(over="ignore"):
        above = np.nextafter(distances, np.inf)
    thresholds = [*distances.ravel().tolist(), *above.ravel().tolist(), 0.0, 1.0]
    for threshold in thresholds[:12]:
        query, row, found = rows_nearer(queries, rows, threshold, metric)
        wanted = distances.astype(np.float64) < threshold
        assert set(zip(query.tolist(), row.tolist(), strict=True)) == set(
            zip(*(part.tolist() for part in np.nonzero(wanted)), strict=True)
        )
        np.testing.assert_array_equal(found, distances[query, row])


@pytest.mark.parametrize("metric", NAMES)
def test_many_rows_nearer_whatever_the_threads(metric):
    rows, queries = normal(9000, 24), normal(300, 24, 1)
    distances = METRICS[metric].distances(queries, rows)
    threshold = float(np.quantile(distances, 0.01))
    for threads in (1, 3):
        query, row, found = rows_nearer(queries, rows, threshold, metric, threads=threads)
        assert len(found) == (distances < threshold).sum()
        np.testing.assert_array_equal(found, distances[query, row])
        assert (np.diff(row) >= 0).all()
