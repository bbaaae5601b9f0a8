"""Answering queries from packed graphs: they are walked, and what was found is measured exactly."""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from puffin_ann.ann.core.types import HORIZON, SEEN, THROUGH, Fields
from puffin_ann.ann.graph.arguments import Pools, QueryBatch
from puffin_ann.ann.graph.kernels_answer import candidates_kept
from puffin_ann.ann.graph.kernels_frontier import (
    expect_deleted,
    is_among_deleted,
    kept_among_deleted,
    passed_room,
)
from puffin_ann.ann.graph.primitives import F32, U64, Whole
from puffin_ann.ann.signs.kernels_rotate import rotate
from puffin_ann.ann.signs.kernels_tables import tables_of
from puffin_ann.ann.simd.fastscan import BLOCK
from puffin_ann.ann.simd.intrinsics import numbers_at, rows_at
from puffin_ann.ann.simd.kernels_distance import dot
from puffin_ann.ann.vamana.packed.kernels_measure import answer, error_of_codes, horizon
from puffin_ann.ann.vamana.packed.kernels_pool import BEYOND, LANES, fresh_room
from puffin_ann.ann.vamana.packed.kernels_tables import PackedGraph, PlacedQuery, place_query
from puffin_ann.ann.vamana.packed.kernels_walk import walk
from puffin_ann.numba_kernels import inlined, kernel

LONGEST = 2.0**12
"""Rows are shorter than 1. Of the distances of a query so much longer, few digits would be left:
it is answered by comparing all rows."""

WIDER, MORE = 1.25, 4
"""Candidates kept, a quarter and four more than the width says: so a width finds about as much as
over full vectors, which estimates alone would not."""
WIDER_AGAIN, WIDEST_AGAIN = 2, 4
"""So much wider, and at most, a query is searched again that found fewer rows than are wanted,
since some entered more than once and left others no place: to compare all would take longer."""

NO_SIEVE, NO_SIEVES = np.empty(0, np.uint8), np.empty(0, np.uint64)
"""For a search in which every live row may be answered, of one graph or of several."""
NO_SIGHT, NO_SIGHTS = np.empty((1, 3), np.float32), np.empty((1, 1, 3), np.float32)
"""What such a search leaves as it is."""

_bytes, _numbers = numbers_at(types.uint8), numbers_at(types.uint32)
_floats, _rows = numbers_at(types.float32), rows_at(types.float32)


class Room(NamedTuple):
    """What a search writes to and reads again; see `ask`.

    Attributes:
        pool: uint64, candidates that are live rows; see `Pools`.
        passed: uint64, deleted rows passed through; see `Pools`.
        best: uint64, see `walk`.
        near: uint64, see `walk`; where rows are read by their codes, else empty.
        fresh: uint64, see `walk`.
        placed: `(w,) float32`, a query in the frame.
        scratch: `(w,) float32`.
        moved: `(w,) float32`, the query rotated.
        asked: `(d,) float32`, see `PlacedQuery`.
        tables: uint8, see `PlacedQuery`.
        estimates: `(32,) float32`.
    """

    pool: NDArray[np.uint64]
    passed: NDArray[np.uint64]
    best: NDArray[np.uint64]
    near: NDArray[np.uint64]
    fresh: NDArray[np.uint64]
    placed: NDArray[np.float32]
    scratch: NDArray[np.float32]
    moved: NDArray[np.float32]
    asked: NDArray[np.float32]
    tables: NDArray[np.uint8]
    estimates: NDArray[np.float32]


@inlined
def _next_stamps(stamps, stamp):  # type: ignore[no-untyped-def]
    """Return a stamp that no row carries, and neither the one before it, see `walk`."""
    if stamp < 254:
        return stamp + 2
    stamps[:] = 0
    return 2


@inlined
def _candidates_kept(width, k, rows):  # type: ignore[no-untyped-def]
    return min(int(WIDER * candidates_kept(width, k, rows)) + MORE, rows)


@inlined
def _most_kept(candidates, live, bits):  # type: ignore[no-untyped-def]
    """Return how many candidates a search keeps at most that found fewer rows than are wanted."""
    return min(WIDEST_AGAIN * candidates, live) if bits == 1 else candidates


@inlined
def _room_kept(candidates, live, rows, bits):  # type: ignore[no-untyped-def]
    """Return how many candidates a search keeps at most, however often it is repeated."""
    return max(_most_kept(candidates, live, bits), kept_among_deleted(candidates, live, rows))


@inlined
def _room_for(candidates, gone, best, numbers, dim, bits, row_bytes):  # type: ignore[no-untyped-def]
    """Return room for searches of so many candidates and deleted rows, best rows and dimensions."""
    return Room(
        np.empty(candidates + BEYOND, np.uint64),
        np.empty(passed_room(candidates, gone) + 1 + LANES, np.uint64),
        np.empty(best + 1, np.uint64),
        np.empty(2 * candidates + best if row_bytes else 0, np.uint64),
        np.empty(fresh_room(candidates), np.uint64),
        np.empty(dim, np.float32),
        np.empty(dim, np.float32),
        np.empty(dim, np.float32),
        np.empty(numbers, np.float32),
        np.empty(4 * bits * dim, np.uint8),
        np.empty(BLOCK, np.float32),
    )


