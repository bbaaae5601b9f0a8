"""Selected rows are compared as if they were an array of their own, and where they lie."""

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.exact import brute_force, compared_rows
from puffin_ann.ann.exact.byte_rows import ByteRows, size_of_codes
from puffin_ann.ann.exact.compared_rows import Coding
from puffin_ann.ann.exact.kernels_products import HAS_DOTS
from puffin_ann.ann.exact.row_addresses import RowAddresses
from puffin_ann.ann.signs import selected_rows, sign_rows
from puffin_ann.ann.signs.row_codes import RowCodes
from puffin_ann.ann.signs.selected_rows import (
    TELLING_QUERIES,
    WORTH_CODES,
    WORTH_SIGNS,
    SelectedRows,
    bytes_of,
)
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
    selected.prepare(1, 5)
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
    selected.prepare(1, 5)
    assert selected.codings(0) == (Coding.DONE, Coding.DONE)
    assert selected.size == bytes_of(len(rows), 64)
    assert rows.size < selected.size < 1.6 * rows.size


def test_without_products_of_bytes_they_are_copied(monkeypatch):
    monkeypatch.setattr(compared_rows, "HAS_DOTS", False)
    parts, order, rows = drawn(5, [400], 64)
    selected = SelectedRows(parts, METRICS["l2"], order)
    selected.prepare(1, 5)
    assert not is_coded(selected)
    assert bytes_of(len(rows), 64) == rows.nbytes
    assert selected.size == rows.nbytes + 8 * len(rows)
    assert_same(selected.nearest(rows[:2], 5), brute_force.search(rows[:2], rows, 5, "l2"))


def test_rows_that_no_codes_are_said_of_and_those_without_room_are_copied(monkeypatch):
    parts, order, rows = drawn(6, [100], 12)
    parts[0][0][:] *= np.float32(1e-30)
    selected = SelectedRows(parts, METRICS["l2"], order)
    selected.prepare(1, 5)
    assert not is_coded(selected)
    assert selected.codings(10**9) == (Coding.NEVER, Coding.NEVER)
    assert selected.size == (4 * 12 + 8) * len(rows)
    monkeypatch.setenv("PUFFIN_ANN_CODES_MAX_BYTES", "100")
    settings_of.cache_clear()
    parts, order, rows = drawn(6, [100], 12)
    assert bytes_of(len(rows), 12) == rows.nbytes
    selected = SelectedRows(parts, METRICS["l2"], order)
    selected.prepare(1, 5)
    assert not is_coded(selected)
    assert_same(selected.nearest(rows[:2], 5), brute_force.search(rows[:2], rows, 5, "l2"))


FORMS = {(True, False): "signs", (False, True): "codes", (True, True): "both"}


def form_of(selected):
    return FORMS[selected._signs is not None, selected._rows is not None]


@pytest.fixture
def few_are_many(monkeypatch):
    monkeypatch.setattr(sign_rows, "LEAST_NUMBERS", 500 * 96)
    monkeypatch.setattr(selected_rows, "ROWS_FOR_ONE", 64)


def asked_of(rows, count):
    return np.ascontiguousarray(rows[:count]) + np.float32(0.01)


@pytest.mark.usefixtures("few_are_many")
def test_few_queries_are_compared_by_signs_and_many_by_codes(monkeypatch):
    monkeypatch.setattr(selected_rows, "TELLING_ENOUGH", 1.0)
    parts, order, rows = drawn(7, [3000], 96)
    few, begin, known = sign_rows.FEW, sign_rows.FEW_TO_BEGIN, RowCodes(METRICS["l2"])
    for shared, queries, form in (
        (None, 1, "signs"),
        (None, few, "signs"),
        (None, few + 1, "codes"),
        (known, 1, "signs"),
        (known, begin, "signs"),
        (known, begin + 1, "codes"),
    ):
        selected = SelectedRows(parts, METRICS["l2"], order, shared)
        before, after = selected.codings(queries)
        selected.prepare(queries, 5)
        assert form_of(selected) == form
        assert before is Coding.LATER
        assert selected.codings(queries) == (after, after)
        ids, distances = selected.nearest(asked_of(rows, queries), 5)
        assert form_of(selected) == form
        assert ids[:, 0].tolist() == list(range(queries))
        expected = METRICS["l2"].pair_distances(asked_of(rows, queries), rows, ids)
        np.testing.assert_array_equal(distances, expected)


