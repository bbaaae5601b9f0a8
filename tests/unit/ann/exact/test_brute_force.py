import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.exact import brute_force, nearest_in
from puffin_ann.ann.exact.byte_rows import ByteRows
from puffin_ann.ann.exact.row_addresses import RowAddresses
from puffin_ann.errors import QueryError


def by_sorting(queries, vectors, k, metric, allowed=None):
    """Sort everything by (distance, id): what exact search promises."""
    distances = METRICS[metric].distances(queries, vectors)
    live = np.arange(len(vectors)) if allowed is None else np.flatnonzero(allowed)
    ids = np.full((len(queries), k), -1, np.int64)
    found = np.full((len(queries), k), np.inf, np.float32)
    for row, line in enumerate(distances):
        best = live[np.lexsort((live, line[live]))][:k]
        ids[row, : len(best)] = best
        found[row, : len(best)] = line[best]
    return ids, found


def assert_exact(queries, vectors, k, metric, allowed=None, threads=1):
    expected_ids, expected = by_sorting(queries, vectors, k, metric, allowed)
    for coded in (None, coded_rows(vectors, metric)):
        ids, distances = brute_force.search(
            queries, vectors, k, metric, allowed=allowed, coded=coded, threads=threads
        )
        assert ids.dtype == np.int64
        assert distances.dtype == np.float32
        np.testing.assert_array_equal(ids, expected_ids)
        np.testing.assert_array_equal(distances, expected)


def coded_rows(vectors, metric):
    """Code rows as far as there are any that can be."""
    return ByteRows.of(RowAddresses.of(vectors), METRICS[metric]) if vectors.size else None


finite = st.floats(-1e3, 1e3, width=32) | st.sampled_from([0.0, 1.0, -1.0, 2.0])


@st.composite
def problems(draw, elements=finite):
    d = draw(st.integers(1, 20))
    vectors = draw(hnp.arrays(np.float32, (draw(st.integers(0, 40)), d), elements=elements))
    queries = draw(hnp.arrays(np.float32, (draw(st.integers(0, 5)), d), elements=elements))
    allowed = draw(st.none() | hnp.arrays(np.bool_, len(vectors)))
    return queries, vectors, draw(st.integers(0, 45)), allowed


@given(problems(), st.sampled_from(sorted(METRICS)))
@settings(max_examples=150, deadline=None)
def test_exact_search_is_brute_force(problem, metric):
    assert_exact(*problem[:3], metric, allowed=problem[3])


@given(
    problems(st.floats(width=32, allow_nan=False, allow_infinity=False)),
    st.sampled_from(sorted(METRICS)),
)
@settings(max_examples=150, deadline=None)
def test_exact_search_is_brute_force_up_to_the_limits_of_float32(problem, metric):
    assert_exact(*problem[:3], metric, allowed=problem[3])


