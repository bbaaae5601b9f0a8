"""The search of inverted lists, compiled: lists, codes, refinement and exact distances in one go.

Candidates are the integers of `kernels_lists`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.types import Fields
from puffin_ann.ann.ivf.kernels_coded import ask_for, padded, refine_by_bytes
from puffin_ann.ann.ivf.kernels_lists import (
    TILE,
    TOGETHER,
    all_in_order,
    has_rows,
    key_of,
    leave_out_empty,
    measure,
    nearest_first,
    prepare,
    score_of,
)
from puffin_ann.ann.ivf.kernels_refine import answer, likely, refine
from puffin_ann.ann.simd.fastscan import BLOCK, GROUP, GROUP_BYTES, block_sums, quantise_tables
from puffin_ann.ann.simd.kernels_distance import dot
from puffin_ann.ann.simd.kernels_order import MOST_RANKED, select
from puffin_ann.ann.simd.vectors import (
    F32X16,
    fill_of,
    less_mask,
    load_of,
    lowest_bit,
    multiply_add,
    prefetch,
    store_of,
    sum_of,
)
from puffin_ann.numba_kernels import inlined, kernel

NEAREST = 1e-6
"""Of a query's squared length: no list counts as nearer, which rounding could say."""
FAR = np.float32(3e38)
"""Scores from here on are not looked at: there is no row, or numbers were too large."""

U64, U32, I64, F32 = np.uint64, np.uint32, np.int64, np.float32
_LOW = np.uint64(0xFFFFFFFF)
_LINE = np.uint64(16)

_load, _store, _fill = load_of(F32X16), store_of(F32X16), fill_of(F32X16)


class InvertedLists(NamedTuple):
    """The lists, and by what a query is compared with them.

    Attributes:
        relative: biases and codes are meant for queries relative to each centroid.
        origin: `(d,) float32`, what is taken off a query.
        centroids: flat `(tiles, d + 1, 64) float32`: 64 centroids side by side, dimension by
            dimension, their squared norms last (infinite where there is none).
        lists: how many there are.
        words: `(m, w, 16) float32`.
        offsets: `(m + 1,) uint32`.
        codes: flat `(blocks, groups, 64) uint8`, as `fastscan.pack` gives them.
        biases: `(blocks · 32,) float32`, added to the score of a row; infinite where there is none.
        ordinals: `(blocks · 32,) uint32`.
        starts: `(lists + 1,) int64`, the block each list begins at.
    """

    relative: bool
    origin: NDArray[np.float32]
    centroids: NDArray[np.float32]
    lists: int
    words: NDArray[np.float32]
    offsets: NDArray[np.uint32]
    codes: NDArray[np.uint8]
    biases: NDArray[np.float32]
    ordinals: NDArray[np.uint32]
    starts: NDArray[np.int64]


class StoredRows(NamedTuple):
    """The rows that lists are of.

    Attributes:
        metric: its code.
        vectors: `(n, d) float32`, as stored.
        inverse_norms: `(n,) float32` for cosine, 0 for a zero row; else `(0,)`.
        coded: flat `(n, stride) uint8`, the rows by a byte a number, see `kernels_coded`; `(0,)` if
            all candidates are compared by their stored vectors.
    """

    metric: int
    vectors: NDArray[np.float32]
    inverse_norms: NDArray[np.float32]
    coded: NDArray[np.uint8]


class Effort(NamedTuple):
    """How far a search goes.

    Attributes:
        probes: lists to look through, at least 1; more follow as long as fewer than `refined`
            rows were found.
        reach: how far those may be, see `reach`: from a quarter as many to twice as many are looked
            through; infinite for as many.
        refined: candidates to measure better than by the codes of lists, at least 1.
        among: so many times as many of both for a query whose nearest list has no row that may be
            answered: the nearest of the others lie on all sides.
    """

    probes: int
    reach: float
    refined: int
    among: int


class _Scratch(NamedTuple):
    """Memory of one call.

    Of some queries it holds what is compared with centroids, their squares, and the scores of
    lists; of one its lists, as `keys`, and its candidates, as `found`.
    """

    prepared: NDArray[np.float32]
    squares: NDArray[np.float64]
    scores: NDArray[np.float32]
    asked: NDArray[np.float32]
    moved: NDArray[np.float32]
    floats: NDArray[np.float32]
    tables: NDArray[np.uint8]
    sums: NDArray[np.float32]
    least: NDArray[np.float32]
    keys: NDArray[np.uint64]
    spare: NDArray[np.uint64]
    found: NDArray[np.uint64]


