"""Compare queries with the live rows that a version does not cover: one `Source` of answers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyroaring import BitMap

from puffin_ann.ann.core.metrics import METRICS, Metric
from puffin_ann.ann.core.types import Answers
from puffin_ann.ann.exact.compared_rows import ComparedRows
from puffin_ann.lake.read.data.parquet import open_file, read_vectors
from puffin_ann.lake.read.data.vector_column import VectorColumn
from puffin_ann.lake.read.diff.coverage_diff import ALL, Positions
from puffin_ann.search.explain.recorder import note_scanned_file, note_vectors
from puffin_ann.search.merge import Source, merge
from puffin_ann.search.version.snapshot_view import SnapshotView
from puffin_ann.settings import MIB, settings

KEPT_BYTES = 256 * MIB
"""Vectors of the scan are kept for the next search up to this size, others read again each time."""

Allowed = Mapping[str, Positions] | None
"""By path of a data file, the only rows that may be answered; None means all."""


@dataclass(frozen=True, eq=False)
class RowBatch:
    """Vectors of one row group that are to be compared; for several threads.

    Attributes:
        vectors: (n, d) float32.
        metric: that they are compared by.
        rank: rank of the file.
        row_group: number of the row group.
        offsets: (n,) int64, row offsets inside it.
        first: position in the file of its first row.
    """

    vectors: NDArray[np.float32]
    metric: Metric
    rank: int
    row_group: int
    offsets: NDArray[np.int64]
    first: int

    @cached_property
    def _rows(self) -> ComparedRows:
        """What searches find out about the rows, for the next ones."""
        return ComparedRows(self.vectors, self.metric)

    def nearest(self, queries: NDArray[np.float32], k: int, within: NDArray[np.float32]) -> Answers:
        """Return the k nearest rows of each query; those beyond `within` may be left out."""
        return self._rows.nearest(queries, k, within=within, threads=settings().thread_count)

    def among(self, positions: Positions) -> "RowBatch":
        """Return those of the rows that are at some positions of the file."""
        if positions is ALL or not len(self.offsets):
            return self
        wanted = mark(positions, self.first, int(self.offsets[-1]) + 1)[self.offsets]
        if wanted.all():
            return self
        return replace(self, vectors=self.vectors[wanted], offsets=self.offsets[wanted])


def mark(positions: Positions, first: int, rows: int) -> NDArray[np.bool_]:
    """Return (rows,) bool, which of the positions from `first` on are among some."""
    if positions is ALL:
        return np.ones(rows, np.bool_)
    marked = np.zeros(rows, np.bool_)
    here = positions & BitMap(range(first, first + rows))
    marked[np.asarray(here.to_array(), np.int64) - first] = True
    return marked


class Scan:
    """Compares queries with live rows outside the index, row group by row group."""

    def __init__(self, table: Table, view: SnapshotView, column: VectorColumn, metric: str) -> None:
        self._table, self._view, self._column = table, view, column
        self._metric = METRICS[metric]
        self._groups: dict[str, tuple[int, ...]] = {}
        self._kept: dict[tuple[str, int], RowBatch] = {}
        self._kept_bytes = 0

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        within: NDArray[np.float32],
        allowed: Allowed = None,
    ) -> Source:
        """Return the k nearest scanned rows of each query; ids are places in the answer's keys.

        Args:
            queries: (q, d) float32.
            k: neighbours.
            within: (q,) float32, distances beyond which rows are not wanted; they may be left out.
            allowed: by path of a file, the only rows that may be answered; None means all.
        """
        best = Best(len(queries), k)
        for batch in self.batches(queries.shape[1], allowed):
            near = np.minimum(best.farthest, within)
            best.add(batch, *batch.nearest(queries, k, near))
        return best.source()

    def batches(self, dimension: int, allowed: Allowed = None) -> Iterator[RowBatch]:
        """Give the vectors to compare, of a width, row group by row group.

        Row groups without a row that is allowed are not read; what is read is kept for the next
        search, as far as it is not much.
        """
        rank = {path: number for number, path in enumerate(self._view.files)}
        for file, positions in self._view.scanned:
            wanted = ALL if allowed is None else allowed.get(file.path)
            if wanted is not None:
                note_scanned_file()
                with _Opening(self._table.io, file.path) as opening:
                    yield from self._of_file(opening, rank[file.path], positions, wanted, dimension)

    def _of_file(
        self,
        opening: "_Opening",
        rank: int,
        positions: Positions,
        allowed: Positions,
        dimension: int,
    ) -> Iterator[RowBatch]:
        path = opening.path
        if path not in self._groups:
            self._groups[path] = opening.row_group_rows()
        first = 0
        for row_group, rows in enumerate(self._groups[path]):
            if (mark(positions, first, rows) & mark(allowed, first, rows)).any():
                batch = self._kept.get((path, row_group))
                if batch is None:
                    read = read_vectors(
                        self._table.io,
                        path,
                        row_group,
                        self._column,
                        dimension,
                        parquet=opening.parquet,
                    )
                    keep = mark(positions, first, rows) & read.valid
                    vectors = np.ascontiguousarray(read.matrix[keep])
                    offsets = np.flatnonzero(keep)
                    batch = RowBatch(vectors, self._metric, rank, row_group, offsets, first)
                    note_vectors(vectors.nbytes)
                    self._keep(path, batch)
                yield batch.among(allowed)
            first += rows

    def _keep(self, path: str, batch: RowBatch) -> None:
        size = batch.vectors.nbytes
        if self._kept_bytes + size <= KEPT_BYTES:
            self._kept[path, batch.row_group] = batch
            self._kept_bytes += size


class _Opening:
    """A data file that is opened once something of it is needed, and closed at the end."""

    def __init__(self, io: FileIO, path: str) -> None:
        self._io, self.path = io, path
        self._parquet: pq.ParquetFile | None = None

    @property
    def parquet(self) -> pq.ParquetFile:
        if self._parquet is None:
            self._parquet = open_file(self._io, self.path)
        return self._parquet

    def row_group_rows(self) -> tuple[int, ...]:
        """Return the rows of each row group."""
        metadata = self.parquet.metadata
        return tuple(metadata.row_group(at).num_rows for at in range(metadata.num_row_groups))

    def __enter__(self) -> "_Opening":
        return self

    def __exit__(self, *_: object) -> None:
        if self._parquet is not None:
            self._parquet.close()


class Best:
    """The k best scanned rows of each query so far, with their locators."""

    def __init__(self, queries: int, k: int) -> None:
        self._k = k
        self._source = _table_source(
            np.full((queries, k), np.inf, dtype=np.float32),
            np.full((3, queries, k), -1, dtype=np.int64),
        )

    @property
    def farthest(self) -> NDArray[np.float32]:
        """(q,) float32, the distance of the last of the k rows; infinite where there are fewer."""
        return self._source.distances[:, -1]

    def add(self, batch: RowBatch, ids: NDArray[np.int64], distances: NDArray[np.float32]) -> None:
        """Take in the nearest rows of a batch, all queries answered in the same order."""
        if ids.max(initial=-1) < 0:
            return
        new = Source(
            ids,
            distances,
            lambda chosen: (
                np.full(chosen.shape, batch.rank, dtype=np.int64),
                np.full(chosen.shape, batch.row_group, dtype=np.int64),
                batch.offsets[chosen],
            ),
        )
        sources = [self._source, new]
        merged = merge(sources, self._k)
        locators = np.full((3, *merged.ordinals.shape), -1, dtype=np.int64)
        for number, source in enumerate(sources):
            here = merged.sources == number
            locators[:, here] = source.keys(merged.ordinals[here])
        self._source = _table_source(merged.distances, locators)

    def source(self) -> Source:
        """Return them as a source; ids are places in its own keys."""
        return self._source


def _table_source(distances: NDArray[np.float32], locators: NDArray[np.int64]) -> Source:
    """Answers whose ids are places in a flat table of locators."""
    queries, k = distances.shape
    ids = np.arange(queries * k, dtype=np.int64).reshape(queries, k)
    ids = np.where(locators[0] < 0, -1, ids)
    flat = locators.reshape(3, -1)
    return Source(
        ids, distances, lambda chosen: (flat[0, chosen], flat[1, chosen], flat[2, chosen])
    )
