"""Measure a search's recall by queries whose exact answers are known."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puffin_ann.lifecycle.evaluate.ground_truth import MAX_DUPLICATES, Truth
from puffin_ann.search.index import Index

NORMAL_95 = 1.96

FEW_QUERIES = 50
"""With fewer queries than this, differences between searches cannot be told from luck."""

Place = tuple[int, str, int, int]
"""Of a row that equals a query: number of the query, path, row group and offset in it."""


@dataclass(frozen=True)
class Measure:
    """A recall with its 95 % interval, over a number of queries."""

    recall: float
    low: float
    high: float
    queries: int

    @classmethod
    def of(cls, recalls: NDArray[np.float64]) -> "Measure":
        """Return the mean of (q,) recalls, q of at least 1; one tells nothing of others."""
        mean, error = float(recalls.mean()), 1.0
        if len(recalls) > 1:
            error = NORMAL_95 * float(recalls.std(ddof=1)) / float(np.sqrt(len(recalls)))
        return cls(mean, max(0.0, mean - error), min(1.0, mean + error), len(recalls))


@dataclass(frozen=True)
class RecallMeter:
    """Queries with their exact answers, to measure a search with.

    Attributes:
        queries: (q, d) float32.
        truth: their exact answers, k of each or more.
        k: neighbours asked for.
        paths: absolute path by file id, as the answers have them; None: ids are those of the index.
    """

    queries: NDArray[np.float32]
    truth: Truth
    k: int
    paths: Mapping[int, str] | None = None

    def part(self, first: int, last: int) -> "RecallMeter":
        """Return a run of the queries, without those that have too many exact duplicates."""
        usable = self.truth.duplicate_counts <= MAX_DUPLICATES
        usable &= np.isfinite(self.truth.distances[:, 0])
        chosen = np.flatnonzero(usable)
        chosen = chosen[(chosen >= first) & (chosen < last)]
        renumbered = np.full(len(self.queries), -1, dtype=np.int64)
        renumbered[chosen] = np.arange(len(chosen))
        duplicates = self.truth.duplicates.copy()
        duplicates[:, 0] = renumbered[duplicates[:, 0]]
        return RecallMeter(
            self.queries[chosen],
            Truth(
                self.truth.distances[chosen],
                duplicates[duplicates[:, 0] >= 0],
                self.truth.duplicate_counts[chosen],
                self.truth.cells[chosen],
            ),
            self.k,
            self.paths,
        )

    def measure(self, index: Index, *, width: int, probe_partitions: int) -> Measure:
        """Search as users do, and compare; rows equal to the query count neither way.

        Each query is asked for as many more rows as equal it, and no more: who asks for more finds
        more of the first k, too.
        """
        if not len(self.queries):
            return Measure(1.0, 1.0, 1.0, 0)
        queries, distances, duplicates = [], [], self._duplicates(index)
        for equal in np.unique(self.truth.duplicate_counts).tolist():
            asked = np.flatnonzero(self.truth.duplicate_counts == equal)
            found = index.search(
                self.queries[asked],
                self.k + equal,
                width=width,
                probe_partitions=probe_partitions or None,
                allow_fewer=True,
            )
            query = asked[found.column("query").to_numpy()]
            counts = ~_is_duplicate(found, query, duplicates)
            queries.append(query[counts])
            distances.append(found.column("distance").to_numpy()[counts])
        found_of = np.concatenate(queries), np.concatenate(distances)
        return Measure.of(recalls_of(*found_of, self.truth.distances[:, : self.k]))

    def _duplicates(self, index: Index) -> frozenset[Place]:
        """Return the rows that equal a query."""
        paths = self.paths or {
            file.file_id: index.view.files[int(index.view.rank_of_file_id[file.file_id])]
            for file in index.version.coverage.files
        }
        rows = self.truth.duplicates.tolist()
        return frozenset((query, paths[file], group, at) for query, file, group, at in rows)


def recalls_of(
    query: NDArray[np.integer], distance: NDArray[np.float32], exact: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Return each query's share of true neighbours found, (q,); equal distances count as found.

    Args:
        query: (m,), number of the query of each answer.
        distance: (m,) float32, of each answer.
        exact: (q, k) float32, distances of the true neighbours, ascending; infinite where there are
            no more of them, but for the first.
    """
    wanted = np.isfinite(exact).sum(axis=1)
    farthest = exact[np.arange(len(exact)), wanted - 1]
    hits = np.bincount(query[distance <= farthest[query]], minlength=len(exact))
    shares: NDArray[np.float64] = np.minimum(hits, wanted) / wanted
    return shares


def _is_duplicate(
    found: pa.Table, query: NDArray[np.int64], duplicates: frozenset[Place]
) -> NDArray[np.bool_]:
    """Tell which answers are rows equal to their query, whose number each has."""
    locator = found.column("locator").combine_chunks()
    offsets = locator.field("row_offset").to_numpy()
    told = np.isin(offsets, [offset for _, _, _, offset in duplicates])
    few = locator.filter(pa.array(told))  # most have another offset, and need not be Python's
    rows = zip(
        query[told].tolist(),
        few.field("file").to_pylist(),
        few.field("row_group").to_pylist(),
        few.field("row_offset").to_pylist(),
        strict=True,
    )
    told[told] = [row in duplicates for row in rows]
    return told
