"""The loops of product quantisation, with the words of a sub-space side by side for the vectoriser.

`words` is the codebook turned: `(m, w, 2**bits) float32`.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.simd import vectors
from puffin_ann.numba_kernels import FAST, kernel

F32, U64 = np.float32, np.uint64
TILE = 64
_load = vectors.load_of(vectors.F32X16)
_fill = vectors.fill_of(vectors.F32X16)
_names = vectors.fill_of(vectors.U32X16)
_store = vectors.store_of(vectors.U32X16)


@kernel(fastmath=FAST)
def _add_squares(values: NDArray[np.float32], value: np.float32, out: NDArray[np.float32]) -> None:
    """Add the squared difference of each value and one value."""
    for i in range(U64(len(values))):
        difference = values[i] - value
        out[i] += difference * difference


@kernel(fastmath=FAST)
def _subtract_products(
    values: NDArray[np.float32], value: np.float32, out: NDArray[np.float32]
) -> None:
    """Subtract the product of each value and one value."""
    for i in range(U64(len(values))):
        out[i] -= values[i] * value


@kernel(fastmath=FAST, allocates=True)
def nearest_words(
    rows: NDArray[np.float32],
    first: int,
    width: int,
    words: NDArray[np.float32],
    codes: NDArray[np.uint8],
) -> None:
    """Write the nearest word of each row in one sub-space, the lowest of equals.

    Works on a tile of 64 rows at a time, one in each lane of four vectors, so that no lanes need be
    compared.

    Args:
        rows: `(b, d) float32`.
        first: dimension the sub-space begins at.
        width: its dimensions.
        words: `(w, 2**bits) float32`, w ≥ width.
        codes: `(b,) uint8`, written.
    """
    tile = np.zeros(width * TILE, np.float32)
    names = np.empty(TILE, np.uint32)
    for start in range(0, len(rows), TILE):
        size = min(TILE, len(rows) - start)
        for i in range(size):
            for z in range(width):
                tile[z * TILE + i] = rows[start + i, first + z]
        one = two = three = four = _fill(F32(np.inf))
        of_one = of_two = of_three = of_four = _names(U64(0))
        for word in range(U64(words.shape[1])):
            to_one = to_two = to_three = to_four = _fill(F32(0))
            for z in range(U64(width)):
                value, at = _fill(words[z, word]), z * U64(TILE)
                difference = vectors.subtract(_load(tile, at), value)
                to_one = vectors.multiply_add(difference, difference, to_one)
                difference = vectors.subtract(_load(tile, at + U64(16)), value)
                to_two = vectors.multiply_add(difference, difference, to_two)
                difference = vectors.subtract(_load(tile, at + U64(32)), value)
                to_three = vectors.multiply_add(difference, difference, to_three)
                difference = vectors.subtract(_load(tile, at + U64(48)), value)
                to_four = vectors.multiply_add(difference, difference, to_four)
            own = _names(word)
            of_one = vectors.where_less(to_one, one, own, of_one)
            one = vectors.where_less(to_one, one, to_one, one)
            of_two = vectors.where_less(to_two, two, own, of_two)
            two = vectors.where_less(to_two, two, to_two, two)
            of_three = vectors.where_less(to_three, three, own, of_three)
            three = vectors.where_less(to_three, three, to_three, three)
            of_four = vectors.where_less(to_four, four, own, of_four)
            four = vectors.where_less(to_four, four, to_four, four)
        _store(names, U64(0), of_one)
        _store(names, U64(16), of_two)
        _store(names, U64(32), of_three)
        _store(names, U64(48), of_four)
        for i in range(size):
            codes[start + i] = np.uint8(names[i])


@kernel(fastmath=FAST)
def tables(
    words: NDArray[np.float32],
    offsets: NDArray[np.uint32],
    query: NDArray[np.float32],
    by_product: bool,
    out: NDArray[np.float32],
) -> None:
    """Write what each word contributes to a query's distance.

    Args:
        words: `(m, w, 2**bits) float32`.
        offsets: `(m + 1,) uint32`.
        query: `(d,) float32`, or wider.
        by_product: contributions to −⟨q, x⟩ rather than to ‖q − x‖².
        out: `(m, 2**bits) float32`, written.
    """
    for j in range(len(words)):
        line = out[j]
        line[:] = F32(0)
        for z in range(offsets[j + 1] - offsets[j]):
            value = query[offsets[j] + z]
            if by_product:
                _subtract_products(words[j, z], value, line)
            else:
                _add_squares(words[j, z], value, line)
