"""`algorithm: ivf_pq` where only some lists are read: which those are, and candidates of them.

They are the candidates that a `CodedShard` finds, whose codes are all there.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import blas
from puffin_ann.ann.ivf.lists import Lists, Trained
from puffin_ann.ann.ivf.search import Searcher
from puffin_ann.blobs.shards.ivf import Ivf
from puffin_ann.engines.base import check_search
from puffin_ann.engines.ivf_pq import coarseness, effort_of
from puffin_ann.errors import BlobFormatError


class NearestLists:
    """Finds the lists near queries, and rows of those.

    Attributes:
        starts: `(lists + 1,) int64`, the first row of each list.

    Args:
        ivf: as `blobs.ivf_ranges.read_trained` gives it.
        rows: of the shard.
    """

    def __init__(self, ivf: Ivf, rows: int) -> None:
        trained = ivf.origin, ivf.centroids, ivf.subspace_offsets, ivf.codebook
        if ivf.starts is None or any(array is None for array in trained):
            raise BlobFormatError("lists: nothing tells what they were trained as")
        self._trained = Trained(ivf.metric, ivf.relative, ivf.scale, *trained)  # type: ignore[arg-type]
        self._coarseness, self._rows = coarseness(ivf), rows
        self.starts = ivf.starts

    @property
    def count(self) -> int:
        """Number of lists."""
        return len(self.starts) - 1

    def effort(self, k: int, width: int, live: int) -> tuple[int, int]:
        """Return (lists to look through, candidates wanted) for a search of some width.

        Args:
            k: answers wanted.
            width: of the search.
            live: rows that may be answered.
        """
        probes, wanted = effort_of(k, width, self.count, self._rows, self._coarseness)
        return min(probes * self._rows // max(1, live), self.count), wanted

    def near(self, queries: NDArray[np.float32], probes: int) -> NDArray[np.int64]:
        """Return the lists that are among the nearest of any query, ascending.

        Args:
            queries: `(q, d) float32`.
            probes: lists of each.
        """
        found: NDArray[np.int64] = np.unique(self._nearest(queries, probes))
        return found

    def rows_near(self, queries: NDArray[np.float32], probes: int) -> NDArray[np.int64]:
        """Return `(q,) int64`, how many rows the lists nearest to each query have."""
        found: NDArray[np.int64] = np.diff(self.starts)[self._nearest(queries, probes)].sum(axis=1)
        return found

    def _nearest(self, queries: NDArray[np.float32], probes: int) -> NDArray[np.int64]:
        """Return the lists nearest to each query, `(q, probes) int64`, in any order."""
        if probes >= self.count:
            return np.tile(np.arange(self.count), (len(queries), 1))
        moved = self._moved(check_search(queries, 1, self._trained.dimension))
        centroids = self._trained.centroids
        squares = np.einsum("ij,ij->i", centroids, centroids)
        with blas.single_thread(), np.errstate(over="ignore", invalid="ignore"):
            scores = squares - 2 * (moved @ centroids[:, : moved.shape[1]].T)
        # Numbers that leave float32 are near no list, or all.
        scores = np.where(np.isnan(scores), np.inf, scores)
        found: NDArray[np.int64] = np.argpartition(scores, probes - 1, axis=1)[:, :probes]
        return found

    def candidates(
        self,
        queries: NDArray[np.float32],
        some: NDArray[np.int64],
        lists: Lists,
        effort: tuple[int, int],
        excluded: NDArray[np.bool_],
    ) -> NDArray[np.int64]:
        """Return the rows of least scores of each query, `(q, wanted) int64`, −1 behind the last.

        Args:
            queries: `(q, d) float32`.
            some: lists, ascending, among which are the nearest of each query.
            lists: those, one after the other, and what they have.
            effort: lists to look through, and candidates wanted.
            excluded: `(m,) bool`, rows that may not be answered, in the order of `lists`.

        Returns:
            Places in `lists`.
        """
        probes, wanted = effort
        trained = replace(self._trained, centroids=self._trained.centroids[some])
        places = np.arange(len(lists.ordinals), dtype=np.uint32)
        searcher = Searcher(
            trained,
            replace(lists, ordinals=places),
            np.zeros((0, self._trained.dimension), np.float32),
        )
        mask = excluded.astype(np.uint8) if excluded.any() else None
        queries = check_search(queries, 1, self._trained.dimension)
        return searcher.candidates(queries, probes=probes, wanted=wanted, excluded=mask)

    def _moved(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return queries as centroids are, `(q, d)`: from the origin, or of length 1."""
        if self._trained.metric == "l2":
            return queries - self._trained.origin
        lengths = np.sqrt(np.einsum("ij,ij->i", queries, queries, dtype=np.float64))
        lengths[lengths == 0] = np.inf  # a zero query is near no list more than others
        moved: NDArray[np.float32] = (queries / lengths[:, None]).astype(np.float32)
        return moved