@pytest.mark.usefixtures("few_are_many")
def test_the_other_form_is_made_once_enough_have_asked_for_it(monkeypatch):
    monkeypatch.setattr(selected_rows, "TELLING", 1.0)
    parts, order, rows = drawn(8, [3000], 96)
    selected = SelectedRows(parts, METRICS["l2"], order)
    selected.nearest(asked_of(rows, sign_rows.FEW_TO_BEGIN + 1), 5)
    for _ in range(WORTH_SIGNS - 1):
        selected.nearest(asked_of(rows, 1), 5)
        assert form_of(selected) == "codes"
    size = selected.size
    assert selected.codings(1) == (Coding.LATER, Coding.SIGNS)
    selected.nearest(asked_of(rows, 1), 5)
    assert form_of(selected) == "both"
    assert selected.size == size <= bytes_of(3000, 96)

    selected = SelectedRows(parts, METRICS["l2"], order)
    selected.nearest(asked_of(rows, 1), 5)
    several = sign_rows.FEW + 1
    for _ in range((WORTH_CODES - 1) // several):
        selected.nearest(asked_of(rows, several), 5)
        assert form_of(selected) == "signs"
    selected.nearest(asked_of(rows, several), 5)
    assert form_of(selected) == "both"


@pytest.mark.usefixtures("few_are_many")
def test_more_neighbours_than_signs_are_made_for_are_found_by_codes():
    parts, order, rows = drawn(9, [3000], 96)
    selected = SelectedRows(parts, METRICS["l2"], order)
    for k in (len(rows) // 200, len(rows) // 2, len(rows) + 5):
        found = selected.nearest(asked_of(rows, 1), k)
        assert_same(found, brute_force.search(asked_of(rows, 1), rows, k, "l2"))
    assert form_of(selected) == "codes"


@pytest.mark.usefixtures("few_are_many")
def test_signs_that_leave_too_many_rows_to_be_measured_are_let_go(monkeypatch):
    parts, order, _ = drawn(10, [3000], 96)
    # Pairs of rows beside each other that are told apart by the last bits alone.
    parts[0][0][:] = np.sign(parts[0][0][:1]) * np.where(np.arange(3000) % 2, 1, -1)[:, None]
    parts[0][0][:, 0] += np.arange(3000, dtype=np.float32) * np.float32(1e-6)
    query = np.ones((1, 96), np.float32)
    monkeypatch.setattr(compared_rows, "_ROOM", type(compared_rows._ROOM)())
    selected = SelectedRows(parts, METRICS["l2"], order)
    for _ in range(TELLING_QUERIES):
        selected.prepare(1, 5)
        assert compared_rows._ROOM._taken == selected._bytes_of_signs()
        selected.nearest(query, 5)
    assert selected._signs is None
    assert compared_rows._ROOM.has(settings_of().codes_max_bytes)  # all of it
    rows = RowAddresses.of_some(parts, order).copied()
    assert_same(selected.nearest(query, 5), brute_force.search(query, rows, 5, "l2"))
    assert selected.codings(1)[1] is not Coding.SIGNS


@pytest.mark.usefixtures("few_are_many")
def test_a_query_too_long_for_signs_is_compared_otherwise():
    parts, order, rows = drawn(11, [3000], 96)
    selected = SelectedRows(parts, METRICS["l2"], order)
    query = np.full((1, 96), 1e17, np.float32)
    assert_same(selected.nearest(query, 5), brute_force.search(query, rows, 5, "l2"))


@pytest.mark.skipif(not HAS_DOTS, reason="rows are copied")
@pytest.mark.usefixtures("few_are_many")
def test_where_only_signs_have_room_whoever_signs_are_not_made_for_is_answered_exactly(monkeypatch):
    parts, order, rows = drawn(12, [3000], 96)
    room = sign_rows.size_of_signs(len(rows), 96) + 100
    monkeypatch.setenv("PUFFIN_ANN_CODES_MAX_BYTES", str(room))
    settings_of.cache_clear()
    gc.collect()
    monkeypatch.setattr(compared_rows, "_ROOM", type(compared_rows._ROOM)())
    selected = SelectedRows(parts, METRICS["l2"], order)
    selected.nearest(asked_of(rows, 1), 5)
    assert form_of(selected) == "signs"
    for _ in range(2):
        found = selected.nearest(asked_of(rows, WORTH_CODES), 5)
        assert_same(found, brute_force.search(asked_of(rows, WORTH_CODES), rows, 5, "l2"))
        assert form_of(selected) == "signs"
    monkeypatch.setattr(compared_rows, "_ROOM", type(compared_rows._ROOM)())
    selected.nearest(asked_of(rows, WORTH_CODES), 5)
    assert form_of(selected) == "signs"
    monkeypatch.setenv("PUFFIN_ANN_CODES_MAX_BYTES", str(1 << 30))
    settings_of.cache_clear()
    selected.nearest(asked_of(rows, WORTH_CODES), 5)
    assert form_of(selected) == "both"
    assert selected.size == bytes_of(len(rows), 96)


@pytest.mark.skipif(not HAS_DOTS, reason="rows are copied")
@pytest.mark.usefixtures("few_are_many")
def test_what_fits_before_rows_are_prepared_fits_after(monkeypatch):
    parts, order, rows = drawn(12, [3000], 96)
    room = size_of_codes(len(rows), 96) + 1000
    monkeypatch.setenv("PUFFIN_ANN_CODES_MAX_BYTES", str(room))
    settings_of.cache_clear()
    monkeypatch.setattr(compared_rows, "_ROOM", type(compared_rows._ROOM)())
    before = bytes_of(len(rows), 96)
    selected = SelectedRows(parts, METRICS["l2"], order)
    selected.prepare(1, 5)
    assert form_of(selected) == "signs"
    assert selected.size <= before


@pytest.mark.usefixtures("few_are_many")
def test_the_first_of_a_batch_tell_whether_shared_signs_are_worth_it(monkeypatch):
    parts, order, rows = drawn(7, [3000], 96)
    known, queries = RowCodes(METRICS["l2"]), asked_of(rows, 100)
    monkeypatch.setattr(selected_rows, "TELLING_ENOUGH", 1.0)
    selected = SelectedRows(parts, METRICS["l2"], order, known)
    ids, distances = selected.nearest(queries, 5)
    assert (form_of(selected), known.tell_enough) == ("signs", True)
    assert ids[:, 0].tolist() == list(range(100))
    np.testing.assert_array_equal(distances, METRICS["l2"].pair_distances(queries, rows, ids))

    monkeypatch.setattr(selected_rows, "TELLING_ENOUGH", 0.0)
    selected = SelectedRows(parts, METRICS["l2"], order, known)
    ids, _ = selected.nearest(queries, 5)
    assert (form_of(selected), known.tell_enough) == ("codes", False)
    expected = brute_force.search(queries, rows, 5, "l2")[0]
    np.testing.assert_array_equal(ids[TELLING_QUERIES:], expected[TELLING_QUERIES:])

    again = SelectedRows(parts, METRICS["l2"], order, known)
    again.nearest(queries, 5)
    assert (form_of(again), known.tell_enough) == ("codes", False)
    again = SelectedRows(parts, METRICS["l2"], order, known)
    monkeypatch.setattr(selected_rows, "TELLING_ENOUGH", 1.0)
    for _ in range(TELLING_QUERIES):
        again.nearest(queries[:1], 5)
    assert known.tell_enough


def test_threads_share_a_batch_that_takes_longer_than_to_have_them_look():
    assert sign_rows.threads_of(100_000, 1, 4) == 1
    assert sign_rows.threads_of(100_000, 100, 4) == 4
    assert sign_rows.threads_of(20_000, 1000, 4) == 1
    assert sign_rows.threads_of(1_000_000, 1, 4) == 4
    assert sign_rows.threads_of(10, 1, 4) == 1
