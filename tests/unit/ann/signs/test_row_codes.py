"""Rows of arrays are coded once, whatever is selected of them and however often."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.exact import brute_force, compared_rows
from puffin_ann.ann.exact.row_addresses import RowAddresses
from puffin_ann.ann.signs import row_codes
from puffin_ann.ann.signs.row_codes import RowCodes, record_bytes, record_rows
from puffin_ann.ann.signs.selected_rows import TELLING_QUERIES, SelectedRows
from puffin_ann.ann.signs.sign_rows import SignRows
from puffin_ann.settings import settings as settings_of


def drawn(seed, counts, dimension):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((rows, dimension), dtype=np.float32) for rows in counts]


def selected(seed, arrays):
    """Select some rows of each array, and put all in some order."""
    rng = np.random.default_rng(seed)
    parts = [
        (array, np.sort(rng.permutation(len(array))[: rng.integers(len(array) + 1)]))
        for array in arrays
    ]
    order = rng.permutation(sum(len(some) for _, some in parts))
    rows = np.concatenate([array[some] for array, some in parts])[order]
    return RowAddresses.of_some(parts, order), rows


def bytes_at(records):
    """Return what the records are, each a line."""
    size = record_bytes(len(records.frame.origin))
    found = []
    for start in records.starts.tolist():
        held = next(h for h in records.held if 0 <= start - h.ctypes.data < h.nbytes)
        found.append(held[start - held.ctypes.data :][:size].copy())
    return np.array(found, np.uint8).reshape(-1, size)


@pytest.fixture
def room(monkeypatch):
    """Sets the bytes that codes may take, of which none is taken yet."""
    monkeypatch.setattr(compared_rows, "_ROOM", compared_rows._Room())

    def allow(size):
        monkeypatch.setenv("PUFFIN_ANN_CODES_MAX_BYTES", str(size))
        settings_of.cache_clear()

    yield allow
    monkeypatch.undo()
    settings_of.cache_clear()


@pytest.fixture
def coded(monkeypatch):
    """How many rows were coded, each time."""
    found, code_rows = [], row_codes.code_rows

    def note(metric, starts, *others):
        found.append(len(starts))
        code_rows(metric, starts, *others)

    monkeypatch.setattr(row_codes, "code_rows", note)
    return found


@given(
    seed=st.integers(0, 2**32 - 1),
    counts=st.lists(st.sampled_from([0, 1, 33, 300]), min_size=1, max_size=4).filter(any),
    dimension=st.sampled_from([80, 100, 250, 384]),
    metric=st.sampled_from(sorted(METRICS)),
)
@settings(max_examples=60, deadline=None)
def test_records_are_those_made_anew_in_the_same_frame(seed, counts, dimension, metric):
    arrays, codes = drawn(seed, counts, dimension), RowCodes(METRICS[metric])
    for again in range(3):
        some, _ = selected(seed + again, arrays)
        if not len(some):
            continue
        found = codes.records_of(some)
        anew = record_rows(some, METRICS[metric], found.frame)
        np.testing.assert_array_equal(bytes_at(found), bytes_at(anew))


@given(
    seed=st.integers(0, 2**32 - 1),
    dimension=st.sampled_from([80, 100, 384]),
    metric=st.sampled_from(sorted(METRICS)),
    k=st.sampled_from([1, 5, 40]),
    threads=st.sampled_from([1, 2]),
)
@settings(max_examples=40, deadline=None)
def test_selections_are_compared_as_arrays_of_their_own(seed, dimension, metric, k, threads):
    arrays, codes = drawn(seed, [900, 0, 700], dimension), RowCodes(METRICS[metric])
    queries = drawn(seed + 9, [40], dimension)[0]
    for again in range(3):
        some, rows = selected(seed + again, arrays)
        if not len(some):
            continue
        signs = SignRows.of(some, METRICS[metric], codes.records_of(some))
        (ids, distances), _ = signs.nearest(queries, k, threads=threads)
        many = min(k, len(rows))
        assert all(len(set(each)) == many for each in ids[:, :many].tolist())
        np.testing.assert_array_equal(
            distances[:, :many], METRICS[metric].pair_distances(queries, rows, ids[:, :many])
        )
        expected = brute_force.search(queries, rows, many, metric)[1]
        assert np.mean(distances[:, :many] <= expected[:, -1:]) > 0.9


def test_each_row_is_coded_once(coded):
    arrays, codes = drawn(1, [500, 400], 100), RowCodes(METRICS["l2"])
    assert codes.share == 0.0
    first = [(arrays[0], np.arange(0, 500, 2)), (arrays[1], np.arange(0, 400, 4))]
    codes.records_of(RowAddresses.of_some(first))
    assert sorted(coded) == [100, 250]  # in the order in which the arrays lie in memory
    assert codes.share == pytest.approx(350 / 900)
    codes.records_of(RowAddresses.of_some(first[:1]))
    assert sum(coded) == 350
    codes.records_of(RowAddresses.of_some([(array, np.arange(len(array))) for array in arrays]))
    assert sum(coded) == 900
    assert codes.share == 1.0
    codes.records_of(RowAddresses.of_some(first))
    assert sum(coded) == 900


def test_threads_that_select_at_once_code_each_row_once(coded):
    arrays, codes = drawn(2, [3000, 2000], 128), RowCodes(METRICS["cosine"])
    selections = [selected(seed, arrays)[0] for seed in range(16)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(codes.records_of, selections))
    assert sum(coded) == 5000 - round((1 - codes.share) * 5000)
    for some, records in zip(selections, found, strict=True):
        anew = record_rows(some, METRICS["cosine"], records.frame)
        np.testing.assert_array_equal(bytes_at(records), bytes_at(anew))


def test_there_are_records_of_all_rows_of_the_arrays_or_of_none(room):
    arrays, codes = drawn(3, [500], 100), RowCodes(METRICS["l2"])
    some, _ = selected(3, arrays)
    most = 4 * 500 * (record_bytes(100) + 1)
    room(most - 1)
    assert codes.records_of(some) is None
    assert codes.share == 0.0
    room(most)
    assert codes.records_of(some) is not None


def test_records_leave_other_codes_three_quarters_of_the_room(room, monkeypatch):
    arrays = drawn(6, [2000] * 8, 128)
    room(4 * 8 * 2000 * (record_bytes(128) + 1) - 1)
    monkeypatch.setattr("puffin_ann.ann.signs.sign_rows.LEAST_NUMBERS", 1)
    codes, kept = RowCodes(METRICS["l2"]), []
    for first in range(4):
        parts = [(array, np.arange(first, 2000, 4)) for array in arrays]
        kept.append(SelectedRows(parts, METRICS["l2"], known=codes))
        kept[-1].nearest(arrays[0][:1], 10)
        assert kept[-1]._signs is not None  # of rows by themselves: all together are too many
        assert kept[-1]._known is None
    assert codes.share == 0.0


def test_the_frame_is_that_of_all_arrays_whichever_are_selected_first():
    arrays = [array + 40 * number for number, array in enumerate(drawn(7, [900, 900, 900], 96))]
    codes = RowCodes(METRICS["l2"], lambda: arrays)
    records = codes.records_of(RowAddresses.of_some([(arrays[0], np.arange(5))]))
    middle = np.concatenate(arrays).mean(axis=0)
    assert np.abs(records.frame.origin[:96] - middle).max() < 1.0


def test_long_rows_that_are_not_selected_leave_signs_of_the_others(monkeypatch):
    monkeypatch.setattr("puffin_ann.ann.signs.sign_rows.LEAST_NUMBERS", 1)
    (rows,) = drawn(8, [16_000], 96)
    rows[8000:] *= np.float32(1e14)
    some = SelectedRows([(rows, np.arange(8000))], METRICS["l2"], known=RowCodes(METRICS["l2"]))
    for query in rows[:8000:1600]:
        assert some.nearest(query[None], 1)[1] == 0.0
    assert some._signs is not None


def test_records_outlive_the_array_and_what_made_them():
    arrays, codes = drawn(4, [40], 100), RowCodes(METRICS["l2"])
    some, _ = selected(4, arrays)
    records = codes.records_of(some)
    before = bytes_at(records)
    del codes, arrays
    np.full((40, 100), 7, np.float32)  # whatever else takes the memory
    np.testing.assert_array_equal(bytes_at(records), before)


def test_rows_that_lie_together_are_coded_relative_to_their_own_middle(monkeypatch):
    """From the middle of all rows those of one of two heaps far apart look alike."""
    monkeypatch.setattr("puffin_ann.ann.signs.sign_rows.LEAST_NUMBERS", 1)
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((8000, 96), dtype=np.float32)
    rows[4000:] += 3000
    rows[:4000] -= 3000
    codes, here = RowCodes(METRICS["l2"]), np.arange(4000)
    heap = SelectedRows([(rows, here)], METRICS["l2"], known=codes)
    queries = rng.standard_normal((2 * TELLING_QUERIES, 96), dtype=np.float32) - 3000
    expected = brute_force.search(queries, rows[:4000], 1, "l2")[1]
    for query, distance in zip(queries, expected, strict=True):
        assert heap.nearest(query[None], 1)[1] == distance
    assert heap._known is None
    assert heap._signs is not None
    _, measured = heap._signs.nearest(queries[:1], 1)
    assert measured < 400
