"""Which lists are nearest to a query, and have rows, compiled; and the integers of candidates.

A candidate is one integer, an `order_key`: a score and what it belongs to, sorting by the score.
Scores need no root and no sum that is the same for all rows: they order as distances do.
"""

import numpy as np

from puffin_ann.ann.simd.fastscan import BLOCK
from puffin_ann.ann.simd.kernels_distance import L2
from puffin_ann.ann.simd.kernels_order import (
    FAR,
    GROUPS,
    MOST_RANKED,
    bound_of,
    in_order,
    select,
    sort,
)
from puffin_ann.ann.simd.vectors import (
    F32X16,
    fill_of,
    less_mask,
    load_of,
    lowest_bit,
    multiply_add,
    store_of,
    where_less,
)
from puffin_ann.numba_kernels import inlined, kernel

TILE = GROUPS
"""Centroids measured at once: dimension by dimension, 64 numbers side by side."""
TOGETHER = 4
"""Queries for which half a tile is read once."""

U64, U32, F32 = np.uint64, np.uint32, np.float32
_LOW, _LINE = np.uint64(0xFFFFFFFF), np.uint64(16)

_load, _store, _fill = load_of(F32X16), store_of(F32X16), fill_of(F32X16)


@inlined
def key_of(score, number):  # type: ignore[no-untyped-def]
    """Return the `order_key` of a score that is no −0, without a branch."""
    bits = U32(F32(score).view(U32))
    sign = U32(bits >> U32(31))
    flipped = U32(bits ^ U32(U32(U32(0) - sign) | U32(0x80000000)))
    return (U64(flipped) << U64(32)) | U64(number)


@inlined
def score_of(key):  # type: ignore[no-untyped-def]
    """Return the score in a key."""
    bits = U32(key >> U64(32))
    sign = U32(bits >> U32(31))
    return U32(bits ^ U32(U32(sign - U32(1)) | U32(0x80000000))).view(F32)


@inlined
def _measure_one(doubled, at, centroids, place, dimension, out, to):  # type: ignore[no-untyped-def]
    """Write ‖c‖² − 2⟨q, c⟩ of the centroids of a tile."""
    squares = place + U64(dimension) * U64(TILE)
    s0, s1 = _load(centroids, squares), _load(centroids, squares + _LINE)
    s2, s3 = _load(centroids, squares + U64(32)), _load(centroids, squares + U64(48))
    for z in range(U64(dimension)):
        x = _fill(doubled[U64(at) + z])
        s0 = multiply_add(x, _load(centroids, place), s0)
        s1 = multiply_add(x, _load(centroids, place + _LINE), s1)
        s2 = multiply_add(x, _load(centroids, place + U64(32)), s2)
        s3 = multiply_add(x, _load(centroids, place + U64(48)), s3)
        place += U64(TILE)
    _store(out, to, s0)
    _store(out, to + _LINE, s1)
    _store(out, to + U64(32), s2)
    _store(out, to + U64(48), s3)


@inlined
def _measure_four(doubled, at, stride, centroids, place, squares, dimension, out, to, room):  # type: ignore[no-untyped-def]
    """As `_measure_one` for four queries and half a tile, bit for bit."""
    at_0 = U64(at)
    at_1 = at_0 + U64(stride)
    at_2 = at_1 + U64(stride)
    at_3 = at_2 + U64(stride)
    a0, a1 = _load(centroids, squares), _load(centroids, squares + _LINE)
    b0, b1, c0, c1, d0, d1 = a0, a1, a0, a1, a0, a1
    for z in range(U64(dimension)):
        w0, w1 = _load(centroids, place), _load(centroids, place + _LINE)
        x = _fill(doubled[at_0 + z])
        a0, a1 = multiply_add(x, w0, a0), multiply_add(x, w1, a1)
        x = _fill(doubled[at_1 + z])
        b0, b1 = multiply_add(x, w0, b0), multiply_add(x, w1, b1)
        x = _fill(doubled[at_2 + z])
        c0, c1 = multiply_add(x, w0, c0), multiply_add(x, w1, c1)
        x = _fill(doubled[at_3 + z])
        d0, d1 = multiply_add(x, w0, d0), multiply_add(x, w1, d1)
        place += U64(TILE)
    _store(out, to, a0)
    _store(out, to + _LINE, a1)
    to += U64(room)
    _store(out, to, b0)
    _store(out, to + _LINE, b1)
    to += U64(room)
    _store(out, to, c0)
    _store(out, to + _LINE, c1)
    to += U64(room)
    _store(out, to, d0)
    _store(out, to + _LINE, d1)