@given(
    metric=st.sampled_from(sorted(METRICS)),
    shape=st.tuples(st.sampled_from([1, 15, 16, 17, 50]), st.sampled_from([31, 32, 33, 400])),
    queries=st.sampled_from([1, 2, 4, 7, brute_force.FEW, brute_force.FEW + 1]),
    k=st.sampled_from([1, 3, 30, 200]),
    lengths=st.tuples(*[st.sampled_from([-44, -38, -25, -12, -3, 0, 3, 12, 18])] * 2),
    scatter=st.sampled_from([0.0, 1.0, 6.0, 18.0]),
    away=st.sampled_from([0.0, 1.0, 1e4]),
    steps=st.sampled_from([0.0, 0.5]),
    share=st.sampled_from([None, 0.05, 0.9]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=300, deadline=None)
def test_rows_that_are_passed_over_many_at_once_are_too_far(
    metric, shape, queries, k, lengths, scatter, away, steps, share, seed
):
    """Of all lengths together or apart, near or far from the origin, in many a tie."""
    d, rows = shape
    generator = np.random.default_rng(seed)

    def drawn(count, length):
        drawn = generator.standard_normal((count, d)) + away
        if steps:
            drawn = np.round(drawn / steps) * steps
        drawn *= 10.0 ** (length + scatter * generator.random((count, 1)))
        return drawn.clip(-3e38, 3e38).astype(np.float32)

    allowed = None if share is None else generator.random(rows) < share
    assert_exact(drawn(queries, lengths[0]), drawn(rows, lengths[1]), k, metric, allowed)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("spread", [1.0, 1e-4])
def test_blocks_and_threads_change_nothing(metric, spread, monkeypatch):
    monkeypatch.setattr(nearest_in, "ROWS_WORTH_A_THREAD", 100)
    monkeypatch.setattr(brute_force, "QUERY_BLOCK", 7)
    monkeypatch.setattr(brute_force, "PRODUCT_BYTES", 1 << 10)
    generator = np.random.default_rng(0)
    # Far from the origin and close together: where float32 products tell nothing apart.
    vectors = (100 + spread * generator.standard_normal((1500, 24))).astype(np.float32)
    queries = (100 + spread * generator.standard_normal((20, 24))).astype(np.float32)
    for threads in (1, 3):
        for few in (0, brute_force.FEW):
            monkeypatch.setattr(brute_force, "FEW", few)
            assert_exact(queries, vectors, 10, metric, threads=threads)


@pytest.mark.parametrize("metric", METRICS)
def test_equal_vectors_are_answered_in_order_of_their_ids(metric):
    vectors = np.ones((500, 4), np.float32)
    ids, _ = brute_force.search(np.ones((2, 4), np.float32), vectors, 6, metric)
    np.testing.assert_array_equal(ids, [[0, 1, 2, 3, 4, 5]] * 2)


def test_masked_rows_are_not_answered_and_missing_answers_are_padded():
    vectors = np.arange(6, dtype=np.float32)[:, None]
    allowed = np.array([False, True, False, False, True, False])
    ids, distances = brute_force.search(
        np.zeros((1, 1), np.float32), vectors, 4, "l2", allowed=allowed
    )
    np.testing.assert_array_equal(ids, [[1, 4, -1, -1]])
    np.testing.assert_array_equal(distances, [[1, 4, np.inf, np.inf]])


def test_vectors_may_be_memory_mapped(tmp_path):
    vectors = np.random.default_rng(0).standard_normal((300, 9)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    expected = brute_force.search(vectors[:3], vectors, 4, "l2")
    found = brute_force.search(vectors[:3], mapped, 4, "l2")
    np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.parametrize(
    ("queries", "k", "allowed", "says"),
    [
        (np.zeros((1, 3), np.float32), 1, None, "do not fit"),
        (np.zeros(2, np.float32), 1, None, "do not fit"),
        (np.zeros((1, 2), np.float32), -1, None, "k is -1"),
        (np.zeros((1, 2), np.float32), 1, np.ones(4, bool), "mask of shape"),
    ],
)
def test_what_cannot_be_searched_is_refused(queries, k, allowed, says):
    with pytest.raises(QueryError, match=says):
        brute_force.search(queries, np.zeros((5, 2), np.float32), k, "l2", allowed=allowed)


def test_squares_that_are_kept_change_nothing(monkeypatch):
    """Those of the blocks that were looked at are known; the others are filled in."""
    monkeypatch.setattr(brute_force, "PRODUCT_BYTES", 1 << 10)
    generator = np.random.default_rng(3)
    vectors = generator.standard_normal((700, 24)).astype(np.float32)
    queries = generator.standard_normal((5, 24)).astype(np.float32)
    squares = brute_force.unknown_squares(len(vectors))
    few = np.arange(len(vectors)) < 100
    for allowed in (few, None, ~few):
        expected = by_sorting(queries, vectors, 10, "l2", allowed)
        found = brute_force.search(queries, vectors, 10, "l2", allowed=allowed, squares=squares)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])
        known = ~np.isnan(squares)
        assert known[:100].all()
        assert known.all() == (allowed is not few)
    np.testing.assert_allclose(squares, (vectors.astype(np.float64) ** 2).sum(axis=1))
