"""Read vectors of Parquet data files by row group, columns found by field id."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from puffin_ann.errors import FormatError, UnsupportedTableError
from puffin_ann.lake.read.data.vector_column import VectorColumn
from puffin_ann.lake.read.data.vectors import VectorBatch, all_null, vectors_of
from puffin_ann.lake.read.errors import open_parquet, patiently_reading, reading
from puffin_ann.lake.read.files.live_files import LiveFile
from puffin_ann.lake.store.objects import object_length

FIELD_ID_KEY = b"PARQUET:field_id"

FEW_ROWS = 1024
"""Rows decoded at a time where one vector is looked for."""

__all__ = [
    "VectorBatch",
    "dimension_of",
    "find_column",
    "open_file",
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

    def read() -> pa.Table:
        # Arrow's threads would have nothing to share of one column, and whoever reads many row
        # groups does so by threads.
        return parquet.read_row_group(row_group, columns=[name], use_threads=False)

    table = patiently_reading(path, read)
    # The name selects by prefix of the leaf's path, which may take in others ("a" and "a.b").
    return vectors_of(table.column(name), dimension, view=view)


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
