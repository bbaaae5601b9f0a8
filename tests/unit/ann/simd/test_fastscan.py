"""Sums of 4-bit codes on every level this machine has, against NumPy."""

import numpy as np
import pytest
from numba import njit

from puffin_ann.ann.simd import fastscan
from puffin_ann.ann.simd.vectors import F32X16, LEVEL, store_of

store = store_of(F32X16)
LEVELS = {"vbmi": ["vbmi", "avx2", "portable"], "avx2": ["avx2", "portable"]}
HERE = LEVELS.get(LEVEL, ["portable"])


def scan_by(sums):
    """Return a scan of all blocks by the tables of one query."""

    @njit
    def scan(codes, blocks, tables, groups, out):
        for b in range(np.uint64(blocks)):
            first, second = sums(codes, b * groups * 64, tables, groups)
            store(out, b * 32, first)
            store(out, b * 32 + 16, second)

    return scan


def scan_of_two_by(sums):
    """Return a scan of all blocks by the tables of two queries."""

    @njit
    def scan(codes, blocks, one, two, groups, out):
        for b in range(np.uint64(blocks)):
            found = sums(codes, b * groups * 64, one, two, groups)
            for i in range(4):
                store(out, b * 64 + 16 * i, found[i])

    return scan


SCANS = {level: scan_by(fastscan.SUMS[level]) for level in HERE}
SCANS_OF_TWO = {level: scan_of_two_by(fastscan.SUMS_OF_TWO[level]) for level in HERE}


@pytest.mark.parametrize("level", HERE)
@pytest.mark.parametrize("count", [1, 4, 50, 257, 300, 1024])
@pytest.mark.parametrize("greatest", [True, False])
def test_sums_of_chosen_bytes_are_exact_on_every_level(level, count, greatest):
    random = np.random.default_rng(count)
    codes = random.integers(0, 16, (70, count)).astype(np.uint8)
    tables = random.integers(0, 256, (count, 16)).astype(np.uint8)
    if greatest:
        tables[:] = 255
    packed = fastscan.pack(codes, fastscan.ORDERS[level])
    blocks, groups, _ = packed.shape
    room = np.zeros(groups * 64, np.uint8)
    room[: tables.size] = tables.reshape(-1)
    out = np.empty(blocks * 32, np.float32)
    SCANS[level](packed.reshape(-1), blocks, room, np.uint64(groups), out)
    wanted = tables[np.arange(count), codes].sum(axis=1, dtype=np.int64)
    np.testing.assert_array_equal(out[:70], wanted)


@pytest.mark.parametrize("level", HERE)
@pytest.mark.parametrize("count", [1, 8, 50, 260, 1024])
def test_sums_for_two_queries_are_those_of_each(level, count):
    random = np.random.default_rng(count)
    codes = random.integers(0, 16, (70, count)).astype(np.uint8)
    tables = random.integers(0, 256, (2, count, 16)).astype(np.uint8)
    tables[0, count // 2 :] = 255
    packed = fastscan.pack(codes, fastscan.ORDERS[level])
    blocks, groups, _ = packed.shape
    room = np.zeros((2, groups * 64), np.uint8)
    room[:, : 16 * count] = tables.reshape(2, -1)
    out = np.empty((blocks, 2, 32), np.float32)
    flat = packed.reshape(-1)
    SCANS_OF_TWO[level](flat, blocks, room[0], room[1], np.uint64(groups), out.reshape(-1))
    for query in range(2):
        wanted = tables[query, np.arange(count), codes].sum(axis=1, dtype=np.int64)
        np.testing.assert_array_equal(out[:, query].reshape(-1)[:70], wanted)


@njit
def make_tables(query, words, width, offsets, count, floats, tables):
    return fastscan.quantise_tables(query, words, width, offsets, count, floats, tables)


def test_tables_in_bytes_give_products_within_half_a_step_a_code():
    random = np.random.default_rng(5)
    offsets = np.array([0, 3, 6, 8], np.uint32)
    words = np.zeros((3, 3, 16), np.float32)
    for j, width in enumerate(np.diff(offsets)):
        words[j, :width] = random.standard_normal((width, 16))
    query = np.zeros(11, np.float32)
    query[:8] = random.standard_normal(8)
    floats, tables = np.empty(48, np.float32), np.zeros(64, np.uint8)
    scale, shift = make_tables(query, words.reshape(-1), 3, offsets, 3, floats, tables)
    codes = random.integers(0, 16, (200, 3))
    got = shift + scale * tables[:48].reshape(3, 16)[np.arange(3), codes].sum(axis=1)
    products = [
        sum(query[offsets[j] : offsets[j] + 3] @ words[j, :, row[j]] for j in range(3))
        for row in codes
    ]
    np.testing.assert_allclose(got, -2 * np.array(products), atol=1.5 * scale + 1e-5)
    assert tables[48:].max() == 0
    assert tables[:48].max() == 255


def test_tables_of_a_zero_query_are_zero():
    floats, tables = np.empty(16, np.float32), np.full(64, 7, np.uint8)
    words = np.ones(16, np.float32)
    scale, shift = make_tables(
        np.zeros(2, np.float32), words, 1, np.array([0, 1], np.uint32), 1, floats, tables
    )
    assert not tables[:16].any()
    assert np.isfinite(scale)
    assert shift == 0
