"""Selected rows are compared as if they were an array of their own, and where they lie."""

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.exact import brute_force, compared_rows, selected_rows
from puffin_ann.ann.exact.byte_rows import ByteRows
from puffin_ann.ann.exact.compared_rows import Coding
from puffin_ann.ann.exact.kernels_products import HAS_DOTS
from puffin_ann.ann.exact.row_addresses import RowAddresses
from puffin_ann.ann.exact.selected_rows import SelectedRows, bytes_of
from puffin_ann.settings import settings as settings_of


def drawn(seed, counts, dimension):
    """Draw rows of several arrays, which of them are selected, and in which order."""
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal((rows, dimension), dtype=np.float32) for rows in counts]
    chosen = [np.sort(rng.permutation(rows)[: rng.integers(rows + 1)]) for rows in counts]
    side_by_side = np.concatenate([array[some] for array, some in zip(arrays, chosen, strict=True)])
    order = rng.permutation(len(side_by_side))
    return list(zip(arrays, chosen, strict=True)), order, side_by_side[order]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@given(
    seed=st.integers(0, 2**32 - 1),
    counts=st.lists(st.sampled_from([0, 1, 16, 40, 300]), min_size=1, max_size=4),
    dimension=st.sampled_from([1, 4, 31, 100, 270]),
    metric=st.sampled_from(sorted(METRICS)),
    queries=st.sampled_from([1, 2, 9]),
    k=st.sampled_from([1, 5, 400]),
    threads=st.sampled_from([1, 2]),
)
@settings(max_examples=150, deadline=None)
def test_they_are_compared_as_an_array_of_their_own(
    seed, counts, dimension, metric, queries, k, threads
):
    parts, order, rows = drawn(seed, counts, dimension)
    np.testing.assert_array_equal(RowAddresses.of_some(parts, order).copied(), rows)
    asked = np.random.default_rng(seed + 1).standard_normal((queries, dimension), dtype=np.float32)
    selected = SelectedRows(parts, METRICS[metric], order)
    assert len(selected) == len(rows)
    expected = brute_force.search(asked, rows, k, metric)
    for _ in range(2):
        assert_same(selected.nearest(asked, k, threads=threads), expected)


def test_arrays_stay_as_long_as_they_are_selected():
    parts, order, rows = drawn(1, [300, 300], 50)
    selected = SelectedRows(parts, METRICS["l2"], order)
    queries = rows[:3] + np.float32(0.01)
    del parts
    gc.collect()
    np.full((600, 50), 7, np.float32)  # whatever else takes the memory
    assert_same(selected.nearest(queries, 5), brute_force.search(queries, rows, 5, "l2"))


def test_views_of_arrays_are_read_in_their_own_order():
    wide = np.random.default_rng(2).standard_normal((60, 40), dtype=np.float32)
    for view in (wide[:, 3:23], wide[::2], wide.T):
        expected = np.ascontiguousarray(view)[[1, 5, 2]]
        found = RowAddresses.of_some([(view, np.array([1, 5, 2]))]).copied()
        np.testing.assert_array_equal(found, expected)


def is_coded(selected):
    return isinstance(selected._rows, ByteRows)


@pytest.mark.skipif(not HAS_DOTS, reason="rows are copied")
def test_a_query_too_long_for_codes_is_compared_with_rows_as_they_are(monkeypatch):
    parts, order, rows = drawn(3, [100, 50], 12)
    query = np.full((1, 12), 3e37, np.float32)
    selected = SelectedRows(parts, METRICS["l2"], order)
    assert is_coded(selected)
    both = np.concatenate([query, rows[:1]])
    for at_once in (16 << 20, 12 * 4 * 7):
        monkeypatch.setattr(selected_rows, "COPIED_BYTES", at_once)
        for k in (1, 5, 400):
            for asked in (query, both):
                expected = brute_force.search(asked, rows, k, "l2")
                assert_same(selected.nearest(asked, k), expected)


@pytest.mark.skipif(not HAS_DOTS, reason="rows are copied")
def test_they_are_coded_at_once_and_take_a_byte_a_number():
    parts, order, rows = drawn(4, [4000], 64)
    selected = SelectedRows(parts, METRICS["l2"], order)
    assert selected.codings(0) == (Coding.DONE, Coding.DONE)
    assert selected.size == bytes_of(len(rows), 64)
    assert rows.size < selected.size < 1.6 * rows.size


def test_without_products_of_bytes_they_are_copied(monkeypatch):
    monkeypatch.setattr(compared_rows, "HAS_DOTS", False)
    parts, order, rows = drawn(5, [400], 64)
    selected = SelectedRows(parts, METRICS["l2"], order)
    assert not is_coded(selected)
    assert bytes_of(len(rows), 64) == rows.nbytes
    assert selected.size == rows.nbytes + 8 * len(rows)
    assert_same(selected.nearest(rows[:2], 5), brute_force.search(rows[:2], rows, 5, "l2"))


def test_rows_that_no_codes_are_said_of_and_those_without_room_are_copied(monkeypatch):
    parts, order, rows = drawn(6, [100], 12)
    parts[0][0][:] *= np.float32(1e-30)
    selected = SelectedRows(parts, METRICS["l2"], order)
    assert not is_coded(selected)
    assert selected.codings(10**9) == (Coding.NEVER, Coding.NEVER)
    assert selected.size == (4 * 12 + 8) * len(rows)
    monkeypatch.setenv("PUFFIN_ANN_CODES_MAX_BYTES", "100")
    settings_of.cache_clear()
    parts, order, rows = drawn(6, [100], 12)
    assert bytes_of(len(rows), 12) == rows.nbytes
    selected = SelectedRows(parts, METRICS["l2"], order)
    assert not is_coded(selected)
    assert_same(selected.nearest(rows[:2], 5), brute_force.search(rows[:2], rows, 5, "l2"))
