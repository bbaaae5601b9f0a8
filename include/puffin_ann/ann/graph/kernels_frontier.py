"""Two pools of a search among live and deleted rows: rows to answer, and rows to pass through.

Deleted rows lead to live ones, but must not take their places: however many lie near a query, the
pool of live rows holds as many as the search width says. Deleted rows that are passed through have
a pool of their own, with room for as many.

Expansions are what a search costs, and those of deleted rows answer nothing: only about a quarter
of them let a live row into the pool at all. So, once the pool of live rows is full,

- deleted rows wait until every live one is expanded: most turn out to be farther than what was
  found meanwhile;
- they are passed through only if nearer than all but the nearest third of the pool: what is found
  through others is too far to be answered;
- where measuring a neighbour costs what an expansion does, deleted neighbours are measured only of
  live rows in that nearest third, if a deleted row is near at all. Packed nodes have estimates of
  all neighbours at no cost.

A query whose nearest rows are all deleted passes through many: HNSW holds four for each live one.

Speed at recall@10 0.95 as a share of that without deleted rows, counted in expansions for packed
nodes (98,000 rows of GloVe; other queries and clusters than the benchmark's, three of them), by
share and place of the deleted rows:

| packed nodes | 5 %, 19 % anywhere | 5 %, 19 % in one cluster |
|---|---|---|
| as it is | 0.97, 1.01 | 0.99, 0.85 |
| through the nearest half | 0.96, 1.05 | 0.99, 0.83 |
| through the nearest fifth | 0.96, 0.98 | 0.99, 0.87 |
| through all, to live rows only | 0.98, 1.02 | 0.97, 0.82 |
| a graph built of the live rows | | -, 1.16 |

The same of HNSW, counted in distances and three for each expansion, of 19,000 of the demo's words
and 80,000 rows made of those (two clusters):

| HNSW | 19 % anywhere | 19 % in one cluster |
|---|---|---|
| measured from every live row, as many held as live ones | 0.92, 0.85 | 0.93, 0.75 |
| only from the nearest half | 0.96, 0.88 | 0.97, 0.77 |
| only from the nearest third | 0.98, 0.89 | 0.98, 0.76 |
| and twice as many held | 0.98, 0.89 | 0.98, 0.79 |
| and four times: as it is | 0.98, 0.89 | 0.98, 0.81 |

To stop after one, two or four deleted rows that lead to none nearer gains nothing; nor do edges
back to live rows that lost those from deleted ones, nor the nearest live rows of the neighbours of
deleted neighbours (0.98 and 0.84 with four, in distances alone). Lists chosen anew among these are
what a mask gets that comes with many queries: then few deleted rows are met (`live_lists`).

Which deleted rows lead on cannot be told from the mask: leaving out those with few live neighbours,
or whose live neighbours lie on other ways, too, gains nothing.

Without deleted rows the second pool stays empty, and a search costs what it would without it.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.primitives import U64, Whole, expanded, is_expanded, row_of
from puffin_ann.numba_kernels import inlined, kernel

NOBODY = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Stands for no candidate; greater than every one."""
AMONG_DELETED = 4
"""How much wider a query is searched again that lies among deleted rows: as many of those as live
rows are kept were nearer than any of these. A walk comes to the live rows by few ways then, and
they lie on all sides. Of 12,000 × 96 in 20 clusters, one of them deleted, a width of 64 found 0.88
of the nearest to queries in that one, and 0.99 to others; so much wider it finds 0.99 of both."""
PASSED = np.uint64(3)
"""Once the pool is full, deleted rows are passed through only among the nearest 1 / this of it."""


@inlined
def passed_room(keep, deleted_rows):  # type: ignore[no-untyped-def]
    """Return how many deleted rows are held; at least 1, for the row that a search begins at."""
    return max(1, min(keep, deleted_rows))


@inlined
def kept_among_deleted(keep, live, rows):  # type: ignore[no-untyped-def]
    """Return how many candidates are kept of a query that lies among deleted rows, see above.

    Where fewer than half of the rows live it is as many as else: most of those searches are ones
    under a condition, whose width was chosen for that.
    """
    return min(AMONG_DELETED * keep, live) if live < rows <= 2 * live else keep


@inlined
def expect_deleted(passed, keep):  # type: ignore[no-untyped-def]
    """Have `is_among_deleted` see how many deleted rows a search will hold."""
    if U64(len(passed)) > keep:
        passed[keep - U64(1)] = NOBODY


