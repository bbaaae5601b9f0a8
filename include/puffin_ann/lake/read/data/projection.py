"""Rows as a data file has them, in a schema of its table."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import ResolveError
from pyiceberg.io.pyarrow import _to_requested_schema, pyarrow_to_schema
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from puffin_ann.errors import ColumnNotFoundError, UnsupportedTableError
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.wording import meant


def select(table: Table, columns: Sequence[str], schema: Schema | None = None) -> Schema:
    """Return the fields of some top-level columns.

    Args:
        table: that has them.
        columns: their names.
        schema: of the table's, that names them; None is the current one.

    Raises:
        ColumnNotFoundError: there is no such column.
    """
    current = table.schema()
    schema = current if schema is None else schema
    by_name = {field.name: field for field in schema.fields}
    for name in columns:
        if name not in by_name:
            when = "" if schema.schema_id == current.schema_id else " in the snapshot asked for"
            raise ColumnNotFoundError(
                f"{name_of(table)} has no column {name!r}{when}{meant(name, by_name)}; "
                f"it has: {', '.join(by_name)}"
            )
    return Schema(*(by_name[name] for name in columns))


class Projection:
    """Turns columns of one data file into those of a schema of its table.

    Values are promoted to the types of that schema, and are null (or the column's initial default)
    in files written before the column was added.

    Args:
        table: the table the file belongs to.
        schema: the columns wanted, of the table's schema now, see `select`, or of an earlier one.
        path: of the file.
        in_file: Arrow's schema of the file.

    Attributes:
        names: of the columns to read, in the file.
        names_by_id: the same, by field id.
        missing: field ids of columns that the file lacks.
        key: equal for files whose rows are turned in the same way.

    Raises:
        UnsupportedTableError: the file's columns are not recognised, or one is not in the file.
    """

    def __init__(self, table: Table, schema: Schema, path: str, in_file: pa.Schema) -> None:
        self._schema, self._path = schema, path
        version = table.metadata.format_version
        # Before v3 Iceberg has microseconds only, whatever a file written elsewhere holds.
        self._downcast = version <= 2
        try:
            found = pyarrow_to_schema(
                in_file,
                table.name_mapping(),
                downcast_ns_timestamp_to_us=self._downcast,
                format_version=version,
            )
        except ValueError as error:
            raise UnsupportedTableError(f"{path}: {error}") from error
        _refuse_partition_values(table, schema, found, path)
        self._file_schema = prune_columns(found, schema.field_ids, select_full_types=True)
        self.names = [field.name for field in self._file_schema.fields]
        self.names_by_id = {field.field_id: field.name for field in self._file_schema.fields}
        self.missing = frozenset(field.field_id for field in schema.fields) - set(self.names_by_id)
        types = tuple(in_file.field(name).type for name in self.names)
        self.key: Any = (repr(self._file_schema), types)

    def of(self, columns: Sequence[pa.Array], rows: int) -> pa.Table:
        """Return rows in the table's schema.

        Args:
            columns: of `names`.
            rows: how many they are.
        """
        if self.names:
            batch = pa.RecordBatch.from_arrays(list(columns), names=self.names)
        else:
            # The number of rows must survive: a struct has one, a table has not.
            batch = pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
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
