"""Where deleted rows lay close together: a search past them has to be told that it began there.

Of a query from within such a cluster a search that passes through deleted rows meets so many that
it looks farther for the live ones, which lie on all sides (`kernels_frontier`). Lists that lead
past deleted rows (`live_lists`) lead to none of them. So some of the rows from within are kept in
mind, and compared with what was found: are those nearer, the query is searched for again through
the deleted rows.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import Metric, frozen
from puffin_ann.ann.exact import brute_force
from puffin_ann.ann.graph.arguments import Adjacency
from puffin_ann.ann.graph.kernels_hollows import count_nearer

INSIDE = 7 / 8
"""Share of a deleted row's neighbours that are deleted, too, from which on it lies within others:
of rows deleted here and there, hardly one has so many."""
MOST, ROWS_EACH = 32, 16
"""Rows kept in mind, at most, and for how many each of them stands where they are fewer: to compare
a query with those takes a twentieth of a search."""
NEARER, TIMES = 3, 4
"""Of the rows kept in mind so many have to be nearer, and to stand for so many times as many as
candidates are kept: then the query lies deep among deleted rows."""
PART = 65_536
"""Rows looked at together."""


@dataclass(frozen=True, eq=False)
class Hollows:
    """Rows from within clusters of deleted ones.

    Attributes:
        vectors: `(s, d) float32`, theirs, read-only.
        each: rows from within clusters that one of them stands for.
        near: distance of a live row, from which on a query may lie within: these rows have none
            nearer.
    """

    vectors: NDArray[np.float32]
    each: float
    near: float

    def hold(
        self,
        metric: Metric,
        queries: NDArray[np.float32],
        nearest: NDArray[np.float32],
        kept: NDArray[np.int64] | int,
    ) -> NDArray[np.bool_]:
        """Tell of which queries far more of the rows within are nearer than candidates are kept.

        Args:
            metric: of the graph.
            queries: `(q, d) float32`.
            nearest: `(q,) float32`, distance of the nearest live row that was found of each.
            kept: candidates, of each or of all.
        """
        if len(queries) == 1:
            most = kept if isinstance(kept, int) else int(kept[0])
            return np.array([self.hold_one(metric, queries, float(nearest[0]), most)])
        found: NDArray[np.bool_] = nearest >= self.near
        if found.any():
            apart = metric.distances(queries[found], self.vectors)
            nearer = np.count_nonzero(apart < nearest[found, None], axis=1)
            wanted = kept if isinstance(kept, int) else kept[found]
            least = min(NEARER, len(self.vectors))
            found[found] = (nearer >= least) & (nearer * self.each >= TIMES * wanted)
        return found

    def hold_one(
        self, metric: Metric, query: NDArray[np.float32], nearest: float, kept: int
    ) -> bool:
        """Tell the same of one query, `(1, d) float32`, in as few steps as can be."""
        if nearest < self.near:
            return False
        nearer = count_nearer(metric.code, frozen(query), self.vectors, nearest)
        least = min(NEARER, len(self.vectors))
        return bool(nearer >= least and nearer * self.each >= TIMES * kept)


def find(
    metric: Metric,
    vectors: NDArray[np.float32],
    graph: Adjacency,
    deleted: NDArray[np.uint8],
) -> Hollows | None:
    """Find rows from within clusters of deleted ones; None if there are none.

    Args:
        metric: of the graph.
        vectors: `(n, d) float32`, as stored.
        graph: of these rows, in which deleted ones have the neighbours that they had.
        deleted: `(n,) uint8`, non-zero for deleted rows.
    """
    rows = np.flatnonzero(deleted)
    places = np.arange(graph.neighbours.shape[1])
    inside = np.zeros(len(rows), np.bool_)
    for at in range(0, len(rows), PART):
        some = rows[at : at + PART]
        degrees = graph.degrees[some].astype(np.int64)
        gone = (deleted[graph.neighbours[some]] != 0) & (places < degrees[:, None])
        inside[at : at + PART] = gone.sum(axis=1) >= np.maximum(INSIDE * degrees, 1)
    rows = rows[inside]
    if not len(rows):
        return None
    count = min(len(rows), MOST, max(1, len(rows) // ROWS_EACH))
    chosen = np.sort(np.random.default_rng(len(rows)).choice(rows, count, replace=False))
    within = np.array(vectors[chosen])
    _, apart = brute_force.search(within, vectors, 1, metric.name, allowed=deleted == 0)
    return Hollows(frozen(within), len(rows) / count, float(apart.min()))
