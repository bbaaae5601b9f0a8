"""Rows by a byte a number rule others out, and none that may be answered."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from puffin_ann.ann.core import compared_rows, exact
from puffin_ann.ann.core.byte_rows import MOST_QUERIES, WIDE, ByteRows
from puffin_ann.ann.core.compared_rows import WORTH_CODING, ComparedRows
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.simd.kernels_byte_rows import MIDDLE


@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 6), st.integers(1, 40)),
        elements=st.floats(-(2.0**60), 2.0**60, width=32),
    )
)
def test_a_row_is_no_farther_from_its_codes_than_its_doubt(vectors):
    coded = ByteRows.of(vectors)
    numbers = coded.codes[:, : vectors.shape[1]].astype(np.float64) - MIDDLE
    said = numbers * coded.steps[:, None].astype(np.float64)
    away = np.sqrt(((vectors - said) ** 2).sum(axis=1))
    rounding = 1e-5 * np.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1))
    assert (away <= coded.doubts + rounding).all()
    assert (coded.codes[:, vectors.shape[1] :] == MIDDLE).all()


def test_of_a_row_too_long_or_short_to_be_summed_up_nothing_is_told():
    coded = ByteRows.of(np.array([[3e38] * 3, [1e-30] * 3, [0] * 3, [1] * 3], np.float32))
    assert np.isinf(coded.doubts).tolist() == [True, True, False, False]


@pytest.mark.parametrize("metric", sorted(METRICS))
@pytest.mark.parametrize("length", [0.0, 1e-30, 1.0])
def test_rows_of_which_nothing_is_told_are_measured_whatever_the_query(metric, length):
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((256, 64), dtype=np.float32)
    rows[200], rows[17] = 1e-12, 0.0
    query = (length * rng.standard_normal((1, 64))).astype(np.float32)
    found = exact.search(query, rows, 3, metric, coded=ByteRows.of(rows))
    expected = exact.search(query, rows, 3, metric)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_rows_that_are_compared_again_and_again_are_coded_and_the_answers_stay(metric, monkeypatch):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((3000, WIDE + 3), dtype=np.float32)
    rows[1000] = rows[2000]
    queries = rows[[1000, 5]] + np.float32(1e-3)
    compared, used = ComparedRows(rows), []
    search = exact.search

    def noted(*arguments, coded=None, **options):
        used.append(coded is not None)
        return search(*arguments, coded=coded, **options)

    monkeypatch.setattr(compared_rows.exact, "search", noted)
    expected = search(queries, rows, 10, metric)
    for _ in range(WORTH_CODING + 3):
        found = compared.nearest(queries, 10, METRICS[metric], 1)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])
    assert used == [False] * WORTH_CODING + [True] * 3
    compared.nearest(np.repeat(queries, MOST_QUERIES, axis=0), 10, METRICS[metric], 1)
    assert not used[-1]
    held = compared._coded
    assert compared.size == sum(
        array.nbytes for array in (rows, compared._squares, held.codes, held.steps, held.doubts)
    )


def test_narrow_rows_are_not_coded():
    rows = np.ones((50, WIDE - 1), np.float32)
    compared = ComparedRows(rows)
    for _ in range(2 * WORTH_CODING):
        compared.nearest(rows[:1], 1, METRICS["l2"], 1)
    assert compared._coded is None
    assert compared.size == rows.nbytes + 8 * len(rows)
