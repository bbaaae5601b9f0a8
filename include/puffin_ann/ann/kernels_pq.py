"""The loops of product quantisation, with the words of a sub-space side by side for the vectoriser.

`words` is the codebook turned: `(m, w, 2**bits) float32`.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.settings import configure_numba

configure_numba()  # Numba reads where to keep compiled code when it is imported

from numba import njit  # noqa: E402

FAST = {"reassoc", "contract", "nsz"}
F32, U64 = np.float32, np.uint64
TILE = 512


@njit(cache=True, nogil=True, fastmath=FAST)
def _add_squares(values: NDArray[np.float32], value: np.float32, out: NDArray[np.float32]) -> None:
    """Add the squared difference of each value and one value."""
    for i in range(U64(len(values))):
        difference = values[i] - value
        out[i] += difference * difference


@njit(cache=True, nogil=True, fastmath=FAST)
def _subtract_products(
    values: NDArray[np.float32], value: np.float32, out: NDArray[np.float32]
) -> None:
    """Subtract the product of each value and one value."""
    for i in range(U64(len(values))):
        out[i] -= values[i] * value


@njit(cache=True, nogil=True, fastmath=FAST)
def _keep_nearest(
    squared: NDArray[np.float32],
    word: int,
    least: NDArray[np.float32],
    names: NDArray[np.int32],
) -> None:
    """Let rows that are nearer to a word than to any before take its name."""
    name = np.int32(word)
    for i in range(U64(len(squared))):
        nearer = squared[i] < least[i]
        names[i] = name if nearer else names[i]
        least[i] = squared[i] if nearer else least[i]


@njit(cache=True, nogil=True, fastmath=FAST)
def nearest_words(
    rows: NDArray[np.float32],
    first: int,
    width: int,
    words: NDArray[np.float32],
    codes: NDArray[np.uint8],
) -> None:
    """Write the nearest word of each row in one sub-space, the lowest of equals.

    Works on a tile of rows at a time, one in each lane, so that no lanes need be compared.

    Args:
        rows: `(b, d) float32`.
        first: dimension the sub-space begins at.
        width: its dimensions.
        words: `(w, 2**bits) float32`, w ≥ width.
        codes: `(b,) uint8`, written.

    """
    tile = np.empty((width, TILE), np.float32)
    squared = np.empty(TILE, np.float32)
    least = np.empty(TILE, np.float32)
    names = np.empty(TILE, np.int32)
    for start in range(0, len(rows), TILE):
        size = min(TILE, len(rows) - start)
        for z in range(width):
            for i in range(size):
                tile[z, i] = rows[start + i, first + z]
        least[:] = np.inf
        names[:] = 0
        for word in range(words.shape[1]):
            squared[:] = F32(0)
            for z in range(width):
                _add_squares(tile[z], words[z, word], squared)
            _keep_nearest(squared, word, least, names)
        for i in range(size):
            codes[start + i] = np.uint8(names[i])


@njit(cache=True, nogil=True, fastmath=FAST)
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
