"""Read vectors and rows of Parquet data files by row group, columns found by field id."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.exceptions import ResolveError
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _to_requested_schema, pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from puffin_ann.errors import ColumnNotFoundError, FormatError, UnsupportedTableError
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.read.errors import open_parquet, patiently_reading, reading
from puffin_ann.lake.read.live_files import LiveFile
from puffin_ann.lake.read.vector_column import VectorColumn
from puffin_ann.lake.read.vectors import VectorBatch, all_null, vectors_of
from puffin_ann.lake.store.objects import object_length

FIELD_ID_KEY = b"PARQUET:field_id"

FEW_ROWS = 1024
"""Rows decoded at a time where one vector is looked for."""

__all__ = [
    "VectorBatch",
    "dimension_of",
    "find_column",
    "open_file",
    "read_row_group",
    "read_rows",
    "read_vectors",
    "row_group_rows",
]


def open_file(io: FileIO, path: str) -> pq.ParquetFile:
    """Open a data file for any number of row groups; close it, or use it as a context manager."""
    return open_parquet(io, path)


def row_group_rows(io: FileIO, path: str, size: int | None = None) -> tuple[int, ...]:
    """Return the rows of each row group; only the footer is read.

    Raises FormatError if the file has not `size` bytes, where given.
    """
    with open_file(io, path) as parquet:
        length = object_length(io, path) if size is not None else None
        if length != size:
            raise FormatError(f"{path} has {length} bytes; the table's manifest says {size}")
        metadata = parquet.metadata
        return tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))


def read_vectors(
    io: FileIO,
    path: str,
    row_group: int,
    column: VectorColumn,
    dimension: int | None = None,
    *,
    parquet: pq.ParquetFile | None = None,
    view: bool = False,
) -> VectorBatch:
    """Read one row group of the vector column, that column only.

    Without `dimension` the first row that is neither null nor empty gives it. `parquet`, from
    `open_file`, spares opening the file again. With `view` the matrix may be read-only. A file
    written before the column was added has nulls only. Raises FormatError for a row group that is
    not there, UnsupportedTableError for a file without field ids in a table without a name mapping.
    """
    if parquet is None:
        with open_file(io, path) as opened:
            return read_vectors(io, path, row_group, column, dimension, parquet=opened, view=view)
    if not 0 <= row_group < parquet.num_row_groups:
        raise FormatError(f"{path} has {parquet.num_row_groups} row groups, no number {row_group}")
    place = find_column(parquet.schema_arrow, column, path)
    if place is None:
        rows = parquet.metadata.row_group(row_group).num_rows
        return all_null(rows, dimension or 0)
    name = parquet.schema_arrow.field(place).name
    table = patiently_reading(path, lambda: parquet.read_row_group(row_group, columns=[name]))
    # The name selects by prefix of the leaf's path, which may take in others ("a" and "a.b").
    return vectors_of(table.column(name), dimension, view=view)


def read_row_group(
    table: Table, parquet: pq.ParquetFile, path: str, row_group: int, columns: Sequence[str]
) -> pa.Table:
    """Read some columns of one row group of an open data file, in the table's current schema.

    Values are promoted and filled in as `read_rows` does; it raises the same errors.
    """
    return RowReader(table, _select(table, columns), path, parquet).read_all(row_group)


def dimension_of(io: FileIO, files: Sequence[LiveFile], column: VectorColumn) -> int | None:
    """Return the length that vectors have: most of the first ones that are not null nor empty.

    The largest file is asked first, and only rows up to about there are decoded; None if no file
    has a vector.
    """
    for file in sorted(files, key=lambda file: -file.rows):
        with open_file(io, file.path) as parquet:
            place = find_column(parquet.schema_arrow, column, file.path)
            if place is None:
                continue
            name = parquet.schema_arrow.field(place).name
            with reading(file.path):
                for batch in parquet.iter_batches(batch_size=FEW_ROWS, columns=[name]):
                    vectors = vectors_of(pa.chunked_array([batch.column(name)]))
                    dimension: int = vectors.matrix.shape[1]
                    if dimension:
                        return dimension
    return None


def find_column(schema: pa.Schema, column: VectorColumn, path: str) -> int | None:
    """Return the place of the column among a file's top-level fields, None if it is not there."""
    ids = [_field_id(field) for field in schema]
    if column.field_id in ids:
        return ids.index(column.field_id)
    if any(number is not None for number in ids):
        return None
    if column.mapped_names is None:
        raise UnsupportedTableError(
            f"{path} carries no field ids and the table has no property "
            "schema.name-mapping.default to find columns by name; set it"
        )
    return next((i for i, name in enumerate(schema.names) if name in column.mapped_names), None)


def _field_id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(FIELD_ID_KEY)
    return int(text) if text is not None else None