@inlined
def is_among_deleted(passed, keep, nearest):  # type: ignore[no-untyped-def]
    """Tell whether so many deleted rows as live ones are kept are nearer than the nearest live one.

    Args:
        passed: of the search, after `expect_deleted`.
        keep: how many live rows are kept.
        nearest: the nearest live row that was found.
    """
    return U64(len(passed)) > keep and passed[keep - U64(1)] < nearest


@inlined
def open_from(pool, place, size):  # type: ignore[no-untyped-def]
    """Return the place of the nearest candidate not expanded yet, from `place` on."""
    while place < size and is_expanded(pool[place]):
        place += U64(1)
    return place


@inlined
def next_open(pool, current, size, full, passed, beside, count):  # type: ignore[no-untyped-def]
    """Return what to expand next of what both pools have at these places; `NOBODY` if nothing."""
    if current < size and (size == full or beside == count):
        return pool[current]
    key = pool[current] if current < size else NOBODY
    if beside < count and is_passed(passed[beside], pool, size, full):
        return min(key, passed[beside])
    return key


@inlined
def is_passed(key, pool, size, full):  # type: ignore[no-untyped-def]
    """Tell whether a deleted row is near enough to be passed through."""
    return size < full or key < pool[full // PASSED]


@inlined
def mark(key, pool, current, size, passed, beside):  # type: ignore[no-untyped-def]
    """Mark what `next_open` gave as expanded; return whether it is a live row."""
    lives = current < size and key == pool[current]
    if lives:
        pool[current] = expanded(key)
    else:
        passed[beside] = expanded(key)
    return lives


@inlined
def has_room(pool, size, full, key):  # type: ignore[no-untyped-def]
    """Tell whether a candidate is let into an ascending pool that holds at most `full`."""
    return size < full or key < pool[size - U64(1)]


@inlined
def let_in(pool, size, full, key):  # type: ignore[no-untyped-def]
    """Put a candidate into a pool that has room for it; return the pool's size, and its place."""
    if not has_room(pool, size, full, key):
        return size, NOBODY
    size -= U64(size == full)
    return size + U64(1), U64(insert(pool, size, key))


@inlined
def put(key, is_masked, pool, size, full, current, passed, count, beside):  # type: ignore[no-untyped-def]
    """Put a candidate into its pool, if it is let in.

    Return the size of each pool, and its first place that may not be expanded.
    """
    if not is_masked:
        size, place = let_in(pool, size, full, key)
        current = min(current, place)
    elif is_passed(key, pool, size, full):
        count, place = let_in(passed, count, U64(len(passed) - 1), key)
        beside = min(beside, place)
    return size, current, count, beside


@inlined
def leads_to_deleted(lives, place, pool, size, full, passed, count, deleted):  # type: ignore[no-untyped-def]
    """Tell whether deleted neighbours of an expanded row are worth measuring.

    They are where no deleted row is near: there are so few that looking for them costs more.

    Args:
        lives: whether it is a live row.
        place: its place in the pool of live rows, if it is one.
        pool: the live rows.
        size: how many there are.
        full: how many are kept.
        passed: the deleted rows.
        count: how many there are.
        deleted: `(n,) uint8`, or empty if all rows are live.
    """
    if len(deleted) == 0 or size < full:
        return True
    near = full // PASSED
    return lives and (place < near or count == U64(0) or passed[U64(0)] >= pool[near])


@inlined
def keep_live(rows, count, deleted):  # type: ignore[no-untyped-def]
    """Move the live ones of some rows to the front, in their order; return how many there are."""
    live = U64(0)
    for j in range(count):
        row = rows[j]
        rows[live] = row
        live += U64(deleted[row] == 0)  # no branch: which rows are deleted cannot be predicted
    return live


@inlined
def start(key, pool, passed, deleted):  # type: ignore[no-untyped-def]
    """Put the first candidate into its pool; return the sizes of both."""
    if is_deleted(deleted, row_of(key)):
        passed[0] = key
        return U64(0), U64(1)
    pool[0] = key
    return U64(1), U64(0)


@kernel()
def is_deleted(deleted: NDArray[np.uint8], row: Whole) -> bool:
    """Tell whether a row is deleted; `deleted` is empty if none is."""
    return len(deleted) != 0 and deleted[row] != 0


@kernel()
def insert(pool: NDArray[np.uint64], size: Whole, key: np.uint64) -> Whole:
    """Insert a candidate in an ascending pool of `size`, which has room; return its place."""
    place = U64(size)
    while place > U64(0) and pool[place - U64(1)] > key:
        pool[place] = pool[place - U64(1)]
        place -= U64(1)
    pool[place] = key
    return place
