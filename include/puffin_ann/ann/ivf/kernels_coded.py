"""Candidates of wide rows measured by a byte a number, compiled.

A row takes whole cache lines: its codes, `padded` to a multiple of 16, then its step and what is
added to its score, as float32 both. Lists have rows in the space that centroids are in, but that
of the inner product has neither its scale nor its last dimension.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.ivf.kernels_lists import key_of, score_of
from puffin_ann.ann.simd.kernels_byte_rows import (
    MIDDLE,
    product_by_bytes,
    squared_by_bytes,
    write_byte_row,
)
from puffin_ann.ann.simd.kernels_distance import COSINE, IP
from puffin_ann.ann.simd.kernels_order import select
from puffin_ann.ann.simd.vectors import prefetch
from puffin_ann.numba_kernels import FAST, inlined, kernel

LINE = 64
"""Bytes of a cache line."""
TAIL_BYTES = 8
"""Behind the codes of a row."""
DOUBT = np.float32(3)
"""How far two squared distances by codes may be off, for each unit of the distance times the step
of the row: five standard deviations, as each number is off by up to half a step, either way."""
ROUNDING = np.float32(2.0**-18)
"""What rounding adds to that, for each unit of the squared distance."""
AHEAD = 8
"""Candidates that are asked for ahead."""

U64, F32 = np.uint64, np.float32
_LOW = np.uint64(0xFFFFFFFF)


@inlined
def padded(dimension):  # type: ignore[no-untyped-def]
    """Return how many codes a row has: a multiple of 16."""
    return (dimension + 15) // 16 * 16


@inlined
def stride_of(dimension):  # type: ignore[no-untyped-def]
    """Return how many bytes a row has: whole cache lines."""
    return ((dimension + 15) // 16 * 16 + TAIL_BYTES + LINE - 1) // LINE * LINE


@kernel(fastmath=FAST, allocates=True)
def write_coded_rows(
    metric: int,
    vectors: NDArray[np.float32],
    origin: NDArray[np.float32],
    inverse_norms: NDArray[np.float32],
    out: NDArray[np.uint8],
) -> None:
    """Write rows by a byte a number.

    Args:
        metric: code.
        vectors: `(m, d) float32`, as stored.
        origin: `(d,) float32`, what is taken off a row.
        inverse_norms: `(m,) float32` for cosine.
        out: flat `(m, stride) uint8`, written.
    """
    dimension = vectors.shape[1]
    wide, stride = padded(dimension), stride_of(dimension)
    floats = out.view(np.float32)
    row = np.zeros(wide, np.float32)
    for i in range(U64(len(vectors))):
        factor = inverse_norms[i] if metric == COSINE else F32(1)
        size = F32(0)
        for z in range(U64(dimension)):
            row[z] = factor * (vectors[i, z] - origin[z])
            size += row[z] * row[z]
        at = i * U64(stride)
        tail = (at + U64(wide)) >> U64(2)
        if not size < F32(np.inf):
            # Nothing is told of it: it is measured exactly wherever it is a candidate.
            out[at : at + U64(wide)] = MIDDLE
            floats[tail], floats[tail + U64(1)] = F32(np.inf), F32(0)
            continue
        step, lacking = write_byte_row(row, U64(0), wide, out, at)
        floats[tail], floats[tail + U64(1)] = step, -lacking
        if metric == COSINE and factor == F32(0):
            floats[tail + U64(1)] = F32(1)  # a zero row is as far as what is at right angles
        if metric == IP:
            floats[tail + U64(1)] = F32(0)


@inlined
def _ask_for_coded(coded, at, stride):  # type: ignore[no-untyped-def]
    for z in range(U64(0), stride, U64(LINE)):
        prefetch(coded, at + z)


@kernel()
def refine_by_bytes(metric, coded, asked, found, count, k):  # type: ignore[no-untyped-def]
    """Bring the candidates to the front that may be among the k nearest; return how many.

    Args:
        metric: code.
        coded: flat `(n, stride) uint8`, as `write_coded_rows` gives it.
        asked: the query as it is compared with lists, zeros up to what `padded` says.
        found: uint64, candidates; their scores are written.
        count: how many.
        k: answers wanted.
    """
    wide = U64(len(asked))
    stride = U64(stride_of(len(asked)))
    floats = coded.view(np.float32)
    for i in range(U64(min(AHEAD, count))):
        _ask_for_coded(coded, (found[i] & _LOW) * stride, stride)
    coarsest = F32(0)
    for i in range(U64(count)):
        if i + U64(AHEAD) < U64(count):
            _ask_for_coded(coded, (found[i + U64(AHEAD)] & _LOW) * stride, stride)
        row = found[i] & _LOW
        at = row * stride
        tail = (at + wide) >> U64(2)
        step = floats[tail]
        if metric == IP:
            score = floats[tail + U64(1)] - product_by_bytes(coded, at, step, asked)
        else:
            score = floats[tail + U64(1)] + squared_by_bytes(coded, at, step, asked)
        coarsest = max(coarsest, step)
        found[i] = key_of(score + F32(0), row)
    if count <= k:
        return count
    select(found, count, k)
    farthest = U64(0)
    for i in range(U64(k)):
        farthest = max(farthest, found[i])
    last = score_of(farthest)
    if metric == IP:  # the query has length 1
        limit = last + DOUBT / F32(2) * coarsest
    else:
        # The least that the k-th nearest is given is `last`: it is no farther than `farthest`.
        last = max(last, F32(0))
        half = F32(0.5) * DOUBT * coarsest
        farthest = F32(0.5) * (half + np.sqrt(half * half + F32(4) * last))
        limit = last + (DOUBT * coarsest + ROUNDING * farthest) * farthest
    likely = k
    for i in range(k, count):
        # Where numbers were too large to tell, nothing is left out.
        if not score_of(found[i]) > limit:
            found[i], found[likely] = found[likely], found[i]
            likely += 1
    return likely


@inlined
def ask_for(vectors, found, count):  # type: ignore[no-untyped-def]
    """Ask for the stored vectors of the first candidates."""
    dimension = vectors.shape[1]
    flat = vectors.reshape(-1)
    for i in range(U64(count)):
        row = (found[i] & _LOW) * U64(dimension)
        for z in range(U64(0), U64(dimension), U64(16)):
            prefetch(flat, row + z)
