"""Edges by inner product: they lead to rows that answer much, where lists have room for them.

By inner product a graph is made over rows with one number more, by which all are equally long
(`core.metrics`). Near a row there are those of its direction, long or short, while the answers of
queries are long rows for the most part, which lie far from each other there: a search goes from one
to the next through short ones. So the longest rows are compared with each other, and the free
places of their lists lead to those of the largest products, after Morozov and Babenko (ip-NSW,
NeurIPS 2018): a row gets an edge unless one of its neighbours has the larger product with it.

Search widths by packed nodes at recall@10 of 0.90 and 0.95, before and after:

| rows | before | after |
|---|---|---|
| sums of word vectors, 57,248 × 100, 0.1 long, 0.19 the longest fiftieth | 124, 252 | 67, 115 |
| glosses, 39,000 × 384, scaled by log-normal numbers, σ 0.3 | 135, 251 | 46, 89 |
| glosses, 24,000 × 384, σ 0.1 | 42, 81 | 29, 54 |
| words of packages, 15,376 × 100, 0.24 long, 1.5 the longest fiftieth | 59, 90 | 60, 95 |

What was no better: to compare all rows with the longest fiftieth alone, and fill every place with
the largest products, which takes twice the width on those glosses; to take half or more of a list
for such edges; to begin at the longest row, by which narrow searches find less; and to search the
graph for the rows that are not compared, which takes as long again for a twentieth of the width.
Where rows are as unlike as in the last line, packed nodes find a hundredth less by widths from 256
on: their estimates over the longest edges are the worst. Those get no such edges.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import blas
from puffin_ann.ann.core.memmap import read_only
from puffin_ann.ann.exact import brute_force
from puffin_ann.ann.graph.arguments import Adjacency
from puffin_ann.ann.vamana import kernels_product_edges as kernels
from puffin_ann.ann.vamana.incremental.insert import first_equal

CANDIDATES = 48
"""Rows of the largest products that may get an edge from a row."""
COMPARED = 4096
"""Rows that are compared for each row of the shard: the square of how many are compared with each
other is so many times the rows, so that the work grows as the rows do. With a quarter of it,
searches of glosses take a fifth to a half more width."""
SHARE = 0.5
"""Of the rows, the most that are compared."""
ALIKE = 0.9
"""Rows are equally long if the shortest twentieth is as long as this share of the longest one: such
edges then gain nothing (0.91), while they take a third off the widths at 0.72."""
UNLIKE = 4.0
"""Where the longest fiftieth is so many times as long as the row in the middle, such edges gain
nothing, either (6 times, the last line above): a few rows are nearly all that is answered."""
ASKED = 1024
"""Rows that a thread finds the candidates of at a time."""


def add(
    space: NDArray[np.float32],
    graph: Adjacency,
    dimension: int,
    *,
    first: int = 0,
    deleted: NDArray[np.uint8] | None,
    threads: int,
    progress: Callable[[float], None] | None = None,
) -> None:
    """Give the longest rows edges to those of large products; none if all are equally long.

    Args:
        space: `(n, w) float32`, read-only, as `space.of_rows` gives it for the inner product.
        graph: of all rows, changed: edges are added to it, and none is taken away.
        dimension: of the vectors: the place of the number that makes rows equally long.
        first: rows from here on are new: edges are added that lead from or to one of those.
        deleted: `(m,) uint8`, m ≤ n, non-zero for those of the first m rows that get none; None if
            all live.
        threads: threads to use; the graph does not depend on it.
        progress: told the share that is done.
    """
    tell = progress or (lambda share: None)
    tell(0.0)
    long = _longest(space, dimension, _live(len(space), deleted))
    rows = _without_last(space, long, dimension)
    different = first_equal(rows, threads) == np.arange(len(long), dtype=np.uint32)
    long, rows = long[different], rows[different]
    new = long >= first
    if new.any():
        work = _Work(space, graph, threads)
        work.offer(long, rows, asked=new, offered=np.ones(len(long), np.bool_))
        tell(0.5)
        work.offer(long, rows, asked=~new, offered=new)
    tell(1.0)


class _Work:
    """A graph that gets edges, with its rows."""

    def __init__(self, space: NDArray[np.float32], graph: Adjacency, threads: int) -> None:
        self._space, self._graph, self._threads = read_only(space), graph, threads

    def offer(
        self,
        long: NDArray[np.uint32],
        rows: NDArray[np.float32],
        *,
        asked: NDArray[np.bool_],
        offered: NDArray[np.bool_],
    ) -> None:
        """Let some of `(l,)` long rows, `(l, w) float32`, have edges to some of them."""
        askers, vectors = long[asked], rows[asked]
        targets, others = long[offered], read_only(rows[offered])
        squares = brute_force.unknown_squares(len(others))
        brute_force.fill_squares(others, squares)

        def add_from(at: int) -> None:
            part = slice(at, at + ASKED)
            near, distances = brute_force.search(
                vectors[part], others, CANDIDATES, "ip", squares=squares
            )
            kernels.add_products(
                self._space, askers[part], near, distances, targets, others,
                self._graph.neighbours, self._graph.degrees,
            )  # fmt: skip

        for _ in blas.parallel(add_from, range(0, len(askers), ASKED), self._threads):
            pass


def _live(rows: int, deleted: NDArray[np.uint8] | None) -> NDArray[np.uint32]:
    live = np.ones(rows, np.bool_)
    if deleted is not None:
        live[: len(deleted)] = deleted == 0
    return np.flatnonzero(live).astype(np.uint32)


def _longest(
    space: NDArray[np.float32], dimension: int, rows: NDArray[np.uint32]
) -> NDArray[np.uint32]:
    """Return those of the rows that are compared, ascending; none if edges would gain nothing."""
    if not len(rows):
        return rows
    bound = float(np.square(space[rows[0]], dtype=np.float64).sum())
    added = space[rows, dimension]
    squares = bound - np.square(added, dtype=np.float64)
    short, middle, long, longest = np.quantile(squares, [0.05, 0.5, 0.95, 0.98])
    if short >= ALIKE**2 * long or longest >= UNLIKE**2 * middle:
        return rows[:0]
    count = int(min(SHARE * len(rows), math.sqrt(COMPARED * len(rows))))
    chosen: NDArray[np.uint32] = np.sort(rows[np.argsort(added, kind="stable")[:count]])
    return chosen


def _without_last(
    space: NDArray[np.float32], rows: NDArray[np.uint32], dimension: int
) -> NDArray[np.float32]:
    """Return rows without the number that makes them equally long, `(r, w) float32`."""
    found: NDArray[np.float32] = np.array(space[rows])
    found[:, dimension] = 0
    return found