@kernel()
def ask(
    nodes: PackedGraph,
    vectors: NDArray[np.float32],
    deleted: NDArray[np.uint8],
    live: Whole,
    sieve: NDArray[np.uint8],
    stamps: NDArray[np.uint8],
    stamp: Whole,
    metric: int,
    queries: NDArray[np.float32],
    query: Any,
    square: float,
    width: Whole,
    room: Room,
    ids: NDArray[np.int64],
    distances: NDArray[np.float32],
    sight: NDArray[np.float32],
) -> Whole:
    """Answer a query from one graph; return how many answers there are.

    Args:
        nodes: the graph.
        vectors: `(n, d) float32`, its rows as stored.
        deleted: `(n,) uint8`, or empty if all rows are live.
        live: how many rows are.
        sieve: `(n,) uint8`, non-zero for rows that must not be answered, or empty. Rows are looked
            for as without it, and these then left out.
        stamps: `(n,) uint8`, see `walk`.
        stamp: of this search, see `_next_stamps`.
        metric: code.
        queries: `(q, d) float32`.
        query: which of them.
        square: its squared norm.
        width: candidates wanted; see `kernels_answer.candidates_kept`.
        room: scratch, which is wide enough.
        ids: `(k,) int64`, written; -1 where there is none.
        distances: `(k,) float32`, written; infinite there.
        sight: `(3,) float32`, written if there is a sieve; see `Sight`.
    """
    length = place_query(nodes, metric, queries, query, square, room.asked, room.placed)
    found: Whole = U64(0)
    wanted: Whole = U64(0)
    if len(sieve):
        sight[HORIZON], sight[SEEN], sight[THROUGH] = F32(-np.inf), F32(0), F32(0)
    if length < LONGEST:
        rotate(room.placed, nodes.across, nodes.within, room.scratch, room.moved, U64(0))
        step, base = tables_of(room.moved, nodes.bits, room.tables, room.scratch)
        keep = _candidates_kept(width, len(ids), live)
        most = among = keep
        if len(sieve) == 0:
            most = _most_kept(keep, live, nodes.bits)
            among = kept_among_deleted(keep, live, len(vectors))
        asked = room.moved if nodes.row_bytes else room.asked
        placed = PlacedQuery(asked, room.tables, step, base)
        while True:
            passed = room.passed[: passed_room(keep, len(vectors) - live) + 1 + LANES]
            held = passed[: len(passed) - LANES]
            expect_deleted(held, U64(keep))
            found, is_full, seen, wanted = walk(
                nodes, vectors.reshape(-1), placed, Pools(room.pool, keep, passed, deleted), sieve,
                stamps, np.uint8(stamp), room.best, room.near, room.fresh, room.estimates,
            )  # fmt: skip
            is_few = U64(0) < found < U64(len(ids))
            if keep < among and found and is_among_deleted(held, U64(keep), room.best[0]):
                keep = among
            elif is_few and keep < most:
                keep = min(WIDER_AGAIN * keep, most)
            else:
                break
            stamps[:] = 0
        if len(sieve):
            sight[SEEN], sight[THROUGH] = F32(seen), F32(wanted)
            if seen >= live:
                sight[HORIZON] = np.inf
            elif is_full:
                sight[HORIZON] = horizon(room.pool, keep, metric, queries, query, square, vectors)
    near = room.near[: min(U64(len(room.near)), wanted)]
    return answer(
        metric, queries, query, square, length, error_of_codes(nodes), room.best, found, near,
        vectors, ids, distances,
    )  # fmt: skip


@kernel()
def _search_packed(  # type: ignore[no-untyped-def]
    nodes, batch, stamp, sieve, sights, room
):
    """As `search_packed`, which makes the room: here no references are counted."""
    queries = batch.queries
    for q in range(len(queries)):
        stamp = _next_stamps(batch.stamps, stamp)
        square = dot(queries, q, queries, q)
        batch.counts[q] = ask(
            nodes, batch.vectors, batch.deleted, batch.live, sieve, batch.stamps, stamp,
            batch.metric, queries, q, square, batch.widths[q], room, batch.ids[q],
            batch.distances[q], sights[q if len(sieve) else 0],
        )  # fmt: skip
    return stamp


