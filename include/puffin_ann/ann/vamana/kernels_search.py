"""The loops of searching: many queries in one call, exact distances at the end."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.clustering.kernels_pq import tables as fill_tables
from puffin_ann.ann.graph.kernels_answer import answer_from, found_enough, kept, next_stamp
from puffin_ann.ann.graph.kernels_beam import beam, unseen
from puffin_ann.ann.graph.kernels_frontier import (
    NOBODY,
    is_dead,
    mark,
    next_open,
    open_from,
    passed_room,
    put,
    start,
    wanted,
)
from puffin_ann.ann.graph.primitives import F32, FAST, U64, Whole, candidate, row_of, squared_l2
from puffin_ann.ann.simd.vectors import prefetch

from numba import njit  # isort: skip  (after the primitives have configured it)


@njit(cache=True, nogil=True, fastmath=FAST)
def search_full(
    space: NDArray[np.float32],
    width: Whole,
    neighbours: NDArray[np.uint32],
    stride: Whole,
    degrees: NDArray[np.uint16],
    entry: Whole,
    moved: NDArray[np.float32],
    metric: int,
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    widths: NDArray[np.int64],
    live: Whole,
    spare: Whole,
    dead: NDArray[np.uint8],
    stamps: NDArray[np.uint8],
    stamp: Whole,
    ids: NDArray[np.int64],
    distances: NDArray[np.float32],
    counts: NDArray[np.int64],
) -> Whole:
    """Answer queries by a beam over full vectors.

    Args:
        space: flat `(n · width,) float32`.
        width: numbers in a row of the space.
        neighbours: flat `(n · stride,) uint32`.
        stride: places in a neighbour list.
        degrees: `(n,) uint16`.
        entry: row to begin at.
        moved: flat `(q · width,) float32`, the queries in the space.
        metric: code.
        vectors: `(n, d) float32`, as stored.
        queries: `(q, d) float32`.
        widths: `(q,) int64`, L: candidates wanted.
        live: how many rows are.
        spare: candidates beyond k whose exact distance is taken.
        dead: `(n,) uint8`, or empty.
        stamps: `(n,) uint8` scratch, kept from call to call.
        stamp: the last one used; 0 at first, with `stamps` all 0.
        ids: `(q, k) int64`, written.
        distances: `(q, k) float32`, written.
        counts: `(q,) int64`, written: answers of each query.

    Returns:
        The last stamp used.
    """
    rows, k = len(stamps), ids.shape[1]
    widest = kept(widths.max(), k, live)
    pool = np.empty(widest + 1, np.uint64)
    passed = np.empty(passed_room(widest, rows - live) + 1, np.uint64)
    keys = np.empty(k + spare, np.uint64)
    fresh = np.empty(stride + 1, np.uint32)
    trail = np.empty(0, np.uint64)
    for q in range(len(queries)):
        stamp = next_stamp(stamps, stamp)
        keep = kept(widths[q], k, live)
        size, _ = beam(
            space,
            width,
            neighbours,
            stride,
            degrees,
            entry,
            moved,
            q * width,
            pool,
            keep,
            passed[: passed_room(keep, rows - live) + 1],
            dead,
            stamps,
            np.uint8(stamp),
            fresh,
            trail,
        )
        counts[q] = answer_from(
            metric,
            vectors,
            queries,
            q,
            pool,
            found_enough(size, keep, dead),
            keys,
            ids[q],
            distances[q],
        )
    return stamp


@njit(cache=True, nogil=True, fastmath=FAST)
def _estimate(
    tables: NDArray[np.float32],
    words: Whole,
    codes: NDArray[np.uint8],
    at: Whole,
    subspaces: Whole,
) -> np.float32:
    """Add up a row's codewords; two sums, so that one addition need not wait for the other."""
    one = F32(0)
    other = F32(0)
    pairs = subspaces >> U64(1)
    for j in range(pairs):
        place = U64(2) * j
        one += tables[place * words + U64(codes[at + place])]
        other += tables[(place + U64(1)) * words + U64(codes[at + place + U64(1)])]
    if subspaces & U64(1):
        place = subspaces - U64(1)
        one += tables[place * words + U64(codes[at + place])]
    return one + other


