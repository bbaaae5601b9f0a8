"""Rows by a byte a number rule others out, and none that may be answered."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.exact import (
    brute_force,
    byte_rows,
    compared_rows,
    kernels_coding,
    nearest_in,
)
from puffin_ann.ann.exact.byte_rows import ByteRows, size_of_codes
from puffin_ann.ann.exact.compared_rows import WIDE, WORTH_CODING, Coding, ComparedRows
from puffin_ann.ann.exact.kernels_coding import BLOCK, DOUBT, STEP
from puffin_ann.ann.exact.kernels_products import HAS_DOTS
from puffin_ann.ann.exact.row_addresses import RowAddresses
from puffin_ann.ann.simd.kernels_byte_rows import MIDDLE
from puffin_ann.settings import settings as settings_of


def coded(vectors, metric="l2"):
    return ByteRows.of(RowAddresses.of(vectors), METRICS[metric])


def numbers_of(rows):
    """Undo the order of the codes: (n, d) what they say of each row."""
    blocks, groups, _ = rows.codes.shape
    codes = rows.codes.view(np.uint8).reshape(blocks, groups, BLOCK, 4)
    codes = codes.transpose(0, 2, 1, 3).reshape(blocks * BLOCK, 4 * groups)
    return (codes.astype(np.float64) - MIDDLE) * rows.sides[:, STEP].reshape(-1, 1)


@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 40), st.integers(1, 40)),
        elements=st.floats(-(2.0**55), 2.0**55, width=32),
    )
)
def test_a_row_is_no_farther_from_its_codes_than_its_doubt(vectors):
    rows = coded(vectors)
    if rows is None:  # one of them is too short for squares
        assert (np.square(vectors, dtype=np.float64).sum(axis=1) <= 1.1e-20).any()
        return
    said, (n, d) = numbers_of(rows), vectors.shape
    away = np.sqrt(((vectors - said[:n, :d]) ** 2).sum(axis=1))
    rounding = 1e-5 * np.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1))
    assert (away <= rows.sides[:, DOUBT].reshape(-1)[:n] + rounding).all()
    assert (rows.sides[:, DOUBT].reshape(-1)[:n] <= rows.doubt).all()
    assert not said[n:].any()
    assert not said[:, d:].any()


@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 12), st.integers(1, 40)),
        elements=st.floats(-(2.0**55), 2.0**55, width=32),
    )
)
def test_a_query_is_no_farther_from_its_codes_than_its_doubt(queries):
    many, d = queries.shape
    words = np.empty((many + 3, -(-d // 4)), np.uint32)
    known = np.empty((many + 3, kernels_coding.ASKED))
    kernels_coding.write_queries(queries, words, known)
    codes = words.view(np.int8).astype(np.float64)
    said = codes * known[:, kernels_coding.QUERY_STEP, None]
    away = np.sqrt(((queries - said[:many, :d]) ** 2).sum(axis=1))
    assert (away <= known[:many, kernels_coding.QUERY_DOUBT]).all()
    assert not said[:, d:].any()
    assert not said[many:].any()
    np.testing.assert_array_equal(known[:, kernels_coding.SUM], codes.sum(axis=1))


@pytest.mark.parametrize("number", [3e38, 1e-30])
def test_rows_too_long_or_short_to_be_summed_up_are_not_coded(number):
    assert coded(np.array([[number] * 3, [0] * 3, [1] * 3], np.float32)) is None
    assert coded(np.array([[0] * 3, [1] * 3], np.float32)) is not None


def test_a_query_that_is_too_long_is_compared_with_rows_as_they_are():
    rows = np.random.default_rng(0).standard_normal((100, 3), dtype=np.float32)
    query = np.full((1, 3), 3e37, np.float32)
    assert coded(rows).nearest(query, 5) is None
    for metric in METRICS:
        found = brute_force.search(query, rows, 5, metric, coded=coded(rows, metric))
        for one, other in zip(found, brute_force.search(query, rows, 5, metric), strict=True):
            np.testing.assert_array_equal(one, other)


@given(
    metric=st.sampled_from(sorted(METRICS)),
    shape=st.tuples(st.sampled_from([1, 15, 17, 300, 700]), st.sampled_from([1, 4, 31, 100, 257])),
    queries=st.sampled_from([1, 2, 3, 8, 9, 17]),
    k=st.sampled_from([1, 3, 30, 400]),
    lengths=st.tuples(*[st.sampled_from([-9, -3, 0, 3, 12])] * 2),
    scatter=st.sampled_from([0.0, 1.0, 6.0]),
    away=st.sampled_from([0.0, 1.0, 1e4]),
    steps=st.sampled_from([0.0, 0.5]),
    share=st.sampled_from([None, 0.02, 0.6]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=400, deadline=None)
def test_answers_by_codes_are_those_without(
    metric, shape, queries, k, lengths, scatter, away, steps, share, seed
):
    """Rows alike or far apart in length, in clusters, doubled, or on a lattice where many tie."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal(shape) + away
    rows *= 10.0 ** (rng.uniform(-scatter, scatter, (len(rows), 1)) / 2 + lengths[0])
    asked = rng.standard_normal((queries, shape[1])) * 10.0 ** lengths[1]
    asked[::2] = rows[rng.integers(len(rows), size=len(asked[::2]))] * (1 + 1e-6)
    if steps:
        rows, asked = (np.round(some / steps) * steps for some in (rows, asked))
    rows[rng.integers(len(rows))] = rows[0]
    rows, asked = rows.astype(np.float32), asked.astype(np.float32)
    allowed = None if share is None else rng.random(len(rows)) < share
    expected = brute_force.search(asked, rows, k, metric, allowed=allowed)
    for threads in (1, 2):
        found = brute_force.search(
            asked, rows, k, metric, allowed=allowed, coded=coded(rows, metric), threads=threads
        )
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_more_queries_than_are_compared_in_one_go_by_several_threads(monkeypatch):
    monkeypatch.setattr(byte_rows, "AT_ONCE", 16)
    monkeypatch.setattr(byte_rows, "NOTED", 16)
    monkeypatch.setattr(nearest_in, "ROWS_WORTH_A_THREAD", 100)
    rng = np.random.default_rng(3)
    rows, queries = (rng.standard_normal((n, 20), dtype=np.float32) for n in (999, 83))
    found = brute_force.search(queries, rows, 7, "l2", coded=coded(rows), threads=3)
    for one, other in zip(found, brute_force.search(queries, rows, 7, "l2"), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture
def used(monkeypatch):
    """Note of each search whether it read codes."""
    noted, search = [], brute_force.search

    def note(*arguments, coded=None, **options):
        noted.append(coded is not None)
        return search(*arguments, coded=coded, **options)

    monkeypatch.setattr(compared_rows.brute_force, "search", note)
    return noted


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_rows_that_are_compared_again_and_again_are_coded_and_the_answers_stay(metric, used):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((3000, WIDE + 3), dtype=np.float32)
    rows[1000] = rows[2000]
    queries = rows[[1000, 5]] + np.float32(1e-3)
    compared = ComparedRows(rows, METRICS[metric])
    expected = brute_force.search(queries, rows, 10, metric)
    used.clear()
    for _ in range(WORTH_CODING):
        found = compared.nearest(queries, 10)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    assert used == [False] * (WORTH_CODING // 2) + [True] * (WORTH_CODING // 2)
    held = compared._coded
    assert compared.size == sum(
        array.nbytes for array in (compared._squares, held.codes, held.sides, held.rows.starts)
    )
    assert size_of_codes(*rows.shape) == held.size


def test_of_masks_that_come_again_what_was_made_is_of_each_alone(monkeypatch):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((3000, WIDE), dtype=np.float32)
    queries = rows[:2] + np.float32(1e-3)
    compared, made = ComparedRows(rows, METRICS["l2"]), []
    bits_of = compared_rows.bits_of
    monkeypatch.setattr(compared_rows, "bits_of", lambda rows: made.append(1) or bits_of(rows))
    for _ in range(WORTH_CODING):
        compared.nearest(queries, 1)
    for number in range(20):
        excluded = (rng.random(len(rows)) < number / 20).view(np.uint8)
        expected = brute_force.search(queries, rows, 10, "l2", allowed=excluded == 0)
        for _ in range(2):
            found = compared.nearest(queries, 10, excluded=excluded)
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other)
    assert len(made) == 20


@pytest.mark.skipif(not HAS_DOTS, reason="bytes are multiplied as floats")
def test_a_large_batch_has_rows_coded_at_once(used):
    rows = np.random.default_rng(1).standard_normal((300, 10), dtype=np.float32)
    ComparedRows(rows, METRICS["l2"]).nearest(rows[:100], 3)
    assert used == [True]


def test_without_products_of_bytes_many_queries_and_narrow_rows_are_compared_as_they_are(
    used, monkeypatch
):
    monkeypatch.setattr(compared_rows, "HAS_DOTS", False)
    rows = np.random.default_rng(1).standard_normal((300, WIDE), dtype=np.float32)
    narrow, wide = (
        ComparedRows(rows[:, 1:].copy(), METRICS["l2"]),
        ComparedRows(rows, METRICS["l2"]),
    )
    for _ in range(2 * WORTH_CODING):
        narrow.nearest(rows[:1, 1:].copy(), 1)
    wide.nearest(rows[:100], 1)
    assert not any(used)
    assert narrow.size == 8 * len(rows)
    for _ in range(2 * WORTH_CODING):
        wide.nearest(rows[:1], 1)
    assert used[-1]
    wide.nearest(rows[:100], 1)
    assert not used[-1]


def test_codes_take_no_more_memory_than_they_may(used, monkeypatch):
    monkeypatch.setenv("PUFFIN_ANN_CODES_MAX_BYTES", str(2 * size_of_codes(50, WIDE)))
    settings_of.cache_clear()
    monkeypatch.setattr(compared_rows, "_ROOM", compared_rows._Room())
    rows = np.random.default_rng(0).standard_normal((50, WIDE), dtype=np.float32)
    several = [ComparedRows(rows, METRICS["l2"]) for _ in range(3)]
    for compared in several:
        for _ in range(2 * WORTH_CODING):
            compared.nearest(rows[:1], 1)
    assert [one.coding for one in several] == [Coding.DONE, Coding.DONE, Coding.NEVER]
    del several[0], compared
    later = ComparedRows(rows, METRICS["l2"])
    assert later.coding is Coding.LATER
    for _ in range(2 * WORTH_CODING):
        later.nearest(rows[:1], 1)
    assert later.coding is Coding.DONE


def test_rows_that_cannot_be_coded_are_compared_as_they_are(used, monkeypatch):
    rows = np.zeros((50, WIDE), np.float32)
    rows[3] = 1e-30
    monkeypatch.setattr(compared_rows, "_ROOM", room := compared_rows._Room())
    compared = ComparedRows(rows, METRICS["l2"])
    for _ in range(2 * WORTH_CODING):
        compared.nearest(rows[:1], 1)
    assert not any(used)
    room.take(0, room)  # what was given back is counted when others are taken
    assert (compared.size, room._taken) == (8 * len(rows), 0)


def test_room_is_given_back_while_the_same_thread_takes_some(monkeypatch):
    """Python may let go of an owner at any moment."""
    room, settings_before = compared_rows._Room(), compared_rows.settings
    owners = [compared_rows._Room()]
    assert room.take(settings_before().codes_max_bytes, owners[0]) is not None

    def settings_that_let_go():
        owners.clear()
        return settings_before()

    monkeypatch.setattr(compared_rows, "settings", settings_that_let_go)
    assert room.take(1, room) is None
    assert not owners
    assert room.take(1, room) is not None
    assert room._taken == 1


@given(
    metric=st.sampled_from(sorted(METRICS)),
    rows=st.sampled_from([1, 17, 300]),
    k=st.sampled_from([1, 5, 20]),
    near=st.integers(0, 40),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=100, deadline=None)
def test_rows_no_farther_than_is_wanted_are_all_found(metric, rows, k, near, seed):
    """The limit is a row's own distance, or one beside it: rows that tie with it must stay."""
    rng = np.random.default_rng(seed)
    vectors = np.round(rng.standard_normal((rows, 12)) * 4).astype(np.float32) / 4 + 1
    queries = np.round(rng.standard_normal((9, 12)) * 4).astype(np.float32) / 4 + 1
    expected = brute_force.search(queries, vectors, k, metric)
    all_near = brute_force.search(queries, vectors, rows, metric)[1]
    within = all_near[:, min(near, rows - 1)]
    within[::2] = np.nextafter(within[::2], np.float32(-np.inf))
    found = brute_force.search(
        queries, vectors, k, metric, coded=coded(vectors, metric), within=within
    )
    wanted = expected[1] <= within[:, None]
    np.testing.assert_array_equal(found[0][wanted], expected[0][wanted])
    np.testing.assert_array_equal(found[1][wanted], expected[1][wanted])
    others = ~wanted & (found[0] >= 0)
    assert (found[1][others] >= within.repeat(k).reshape(-1, k)[others]).all()


@pytest.mark.parametrize("within", [3.0, 1e30, 3e38])
def test_a_limit_beyond_all_distances_leaves_none_out(within):
    rows = np.random.default_rng(0).standard_normal((17, 12), dtype=np.float32)
    rows[16] = 0.0
    queries = rows[:3] * np.float32(1e10)
    near = np.full(3, within, np.float32)
    found = brute_force.search(
        queries, rows, 17, "cosine", coded=coded(rows, "cosine"), within=near
    )
    for one, other in zip(found, brute_force.search(queries, rows, 17, "cosine"), strict=True):
        np.testing.assert_array_equal(one, other)


def test_rows_of_more_numbers_than_sums_have_room_for_are_not_coded():
    rows = np.ones((1, compared_rows.MOST_NUMBERS + 1), np.float32)
    assert ComparedRows(rows, METRICS["l2"]).coding is Coding.NEVER