@kernel()
def measure(doubled, stride, together, centroids, tiles, dimension, out):  # type: ignore[no-untyped-def]
    """Write ‖c‖² − 2⟨q, c⟩ of every centroid, tile by tile, for some queries.

    Args:
        doubled: flat `(g, stride) float32`: −2 times the queries.
        stride: see above.
        together: how many there are.
        centroids: see `kernels.InvertedLists`.
        tiles: how many tiles of them there are.
        dimension: d.
        out: flat `(g, 64 · tiles) float32`, written.
    """
    room = U64(tiles) * U64(TILE)
    fours = U64(together) & ~U64(TOGETHER - 1)
    for tile in range(U64(tiles)):
        place = tile * U64(dimension + 1) * U64(TILE)
        squares = place + U64(dimension) * U64(TILE)
        for half in range(U64(0), U64(TILE), U64(2) * _LINE):
            for i in range(U64(0), fours, U64(TOGETHER)):
                to = i * room + tile * U64(TILE) + half
                _measure_four(
                    doubled, i * U64(stride), stride, centroids, place + half, squares + half,
                    dimension, out, to, room,
                )  # fmt: skip
        for i in range(fours, U64(together)):
            to = i * room + tile * U64(TILE)
            _measure_one(doubled, i * U64(stride), centroids, place, dimension, out, to)


@inlined
def prepare(metric, queries, i, square, origin, out, doubled, at):  # type: ignore[no-untyped-def]
    """Write a query as centroids and codes are meant: from the origin, or of length 1.

    And −2 times that.
    """
    factor = F32(1)
    if metric != L2:
        factor = F32(1.0 / np.sqrt(square)) if square > 0.0 else F32(0)
    for z in range(U64(len(origin))):
        value = factor * (queries[i, z] - origin[z])
        out[U64(at) + z] = value
        doubled[U64(at) + z] = F32(-2) * value


@inlined
def nearest_first(scores, at, tiles, lists, wanted, scratch):  # type: ignore[no-untyped-def]
    """Write the nearest lists to the front of `scratch.keys`, as many as are wanted, in order.

    The score of the last of as many groups, by their least scores, bounds what is looked at.
    """
    keys, least = scratch.keys, scratch.least
    for lane in range(U64(0), U64(TILE), _LINE):
        lowest = _fill(FAR)
        for tile in range(U64(tiles)):
            line = _load(scores, U64(at) + tile * U64(TILE) + lane)
            lowest = where_less(line, lowest, line, lowest)
        _store(least, lane, lowest)
    limit = _fill(bound_of(least, wanted - 1))
    count = 0
    for z in range(U64(0), U64(tiles) * U64(TILE), _LINE):
        mask = less_mask(limit, _load(scores, U64(at) + z)) ^ U64(0xFFFF)
        while mask != U64(0):
            j = z + lowest_bit(mask)
            mask &= mask - U64(1)
            keys[count] = key_of(scores[U64(at) + j], j)
            count += j < U64(lists)  # beyond, scores may be no numbers, which nothing is less than
    if count < wanted:  # numbers were too large for a score
        all_in_order(scores, at, lists, keys)
        return
    if count > MOST_RANKED:
        select(keys, count, wanted)
        count = wanted
    in_order(keys, count, scratch.spare)


@inlined
def all_in_order(scores, at, lists, keys):  # type: ignore[no-untyped-def]
    """Write all lists to `keys`, from the nearest on."""
    for j in range(U64(lists)):
        keys[j] = key_of(scores[U64(at) + j], j)
    sort(keys, lists)


@inlined
def has_rows(ivf, name, excluded):  # type: ignore[no-untyped-def]
    """Tell whether any row of a list may be answered: of most lists the first or second may."""
    begin, end = U64(ivf.starts[name]) * U64(BLOCK), U64(ivf.starts[name + U64(1)]) * U64(BLOCK)
    if len(excluded) == 0:
        return begin < end
    for at in range(begin, end):
        if ivf.biases[at] < F32(np.inf) and excluded[ivf.ordinals[at]] == 0:
            return True
    return False


@inlined
def leave_out_empty(ivf, keys, excluded):  # type: ignore[no-untyped-def]
    """Leave the lists out of which no row may be answered; return how many are left.

    Args:
        ivf: the lists.
        keys: all of them, in order, which the others stay in.
        excluded: see `kernels.search`.
    """
    left = 0
    for at in range(ivf.lists):
        if has_rows(ivf, keys[at] & _LOW, excluded):
            keys[left] = keys[at]
            left += 1
    return left
