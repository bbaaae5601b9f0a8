"""The file-level tier: centroids say which data files can matter, their rows are compared exactly.

No vector is stored twice: what is compared is read from the table's Parquet. A file is left out of
a query only where a proven bound shows that none of its rows can be among the answers, so that
answers are exact, unless fewer files are asked for.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyroaring import BitMap

from puffin_ann.ann.clustering.bounds import Bounds
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.blobs.version import centroid as centroid_blob
from puffin_ann.blobs.version.coverage import CoveredFile
from puffin_ann.errors import FormatError
from puffin_ann.lake.read.data.parquet import open_file, read_vectors
from puffin_ann.lake.read.data.vector_column import VectorColumn
from puffin_ann.lake.read.diff.coverage_diff import ALL
from puffin_ann.search.brute_force import Best, RowBatch
from puffin_ann.search.conditions.allowed_rows import AllowedRows
from puffin_ann.search.explain.recorder import note_vectors
from puffin_ann.search.merge import Source
from puffin_ann.search.range_search import Part, batch_part
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.snapshot_view import SnapshotView
from puffin_ann.settings import MIB

KEPT_BYTES = 256 * MIB
"""Vectors of files that were read are kept for the next search up to this size."""
READ_AHEAD = 8
"""Most files read at a time. The first is read alone, then twice as many each time: the nearest
often rule out the rest."""


FEW = 128
"""Files put in order at first; all of thousands would take longer than to bound them."""


@dataclass(frozen=True)
class _Live:
    """Rows of a covered file that are indexed and live.

    Attributes:
        file: the file.
        path: absolute.
        rank: place of the file among those of the view.
        excluded: positions that are not to be answered; those of a file without a live row are
            none.
        rows: that may be answered.
    """

    file: CoveredFile
    path: str
    rank: int
    excluded: BitMap
    rows: int


def load_centroids(io: FileIO, version: IndexVersion) -> centroid_blob.Centroids:
    """Read an index version's centroid blob.

    Raises:
        FormatError: there is not exactly one, or it does not fit the version's other blobs.
    """
    with version.files(io) as files:
        found = centroid_blob.decode(files.only(centroid_blob.TYPE).read())
    known = (version.routing.metric, version.routing.dimension)
    if (found.metric, found.centroids.shape[1]) != known:
        raise FormatError(f"{version.path}: the centroid blob of {version.index!r} is of another")
    return found


class FileTier:
    """The covered files of an index version, seen from one snapshot.

    Args:
        table: the table.
        version: an index version of algorithm `centroid`.
        view: the version against the snapshot.
        column: the vector column, in the schema of the snapshot.
    """

    def __init__(
        self, table: Table, version: IndexVersion, view: SnapshotView, column: VectorColumn
    ) -> None:
        self._io, self._column = table.io, column
        self._metric = METRICS[version.routing.metric]
        self._dimension = version.routing.dimension
        self._files = [_live(file, view) for file in version.coverage.files]
        self._empty = np.array([file.rows == 0 for file in self._files], dtype=np.bool_)
        self._bounds = bounds_of(load_centroids(table.io, version), version)
        self._kept: dict[int, list[RowBatch]] = {}
        self._kept_bytes = 0

    @property
    def bounds(self) -> Bounds:
        """What a probe asks; owners are the covered files, in order."""
        return self._bounds

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        most: int | None = None,
        exhaustive: bool = False,
        allowed: AllowedRows | None = None,
    ) -> tuple[Source, int]:
        """Return the k nearest indexed live rows of each query, and how many files were compared.

        Args:
            queries: (q, d) float32.
            k: neighbours.
            most: files that a query is compared with, those of least bound, as long as they have k
                rows; None: as many as it takes to be exact.
            exhaustive: compare every file.
            allowed: the only rows that may be answered; None means all.
        """
        lower = self._lower(queries, exhaustive=exhaustive)
        lower[:, self._without(allowed)] = np.inf
        best = Best(len(queries), k)
        if most is None:
            compared = self._visit(queries, k, lower, best, allowed)
            return best.source(), compared
        order = np.argsort(lower, axis=1, kind="stable")
        chosen = np.zeros(lower.shape, dtype=np.bool_)
        np.put_along_axis(chosen, order[:, :most], True, axis=1)
        compared = self._visit(queries, k, np.where(chosen, lower, np.inf), best, allowed)
        short = ~np.isfinite(best.farthest)
        if short.any():
            rest = np.where(chosen | ~short[:, None], np.inf, lower)
            compared += self._visit(queries, k, rest, best, allowed)
        return best.source(), compared

    def _visit(
        self,
        queries: NDArray[np.float32],
        k: int,
        lower: NDArray[np.float64],
        best: Best,
        allowed: AllowedRows | None,
    ) -> int:
        """Compare files by their bounds, until none can matter; return how many were compared."""
        nearest = lower.min(axis=0, initial=np.inf)
        order = _first_ascending(nearest)
        compared, at, wave = 0, 0, 1
        while at < len(nearest):
            if at == len(order):
                order = np.argsort(nearest, kind="stable")
            furthest = best.farthest
            if nearest[order[at]] > furthest.max():
                break
            chosen: list[tuple[int, NDArray[np.int64]]] = []
            while at < len(order) and len(chosen) < wave:
                number = int(order[at])
                at += 1
                bounds = lower[:, number]
                # A row at the very distance of the k-th may come before it, by its locator.
                asking = np.flatnonzero(np.isfinite(bounds) & (bounds <= furthest))
                if len(asking):
                    chosen.append((number, asking))
            read = self._read([number for number, _ in chosen])
            for (number, asking), batches in zip(chosen, read, strict=True):
                for batch in _among(batches, number, allowed):
                    self._compare(queries, asking, batch, k, best)
            compared += len(chosen)
            wave = min(2 * wave, READ_AHEAD)
        return compared

    def parts_within(
        self,
        queries: NDArray[np.float32],
        distance: float,
        allowed: AllowedRows | None = None,
    ) -> Iterator[Part]:
        """Give the rows of every file that may hold one nearer to a query than `distance`.

        Args:
            queries: (q, d) float32.
            distance: in the unit of the metric.
            allowed: the only rows to give; None means all.
        """
        near = np.zeros((len(queries), len(self._files)), dtype=np.bool_)
        for number, query in enumerate(queries):
            near[number, self._bounds.within(query, distance)] = True
        near &= ~self._without(allowed)
        wanted = np.flatnonzero(near.any(axis=0)).tolist()
        for at in range(0, len(wanted), READ_AHEAD):
            part = wanted[at : at + READ_AHEAD]
            for number, batches in zip(part, self._read(part), strict=True):
                for batch in _among(batches, number, allowed):
                    yield batch_part(batch, np.flatnonzero(near[:, number]), unit=number)

    def _without(self, allowed: AllowedRows | None) -> NDArray[np.bool_]:
        """Return (files,) bool, the files without a row to answer."""
        if allowed is None:
            return self._empty
        none = [not allowed.of_file(number) for number in range(len(self._files))]
        return self._empty | np.array(none, np.bool_)

    def _lower(self, queries: NDArray[np.float32], *, exhaustive: bool) -> NDArray[np.float64]:
        """Return (q, files) float64 bounds, infinite for files without a row to answer."""
        lower = np.empty((len(queries), len(self._files)))
        for number, query in enumerate(queries):
            lower[number] = self._bounds.of_owners(query)
        if exhaustive:
            lower[:] = -np.inf
        np.maximum(lower, np.finfo(np.float64).min, out=lower)  # infinite means: not to be read
        lower[:, self._empty] = np.inf
        return lower

    def _compare(
        self,
        queries: NDArray[np.float32],
        asking: NDArray[np.int64],
        batch: RowBatch,
        k: int,
        best: Best,
    ) -> None:
        ids, distances = batch.nearest(queries[asking], k, best.farthest[asking])
        if len(asking) < len(queries):
            all_ids = np.full((len(queries), k), -1, dtype=np.int64)
            all_distances = np.full((len(queries), k), np.inf, dtype=np.float32)
            all_ids[asking], all_distances[asking] = ids, distances
            ids, distances = all_ids, all_distances
        best.add(batch, ids, distances)

    def _read(self, numbers: list[int]) -> list[list[RowBatch]]:
        missing = [number for number in numbers if number not in self._kept]
        found = dict(zip(missing, self._fetch(missing), strict=True))
        for number, batches in found.items():
            size = sum(batch.vectors.nbytes for batch in batches)
            note_vectors(size)
            if self._kept_bytes + size <= KEPT_BYTES:
                self._kept[number] = batches
                self._kept_bytes += size
        return [found[number] if number in found else self._kept[number] for number in numbers]

    def _fetch(self, numbers: list[int]) -> list[list[RowBatch]]:
        if len(numbers) <= 1:
            return [self._rows(number) for number in numbers]
        with ThreadPoolExecutor(len(numbers)) as pool:
            return list(pool.map(self._rows, numbers))

    def _rows(self, number: int) -> list[RowBatch]:
        """Read the indexed live rows of a file, by row group."""
        live = self._files[number]
        batches = []
        first = 0
        with open_file(self._io, live.path) as parquet:
            for row_group, rows in enumerate(live.file.row_groups):
                _require_rows(parquet, live.path, row_group, rows)
                excluded = live.excluded & BitMap(range(first, first + rows))
                keep = np.ones(rows, dtype=np.bool_)
                keep[np.asarray(excluded.to_array(), np.int64) - first] = False
                start, first = first, first + rows
                if not keep.any():
                    continue
                read = read_vectors(
                    self._io, live.path, row_group, self._column, self._dimension, parquet=parquet
                )
                keep &= read.valid
                batches.append(
                    RowBatch(
                        np.ascontiguousarray(read.matrix[keep]),
                        self._metric,
                        live.rank,
                        row_group,
                        np.flatnonzero(keep),
                        start,
                    )
                )
        return batches


def _among(batches: list[RowBatch], number: int, allowed: AllowedRows | None) -> Iterator[RowBatch]:
    """Give the rows of a file, by its number, that may be answered."""
    for batch in batches:
        yield batch if allowed is None else batch.among(allowed.of_file(number))


def _first_ascending(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return where the first values in ascending order stand: as many as most searches look at."""
    if len(values) <= FEW:
        return np.argsort(values, kind="stable")
    few = np.sort(np.argpartition(values, FEW)[: FEW + 1])
    below: NDArray[np.int64] = few[values[few] < values[few].max()]
    return below[np.argsort(values[below], kind="stable")]