@inlined
def _scan_list(  # type: ignore[no-untyped-def]
    ivf, name, base, scale, limit, excluded, keep, groups, scratch, count
):
    """Add the rows of a list that are under the limit to `found`; return (count, limit)."""
    codes, biases, ordinals, starts = ivf.codes, ivf.biases, ivf.ordinals, ivf.starts
    tables, sums, found = scratch.tables, scratch.sums, scratch.found
    room = len(found) - BLOCK
    scales = _fill(scale)
    size = U64(groups) * U64(GROUP_BYTES)
    for b in range(U64(starts[name]), U64(starts[name + U64(1)])):
        s0, s1 = block_sums(codes, b * size, tables, groups)
        at = b * U64(BLOCK)
        s0 = multiply_add(s0, scales, _load(biases, at))
        s1 = multiply_add(s1, scales, _load(biases, at + _LINE))
        bound = _fill(limit - base)
        mask = less_mask(s0, bound) | (less_mask(s1, bound) << _LINE)
        if mask != U64(0):
            _store(sums, U64(0), s0)
            _store(sums, _LINE, s1)
            while mask != U64(0):
                j = lowest_bit(mask)
                mask &= mask - U64(1)
                row = ordinals[at + j]
                if len(excluded) == 0 or excluded[row] == 0:
                    found[count] = key_of(base + sums[j], row)
                    count += 1
            if count > room:
                select(found, count, keep)
                count = keep
                greatest = found[0]
                for j in range(U64(keep)):
                    greatest = max(greatest, found[j])
                limit = score_of(greatest)
    return count, limit


@inlined
def _relative(query, at, centroids, name, dimension, moved):  # type: ignore[no-untyped-def]
    """Write a query relative to a centroid, and return their squared distance."""
    tile, lane = U64(name) // U64(TILE), U64(name) % U64(TILE)
    place = tile * (U64(dimension) + U64(1)) * U64(TILE) + lane
    total = F32(0)
    square = F32(0)
    for z in range(U64(dimension)):
        value = centroids[place + z * U64(TILE)]
        moved[z] = query[U64(at) + z] - value
        total += moved[z] * moved[z]
        square += value * value
    # For ip a centroid has one dimension more than a query.
    return total + max(F32(0), centroids[place + U64(dimension) * U64(TILE)] - square)


@inlined
def _sorted_lists(effort, lists):  # type: ignore[no-untyped-def]
    """Return how many of the nearest lists are wanted in their order."""
    return effort.probes if effort.reach == np.inf else min(2 * effort.probes, lists)


@inlined
def _square(query, at, dimension):  # type: ignore[no-untyped-def]
    """Return the squared length of a query, in the same order on every machine."""
    lanes = _fill(F32(0))
    whole = U64(dimension) & ~U64(15)
    for z in range(U64(0), whole, _LINE):
        line = _load(query, U64(at) + z)
        lanes = multiply_add(line, line, lanes)
    square = sum_of(lanes)
    for z in range(whole, U64(dimension)):
        square += query[U64(at) + z] * query[U64(at) + z]
    return square


@inlined
def _within_reach(effort, query, at, dimension, keys, most):  # type: ignore[no-untyped-def]
    """Return how many of the nearest lists to look through, `most` of which are in order."""
    if effort.reach == np.inf:
        return effort.probes
    square = _square(query, at, dimension)
    first = max(score_of(keys[0]) + square, F32(NEAREST) * square)
    border = F32(effort.reach) * first
    border *= border
    count = (effort.probes + 3) // 4
    while count < most:
        further = score_of(keys[count]) + square - first
        if further * further * F32(count + 1) > border:
            break
        count += 1
    return count


