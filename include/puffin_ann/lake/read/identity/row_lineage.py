"""Read the row lineage of Iceberg tables of version 3: which row it is, and who wrote it last.

A row has a `_row_id`, which no other row of its table ever has, and keeps it when it is written to
another file. `_last_updated_sequence_number` is that of the commit that changed it last. A row that
has both as it had them before is the same in every column, whatever file it is in now. A row that
was changed and rolled back has another number: no two commits to a table have the same.

Files of new rows have neither column. Their rows inherit: the first row id of the file plus the
position, and the file's data sequence number. Files written before a table was upgraded have no
first row id until a later commit lists them with one; until then their rows have no lineage.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.table import Table

from puffin_ann.errors import UnsupportedTableError
from puffin_ann.lake.read.errors import patiently_reading
from puffin_ann.lake.read.files.live_files import LiveFile

ROW_ID_FIELD: Final = b"2147483540"
LAST_UPDATED_FIELD: Final = b"2147483539"
FIRST_WITH_ROW_IDS: Final = 3
"""First format version that has them."""

_FIELDS: Final = (ROW_ID_FIELD, LAST_UPDATED_FIELD)


def has_row_ids(table: Table) -> bool:
    """Tell whether rows of a table have row ids, as far as its format version says."""
    return table.metadata.format_version >= FIRST_WITH_ROW_IDS


def row_lineage(parquet: pq.ParquetFile, file: LiveFile, row_group: int) -> NDArray[np.uint64]:
    """Return `_row_id` and `_last_updated_sequence_number` of a row group's rows: (n, 2) uint64.

    Where the file has no such column, or a null in it, the row inherits. Raises
    UnsupportedTableError for a file without a first row id (added before the table was upgraded to
    version 3), and for columns that are no integers.
    """
    if file.first_row_id is None:
        raise UnsupportedTableError(f"{file.path} has no first row id, so its rows have none")
    groups = [parquet.metadata.row_group(i).num_rows for i in range(row_group + 1)]
    first = file.first_row_id + sum(groups[:-1])
    ids = np.arange(first, first + groups[-1], dtype=np.int64)
    numbers = np.full(groups[-1], file.data_sequence_number, dtype=np.int64)
    stored = _read_stored(parquet, file.path, row_group)
    for field_id, inherited in zip(_FIELDS, (ids, numbers), strict=True):
        if field_id in stored:
            values, is_known = stored[field_id]
            inherited[is_known] = values[is_known]
    return np.stack([ids, numbers], axis=1).astype(np.uint64)


def stored_lineage(
    parquet: pq.ParquetFile, path: str, row_group: int
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]] | None:
    """Return the lineage that a row group holds of rows that were elsewhere before.

    What a row inherits is left out: by the specification that is a row that is new in this file, or
    was changed by the commit that added it.

    Returns:
        `_row_id` and `_last_updated_sequence_number`, (n, 2) uint64, and (n,) bool, the rows of
        which both are stored; None where the file has not both columns.

    Raises:
        UnsupportedTableError: the columns are no integers.
    """
    if not has_stored_lineage(parquet):
        return None
    stored = _read_stored(parquet, path, row_group)
    (ids, has_id), (numbers, has_number) = (stored[field_id] for field_id in _FIELDS)
    is_stored = has_id & has_number & (ids >= 0) & (numbers >= 0)
    return np.stack([ids, numbers], axis=1).astype(np.uint64), is_stored


def has_stored_lineage(parquet: pq.ParquetFile) -> bool:
    """Tell whether a file has columns of both; only its footer is looked at."""
    return _names(parquet).keys() >= set(_FIELDS)


def may_store_lineage(parquet: pq.ParquetFile) -> bool:
    """Tell by its footer whether a file may hold a row id with a number.

    New rows and changed ones have no number stored: they have that of the commit that added the
    file.
    """
    if not has_stored_lineage(parquet):
        return False
    number = _names(parquet)[LAST_UPDATED_FIELD]
    leaves = [parquet.schema.column(place).path for place in range(len(parquet.schema))]
    place = leaves.index(number)
    for at in range(parquet.num_row_groups):
        group = parquet.metadata.row_group(at)
        statistics = group.column(place).statistics
        if statistics is None or not statistics.has_null_count:
            return True
        if statistics.null_count < group.num_rows:
            return True
    return False


def _names(parquet: pq.ParquetFile) -> dict[bytes, str]:
    """Return the names of the columns by field id, of those of the two that the file has."""
    names = {
        (field.metadata or {}).get(b"PARQUET:field_id"): field.name
        for field in parquet.schema_arrow
    }
    return {field_id: names[field_id] for field_id in _FIELDS if field_id in names}


def _read_stored(
    parquet: pq.ParquetFile, path: str, row_group: int
) -> Mapping[bytes, tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    """Read the columns there are: by field id, (n,) int64 values, and (n,) bool, those not null."""
    names = _names(parquet)
    if not names:
        return {}
    read = patiently_reading(
        path,
        partial(parquet.read_row_group, row_group, columns=list(names.values()), use_threads=False),
    )
    return {field_id: _values(read.column(name), path) for field_id, name in names.items()}


def _values(column: pa.ChunkedArray, path: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    if not pa.types.is_integer(column.type):
        raise UnsupportedTableError(f"{path}: a column of row lineage is stored as {column.type}")
    is_known = column.is_valid().to_numpy()
    values = np.zeros(len(column), np.int64)
    values[is_known] = column.drop_null().to_numpy()
    return values, is_known
