"""The exact sums against a reference in NumPy that follows their definition to the letter."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.ann.simd import kernels_distance as kernels


def in_order(terms):
    """Add float64 terms in the order that the kernels' module defines."""
    whole = len(terms) // 16 * 16
    lanes = np.zeros(16)
    for block in terms[:whole].reshape(-1, 16):
        lanes = lanes + block
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    total = lanes[0]
    for term in terms[whole:]:
        total = total + term
    return total


@pytest.mark.parametrize("d", [1, 15, 16, 17, 31, 32, 100, 384, 1000])
def test_sums_have_the_bits_of_their_definition(d):
    generator = np.random.default_rng(d)
    # Widely different sizes, so that another order would show in the last bits.
    one, other = (
        (generator.standard_normal((20, d)) * 10.0 ** generator.integers(-6, 6, (20, d))).astype(
            np.float32
        )
        for _ in range(2)
    )
    for i in range(20):
        a, b = one[i].astype(np.float64), other[19 - i].astype(np.float64)
        assert kernels.dot(one, i, other, 19 - i) == in_order(a * b)
        assert kernels.squared_l2(one, i, other, 19 - i) == in_order((a - b) * (a - b))


floats = st.floats(width=32, allow_nan=False)
pairs = st.tuples(floats, st.integers(0, 2**32 - 1))


@given(pairs, pairs)
def test_order_keys_sort_as_pairs_of_distance_and_id_do(one, other):
    keys = [kernels.order_key(np.float32(d), i) for d, i in (one, other)]
    # -0 and +0 are the same distance
    assert (keys[0] < keys[1]) == ((one[0] + 0.0, one[1]) < (other[0] + 0.0, other[1]))
    assert kernels.key_distance(np.uint64(keys[0])) == np.float32(one[0])


IN_A_FRESH_PROCESS = """
import os
import subprocess
import sys

import numpy as np
from puffin_ann.ann.simd import kernels_distance as kernels
from numba import njit

@njit(fastmath=True)
def hurried(one, other, out):
    for i in range(len(one)):
        out[i] = kernels.dot(one, i, other, i)

generator = np.random.default_rng(0)
one, other = (generator.standard_normal((500, 12)).astype(np.float32) for _ in range(2))
out = np.empty(500)
hurried(one, other, out)
terms = one.astype(np.float64) * other
expected = np.zeros(500)
for j in range(12):
    expected = expected + terms[:, j]
print(np.array_equal(out, expected))
"""


def test_sums_keep_their_bits_when_a_fastmath_kernel_is_the_first_to_call_them(tmp_path):
    surroundings = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(tmp_path),
        "PUFFIN_ANN_KERNELS_DIR": str(tmp_path / "none"),
    }
    run = subprocess.run(
        [sys.executable, "-c", IN_A_FRESH_PROCESS],
        env=surroundings,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "True"
