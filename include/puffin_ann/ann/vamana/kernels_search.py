"""Search loops over whole rows or over PQ codes; those over packed nodes are in `packed`.

Many queries in one call, exact distances at the end.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.clustering.kernels_pq import tables as fill_tables
from puffin_ann.ann.core.types import Fields
from puffin_ann.ann.graph.arguments import FlatAdjacency, Pools, QueryBatch, Space, Visited
from puffin_ann.ann.graph.kernels_answer import (
    answer_from,
    candidates_kept,
    found_enough,
    next_stamp,
)
from puffin_ann.ann.graph.kernels_beam import beam, find_unseen, prefetch_list
from puffin_ann.ann.graph.kernels_frontier import (
    NOBODY,
    expect_deleted,
    is_among_deleted,
    is_deleted,
    keep_live,
    kept_among_deleted,
    leads_to_deleted,
    mark,
    next_open,
    open_from,
    passed_room,
    put,
    start,
)
from puffin_ann.ann.graph.primitives import F32, U64, Whole, candidate, row_of, squared_l2
from puffin_ann.ann.simd.vectors import prefetch
from puffin_ann.numba_kernels import FAST, kernel


class Codewords(NamedTuple):
    """Product-quantised rows and what their codes stand for.

    Attributes:
        words: `(m, w, 2**bits) float32`.
        offsets: `(m + 1,) uint32`, where each sub-space begins.
        codes: flat `(n · m,) uint8`.
        by_product: codes stand for rows whose inner product is wanted, not their distance.
    """

    words: NDArray[np.float32]
    offsets: NDArray[np.uint32]
    codes: NDArray[np.uint8]
    by_product: bool


class Estimator(NamedTuple):
    """What estimates the distances of one query.

    Attributes:
        tables: flat `(m · words,) float32`, what each codeword adds.
        words: codewords of a sub-space.
        floor: the least an estimate can be; it is taken off, since candidates sort by bits, which
            works for numbers that are not negative.
        codes: flat `(n · m,) uint8`.
        subspaces: m.
    """

    tables: NDArray[np.float32]
    words: Whole
    floor: np.float32
    codes: NDArray[np.uint8]
    subspaces: Whole


@kernel(fastmath=FAST, allocates=True)
def search_full(
    space_fields: Fields,
    graph_fields: Fields,
    moved: NDArray[np.float32],
    batch_fields: Fields,
    stamp: Whole,
) -> Whole:
    """Answer queries by a beam over full vectors.

    Args:
        space_fields: of `Space`: the rows.
        graph_fields: of `FlatAdjacency`: their neighbours.
        moved: flat `(q · dim,) float32`, the queries in the space.
        batch_fields: of `QueryBatch`: the queries; its answers are written.
        stamp: the last one used; 0 at first.

    Returns:
        The last stamp used.
    """
    space, graph = Space(*space_fields), FlatAdjacency(*graph_fields)
    batch = QueryBatch(*batch_fields)
    stamps, live = batch.stamps, batch.live
    rows, k = len(stamps), batch.ids.shape[1]
    widest = kept_among_deleted(candidates_kept(batch.widths.max(), k, live), live, rows)
    pool = np.empty(widest + 1, np.uint64)
    passed = np.empty(passed_room(widest, rows - live) + 1, np.uint64)
    keys = np.empty(k + batch.spare, np.uint64)
    unseen = np.empty(graph.stride + 1, np.uint32)
    trail = np.empty(0, np.uint64)
    for q in range(len(batch.queries)):
        keep = candidates_kept(batch.widths[q], k, live)
        among = kept_among_deleted(keep, live, rows)
        while True:
            stamp = next_stamp(stamps, stamp)
            held = passed[: passed_room(keep, rows - live) + 1]
            expect_deleted(held, U64(keep))
            pools = Pools(pool, keep, held, batch.deleted)
            visited = Visited(stamps, np.uint8(stamp), unseen)
            size, _ = beam(space, graph, moved, q * space.dim, pools, visited, trail)
            if keep == among or not (size and is_among_deleted(held, U64(keep), pool[0])):
                break
            keep = among
        answer_from(batch, q, pool, found_enough(size, keep, batch.deleted), keys)
    return stamp


@kernel(fastmath=FAST)
def _estimate(
    tables: NDArray[np.float32],
    words: Whole,
    codes: NDArray[np.uint8],
    at: Whole,
    subspaces: Whole,
) -> np.float32:
    """Add up a row's codewords; two sums, so that one addition need not wait for the other."""
    even = F32(0)
    odd = F32(0)
    pairs = subspaces >> U64(1)
    for j in range(pairs):
        place = U64(2) * j
        even += tables[place * words + U64(codes[at + place])]
        odd += tables[(place + U64(1)) * words + U64(codes[at + place + U64(1)])]
    if subspaces & U64(1):
        place = subspaces - U64(1)
        even += tables[place * words + U64(codes[at + place])]
    return even + odd


