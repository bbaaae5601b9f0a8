"""Tables of a query, by which sums over codes of one or two bits a number are looked up, compiled.

See `vamana.packed.layout` for the sums.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.types import Whole
from puffin_ann.ann.signs.kernels_codes import INNER, OUTER
from puffin_ann.ann.simd.vectors import (
    F32X16,
    U8X16,
    bytes_of,
    fill_of,
    load_of,
    multiply_add,
    store_of,
)
from puffin_ann.numba_kernels import kernel

F32, U64 = np.float32, np.uint64

_CODES = np.arange(16)
_WORDS_1 = np.concatenate([np.where(_CODES >> z & 1, 1, -1) for z in range(4)]).astype(np.float32)
"""What a code of one bit a dimension says of each of its four, by code."""
_WORDS_2 = np.concatenate(
    [np.where(_CODES >> z & 1, 1, -1) * np.where(_CODES >> z & 4, OUTER, INNER) for z in range(2)]
).astype(np.float32)
"""The same for two bits: signs of two dimensions, then whether they are beyond the border."""

_load, _fill = load_of(F32X16), fill_of(F32X16)
_store_bytes, _to_bytes = store_of(U8X16), bytes_of(U8X16)


@kernel(fastmath=frozenset({"nnan", "nsz", "reassoc"}))
def _sizes_of(
    moved: NDArray[np.float32], of_code: Whole, sizes: NDArray[np.float32]
) -> tuple[np.float32, np.float32]:
    """Write the sum of what the dimensions of each code are without sign.

    Return the greatest of those, and the sum of all.
    """
    codes = U64(len(moved)) // of_code
    if of_code == U64(4):
        for code in range(codes):
            z = code * U64(4)
            size = abs(moved[z]) + abs(moved[z + U64(1)])
            sizes[code] = size + (abs(moved[z + U64(2)]) + abs(moved[z + U64(3)]))
    else:
        for code in range(codes):
            z = code * U64(2)
            sizes[code] = abs(moved[z]) + abs(moved[z + U64(1)])
    widest = total = F32(0)
    for code in range(codes):
        widest = max(widest, sizes[code])
        total += sizes[code]
    return widest, total


@kernel()
def tables_of(
    moved: NDArray[np.float32],
    bits: Whole,
    tables: NDArray[np.uint8],
    sizes: NDArray[np.float32],
) -> tuple[np.float32, np.float32]:
    """Write, for the dimensions of each code, what a query adds to ⟨u, q⟩ by every code.

    Returns the step, and the sum for codes that find nothing but zeros: those whose signs are all
    against the query's.

    Args:
        moved: `(w,) float32`, the query, rotated.
        bits: of each dimension of an edge, 1 or 2.
        tables: `(16 · codes,) uint8`, written; a code is of four dimensions, or of two.
        sizes: `(codes,) float32`, scratch.
    """
    of_code = U64(4) if bits == 1 else U64(2)
    reach = F32(1) if bits == 1 else OUTER
    widest, total = _sizes_of(moved, of_code, sizes)
    factor = F32(127.5) / max(reach * widest, F32(1e-30))
    for code in range(U64(len(moved)) // of_code):
        line = _fill(sizes[code] * reach * factor + F32(0.5))
        for z in range(of_code):
            value = _fill(moved[code * of_code + z] * factor)
            words = _load(_WORDS_1, z * U64(16)) if bits == 1 else _load(_WORDS_2, z * U64(16))
            line = multiply_add(value, words, line)
        _store_bytes(tables, code * U64(16), _to_bytes(line))
    return F32(1) / factor, -total * reach
