"""The loops of HNSW: down the layers to where a search begins, and the tail of hnswlib's file."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.types import Fields
from puffin_ann.ann.graph.arguments import FlatAdjacency, Pools, QueryBatch, Space, Visited
from puffin_ann.ann.graph.kernels_answer import (
    answer_from,
    candidates_kept,
    found_enough,
    next_stamp,
)
from puffin_ann.ann.graph.kernels_beam import LINE, PREFETCHED, find_unseen, prefetch_list
from puffin_ann.ann.graph.kernels_frontier import (
    NOBODY,
    expect_deleted,
    insert,
    is_among_deleted,
    is_deleted,
    keep_live,
    kept_among_deleted,
    leads_to_deleted,
    let_in,
    mark,
    next_open,
    open_from,
    passed_room,
    put,
)
from puffin_ann.ann.graph.primitives import F32, U32, U64, Whole, row_of
from puffin_ann.ann.simd.vectors import prefetch
from puffin_ann.numba_kernels import FAST, inlined, kernel

BAD_TAIL = -1
ROOM = 4
"""Deleted rows held for each live one; for packed nodes, which estimate neighbours of deleted rows
at once, as many more expansions cost more than they find (`graph.kernels_frontier`)."""
_SIGN = np.uint32(0x80000000)


class UpperLayers(NamedTuple):
    """The layers above layer 0, see `layers.Layers`.

    Attributes:
        neighbours: flat `(u · links,) uint32`.
        links: M.
        degrees: `(u,) uint16`.
        first: `(n,) uint32`, see `layers.first_lists`.
        top: the highest layer.
    """

    neighbours: NDArray[np.uint32]
    links: Whole
    degrees: NDArray[np.uint16]
    first: NDArray[np.uint32]
    top: int


@inlined
def _signed(value: np.float32, row: Whole) -> np.uint64:
    """Return a candidate of a distance that may be negative; candidates sort as those do."""
    bits = F32(value).view(U32)
    bits = ~bits & U32(0xFFFFFFFF) if bits & _SIGN else bits | _SIGN
    return (U64(bits) << U64(32)) | (U64(row) << U64(1))


@inlined
def _distance(
    product: bool,
    one: NDArray[np.float32],
    at_one: Whole,
    other: NDArray[np.float32],
    at_other: Whole,
    dim: Whole,
) -> np.float32:
    """Return the squared distance of two rows of flat arrays, or their product, negated."""
    total = F32(0)
    if product:
        for i in range(U64(dim)):
            total -= one[U64(at_one) + i] * other[U64(at_other) + i]
        return total
    for i in range(U64(dim)):
        difference = one[U64(at_one) + i] - other[U64(at_other) + i]
        total += difference * difference
    return total


@kernel(fastmath=FAST)
def descend(
    product: bool,
    space: Space,
    upper: UpperLayers,
    entry: Whole,
    queries: NDArray[np.float32],
    query: Whole,
) -> np.uint64:
    """Walk greedily down the upper layers; return the row at which layer 0 is entered.

    Args:
        product: measure by negated inner product, not by squared distance.
        space: the rows.
        upper: the upper layers.
        entry: row of the highest layer.
        queries: flat float32, rows of `space.dim` numbers.
        query: where in `queries` the query begins.
    """
    rows, w, at = space.rows, U64(space.dim), U64(query)
    neighbours, degrees, first = upper.neighbours, upper.degrees, upper.first
    node = U64(entry)
    nearest = _distance(product, rows, node * w, queries, at, w)
    for step in range(upper.top):
        layer = U64(upper.top - step)
        moved = True
        while moved:
            moved = False
            line = U64(first[node]) + layer - U64(1)
            for j in range(U64(degrees[line])):
                row = U64(neighbours[line * U64(upper.links) + j])
                found = _distance(product, rows, row * w, queries, at, w)
                if found < nearest:
                    nearest = found
                    node = row
                    moved = True
    return node


@kernel(fastmath=FAST)
def beam(
    product: bool,
    space: Space,
    graph: FlatAdjacency,
    begin: Whole,
    queries: NDArray[np.float32],
    query: Whole,
    pools: Pools,
    visited: Visited,
) -> Whole:
    """Find candidates near a query in layer 0; return how many the pool of live rows holds.

    Every row can be reached from the entry, but not from every row: edges are of one direction, and
    by inner product nearly all lead to the longest rows. A search that comes to an end with room
    left goes on from the entry, so that one that may keep every row finds every row.

    Args:
        product: measure by negated inner product, not by squared distance.
        space: the rows.
        graph: layer 0, from whose entry all rows can be reached.
        begin: row to begin at.
        queries: flat float32, rows of `space.dim` numbers.
        query: where in `queries` the query begins.
        pools: written.
        visited: changed.
    """
    rows, pool, passed, deleted = space.rows, pools.live, pools.passed, pools.deleted
    neighbours, stride, degrees = graph.neighbours, U64(graph.stride), graph.degrees
    stamps, stamp, unseen = visited.stamps, visited.stamp, visited.unseen
    w = U64(space.dim)
    at = U64(query)
    full, most = U64(pools.keep), U64(len(passed) - 1)
    ahead = min(w, U64(PREFETCHED))
    size = current = count = beside = U64(0)
    start = U64(begin)
    while True:
        key = next_open(pool, current, size, full, passed, beside, count)
        if key == NOBODY:
            if size == full or stamps[start] == stamp:
                return size
            stamps[start] = stamp
            new = _signed(_distance(product, rows, start * w, queries, at, w), start)
            if is_deleted(deleted, start):
                count = min(count, most - U64(1))
                beside = U64(insert(passed, count, new))
                count += U64(1)
            else:
                size, current = let_in(pool, size, full, new)
            start = U64(graph.entry)
            continue
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
            for z in range(U64(0), ahead, LINE):
                prefetch(rows, U64(unseen[j]) * w + z)
        for j in range(unknown):
            row = U64(unseen[j])
            new = _signed(_distance(product, rows, row * w, queries, at, w), row)
            size, current, count, beside = put(
                new, is_deleted(deleted, row), pool, size, full, current, passed, count, beside
            )
        current = open_from(pool, current, size)
        beside = open_from(passed, beside, count)


@kernel(fastmath=FAST, allocates=True)
def search(
    product: bool,
    space_fields: Fields,
    graph_fields: Fields,
    upper_fields: Fields,
    moved: NDArray[np.float32],
    batch_fields: Fields,
    stamp: Whole,
) -> Whole:
    """Answer queries by a beam over layer 0, begun where `descend` arrives.

    Args:
        product: measure by negated inner product, not by squared distance.
        space_fields: of `Space`: the rows.
        graph_fields: of `FlatAdjacency`: layer 0.
        upper_fields: of `UpperLayers`.
        moved: flat `(q · dim,) float32`, the queries in the space.
        batch_fields: of `QueryBatch`: the queries; its answers are written.
        stamp: the last one used; 0 at first.

    Returns:
        The last stamp used.
    """
    space, graph = Space(*space_fields), FlatAdjacency(*graph_fields)
    upper, batch = UpperLayers(*upper_fields), QueryBatch(*batch_fields)
    stamps, live = batch.stamps, batch.live
    rows, k = len(stamps), batch.ids.shape[1]
    widest = kept_among_deleted(candidates_kept(batch.widths.max(), k, live), live, rows)
    pool = np.empty(widest + 1, np.uint64)
    passed = np.empty(passed_room(ROOM * widest, rows - live) + 1, np.uint64)
    keys = np.empty(k + batch.spare, np.uint64)
    unseen = np.empty(graph.stride + 1, np.uint32)
    for q in range(len(batch.queries)):
        keep = candidates_kept(batch.widths[q], k, live)
        among = kept_among_deleted(keep, live, rows)
        at = q * space.dim
        begin = np.int64(descend(product, space, upper, graph.entry, moved, at))
        while True:
            stamp = next_stamp(stamps, stamp)
            held = passed[: passed_room(ROOM * keep, rows - live) + 1]
            expect_deleted(held, U64(keep))
            pools = Pools(pool, keep, held, batch.deleted)
            visited = Visited(stamps, np.uint8(stamp), unseen)
            size = beam(product, space, graph, begin, moved, at, pools, visited)
            if keep == among or not (size and is_among_deleted(held, U64(keep), pool[0])):
                break
            keep = among
        answer_from(batch, q, pool, found_enough(size, keep, batch.deleted), keys)
    return stamp


@kernel()
def tail_levels(tail: NDArray[np.uint32], links: int, levels: NDArray[np.uint8]) -> int:
    """Read each row's level off the tail of hnswlib's file; return the lists there are.

    The tail has, for each row, the bytes of its upper lists, then the lists: a count and `links`
    neighbours each. `BAD_TAIL` if that is not what it has.
    """
    at = 0
    lists = 0
    for row in range(len(levels)):
        if at >= len(tail):
            return BAD_TAIL
        words = np.int64(tail[at]) // 4
        level = words // (links + 1)
        if words * 4 != tail[at] or level * (links + 1) != words or level > 255:
            return BAD_TAIL
        levels[row] = level
        lists += level  # type: ignore[assignment]
        at += 1 + words  # type: ignore[assignment]
    return lists if at == len(tail) else BAD_TAIL


@kernel()
def tail_lists(
    tail: NDArray[np.uint32],
    levels: NDArray[np.uint8],
    degrees: NDArray[np.uint16],
    lists: NDArray[np.uint32],
) -> None:
    """Read the upper lists off a tail that `tail_levels` has found sound.

    Args:
        tail: flat uint32.
        levels: `(n,) uint8`.
        degrees: `(u,) uint16`, written.
        lists: `(u, M) uint32`, written; 0 beyond the degree.
    """
    links = lists.shape[1]
    at = 0
    line = 0
    for row in range(len(levels)):
        at += 1
        for _ in range(levels[row]):
            degree = min(np.int64(tail[at] & np.uint32(0xFFFF)), links)
            degrees[line] = degree
            for j in range(links):
                lists[line, j] = tail[at + 1 + j] if j < degree else 0
            at += links + 1
            line += 1
