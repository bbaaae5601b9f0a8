"""The loops of HNSW: down the layers to where a search begins, and the tail of hnswlib's file."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.kernels_answer import answer_from, found_enough, kept, next_stamp
from puffin_ann.ann.graph.kernels_beam import unseen
from puffin_ann.ann.graph.kernels_frontier import (
    NOBODY,
    insert,
    is_dead,
    let_in,
    mark,
    next_open,
    open_from,
    passed_room,
    put,
    wanted,
)
from puffin_ann.ann.graph.primitives import F32, FAST, U32, U64, Whole, row_of
from puffin_ann.ann.simd.vectors import prefetch

from numba import njit  # isort: skip  (after the primitives have configured it)

BAD_TAIL = -1
PREFETCHED = 128
"""Numbers of a row asked for ahead; the hardware fetches the rest of a longer one."""

_SIGN = np.uint32(0x80000000)


@njit(inline="always")
def _signed(value: np.float32, row: Whole) -> np.uint64:
    """Return a candidate of a distance that may be negative; candidates sort as those do."""
    bits = F32(value).view(U32)
    bits = ~bits & U32(0xFFFFFFFF) if bits & _SIGN else bits | _SIGN
    return (U64(bits) << U64(32)) | (U64(row) << U64(1))


@njit(cache=True, nogil=True, fastmath=FAST, inline="always")
def _apart(
    product: bool,
    one: NDArray[np.float32],
    at_one: Whole,
    other: NDArray[np.float32],
    at_other: Whole,
    width: Whole,
) -> np.float32:
    """Return the squared distance of two rows of flat arrays, or their product, negated."""
    total = F32(0)
    if product:
        for i in range(U64(width)):
            total -= one[U64(at_one) + i] * other[U64(at_other) + i]
        return total
    for i in range(U64(width)):
        difference = one[U64(at_one) + i] - other[U64(at_other) + i]
        total += difference * difference
    return total


@njit(cache=True, nogil=True, fastmath=FAST)
def descend(
    product: bool,
    space: NDArray[np.float32],
    width: Whole,
    upper: NDArray[np.uint32],
    links: Whole,
    upper_degrees: NDArray[np.uint16],
    first: NDArray[np.uint32],
    entry: Whole,
    top: Whole,
    queries: NDArray[np.float32],
    query: Whole,
) -> np.uint64:
    """Walk greedily down the upper layers; return the row at which layer 0 is entered.

    Args:
        product: measure by negated inner product, not by squared distance.
        space: flat `(n · width,) float32`.
        width: numbers in a row.
        upper: flat `(u · links,) uint32`.
        links: M.
        upper_degrees: `(u,) uint16`.
        first: `(n,) uint32`, see `layers.first_lists`.
        entry: row of the highest layer.
        top: that layer.
        queries: flat float32.
        query: where in `queries` the query begins.
    """
    w = U64(width)
    at = U64(query)
    node = U64(entry)
    nearest = _apart(product, space, node * w, queries, at, w)
    for step in range(top):
        layer = U64(top - step)
        moved = True
        while moved:
            moved = False
            line = U64(first[node]) + layer - U64(1)
            for j in range(U64(upper_degrees[line])):
                row = U64(upper[line * U64(links) + j])
                found = _apart(product, space, row * w, queries, at, w)
                if found < nearest:
                    nearest = found
                    node = row
                    moved = True
    return node


@njit(cache=True, nogil=True, fastmath=FAST)
def beam(
    product: bool,
    space: NDArray[np.float32],
    width: Whole,
    neighbours: NDArray[np.uint32],
    stride: Whole,
    degrees: NDArray[np.uint16],
    begin: Whole,
    entry: Whole,
    queries: NDArray[np.float32],
    query: Whole,
    pool: NDArray[np.uint64],
    keep: Whole,
    passed: NDArray[np.uint64],
    dead: NDArray[np.uint8],
    stamps: NDArray[np.uint8],
    stamp: np.uint8,
    fresh: NDArray[np.uint32],
) -> Whole:
    """Find candidates near a query in layer 0; return how many the pool holds.

    Every row can be reached from the entry, but not from every row: edges are of one direction, and
    by inner product nearly all lead to the longest rows. A search that comes to an end with room
    left goes on from the entry, so that one that may keep every row finds every row.

    Args:
        product: measure by negated inner product, not by squared distance.
        space: flat `(n · width,) float32`.
        width: numbers in a row, a multiple of 16.
        neighbours: flat `(n · stride,) uint32`.
        stride: 2M.
        degrees: `(n,) uint16`.
        begin: row to begin at.
        entry: row from which all can be reached.
        queries: flat float32.
        query: where in `queries` the query begins.
        pool: `(keep + 1,) uint64`, written: live candidates, ascending.
        keep: ef, candidates kept.
        passed: uint64, its length less 1 is the most dead rows it holds; written: those passed
            through, see `kernels_frontier`.
        dead: `(n,) uint8`, or empty if all rows live.
        stamps: `(n,) uint8`; rows that carry `stamp` count as seen.
        stamp: of this search, carried by no row yet.
        fresh: `(stride + 1,) uint32` scratch.
    """
    w = U64(width)
    at = U64(query)
    full, most = U64(keep), U64(len(passed) - 1)
    ahead = min(w, U64(PREFETCHED))
    size = current = count = beside = U64(0)
    start = U64(begin)
    while True:
        key = next_open(pool, current, size, full, passed, beside, count)
        if key == NOBODY:
            if size == full or stamps[start] == stamp:
                return size
            stamps[start] = stamp
            new = _signed(_apart(product, space, start * w, queries, at, w), start)
            if is_dead(dead, start):
                count = min(count, most - U64(1))
                beside = U64(insert(passed, count, new))
                count += U64(1)
            else:
                size, current = let_in(pool, size, full, new)
            start = U64(entry)
            continue
        lives = mark(key, pool, current, size, passed, beside)
        node = row_of(key)
        unknown = U64(unseen(node, neighbours, U64(stride), degrees[node], stamps, stamp, fresh))
        unknown = wanted(fresh, unknown, lives, size, full, dead)
        for j in range(unknown):
            for z in range(U64(0), ahead, U64(16)):
                prefetch(space, U64(fresh[j]) * w + z)
        for j in range(unknown):
            row = U64(fresh[j])
            new = _signed(_apart(product, space, row * w, queries, at, w), row)
            size, current, count, beside = put(
                new, is_dead(dead, row), pool, size, full, current, passed, count, beside
            )
        current = open_from(pool, current, size)
        beside = open_from(passed, beside, count)


@njit(cache=True, nogil=True, fastmath=FAST)
def search(
    product: bool,
    space: NDArray[np.float32],
    width: Whole,
    neighbours: NDArray[np.uint32],
    stride: Whole,
    degrees: NDArray[np.uint16],
    upper: NDArray[np.uint32],
    links: Whole,
    upper_degrees: NDArray[np.uint16],
    first: NDArray[np.uint32],
    entry: Whole,
    top: Whole,
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
    """Answer queries by a beam over layer 0, begun where `descend` arrives.

    Args:
        product: measure by negated inner product, not by squared distance.
        space: flat `(n · width,) float32`.
        width: numbers in a row of the space.
        neighbours: flat `(n · stride,) uint32`.
        stride: 2M.
        degrees: `(n,) uint16`.
        upper: and the five after it: see `descend`.
        links: M.
        upper_degrees: `(u,) uint16`.
        first: `(n,) uint32`.
        entry: row of the highest layer.
        top: that layer.
        moved: flat `(q · width,) float32`, the queries in the space.
        metric: code.
        vectors: `(n, d) float32`, as stored.
        queries: `(q, d) float32`.
        widths: `(q,) int64`, ef: candidates wanted.
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
    for q in range(len(queries)):
        stamp = next_stamp(stamps, stamp)
        keep = kept(widths[q], k, live)
        begin = descend(
            product,
            space,
            width,
            upper,
            links,
            upper_degrees,
            first,
            entry,
            top,
            moved,
            q * width,
        )
        size = beam(
            product,
            space,
            width,
            neighbours,
            stride,
            degrees,
            np.int64(begin),
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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
