"""The search of inverted lists, compiled: lists, codes, refinement and exact distances in one go.

Candidates are the integers of `kernels_lists`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.types import Fields
from puffin_ann.ann.ivf.kernels_coded import ask_for, padded, refine_by_bytes
from puffin_ann.ann.ivf.kernels_lists import TILE, measure, prepare
from puffin_ann.ann.ivf.kernels_refine import answer, likely, refine
from puffin_ann.ann.ivf.kernels_scan import finish, plan, scan, sorted_lists
from puffin_ann.ann.simd.fastscan import BLOCK, GROUP, GROUP_BYTES
from puffin_ann.ann.simd.kernels_distance import dot
from puffin_ann.ann.simd.kernels_order import MOST_RANKED
from puffin_ann.numba_kernels import kernel

GROUPED_BYTES = 1 << 20
"""That scratch may take which each of a group of queries has for itself: caches hold it."""
GROUPED = 128
"""Most queries of a group."""

U64, I64 = np.uint64, np.int64
_LOW = np.uint64(0xFFFFFFFF)


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


class Scratch(NamedTuple):
    """Memory of one call: of a group of queries, and of one.

    Attributes:
        prepared: flat `(g, d + w) float32`: each query as it is compared with centroids, zeros
            behind.
        doubled: the same, times −2.
        squares: `(g,) float64`, of the queries' lengths.
        tables: `(g, 64 · groups) uint8`, by which codes are looked up.
        scales: `(g,) float32`, what sums of those are multiplied by.
        shifts: `(g,) float32`, what is added.
        scores: flat `(g, lists) float32`, those of lists, of which there are a multiple of 64.
        nearest: `(g, l) uint64`, keys of the lists to look through.
        probes: `(g,) int64`, how many; 0 where that was done.
        refined: `(g,) int64`, candidates wanted.
        found: `(g, c) uint64`, candidates.
        held: `(g,) int64`, how many.
        limits: `(g,) float32`: no row of a greater score is a candidate.
        links: `(g, l) int32`: which place of `nearest` has the same list next, -1 for none.
        heads: `(lists,) int32`: which has a list first.
        asked: `(d up to a multiple of 16,) float32`, a query.
        moved: `(d + w,) float32`, a query relative to a centroid.
        floats: `(16 · m,) float32`, its tables.
        sums: `(32,) float32`, of a block.
        least: `(64,) float32`, of the scores of lists.
        keys: `(lists,) uint64`.
        spare: `(64,) uint64`.
    """

    prepared: NDArray[np.float32]
    doubled: NDArray[np.float32]
    squares: NDArray[np.float64]
    tables: NDArray[np.uint8]
    scales: NDArray[np.float32]
    shifts: NDArray[np.float32]
    scores: NDArray[np.float32]
    nearest: NDArray[np.uint64]
    probes: NDArray[np.int64]
    refined: NDArray[np.int64]
    found: NDArray[np.uint64]
    held: NDArray[np.int64]
    limits: NDArray[np.float32]
    links: NDArray[np.int32]
    heads: NDArray[np.int32]
    asked: NDArray[np.float32]
    moved: NDArray[np.float32]
    floats: NDArray[np.float32]
    sums: NDArray[np.float32]
    least: NDArray[np.float32]
    keys: NDArray[np.uint64]
    spare: NDArray[np.uint64]


@kernel()
def _look_through(ivf, rows, effort, queries, begin, together, excluded, scratch):  # type: ignore[no-untyped-def]
    """Find the candidates of some queries, as far as lists were planned."""
    dimension = queries.shape[1]
    stride, tiles = dimension + ivf.words.shape[1], (ivf.lists + TILE - 1) // TILE
    prepared, doubled, squares = scratch.prepared, scratch.doubled, scratch.squares
    for i in range(together):
        q = begin + i
        squares[i] = dot(queries, q, queries, q)
        prepare(rows.metric, queries, q, squares[i], ivf.origin, prepared, doubled, i * stride)
    measure(doubled, stride, together, ivf.centroids, tiles, dimension, scratch.scores)
    planned = 0
    for i in range(together):
        planned += plan(ivf, i * stride, effort, excluded, scratch, i)
    scan(ivf, stride, excluded, scratch, together, planned)


@kernel()
def _search(  # type: ignore[no-untyped-def]
    ivf, rows, effort, queries, excluded, ids, distances, candidates, scratch
):
    """As `search`, which makes the scratch: here no references are counted, a tenth of the time."""
    dimension, k, group = queries.shape[1], ids.shape[1], len(scratch.squares)
    flat_queries = queries.reshape(-1)
    stride = dimension + ivf.words.shape[1]
    prepared, asked = scratch.prepared, scratch.asked
    # To refine all rows is to compare them all: none is left out by its bytes, or by float32.
    are_all = effort.refined >= len(rows.vectors)
    by_bytes = len(rows.coded) > 0
    short = 0
    for begin in range(0, len(queries), group):
        together = min(group, len(queries) - begin)
        _look_through(ivf, rows, effort, queries, begin, together, excluded, scratch)
        for i in range(together):
            q, at, found = begin + i, i * stride, scratch.found[i]
            held = finish(ivf, at, excluded, scratch, i)
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
            there = answer(
                rows, queries, q, scratch.squares[i], found, scratch.spare, best, ids[q],
                distances[q],
            )  # fmt: skip
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
    stride, room = dimension + width, (ivf.lists + TILE - 1) // TILE * TILE
    table, most = (count + GROUP - 1) // GROUP * GROUP_BYTES, sorted_lists(effort, ivf.lists)
    wanted = 2 * min(effort.among * effort.refined, len(ivf.ordinals)) + 2 * BLOCK
    each = 8 * stride + table + 4 * room + 12 * most + 8 * wanted
    group = max(1, min(GROUPED, len(queries), GROUPED_BYTES // each))
    scratch = Scratch(
        np.zeros(group * stride, np.float32),
        np.zeros(group * stride, np.float32),
        np.zeros(group),
        np.zeros((group, table), np.uint8),
        np.zeros(group, np.float32),
        np.zeros(group, np.float32),
        np.empty(group * room, np.float32),
        np.empty((group, most), np.uint64),
        np.zeros(group, np.int64),
        np.zeros(group, np.int64),
        np.empty((group, wanted), np.uint64),
        np.zeros(group, np.int64),
        np.zeros(group, np.float32),
        np.empty((group, most), np.int32),
        np.empty(ivf.lists, np.int32),
        np.zeros(padded(dimension), np.float32),
        np.zeros(stride, np.float32),
        np.empty(16 * count, np.float32),
        np.empty(BLOCK, np.float32),
        np.empty(TILE, np.float32),
        np.empty(room, np.uint64),
        np.empty(MOST_RANKED, np.uint64),
    )
    short: int = _search(ivf, rows, effort, queries, excluded, ids, distances, candidates, scratch)
    return short
