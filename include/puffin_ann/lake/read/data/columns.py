"""Columns of single rows or of row groups of data files, in a schema of their table."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from puffin_ann.errors import FormatError
from puffin_ann.lake.read.data.column_chunks import ChunkReader, DataFile, Footer, RowGroup
from puffin_ann.lake.read.data.projection import Projection, select
from puffin_ann.lake.read.errors import patiently_reading

__all__ = [
    "ColumnReader",
    "DataFile",
    "RowGroup",
    "RowGroupReader",
    "read_row_group",
    "read_rows",
]


def read_rows(
    table: Table,
    files: Sequence[DataFile],
    numbers: NDArray[np.integer],
    row_groups: NDArray[np.integer],
    offsets: NDArray[np.integer],
    columns: Sequence[str],
) -> pa.Table:
    """Read columns of single rows, given by locator; see `ColumnReader.rows`."""
    return ColumnReader(table, columns).rows(files, numbers, row_groups, offsets)


class ColumnReader:
    """Reads columns of one schema of the table's from data files.

    Values are promoted to the types of that schema, and are null (or the column's initial default)
    in files written before the column was added. What was read is kept in memory, see
    `column_chunks`.

    Args:
        table: the table the files belong to.
        columns: top-level columns, in the order of the result.
        schema: of the table's, that names them and has their types; None is the current one.

    Attributes:
        bytes_read: of the files, so far; what was in memory does not count.

    Raises:
        ColumnNotFoundError: no such column.
    """

    def __init__(self, table: Table, columns: Sequence[str], schema: Schema | None = None) -> None:
        self._table = table
        self._schema = select(table, columns, schema)
        self._schema_id = table.schema().schema_id if schema is None else schema.schema_id
        self._chunks = ChunkReader(table)
        self._names = tuple(columns)

    @property
    def bytes_read(self) -> int:
        """Bytes of the files that were read so far; what was in memory does not count."""
        return self._chunks.bytes_read

    def rows(
        self,
        files: Sequence[DataFile],
        numbers: NDArray[np.integer],
        row_groups: NDArray[np.integer],
        offsets: NDArray[np.integer],
    ) -> pa.Table:
        """Return single rows in the order given; a row may come twice.

        Only the columns of row groups with a row asked for are read, all at once.

        Args:
            files: data files.
            numbers: (n,) place in `files` of each row's file.
            row_groups: (n,) row group of each row in its file.
            offsets: (n,) offset of each row in its row group.

        Raises:
            FormatError: a locator outside its file.
            DataFileError: a file is damaged, or is not the one that the table names.
            UnsupportedTableError: its columns are not recognised, or one is not in the file.
            EnvironmentProblemError: a file is gone.
            StoreUnavailableError: a file's store does not answer.
        """
        target = schema_to_pyarrow(self._schema, include_field_ids=False)
        if not len(numbers) or not self._names:
            return target.empty_table()
        order = np.lexsort((np.asarray(row_groups), np.asarray(numbers)))
        groups, wanted = np.asarray(row_groups)[order], np.asarray(offsets)[order]
        named: list[RowGroup] = []
        parts: list[NDArray[np.integer]] = []
        for number, first, last in _runs(np.asarray(numbers)[order]):
            for group, start, end in _runs(groups[first:last]):
                named.append(RowGroup(files[number], group))
                parts.append(wanted[first + start : first + end])
        pieces = list(self._pieces(named, parts))
        # Rows that are projected in the same way are projected together: a projection takes longer
        # than to take a row.
        alike: dict[Any, list[int]] = {}
        for at, (projection, _) in enumerate(pieces):
            alike.setdefault(projection.key, []).append(at)
        tables, places = [], []
        ends = np.cumsum([len(part) for part in parts])
        for members in alike.values():
            projection = pieces[members[0]][0]
            taken = [pieces[at][1] for at in members]
            columns = [pa.concat_arrays(column) for column in zip(*taken, strict=True)]
            here = [np.arange(ends[at] - len(parts[at]), ends[at]) for at in members]
            places.append(np.concatenate(here))
            tables.append(projection.of(columns, len(places[-1])).cast(target))
        back = np.empty(len(order), dtype=np.int64)
        back[order[np.concatenate(places)]] = np.arange(len(order))
        return pa.concat_tables(tables).take(pa.array(back))

    def row_groups(self, wanted: Sequence[RowGroup]) -> Iterator[tuple[RowGroup, pa.Table]]:
        """Give all rows of row groups, in the order asked for; raises as `rows` does.

        What is not in memory is read at once, as far as it is not very much.
        """
        projections, rows = self._prepared(wanted)
        chunks = ((group, projections[group.file].names) for group in wanted)
        for group, columns in self._chunks.columns(list(chunks)):
            projection = projections[group.file]
            whole = [_whole(columns[name]) for name in projection.names]
            yield group, projection.of(whole, rows[group])

    def all_rows(self, files: Sequence[DataFile]) -> Iterator[tuple[RowGroup, pa.Table]]:
        """Give all row groups of files, as `row_groups` does."""
        footers = zip(files, self._chunks.footers(files), strict=True)
        yield from self.row_groups(
            [
                RowGroup(file, number)
                for file, footer in footers
                for number in range(footer.metadata.num_row_groups)
            ]
        )

    def _pieces(
        self, named: Sequence[RowGroup], parts: Sequence[NDArray[np.integer]]
    ) -> Iterator[tuple[Projection, list[pa.Array]]]:
        """Give what is taken of each row group: columns of the file, by the projection's names."""
        projections, rows = self._prepared(named)
        for group, offsets in zip(named, parts, strict=True):
            if not 0 <= offsets.min() <= offsets.max() < rows[group]:
                raise FormatError(
                    f"{group.file.path}: row group {group.number} has {rows[group]} rows, {offsets}"
                )
        chunks = [(group, projections[group.file].names) for group in named]
        for (group, columns), offsets in zip(self._chunks.columns(chunks), parts, strict=True):
            projection = projections[group.file]
            taken = [_taken(columns[name], offsets) for name in projection.names]
            yield projection, taken

    def _prepared(
        self, groups: Sequence[RowGroup]
    ) -> tuple[dict[DataFile, Projection], dict[RowGroup, int]]:
        """Return how each file is projected, and how many rows each row group has."""
        files = list(dict.fromkeys(group.file for group in groups))
        footers = dict(zip(files, self._chunks.footers(files), strict=True))
        rows = {}
        for group in groups:
            footer = footers[group.file]
            if not 0 <= group.number < footer.metadata.num_row_groups:
                raise FormatError(f"{group.file.path} has no row group {group.number}")
            rows[group] = footer.rows(group.number)
        return {file: self._projection(file, footer) for file, footer in footers.items()}, rows

    def _projection(self, file: DataFile, footer: Footer) -> Projection:
        metadata = self._table.metadata
        # A schema or a partition spec never changes under its id.
        key = (
            self._schema_id,
            self._names,
            metadata.format_version,
            tuple(spec.spec_id for spec in metadata.partition_specs),
            metadata.properties.get(NAME_MAPPING),
        )
        found: Projection | None = footer.derived.get(key)
        if found is None:
            found = Projection(self._table, self._schema, file.path, footer.schema)
            footer.derived[key] = found
        return found


NAME_MAPPING = "schema.name-mapping.default"


def read_row_group(
    table: Table, parquet: pq.ParquetFile, path: str, row_group: int, columns: Sequence[str]
) -> pa.Table:
    """Read some columns of one row group of an open data file, as `ColumnReader` does.

    Nothing is kept: for whom reads every row group once. Raises the same errors.
    """
    return RowGroupReader(table, select(table, columns), path, parquet).read(row_group)


class RowGroupReader:
    """Reads row groups of one open file in a schema of the table's; nothing is kept.

    Args:
        table: the table the file belongs to.
        schema: some top-level columns of it, of any time.
        path: the file, for messages.
        parquet: the file, open.
    """

    def __init__(self, table: Table, schema: Schema, path: str, parquet: pq.ParquetFile) -> None:
        self._path, self._parquet = path, parquet
        self._projection = Projection(table, schema, path, parquet.schema_arrow)

    @property
    def missing(self) -> frozenset[int]:
        """Field ids of columns that the file lacks: null, or the column's initial default."""
        return self._projection.missing

    @property
    def names_by_id(self) -> Mapping[int, str]:
        """Names in the file of the columns that it has, by field id."""
        return self._projection.names_by_id

    def read(self, row_group: int) -> pa.Table:
        """Return all rows of a row group; raises as `ColumnReader.rows` does."""
        rows, names = self._parquet.metadata.row_group(row_group).num_rows, self._projection.names
        if not names:
            return self._projection.of([], rows)
        read = patiently_reading(
            self._path, lambda: self._parquet.read_row_group(row_group, columns=names)
        )
        return self._projection.of([_whole(read.column(name)) for name in names], rows)


def _taken(column: pa.ChunkedArray, offsets: NDArray[np.integer]) -> pa.Array:
    places = pa.array(offsets)
    # To take of the one chunk takes a fifth of the time.
    one = column.num_chunks == 1
    return column.chunk(0).take(places) if one else _whole(column.take(places))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _runs(values: NDArray[np.integer]) -> Iterator[tuple[int, int, int]]:
    """Yield (value, first, last) of each run of equal values in a sorted array."""
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    for first, last in pairwise(edges):
        yield int(values[first]), first, last
