"""Vector operations in kernels against the same in NumPy."""

import numpy as np
import pytest
from numba import njit

from puffin_ann.ann.simd.vectors import (
    F32X16,
    LEVEL,
    U8X16,
    U8X32,
    U8X64,
    U16X8,
    U16X16,
    U32X16,
    add,
    add_dot_of_bytes,
    add_saturating,
    bit_count,
    both,
    bytes_of,
    either,
    fill_of,
    floats_of,
    greatest_of,
    interleaved_to,
    least_of,
    left_by,
    less_mask,
    load_of,
    look_up_16,
    look_up_64,
    look_up_halves,
    lowest_bit,
    multiply_add,
    part_of,
    prefetch,
    right_by,
    store_of,
    subtract,
    sum_of,
    where_less,
    widened_to,
)

load_b16, load_b32, load_b64 = load_of(U8X16), load_of(U8X32), load_of(U8X64)
store_b16, store_b32, store_b64 = store_of(U8X16), store_of(U8X32), store_of(U8X64)
load_f, store_f = load_of(F32X16), store_of(F32X16)
load_w, store_w = load_of(U32X16), store_of(U32X16)
store_h = store_of(U16X16)
fill_b, fill_f = fill_of(U8X16), fill_of(F32X16)
widen, as_floats, as_bytes = widened_to(U16X16), floats_of(F32X16), bytes_of(U8X16)
low, high, interleave = part_of(U16X8, 0), part_of(U16X8, 8), interleaved_to(U16X16)
right4, left4 = right_by(4), left_by(4)
RANDOM = np.random.default_rng(3)


@njit
def byte_arithmetic(x, y, out):
    a, b = load_b16(x, np.uint64(0)), load_b16(y, np.uint64(0))
    store_b16(out, np.uint64(0), add(a, b))
    store_b16(out, np.uint64(16), subtract(a, b))
    store_b16(out, np.uint64(32), both(a, b))
    store_b16(out, np.uint64(48), either(a, b))
    store_b16(out, np.uint64(64), add_saturating(a, b))
    store_b16(out, np.uint64(80), right4(a))
    store_b16(out, np.uint64(96), left4(a))
    store_b16(out, np.uint64(112), fill_b(300 & 255))


def test_bytes_wrap_saturate_and_shift_as_numpys_do():
    x, y = RANDOM.integers(0, 256, (2, 16)).astype(np.uint8)
    out = np.zeros(128, np.uint8)
    byte_arithmetic(x, y, out)
    saturated = np.minimum(x.astype(int) + y, 255).astype(np.uint8)
    wanted = [
        x + y,
        x - y,
        x & y,
        x | y,
        saturated,
        x >> 4,
        x << 4,
        np.full(16, 44, np.uint8),
    ]
    np.testing.assert_array_equal(out.reshape(8, 16), wanted)


@njit
def float_arithmetic(x, y, z, out):
    a, b, c = load_f(x, np.uint64(1)), load_f(y, np.uint64(0)), load_f(z, np.uint64(0))
    prefetch(x, np.uint64(10**9))
    store_f(out, np.uint64(0), multiply_add(a, b, c))
    store_f(out, np.uint64(16), subtract(a, fill_f(2)))
    return sum_of(a), least_of(a), greatest_of(a), less_mask(a, b)


