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

from puffin_ann.ann.core import blas
from puffin_ann.ann.core.metrics import Metric
from puffin_ann.ann.graph.arguments import Adjacency

INSIDE = 7 / 8
"""Share of a deleted row's neighbours that are deleted, too, from which on it lies within others:
of rows deleted here and there, hardly one has so many."""
MOST, ROWS_EACH = 128, 16
"""Rows kept in mind, at most, and for how many each of them stands where they are fewer."""
ROUNDING = 1e-4
"""How far products in float32 may be off, for each unit of the squares."""
PART = 65_536
"""Rows looked at together."""


@dataclass(frozen=True, eq=False)
class Hollows:
    """Rows from within clusters of deleted ones.

    Attributes:
        vectors: `(s, d) float32`, theirs.
        each: rows from within clusters that one of them stands for.
    """

    vectors: NDArray[np.float32]
    each: float

    def hold(
        self,
        metric: Metric,
        queries: NDArray[np.float32],
        nearest: NDArray[np.float32],
        kept: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Tell of which queries as many of the rows within are nearer as candidates are kept.

        Args:
            metric: of the graph.
            queries: `(q, d) float32`.
            nearest: `(q,) float32`, distance of the nearest live row that was found of each.
            kept: `(q,) int64`, candidates.
        """
        nearer = np.count_nonzero(self._may_be_nearer(metric, queries, nearest), axis=1)
        found: NDArray[np.bool_] = (nearer > 0) & (nearer * self.each >= kept)
        if found.any():  # by distances that do not depend on how many queries come together
            asked = np.flatnonzero(found)
            apart = metric.distances(queries[asked], self.vectors)
            nearer = np.count_nonzero(apart < nearest[asked, None], axis=1)
            found[asked] = (nearer > 0) & (nearer * self.each >= kept[asked])
        return found

    def _may_be_nearer(
        self, metric: Metric, queries: NDArray[np.float32], nearest: NDArray[np.float32]
    ) -> NDArray[np.bool_]:
        """Return (q, s) bool: False only where a row is farther than the nearest found."""
        ours = np.einsum("ij,ij->i", queries, queries, dtype=np.float64)[:, None]
        theirs = np.einsum("ij,ij->i", self.vectors, self.vectors, dtype=np.float64)
        limit = nearest.astype(np.float64)[:, None]
        with blas.single_thread(), np.errstate(over="ignore", invalid="ignore"):
            products = queries @ self.vectors.T
            if metric.name == "l2":
                least = (ours + theirs - limit * limit) / 2 - ROUNDING * (ours + theirs)
            else:
                lengths = np.sqrt(ours * theirs)
                least = -limit if metric.name == "ip" else (1 - limit) * lengths
                least = least - ROUNDING * lengths
        # What left the numbers that floats hold is looked at.
        may: NDArray[np.bool_] = ~(products < least)
        return may


def find(
    vectors: NDArray[np.float32], graph: Adjacency, deleted: NDArray[np.uint8]
) -> Hollows | None:
    """Find rows from within clusters of deleted ones; None if there are none.

    Args:
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
    return Hollows(np.array(vectors[chosen]), len(rows) / count)
