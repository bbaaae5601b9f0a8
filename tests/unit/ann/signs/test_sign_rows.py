"""By signs nearly none of the nearest rows is missed, and every distance is exact."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.exact import brute_force
from puffin_ann.ann.exact.row_addresses import RowAddresses
from puffin_ann.ann.signs.sign_rows import SignRows, size_of_signs

KINDS = ("normal", "clusters", "sparse", "far from zero", "of all lengths", "positive", "ordered")


def drawn(kind, rng, rows, dimension):
    """Draw rows of some kind."""
    found = rng.standard_normal((rows, dimension))
    if kind == "clusters":
        found = 10 * rng.standard_normal((20, dimension))[rng.integers(20, size=rows)] + found
    elif kind == "sparse":
        found *= rng.random((rows, dimension)) < 0.05
    elif kind == "far from zero":
        found += 40 * rng.standard_normal(dimension)
    elif kind == "of all lengths":
        found *= 10.0 ** rng.uniform(-3, 3, (rows, 1))
    elif kind == "positive":
        found = np.abs(found) ** 3
    elif kind == "ordered":  # as by principal components: the first numbers are the greatest
        found /= np.arange(1, dimension + 1)
    return found.astype(np.float32)


def nearest(rows, queries, k, metric, threads=1):
    signs = SignRows.of(RowAddresses.of(rows), METRICS[metric])
    assert signs is not None
    (ids, distances), measured = signs.nearest(queries, k, threads=threads)
    return ids, distances, measured


def recall_of(distances, expected):
    """Return the share of answers that are no farther than the last of the nearest: some tie."""
    return np.mean(distances <= expected[:, -1:])


@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(KINDS),
    rows=st.sampled_from([2, 31, 32, 33, 700]),
    dimension=st.sampled_from([80, 100, 128, 200, 384]),
    metric=st.sampled_from(sorted(METRICS)),
    k=st.sampled_from([1, 5, 40]),
    queries=st.sampled_from([1, 3]),
)
@settings(max_examples=150, deadline=None)
def test_as_many_are_answered_as_there_are_each_once_and_at_its_distance(
    seed, kind, rows, dimension, metric, k, queries
):
    rng = np.random.default_rng(seed)
    all_rows = drawn(kind, rng, rows, dimension)
    if (all_rows == all_rows[0]).all():
        return
    asked = drawn(kind, rng, queries, dimension)
    asked[:, 0] += np.float32(0.5)  # of zeros signs say nothing
    ids, distances, measured = nearest(all_rows, asked, k, metric)
    assert ids.shape == distances.shape == (queries, k)
    many = min(k, rows)
    assert measured >= many * queries
    assert (ids[:, many:] == -1).all()
    assert np.isinf(distances[:, many:]).all()
    for found, there in zip(ids[:, :many], distances, strict=True):
        assert len(np.unique(found)) == many
        assert found.min() >= 0
        assert (np.diff(there[:many]) >= 0).all()
    exact = METRICS[metric].pair_distances(asked, all_rows, ids)
    np.testing.assert_array_equal(distances, exact)


@pytest.mark.parametrize("metric", sorted(METRICS))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimension", [96, 240, 384])
def test_nearly_none_of_the_nearest_is_missed(kind, metric, dimension):
    both = drawn(kind, np.random.default_rng(7), 6200, dimension)
    rows, queries = both[200:], both[:200]
    queries = queries[queries.any(axis=1)]
    _, expected = brute_force.search(queries, rows, 10, metric)
    for threads in (1, 2):
        _, distances, _ = nearest(rows, queries, 10, metric, threads)
        assert recall_of(distances, expected) >= 0.985


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize(("dimension", "filled"), [(240, 16), (784, 64), (1600, 64)])
def test_rows_that_were_filled_up_with_zeros_are_found(dimension, filled, metric):
    """What they have is in one part of as many as the width has of an odd factor."""
    both = np.zeros((4100, dimension), np.float32)
    both[:, :filled] = np.random.default_rng(15).standard_normal((4100, filled))
    _, expected = brute_force.search(both[:100], both[100:], 10, metric)
    _, distances, measured = nearest(both[100:], both[:100], 10, metric)
    assert recall_of(distances, expected) >= 0.985
    assert measured < 0.05 * 100 * 4000


@pytest.mark.parametrize("size", [1e-20, 1e-24, 1e-30, 1e-40])
def test_rows_too_short_for_squares_are_all_measured_beside_one_that_is_not(size):
    rows = np.random.default_rng(16).standard_normal((3000, 100))
    rows = (rows * size).astype(np.float32)
    rows[-1] = 1.0
    _, expected = brute_force.search(rows[:5], rows, 10, "l2")
    _, distances, _ = nearest(rows, rows[:5], 10, "l2")
    np.testing.assert_array_equal(distances, expected)


def test_few_rows_are_measured():
    both = drawn("clusters", np.random.default_rng(8), 20_020, 384)
    _, _, measured = nearest(both[20:], both[:20], 10, "cosine")
    assert measured < 0.08 * 20 * 20_000


def test_equal_rows_are_answered_in_the_order_of_their_numbers():
    row = np.random.default_rng(9).standard_normal((1, 96), dtype=np.float32)
    rows = np.concatenate([np.repeat(row, 100, axis=0), -row])
    ids, distances, _ = nearest(rows, row, 5, "l2")
    assert ids.tolist() == [[0, 1, 2, 3, 4]]
    assert not distances.any()


def test_of_rows_that_are_all_equal_signs_say_nothing():
    rows = np.ones((40, 96), np.float32)
    assert SignRows.of(RowAddresses.of(rows), METRICS["l2"]) is None


def test_of_rows_too_long_or_too_short_for_squares_signs_say_nothing():
    rows = np.random.default_rng(10).standard_normal((40, 96), dtype=np.float32)
    for factor in (1e13, 1e-14, 1e25, 1e-25, 0.0):
        some = (rows * np.float32(factor)).astype(np.float32)
        assert SignRows.of(RowAddresses.of(some), METRICS["l2"]) is None
    one_long = rows.copy()
    one_long[3] *= np.float32(1e30)
    assert SignRows.of(RowAddresses.of(one_long), METRICS["ip"]) is None
    assert SignRows.of(RowAddresses.of(rows * np.float32(1e-14)), METRICS["cosine"]) is not None


def test_a_query_too_long_for_squares_is_not_answered():
    rows = np.random.default_rng(11).standard_normal((40, 96), dtype=np.float32)
    signs = SignRows.of(RowAddresses.of(rows), METRICS["l2"])
    long = np.concatenate([rows[:1], rows[:1] * np.float32(1e20)])
    assert signs.nearest(long, 5) is None
    assert signs.nearest(rows[:1], 5) is not None


@pytest.mark.parametrize("metric", ["cosine", "ip"])
def test_a_query_too_short_for_squares_is_not_answered(metric):
    rows = np.random.default_rng(13).standard_normal((400, 96), dtype=np.float32)
    signs = SignRows.of(RowAddresses.of(rows), METRICS[metric])
    for size in (1e-14, 1e-23, 1e-40, 0.0):
        assert signs.nearest(rows[:2] * np.float32(size), 5) is None
    _, expected = brute_force.search(rows[:9] * np.float32(1e-10), rows, 5, metric)
    _, distances, _ = nearest(rows, rows[:9] * np.float32(1e-10), 5, metric)
    assert recall_of(distances, expected) >= 0.95


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_one_long_row_and_an_origin_far_away_leave_few_rows_to_be_measured(metric):
    both = drawn("clusters", np.random.default_rng(14), 20_020, 384)
    long = both.copy()
    long[-1] *= 1e6
    # Of products the query is not relative to the origin, too: what lies far takes all of its bits.
    far = both + np.float32(5000.0)
    for some in (long, far):
        _, expected = brute_force.search(some[:20], some[20:], 10, metric)
        _, distances, measured = nearest(some[20:], some[:20], 10, metric)
        assert measured < 0.1 * 20 * 20_000
        assert recall_of(distances, expected) >= 0.985


def test_they_take_a_bit_of_each_of_many_numbers_and_twelve_bytes_a_row():
    rows = np.random.default_rng(12).standard_normal((3200, 384), dtype=np.float32)
    signs = SignRows.of(RowAddresses.of(rows), METRICS["l2"])
    assert signs.size == size_of_signs(3200, 384) == 3200 * (384 // 8 + 4 + 8)


@pytest.mark.parametrize("far", [0.5, 0.9, 0.95])
def test_inner_products_of_directions_that_lie_on_one_side_leave_as_few_as_by_cosine(far):
    both = drawn("clusters", np.random.default_rng(17), 20_020, 384)
    both *= np.float32(np.sqrt(1 - far**2)) / np.linalg.norm(both, axis=1, keepdims=True)
    both[:, 7] += np.float32(far)
    both /= np.linalg.norm(both, axis=1, keepdims=True)
    by_ip, by_cosine = (nearest(both[20:], both[:20], 10, metric) for metric in ("ip", "cosine"))
    assert by_ip[2] < 1.2 * by_cosine[2]
    assert recall_of(by_ip[1], brute_force.search(both[:20], both[20:], 10, "ip")[1]) >= 0.985
