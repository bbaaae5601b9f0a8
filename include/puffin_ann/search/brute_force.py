"""Compare queries with the live rows that a version does not cover: one `Source` of answers."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyiceberg.table import Table

from puffin_ann.ann.core import exact
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.lake.read.coverage_diff import ALL
from puffin_ann.lake.read.parquet import open_file, read_vectors
from puffin_ann.lake.read.vector_column import VectorColumn
from puffin_ann.search.merge import Source, merge
from puffin_ann.search.snapshot_view import SnapshotView
from puffin_ann.settings import MIB, settings

KEPT_BYTES = 256 * MIB
"""Vectors of the scan are kept for the next search up to this size, else read again each time."""


@dataclass(frozen=True)
class RowBatch:
    """Vectors of one row group that are to be compared.

    Attributes:
        vectors: (n, d) float32.
        rank: rank of the file.
        row_group: number of the row group.
        offsets: (n,) int64, row offsets inside it.
    """

    vectors: NDArray[np.float32]
    rank: int
    row_group: int
    offsets: NDArray[np.int64]


class Scan:
    """Compares queries with every live row outside the index, row group by row group."""

    def __init__(self, table: Table, view: SnapshotView, column: VectorColumn, metric: str) -> None:
        self._table, self._view, self._column = table, view, column
        self._metric = METRICS[metric]
        self._kept: list[RowBatch] | None = None
        self._dimension = 0

    def search(self, queries: NDArray[np.float32], k: int) -> Source:
        """Return the k nearest scanned rows of each query; ids are places in the answer's keys."""
        best = Best(len(queries), k)
        for batch in self.batches(queries.shape[1]):
            ids, distances = exact.search(
                queries, batch.vectors, k, self._metric, threads=settings().thread_count
            )
            best.add(batch, ids, distances)
        return best.source()

    def batches(self, dimension: int) -> Iterator[RowBatch]:
        """Give the vectors to compare, of a width, row group by row group."""
        self._dimension = dimension
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[RowBatch] | None = []
        size = 0
        for batch in self._read():
            size += batch.vectors.nbytes
            if kept is not None and size <= KEPT_BYTES:
                kept.append(batch)
            else:
                kept = None
            yield batch
        self._kept = kept

    def _read(self) -> Iterator[RowBatch]:
        rank = {path: number for number, path in enumerate(self._view.files)}
        for file, positions in self._view.scanned:
            parquet = open_file(self._table.io, file.path)
            first = 0
            for row_group in range(parquet.num_row_groups):
                rows = parquet.metadata.row_group(row_group).num_rows
                wanted = _wanted(positions, first, rows)
                first += rows
                if not wanted.any():
                    continue
                read = read_vectors(
                    self._table.io,
                    file.path,
                    row_group,
                    self._column,
                    self._dimension,
                    parquet=parquet,
                )
                keep = wanted & read.valid
                yield RowBatch(
                    np.ascontiguousarray(read.matrix[keep]),
                    rank[file.path],
                    row_group,
                    np.flatnonzero(keep),
                )


def _wanted(positions: object, first: int, rows: int) -> NDArray[np.bool_]:
    if positions is ALL:
        return np.ones(rows, dtype=np.bool_)
    wanted = np.zeros(rows, dtype=np.bool_)
    here = np.asarray(positions.to_array(), dtype=np.int64)  # type: ignore[attr-defined]
    here = here[(here >= first) & (here < first + rows)]
    wanted[here - first] = True
    return wanted


class Best:
    """The k best scanned rows of each query so far, with their locators."""

    def __init__(self, queries: int, k: int) -> None:
        self._k = k
        self._source = _table_source(
            np.full((queries, k), np.inf, dtype=np.float32),
            np.full((3, queries, k), -1, dtype=np.int64),
        )

    def add(self, batch: RowBatch, ids: NDArray[np.int64], distances: NDArray[np.float32]) -> None:
        """Take in the nearest rows of a batch, all queries answered in the same order."""
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