@kernel(allocates=True)
def search_packed(
    graph_fields: Fields,
    batch_fields: Fields,
    stamp: Whole,
    sieve: NDArray[np.uint8],
    sights: NDArray[np.float32],
) -> Whole:
    """Answer queries.

    Args:
        graph_fields: of `PackedGraph`.
        batch_fields: of `QueryBatch`: the queries; its answers are written. The spare candidates
            may be measured where rounding can have swapped them.
        stamp: the last one used; 0 at first.
        sieve: see `ask`.
        sights: `(q, 3) float32`, at least one, written if there is a sieve: see `Sight`.

    Returns:
        The last stamp used.
    """
    nodes, batch = PackedGraph(*graph_fields), QueryBatch(*batch_fields)
    live, rows, k = batch.live, len(batch.vectors), batch.ids.shape[1]
    widest = _room_kept(_candidates_kept(batch.widths.max(), k, live), live, rows, nodes.bits)
    room = _room_for(
        widest, rows - live, k + batch.spare, batch.queries.shape[1], len(nodes.origin),
        nodes.bits, nodes.row_bytes,
    )  # fmt: skip
    last: Whole = _search_packed(nodes, batch, stamp, sieve, sights, room)
    return last


@kernel()
def _search_several(  # type: ignore[no-untyped-def]
    graphs, metric, queries, widths, stamps, stamp, ids, distances, counts, sieves, sights, room
):
    """As `search_several`, which makes the room: here no references are counted."""
    many, dimension, dim, bits = len(graphs), queries.shape[1], graphs[0].dim, graphs[0].bits
    for q in range(len(queries)):
        square = dot(queries, q, queries, q)
        if stamp >= 254:
            for g in range(many):
                _bytes(stamps[g], graphs[g].rows)[:] = 0
            stamp = 0
        stamp += 2
        for g in range(many):
            if widths[g, q] == 0:
                ids[g, q, :] = -1
                distances[g, q, :] = np.inf
                counts[g, q] = 0
                if len(sieves):
                    sights[g, q, HORIZON] = np.inf
                    sights[g, q, SEEN] = sights[g, q, THROUGH] = 0
                continue
            graph = graphs[g]
            rows, size = graph.rows, graph.rows * graph.stride
            nodes = PackedGraph(
                _bytes(graph.packed, size), _numbers(graph.packed, size >> 2), graph.stride, bits,
                graph.row_bytes, graph.code_bytes, graph.most, graph.entry,
                _floats(graph.origin, dim), graph.scale, _rows(graph.across, dim >> 4, dim >> 4),
                _rows(graph.within, 16, 16), graph.length,
            )  # fmt: skip
            sieve = _bytes(sieves[g] if len(sieves) else stamps[g], rows if len(sieves) else 0)
            sight = sights[g if len(sieves) else 0, q if len(sieves) else 0]
            counts[g, q] = ask(
                nodes, _rows(graph.vectors, rows, dimension),
                _bytes(graph.deleted, rows if graph.live < rows else 0), graph.live, sieve,
                _bytes(stamps[g], rows), stamp, metric, queries, q, square, widths[g, q], room,
                ids[g, q], distances[g, q], sight,
            )  # fmt: skip
    return stamp


@kernel(allocates=True)
def search_several(
    graphs: NDArray[np.void],
    metric: int,
    queries: NDArray[np.float32],
    widths: NDArray[np.int64],
    spare: int,
    stamps: NDArray[np.uint64],
    stamp: Whole,
    ids: NDArray[np.int64],
    distances: NDArray[np.float32],
    counts: NDArray[np.int64],
    sieves: NDArray[np.uint64],
    sights: NDArray[np.float32],
) -> Whole:
    """Answer a few queries from several graphs each: one call where there would be as many.

    Args:
        graphs: `(graphs,) PLACED`, as wide and of as many bits as the first.
        metric: code.
        queries: `(q, d) float32`.
        widths: `(graphs, q) int64`, candidates wanted of each; 0 where a query is not asked.
        spare: as of `QueryBatch`.
        stamps: `(graphs,) uint64`, addresses of those of each graph; see `QueryBatch`.
        stamp: the last one used of all; 0 at first.
        ids: `(graphs, q, k) int64`, written; -1 where there is none.
        distances: `(graphs, q, k) float32`, written; infinite there.
        counts: `(graphs, q) int64`, written: how many answers there are.
        sieves: `(graphs,) uint64`, addresses of the sieve of each, see `ask`; or empty.
        sights: `(graphs, q, 3) float32`, at least one, written if there are sieves: see `Sight`;
            where a query is not asked, nothing is seen, and all known.

    Returns:
        The last stamp used.
    """
    many, k, dimension = len(graphs), ids.shape[2], queries.shape[1]
    dim, bits = graphs[0].dim, graphs[0].bits
    widest = most_gone = 0
    for g in range(many):
        kept = _candidates_kept(widths[g].max(), k, graphs[g].live)
        widest = max(widest, _room_kept(kept, graphs[g].live, graphs[g].rows, bits))
        most_gone = max(most_gone, graphs[g].rows - graphs[g].live)
    room = _room_for(widest, most_gone, k + spare, dimension, dim, bits, graphs[0].row_bytes)
    last: Whole = _search_several(
        graphs, metric, queries, widths, stamps, stamp, ids, distances, counts, sieves, sights, room
    )
    return last