@kernel()
def _scan(ivf, query, at, scores_at, effort, excluded, scratch):  # type: ignore[no-untyped-def]
    """Leave the best rows of the nearest lists in `found`; return how many."""
    scores, keys = scratch.scores, scratch.keys
    refined = effort.refined
    lists, most = ivf.lists, _sorted_lists(effort, ivf.lists)
    nearest_first(scores, scores_at, (lists + TILE - 1) // TILE, lists, most, scratch)
    if has_rows(ivf, keys[0] & _LOW, excluded):
        probes = _within_reach(effort, query, at, len(ivf.origin), keys, most)
    else:
        all_in_order(scores, scores_at, lists, keys)
        lists = most = leave_out_empty(ivf, keys, excluded)
        probes, refined = effort.among * effort.probes, effort.among * refined
    centroids, dimension, offsets = ivf.centroids, len(ivf.origin), ivf.offsets
    count, width = ivf.words.shape[0], ivf.words.shape[1]
    groups = (count + GROUP - 1) // GROUP
    words = ivf.words.reshape(-1)
    moved, floats, tables, found = scratch.moved, scratch.floats, scratch.tables, scratch.found
    scale, shift = F32(0), F32(0)
    if not ivf.relative:
        whole = query[at : at + dimension + width]
        scale, shift = quantise_tables(whole, words, width, offsets, count, floats, tables)
    held, limit, done = 0, FAR, 0
    while done < lists and (done < probes or held < refined):
        if done == most:
            all_in_order(scores, scores_at, lists, keys)
        name = keys[done] & _LOW
        base = score_of(keys[done]) + shift
        done += 1
        if done < min(probes, lists):
            ahead = U64(ivf.starts[keys[done] & _LOW]) * U64(groups) * U64(GROUP_BYTES)
            for z in range(U64(0), U64(1024), U64(64)):
                prefetch(ivf.codes, ahead + z)
        if ivf.relative:
            base = _relative(query, at, centroids, name, dimension, moved)
            scale, less = quantise_tables(moved, words, width, offsets, count, floats, tables)
            base += less
        held, limit = _scan_list(
            ivf, name, base, scale, limit, excluded, refined, groups, scratch, held
        )
    if held > refined:
        select(found, held, refined)
        held = refined
    return held


@kernel()
def _search(  # type: ignore[no-untyped-def]
    ivf, rows, effort, queries, excluded, ids, distances, candidates, scratch
):
    """As `search`, which makes the scratch: here no references are counted, a tenth of the time."""
    dimension, width, k = queries.shape[1], ivf.words.shape[1], ids.shape[1]
    flat_queries = queries.reshape(-1)
    stride, tiles = dimension + width, (ivf.lists + TILE - 1) // TILE
    prepared, squares, scores = scratch.prepared, scratch.squares, scratch.scores
    asked, found = scratch.asked, scratch.found
    # To refine all rows is to compare them all: none is left out by its bytes, or by float32.
    are_all = effort.refined >= len(rows.vectors)
    by_bytes = len(rows.coded) > 0
    short = 0
    for begin in range(0, len(queries), TOGETHER):
        together = min(TOGETHER, len(queries) - begin)
        for i in range(together):
            squares[i] = dot(queries, begin + i, queries, begin + i)
            prepare(rows.metric, queries, begin + i, squares[i], ivf.origin, prepared, i * stride)
        measure(prepared, stride, together, ivf.centroids, tiles, dimension, scores, tiles * TILE)
        for i in range(together):
            q, at = begin + i, i * stride
            held = _scan(ivf, prepared, at, i * tiles * TILE, effort, excluded, scratch)
            if len(candidates):
                for j in range(held):
                    candidates[q, j] = I64(found[j] & _LOW)
                for j in range(held, candidates.shape[1]):
                    candidates[q, j] = -1
                short += held < candidates.shape[1]
                continue
            if are_all:
                best = held
            elif by_bytes:
                for z in range(U64(dimension)):
                    asked[z] = prepared[U64(at) + z]
                best = refine_by_bytes(rows.metric, rows.coded, asked, found, held, k)
                ask_for(rows.vectors, found, best)
            else:
                refine(rows, flat_queries, q * dimension, prepared, at, found, held)
                best = likely(found, held, k)
            there = answer(rows, queries, q, squares[i], scratch, best, ids[q], distances[q])
            short += there < k
    return short


@kernel(allocates=True)
def search(
    list_fields: Fields,
    row_fields: Fields,
    effort_fields: Fields,
    queries: NDArray[np.float32],
    excluded: NDArray[np.uint8],
    ids: NDArray[np.int64],
    distances: NDArray[np.float32],
    candidates: NDArray[np.int64],
) -> int:
    """Write near rows of each query with exact distances; return how many lines are not full.

    Args:
        list_fields: of `InvertedLists`.
        row_fields: of `StoredRows`.
        effort_fields: of `Effort`.
        queries: `(q, d) float32`.
        excluded: `(n,) uint8`, non-zero for rows that may not be answered; `(0,)` if all may.
        ids: `(q, k) int64`, written; -1 where there is no answer.
        distances: `(q, k) float32`, written.
        candidates: `(q, c) int64`, with c of `refined`: written are the rows of least scores, in no
            order, −1 where there are fewer, and no answers; `(0, 0)`: answers are written.
    """
    ivf, rows = InvertedLists(*list_fields), StoredRows(*row_fields)
    effort = Effort(*effort_fields)
    dimension = queries.shape[1]
    count, width = ivf.words.shape[0], ivf.words.shape[1]
    stride = dimension + width
    room = (ivf.lists + TILE - 1) // TILE * TILE
    scratch = _Scratch(
        np.zeros(TOGETHER * stride, np.float32),
        np.zeros(TOGETHER),
        np.empty(TOGETHER * room, np.float32),
        np.zeros(padded(dimension), np.float32),
        np.zeros(stride, np.float32),
        np.empty(16 * count, np.float32),
        np.zeros((count + GROUP - 1) // GROUP * GROUP_BYTES, np.uint8),
        np.empty(BLOCK, np.float32),
        np.empty(TILE, np.float32),
        np.empty(room, np.uint64),
        np.empty(MOST_RANKED, np.uint64),
        np.empty(2 * effort.among * effort.refined + 2 * BLOCK, np.uint64),
    )
    short: int = _search(ivf, rows, effort, queries, excluded, ids, distances, candidates, scratch)
    return short