@njit(cache=True, nogil=True, fastmath=FAST)
def _beam_codes(
    tables: NDArray[np.float32],
    words: Whole,
    floor: np.float32,
    codes: NDArray[np.uint8],
    subspaces: Whole,
    neighbours: NDArray[np.uint32],
    stride: Whole,
    degrees: NDArray[np.uint16],
    entry: Whole,
    pool: NDArray[np.uint64],
    keep: Whole,
    passed: NDArray[np.uint64],
    dead: NDArray[np.uint8],
    stamps: NDArray[np.uint8],
    stamp: np.uint8,
    fresh: NDArray[np.uint32],
) -> Whole:
    """Find candidates near a query by estimated distances; as `beam`, return the pool's size.

    `floor` is the least an estimate can be; it is taken off, since candidates sort by bits, which
    works for numbers that are not negative.
    """
    first = _estimate(tables, words, codes, U64(entry) * subspaces, subspaces) - floor
    key = candidate(max(first, F32(0)), entry)
    stamps[entry] = stamp
    full = U64(keep)
    current = beside = U64(0)
    size, count = start(key, pool, passed, dead)
    while True:
        key = next_open(pool, current, size, full, passed, beside, count)
        if key == NOBODY:
            return size  # type: ignore[no-any-return]
        lives = mark(key, pool, current, size, passed, beside)
        node = row_of(key)
        unknown = U64(unseen(node, neighbours, U64(stride), degrees[node], stamps, stamp, fresh))
        unknown = wanted(fresh, unknown, lives, size, full, dead)
        for j in range(unknown):
            prefetch(codes, U64(fresh[j]) * subspaces)
            prefetch(codes, U64(fresh[j]) * subspaces + subspaces - U64(1))
        for j in range(unknown):
            row = U64(fresh[j])
            value = _estimate(tables, words, codes, row * subspaces, subspaces) - floor
            new = candidate(max(value, F32(0)), row)
            size, current, count, beside = put(
                new, is_dead(dead, row), pool, size, full, current, passed, count, beside
            )
        current = open_from(pool, current, size)
        beside = open_from(passed, beside, count)


@njit(cache=True, nogil=True, fastmath=FAST)
def search_codes(
    words: NDArray[np.float32],
    offsets: NDArray[np.uint32],
    codes: NDArray[np.uint8],
    by_product: bool,
    space: NDArray[np.float32],
    width: Whole,
    neighbours: NDArray[np.uint32],
    stride: Whole,
    degrees: NDArray[np.uint16],
    entry: Whole,
    moved: NDArray[np.float32],
    metric: int,
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    widths: NDArray[np.int64],
    live: Whole,
    spare: Whole,
    dead: NDArray[np.uint8],
    stamps: NDArray[np.uint8],
    stamp: Whole,
    ids: NDArray[np.int64],
    distances: NDArray[np.float32],
    counts: NDArray[np.int64],
) -> Whole:
    """Answer queries by a beam over codes, whose whole pool is then measured in the space.

    Args:
        words: `(m, w, 2**bits) float32`.
        offsets: `(m + 1,) uint32`, where each sub-space begins.
        codes: flat `(n · m,) uint8`.
        by_product: codes stand for rows whose inner product is wanted, not their distance.
        space: flat `(n · width,) float32`.
        width: numbers in a row of the space.
        neighbours: flat `(n · stride,) uint32`.
        stride: places in a neighbour list.
        degrees: `(n,) uint16`.
        entry: row to begin at.
        moved: flat `(q · width,) float32`, the queries in the space.
        metric: code.
        vectors: `(n, d) float32`, as stored.
        queries: `(q, d) float32`.
        widths: `(q,) int64`, L: candidates wanted.
        live: how many rows are.
        spare: candidates beyond k whose exact distance is taken.
        dead: `(n,) uint8`, or empty.
        stamps: `(n,) uint8` scratch, kept from call to call.
        stamp: the last one used; 0 at first, with `stamps` all 0.
        ids: `(q, k) int64`, written.
        distances: `(q, k) float32`, written.
        counts: `(q,) int64`, written: answers of each query.

    Returns:
        The last stamp used.
    """
    subspaces, _, count = words.shape
    w = U64(width)
    rows, k = len(stamps), ids.shape[1]
    widest = kept(widths.max(), k, live)
    pool = np.empty(widest + 1, np.uint64)
    passed = np.empty(passed_room(widest, rows - live) + 1, np.uint64)
    keys = np.empty(k + spare, np.uint64)
    fresh = np.empty(stride + 1, np.uint32)
    tables = np.empty((subspaces, count), np.float32)
    flat = tables.reshape(-1)
    for q in range(len(queries)):
        stamp = next_stamp(stamps, stamp)
        keep = kept(widths[q], k, live)
        fill_tables(words, offsets, moved[q * width : (q + 1) * width], by_product, tables)
        floor = F32(0)
        if by_product:
            for j in range(subspaces):
                floor += tables[j].min()
        size = _beam_codes(
            flat,
            U64(count),
            floor,
            codes,
            U64(subspaces),
            neighbours,
            stride,
            degrees,
            entry,
            pool,
            keep,
            passed[: passed_room(keep, rows - live) + 1],
            dead,
            stamps,
            np.uint8(stamp),
            fresh,
        )
        for i in range(U64(size)):
            for z in range(U64(0), w, U64(16)):
                prefetch(space, row_of(pool[i]) * w + z)
        for i in range(U64(size)):
            row = row_of(pool[i])
            pool[i] = candidate(squared_l2(space, row * w, moved, U64(q) * w, w), row)
        pool[:size].sort()
        counts[q] = answer_from(
            metric,
            vectors,
            queries,
            q,
            pool,
            found_enough(size, keep, dead),
            keys,
            ids[q],
            distances[q],
        )
    return stamp
