"""Rows and queries by a byte a number, compiled: how they are coded, and in which order they lie.

Rows lie in blocks of sixteen. Four numbers of each row of a block are 64 bytes, which one
instruction multiplies with the same four of a query where a machine has it (VNNI), four times as
many as of float32.
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from puffin_ann.ann.core.kernels_copy import AHEAD
from puffin_ann.ann.exact.kernels_scan import gamma_of, measure_of
from puffin_ann.ann.simd.intrinsics import numbers_at, rows_at
from puffin_ann.ann.simd.kernels_byte_rows import MIDDLE, write_byte_row
from puffin_ann.ann.simd.kernels_distance import dot
from puffin_ann.ann.simd.vectors import prefetch
from puffin_ann.numba_kernels import FAST, kernel

F32, U32, U64 = np.float32, np.uint32, np.uint64

BLOCK = 16
"""Rows in a block."""

SIDES = 4
"""Numbers known of a row beside its codes: its measure, step, doubt and length."""
MEASURE, STEP, DOUBT, LENGTH = 0, 1, 2, 3

ASKED = 4
"""Numbers known of a query: its squared norm, its step, its doubt, and the sum of its codes."""
SQUARE, QUERY_STEP, QUERY_DOUBT, SUM = 0, 1, 2, 3

TERMS = 16
"""Roundings of a product by codes beside those of its sum: of each code, step and doubt."""

_DOUBTED = 1.001
"""How much farther a row may be from what its codes say than was summed up in float32."""

ROUNDED_UP = 1.0 + 2.0**-22
"""Times a length that was rounded to float32, it is no less than the length."""

_LEAST = F32(1e-20)
"""Squared norm below which squares of what codes lack could fall below the least float32."""

_NOTHING = U32(0x80808080)
"""Four codes of zero."""

_BLOCK, _AHEAD = U64(BLOCK), U64(AHEAD)
_numbers, _rows = numbers_at(types.float32), rows_at(types.float32)


@kernel(fastmath=FAST)
def write_blocks(
    metric: int,
    starts: NDArray[np.uint64],
    dimension: int,
    row: NDArray[np.float32],
    line: NDArray[np.uint32],
    codes: NDArray[np.uint32],
    sides: NDArray[np.float32],
) -> None:
    """Code rows.

    Args:
        metric: code.
        starts: `(n,) uint64`, the address of each row.
        dimension: numbers d in a row.
        row: `(w,) float32`, zeros; scratch; w is d or more, a multiple of 16.
        line: `(w / 4,) uint32`, scratch.
        codes: `(b, g, 16) uint32`, written: four numbers of each of 16 rows, a byte each.
        sides: `(b, 4, 16) float32`, written; doubts are infinite for rows too long or too short for
            squares.
    """
    groups = codes.shape[1]
    wide, bytes_of_line = len(row), line.view(np.uint8)
    gamma = gamma_of(dimension + TERMS)
    for i in range(U64(len(codes)) * _BLOCK):
        block, place = i // _BLOCK, i % _BLOCK
        square, step, doubt = 0.0, F32(0), F32(0)
        if i < U64(len(starts)):
            if i + _AHEAD < U64(len(starts)):
                ahead = _numbers(starts[i + _AHEAD], dimension)
                for z in range(U64(0), U64(min(dimension, 128)), U64(16)):
                    prefetch(ahead, z)
            vector = _rows(starts[i], 1, dimension)
            square = dot(vector, 0, vector, 0)
        if _LEAST < F32(square) < F32(np.inf):
            here = _numbers(starts[i], dimension)
            for z in range(U64(dimension)):
                row[z] = here[z]
            step, lacking = write_byte_row(row, U64(0), wide, bytes_of_line, U64(0))
            doubt = F32(_DOUBTED * np.sqrt(lacking))
        else:
            line[:] = _NOTHING
            doubt = F32(np.inf) if square > 0.0 else F32(0)
        sides[block, MEASURE, place] = measure_of(metric, square, gamma)
        sides[block, STEP, place] = step
        sides[block, DOUBT, place] = doubt
        sides[block, LENGTH, place] = np.sqrt(square)
        for z in range(U64(groups)):
            codes[block, z, place] = line[z]


@kernel()
def write_queries(
    queries: NDArray[np.float32], words: NDArray[np.uint32], asked: NDArray[np.float64]
) -> None:
    """Code queries.

    Args:
        queries: `(q, d) float32`.
        words: `(t, g) uint32`, written: four numbers each, a signed byte a number; t is q, or more.
        asked: `(t, 4) float64`, written.
    """
    dimension = queries.shape[1]
    codes = words.view(np.int8)
    for i in range(len(words)):
        words[i] = U32(0)
        asked[i] = 0.0
        if i < len(queries):
            widest, lacking, total = F32(0), 0.0, 0.0
            for z in range(dimension):
                widest = max(widest, abs(queries[i, z]))
            step = max(widest, F32(1e-30)) / F32(MIDDLE - 1)
            for z in range(dimension):
                number = np.float64(queries[i, z])
                code = min(max(np.floor(number / step + 0.5), 1.0 - MIDDLE), MIDDLE - 1.0)
                codes[i, z] = np.int8(code)
                rest = number - code * np.float64(step)
                lacking += rest * rest
                total += code
            asked[i, SQUARE] = dot(queries, i, queries, i)
            asked[i, QUERY_STEP], asked[i, SUM] = step, total
            asked[i, QUERY_DOUBT] = (1.0 + 1e-9) * np.sqrt(lacking)