def _live(file: CoveredFile, view: SnapshotView) -> _Live:
    rank = int(view.rank_of_file_id[file.file_id])
    masked = view.masked.get(file.file_id)
    if masked is ALL:
        return _Live(file, view.files[rank], rank, BitMap(), 0)
    excluded = file.deleted | file.skipped
    if masked is not None:
        excluded = excluded | masked
    return _Live(file, view.files[rank], rank, excluded, file.rows - len(excluded))


def _require_rows(parquet: pq.ParquetFile, path: str, row_group: int, rows: int) -> None:
    """Hold a row group to what was indexed, before memory is taken for its rows.

    Raises:
        FormatError: it is not there, or has other rows.
    """
    there = 0
    if row_group < parquet.num_row_groups:
        there = parquet.metadata.row_group(row_group).num_rows
    if there != rows:
        raise FormatError(
            f"{path}: row group {row_group} has {there} rows, not the {rows} that were indexed"
        )


def bounds_of(found: centroid_blob.Centroids, version: IndexVersion) -> Bounds:
    """Return the bounds by covered file.

    A file of which the blob says nothing has no row that could be indexed; so has one without a
    vector.
    """
    place = {file.path: number for number, file in enumerate(version.coverage.files)}
    try:
        owners = np.array([place[path] for path in found.paths], dtype=np.int64)
    except KeyError as error:
        raise FormatError(
            f"{version.path}: the centroid blob names {error}, which the index does not cover"
        ) from None
    return Bounds(
        found.metric,
        found.centroids,
        found.max_distances,
        owners[found.files] if len(found.files) else np.zeros(0, np.int64),
        len(version.coverage.files),
    )
