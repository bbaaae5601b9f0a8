"""The few operations that all graph kernels are made of.

A candidate is one integer: the bits of its squared distance (not negative, so they sort as the
number does), its row, and, in the lowest bit, whether it was expanded. Sorting candidates is then
sorting integers, and ties go to the lower row.

Offsets are unsigned throughout: with signed ones the compiler must allow for negative indices,
which Python counts from the end, and does not vectorise.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import types
from puffin_ann.ann.simd import vectors
from puffin_ann.numba_kernels import FAST, inlined, kernel

Whole = types.Whole

LANES = 16
"""Rows are padded to a multiple of this many numbers: 64 bytes, a cache line."""

MAX_ROWS = 1 << 31


U64, U32, F32 = np.uint64, np.uint32, np.float32
_EXPANDED = np.uint64(1)
_LOW = np.uint64(0xFFFFFFFF)


@inlined
def candidate(squared: np.float32, row: Whole) -> np.uint64:
    """Return the candidate of a row at a squared distance."""
    return (U64(F32(squared).view(U32)) << U64(32)) | (U64(row) << U64(1))


@inlined
def row_of(key: np.uint64) -> np.uint64:
    """Return the row of a candidate."""
    return (key & _LOW) >> U64(1)


@inlined
def squared_of(key: np.uint64) -> np.float32:
    """Return the squared distance of a candidate."""
    return U32(key >> U64(32)).view(F32)


@inlined
def is_expanded(key: np.uint64) -> np.uint64:
    """Return non-zero if the candidate was expanded."""
    return key & _EXPANDED


@inlined
def expanded(key: np.uint64) -> np.uint64:
    """Return the candidate marked as expanded."""
    return key | _EXPANDED


@inlined
def squared_l2(
    one: NDArray[np.float32],
    at_one: Whole,
    other: NDArray[np.float32],
    at_other: Whole,
    dim: Whole,
) -> np.float32:
    """Return the squared distance of two rows of flat arrays that begin at given places."""
    total = F32(0)
    for i in range(U64(dim)):
        difference = one[U64(at_one) + i] - other[U64(at_other) + i]
        total += difference * difference
    return total


_load = vectors.load_of(vectors.F32X16)
_fill = vectors.fill_of(vectors.F32X16)


@kernel(fastmath=FAST)
def squared_of_four(
    row: NDArray[np.float32],
    at: Whole,
    space: NDArray[np.float32],
    one: Whole,
    two: Whole,
    three: Whole,
    four: Whole,
    dim: Whole,
) -> tuple[np.float32, np.float32, np.float32, np.float32]:
    """Return the squared distances of a row and four of a space, that begin at given places.

    A sum waits for itself; four of them need not wait for each other, and share what is read.
    `dim` is a multiple of 16.
    """
    to_one = to_two = to_three = to_four = _fill(F32(0))
    for z in range(U64(0), U64(dim), U64(LANES)):
        part = _load(row, U64(at) + z)
        difference = vectors.subtract(part, _load(space, U64(one) + z))
        to_one = vectors.multiply_add(difference, difference, to_one)
        difference = vectors.subtract(part, _load(space, U64(two) + z))
        to_two = vectors.multiply_add(difference, difference, to_two)
        difference = vectors.subtract(part, _load(space, U64(three) + z))
        to_three = vectors.multiply_add(difference, difference, to_three)
        difference = vectors.subtract(part, _load(space, U64(four) + z))
        to_four = vectors.multiply_add(difference, difference, to_four)
    return (
        vectors.sum_of(to_one),
        vectors.sum_of(to_two),
        vectors.sum_of(to_three),
        vectors.sum_of(to_four),
    )
