"""Putting few numbers in order, compiled: by counting, which takes no branch to be guessed wrong.

Of forty candidates a quicksort or Hoare's selection takes ten times as long.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.simd.vectors import F32X16, bit_count, fill_of, less_mask, load_of
from puffin_ann.numba_kernels import FAST, inlined, kernel

GROUPS = 64
"""Numbers that `bound_of` is asked about."""
FAR = np.float32(3.4e38)
"""No bound is greater."""
MOST_RANKED = 64
"""More keys than this are sorted otherwise: ranking takes the square of their number."""

U64 = np.uint64
_LANES = 16
_load, _fill = load_of(F32X16), fill_of(F32X16)


@kernel(fastmath=FAST)
def bound_of(least: NDArray[np.float32], ranked: U64) -> np.float32:
    """Return the number with `ranked` lesser ones among 64, or one not below it.

    Every number is ranked by counting; if fewer than 16 lesser ones are asked for, the lesser of
    each two stands for both, which halves the work.

    Args:
        least: `(64,) float32`, none above `FAR`; overwritten.
        ranked: how many are to be lesser; from 64 on it is `FAR`.
    """
    if ranked >= GROUPS:
        return FAR
    one, two = _load(least, U64(0)), _load(least, U64(16))
    three, four = _load(least, U64(32)), _load(least, U64(48))
    lanes = U64(GROUPS)
    if ranked < _LANES:
        lanes = U64(2 * _LANES)
        for j in range(lanes):
            least[j] = min(least[j], least[j + lanes])
        one, two = _load(least, U64(0)), _load(least, U64(16))
        three = four = _fill(FAR)
    bound = -FAR
    for j in range(lanes):
        value = _fill(least[j])
        lesser = (
            bit_count(less_mask(one, value))
            + bit_count(less_mask(two, value))
            + bit_count(less_mask(three, value))
            + bit_count(less_mask(four, value))
        )
        bound = max(bound, least[j] if lesser <= U64(ranked) else -FAR)
    return bound


@inlined
def _part(keys, count, most):  # type: ignore[no-untyped-def]
    """Bring the keys up to one to the front; return how many there are."""
    kept = U64(0)
    for j in range(U64(count)):
        key = keys[j]
        keys[j] = keys[kept]
        keys[kept] = key
        kept += U64(key <= most)
    return kept


@kernel()
def select(keys: NDArray[np.uint64], count: int, wanted: int) -> None:
    """Bring the `wanted` least of the first `count` keys to the front, in no order.

    The range that the last of them lies in is halved until it is told apart from the next.
    """
    if wanted >= count:
        return
    low = high = keys[0]
    for j in range(U64(count)):
        low, high = min(low, keys[j]), max(high, keys[j])
    while low < high:
        middle = low + ((high - low) >> U64(1))
        under = U64(0)
        for j in range(U64(count)):
            under += U64(keys[j] <= middle)
        if under < U64(wanted):
            low = middle + U64(1)
            continue
        high = middle
        if under == U64(wanted):
            break
    kept = _part(keys, count, high)
    if kept > U64(wanted):  # some are equal
        _part(keys, kept, high - U64(1))


@kernel(allocates=True)
def sort(keys: NDArray[np.uint64], count: int) -> None:
    """Sort the first `count` of keys, however many."""
    keys[:count].sort()


@inlined
def in_order(keys, count, spare):  # type: ignore[no-untyped-def]
    """Sort the first `count` of uint64 keys; `spare` has room for `MOST_RANKED` of them.

    A key's place is how many are lesser, or equal and before it.
    """
    if count > MOST_RANKED:
        sort(keys, count)
    else:
        for i in range(U64(count)):
            key = keys[i]
            place = U64(0)
            for j in range(i):
                place += U64(keys[j] <= key)
            for j in range(i, U64(count)):
                place += U64(keys[j] < key)
            spare[place] = key
        for i in range(U64(count)):
            keys[i] = spare[i]