def test_floats_are_loaded_from_any_offset_and_reduced():
    x, y, z = RANDOM.standard_normal((3, 17)).astype(np.float32)
    y[3] = np.nan
    out = np.zeros(32, np.float32)
    total, least, greatest, mask = float_arithmetic(x, y, z, out)
    a = x[1:]
    np.testing.assert_allclose(out[:16], a * y[:16] + z[:16], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(out[16:], a - 2)
    assert total == pytest.approx(a.sum(), rel=1e-5)
    assert (least, greatest) == (a.min(), a.max())
    assert mask == sum(1 << i for i in range(16) if a[i] < y[i])


@njit
def chosen_by_floats(x, y, one, other, out):
    less = where_less(
        load_f(x, np.uint64(0)),
        load_f(y, np.uint64(0)),
        load_w(one, np.uint64(0)),
        load_w(other, np.uint64(0)),
    )
    store_w(out, np.uint64(0), less)


def test_lanes_are_chosen_by_another_comparison():
    x, y = RANDOM.integers(-2, 3, (2, 16)).astype(np.float32)
    y[3] = np.nan
    one, other = RANDOM.integers(0, 1 << 32, (2, 16), dtype=np.uint32)
    out = np.zeros(16, np.uint32)
    chosen_by_floats(x, y, one, other, out)
    assert out.tolist() == np.where(x < y, one, other).tolist()


@njit
def changes(x, out, floats, narrow):
    wide = widen(load_b16(x, np.uint64(0)))
    store_h(out, np.uint64(0), wide)
    store_h(out, np.uint64(16), interleave(low(wide), high(wide)))
    lanes = as_floats(load_w(x, np.uint64(0)))
    store_f(floats, np.uint64(0), lanes)
    store_b16(narrow, np.uint64(0), as_bytes(load_f(floats, np.uint64(16))))


def test_lanes_are_widened_interleaved_converted_and_cut():
    words = RANDOM.integers(0, 2**31, 16).astype(np.uint32)
    x = words.view(np.uint8)
    out, narrow = np.zeros(32, np.uint16), np.zeros(16, np.uint8)
    floats = np.concatenate([np.zeros(16), np.linspace(0, 255.9, 16)]).astype(np.float32)
    changes(x, out, floats, narrow)
    first = x[:16].astype(np.uint16)
    np.testing.assert_array_equal(out[:16], first)
    np.testing.assert_array_equal(out[16:], first.reshape(2, 8).T.reshape(-1))
    np.testing.assert_array_equal(floats[:16], words.astype(np.float32))
    np.testing.assert_array_equal(narrow, floats[16:].astype(np.uint8))


@njit
def bits(mask):
    return lowest_bit(mask), bit_count(mask)


@pytest.mark.parametrize("mask", [1, 1 << 63, 0b1011000])
def test_bits_of_a_mask_are_found_and_counted(mask):
    found = bits(np.uint64(mask))
    assert found == ((mask & -mask).bit_length() - 1, mask.bit_count())


@njit
def shuffle_16(table, places, out):
    store_b16(out, np.uint64(0), look_up_16(load_b16(table, 0), load_b16(places, 0)))


@njit
def shuffle_32(table, places, out):
    store_b32(out, np.uint64(0), look_up_halves(load_b32(table, 0), load_b32(places, 0)))


@njit
def shuffle_64(table, places, sums, out):
    t, p = load_b64(table, 0), load_b64(places, 0)
    store_b64(out, 0, look_up_64(t, p))
    store_w(sums, 0, add_dot_of_bytes(load_w(sums, 0), t, both(p, p)))


def test_sixteen_bytes_are_looked_up_on_any_machine():
    table, places = RANDOM.integers(0, 256, (2, 16)).astype(np.uint8)
    out = np.zeros(16, np.uint8)
    shuffle_16(table, places, out)
    np.testing.assert_array_equal(out, table[places & 15])


def test_wider_shuffles_of_this_machine():
    table, places = RANDOM.integers(0, 256, (2, 64)).astype(np.uint8)
    if LEVEL != "portable":
        out = np.zeros(32, np.uint8)
        shuffle_32(table[:32], places[:32] & 15, out)
        halves = table[:32].reshape(2, 16), (places[:32] & 15).reshape(2, 16)
        np.testing.assert_array_equal(out.reshape(2, 16), np.take_along_axis(*halves, axis=1))
    if LEVEL == "vbmi":
        sums = RANDOM.integers(0, 1000, 16).astype(np.uint32)
        dots = (table.astype(int) * places.view(np.int8)).reshape(16, 4).sum(axis=1)
        wanted = sums + dots.astype(np.uint32)
        out = np.zeros(64, np.uint8)
        shuffle_64(table, places, sums, out)
        np.testing.assert_array_equal(out, table[places & 63])
        np.testing.assert_array_equal(sums, wanted)