@kernel(fastmath=FAST)
def _beam_codes(
    estimator: Estimator, graph: FlatAdjacency, pools: Pools, visited: Visited
) -> Whole:
    """Find candidates near a query by estimated distances; as `beam`, return the pool's size."""
    pool, passed, deleted = pools.live, pools.passed, pools.deleted
    neighbours, stride, degrees = graph.neighbours, U64(graph.stride), graph.degrees
    stamps, stamp, unseen = visited.stamps, visited.stamp, visited.unseen
    tables, words, floor = estimator.tables, U64(estimator.words), estimator.floor
    codes, subspaces = estimator.codes, U64(estimator.subspaces)
    first = _estimate(tables, words, codes, U64(graph.entry) * subspaces, subspaces) - floor
    key = candidate(max(first, F32(0)), graph.entry)
    stamps[graph.entry] = stamp
    full = U64(pools.keep)
    current = beside = U64(0)
    size, count = start(key, pool, passed, deleted)
    while True:
        key = next_open(pool, current, size, full, passed, beside, count)
        if key == NOBODY:
            return size  # type: ignore[no-any-return]
        lives = mark(key, pool, current, size, passed, beside)
        node = row_of(key)
        leads = leads_to_deleted(lives, current, pool, size, full, passed, count, deleted)
        current = open_from(pool, current, size)
        beside = open_from(passed, beside, count)
        prefetch_list(
            neighbours, stride, next_open(pool, current, size, full, passed, beside, count)
        )
        unknown = U64(find_unseen(node, neighbours, stride, degrees[node], stamps, stamp, unseen))
        if not leads:
            unknown = keep_live(unseen, unknown, deleted)
        for j in range(unknown):
            prefetch(codes, U64(unseen[j]) * subspaces)
            prefetch(codes, U64(unseen[j]) * subspaces + subspaces - U64(1))
        for j in range(unknown):
            row = U64(unseen[j])
            value = _estimate(tables, words, codes, row * subspaces, subspaces) - floor
            new = candidate(max(value, F32(0)), row)
            size, current, count, beside = put(
                new, is_deleted(deleted, row), pool, size, full, current, passed, count, beside
            )
        current = open_from(pool, current, size)
        beside = open_from(passed, beside, count)


@kernel(fastmath=FAST, allocates=True)
def search_codes(
    codewords_fields: Fields,
    space_fields: Fields,
    graph_fields: Fields,
    moved: NDArray[np.float32],
    batch_fields: Fields,
    stamp: Whole,
) -> Whole:
    """Answer queries by a beam over codes, whose whole pool is then measured in the space.

    Args:
        codewords_fields: of `Codewords`: the codes of the rows.
        space_fields: of `Space`: the rows.
        graph_fields: of `FlatAdjacency`: their neighbours.
        moved: flat `(q · dim,) float32`, the queries in the space.
        batch_fields: of `QueryBatch`: the queries; its answers are written.
        stamp: the last one used; 0 at first.

    Returns:
        The last stamp used.
    """
    codewords, space = Codewords(*codewords_fields), Space(*space_fields)
    graph, batch = FlatAdjacency(*graph_fields), QueryBatch(*batch_fields)
    words, by_product, vectors = codewords.words, codewords.by_product, space.rows
    subspaces, _, count = words.shape
    dim, w = space.dim, U64(space.dim)
    stamps, live = batch.stamps, batch.live
    rows, k = len(stamps), batch.ids.shape[1]
    widest = kept_among_deleted(candidates_kept(batch.widths.max(), k, live), live, rows)
    pool = np.empty(widest + 1, np.uint64)
    passed = np.empty(passed_room(widest, rows - live) + 1, np.uint64)
    keys = np.empty(k + batch.spare, np.uint64)
    unseen = np.empty(graph.stride + 1, np.uint32)
    tables = np.empty((subspaces, count), np.float32)
    flat = tables.reshape(-1)
    for q in range(len(batch.queries)):
        keep = candidates_kept(batch.widths[q], k, live)
        among = kept_among_deleted(keep, live, rows)
        query = moved[q * dim : (q + 1) * dim]
        fill_tables(words, codewords.offsets, query, by_product, tables)
        floor = F32(0)
        if by_product:
            for j in range(subspaces):
                floor += tables[j].min()
        estimator = Estimator(flat, U64(count), floor, codewords.codes, U64(subspaces))
        while True:
            stamp = next_stamp(stamps, stamp)
            held = passed[: passed_room(keep, rows - live) + 1]
            expect_deleted(held, U64(keep))
            pools = Pools(pool, keep, held, batch.deleted)
            visited = Visited(stamps, np.uint8(stamp), unseen)
            size = _beam_codes(estimator, graph, pools, visited)
            if keep == among or not (size and is_among_deleted(held, U64(keep), pool[0])):
                break
            keep = among
        for i in range(U64(size)):
            for z in range(U64(0), w, U64(16)):
                prefetch(vectors, row_of(pool[i]) * w + z)
        for i in range(U64(size)):
            row = row_of(pool[i])
            pool[i] = candidate(squared_l2(vectors, row * w, moved, U64(q) * w, w), row)
        pool[:size].sort()
        answer_from(batch, q, pool, found_enough(size, keep, batch.deleted), keys)
    return stamp