def read_rows(
    table: Table,
    paths: Sequence[str],
    row_groups: NDArray[np.integer],
    offsets: NDArray[np.integer],
    columns: Sequence[str],
) -> pa.Table:
    """Read columns of single rows, given by locator, in the order given; a row may come twice.

    Only row groups with a row asked for are read, each once, and of those only the columns.
    Columns are those of the table's current schema: values are promoted to its types, and are null
    (or the column's initial default) in files written before the column was added.

    Args:
        table: the table the files belong to.
        paths: n locations of data files.
        row_groups: (n,) row group of each row in its file.
        offsets: (n,) offset of each row in its row group.
        columns: top-level columns, in the order of the result.

    Raises:
        ColumnNotFoundError: no such column.
        FormatError: a locator outside its file.
    """
    schema = _select(table, columns)
    target = schema_to_pyarrow(schema, include_field_ids=False)
    if not len(paths) or not columns:
        return target.empty_table()
    encoded = pa.array(paths, pa.string()).dictionary_encode()
    names, files = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    order = np.lexsort((np.asarray(row_groups), files))
    pieces: list[pa.Table] = []
    groups = np.asarray(row_groups)[order]
    wanted = np.asarray(offsets)[order]
    for number, first, last in _runs(files[order]):
        path = names[number]
        with open_file(table.io, path) as parquet:
            reader = RowReader(table, schema, path, parquet)
            for group, start, end in _runs(groups[first:last]):
                rows = wanted[first + start : first + end]
                pieces.append(reader.read(group, rows).cast(target))
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    return pa.concat_tables(pieces).take(pa.array(back))


class RowReader:
    """Reads rows of one file in a schema of the table's.

    Args:
        table: the table the file belongs to.
        schema: some top-level columns of it, of any time.
        path: the file, for messages.
        parquet: the file, open.

    Attributes:
        missing: field ids of columns that the file lacks; they are null, or the column's initial
            default.
    """

    def __init__(self, table: Table, schema: Schema, path: str, parquet: pq.ParquetFile) -> None:
        self._schema, self._path, self._parquet = schema, path, parquet
        version = table.metadata.format_version
        # Before v3 Iceberg has microseconds only, whatever a file written elsewhere holds.
        self._downcast = version <= 2
        try:
            in_file = pyarrow_to_schema(
                parquet.schema_arrow,
                table.name_mapping(),
                downcast_ns_timestamp_to_us=self._downcast,
                format_version=version,
            )
        except ValueError as error:
            raise UnsupportedTableError(f"{path}: {error}") from error
        _refuse_partition_values(table, schema, in_file, path)
        self._file_schema = prune_columns(in_file, schema.field_ids, select_full_types=True)
        self._names = [field.name for field in self._file_schema.fields]
        there = {field.field_id for field in self._file_schema.fields}
        self.missing = frozenset(field.field_id for field in schema.fields) - there

    def read_all(self, row_group: int) -> pa.Table:
        """Return all rows of a row group."""
        return self.read(row_group, np.arange(self._parquet.metadata.row_group(row_group).num_rows))

    def read(self, row_group: int, offsets: NDArray[np.integer]) -> pa.Table:
        """Return the rows at `offsets` of a row group, in that order."""
        if not 0 <= row_group < self._parquet.num_row_groups:
            raise FormatError(f"{self._path} has no row group {row_group}")
        rows = self._parquet.metadata.row_group(row_group).num_rows
        if len(offsets) and not 0 <= offsets.min() <= offsets.max() < rows:
            raise FormatError(f"{self._path}: row group {row_group} has {rows} rows, {offsets}")
        if not self._names:
            # Nothing to read, but the number of rows must survive: a struct has one, a table has
            # not. The projection below fills in what the file lacks.
            return self._project(_empty_columns(len(offsets)))
        table = patiently_reading(
            self._path, lambda: self._parquet.read_row_group(row_group, columns=self._names)
        )
        taken = table.select(self._names).take(pa.array(offsets)).combine_chunks()
        return self._project(taken.to_batches()[0])

    def _project(self, batch: pa.RecordBatch) -> pa.Table:
        try:
            projected = _to_requested_schema(
                self._schema,
                self._file_schema,
                batch,
                downcast_ns_timestamp_to_us=self._downcast,
                allow_timestamp_tz_mismatch=True,
            )
        except (ResolveError, ValueError) as error:
            raise UnsupportedTableError(f"{self._path}: {error}") from error
        return pa.Table.from_batches([projected])


def _empty_columns(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def _select(table: Table, columns: Sequence[str]) -> Schema:
    by_name = {field.name: field for field in table.schema().fields}
    for name in columns:
        if name not in by_name:
            raise ColumnNotFoundError(
                f"{name_of(table)} has no column {name!r}; it has: {', '.join(by_name)}"
            )
    return Schema(*(by_name[name] for name in columns))


def _refuse_partition_values(table: Table, schema: Schema, in_file: Schema, path: str) -> None:
    """Refuse columns that only the partition tuple holds (files migrated from Hive).

    To answer null, as for a column added later, would be wrong without anybody noticing.
    """
    by_partition = {
        field.source_id
        for spec in table.specs().values()
        for field in spec.fields
        if isinstance(field.transform, IdentityTransform)
    }
    present = in_file.field_ids
    for field in schema.fields:
        if field.field_id in by_partition and field.field_id not in present:
            raise UnsupportedTableError(
                f"{path} does not hold column {field.name!r}, its value is in the partition only; "
                "rewrite the file to fetch this column"
            )


def _runs(values: NDArray[np.integer]) -> Iterator[tuple[int, int, int]]:
    """Yield (value, first, last) of each run of equal values in a sorted array."""
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    for first, last in pairwise(edges):
        yield int(values[first]), first, last
