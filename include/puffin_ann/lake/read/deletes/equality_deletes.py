"""Which rows of data files are deleted by equality deletes, as Flink writes them for upserts.

An equality-delete file is a Parquet file of keys. It deletes, from the data files that are older
than it, the rows whose columns equal one of its rows. Null equals null, and floating-point numbers
are equal as Java's `Double.equals` has it: NaN equals NaN, and -0.0 is not 0.0 (Iceberg spec,
"Equality Delete Files"; the reference implementation compares so).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial, reduce
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    IsNull,
    LessThanOrEqual,
    Or,
    Reference,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField, PrimitiveType
from pyiceberg.utils.concurrent import ExecutorFactory
from pyroaring import BitMap

from puffin_ann.errors import FormatError, UnsupportedTableError
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.read.data.columns import RowGroupReader
from puffin_ann.lake.read.data.parquet import open_file
from puffin_ann.lake.read.errors import open_parquet
from puffin_ann.lake.read.files.live_files import DeleteFile, LiveFile
from puffin_ann.lake.read.files.pruning import Pruning, bound_to
from puffin_ann.lake.read.files.row_group_statistics import statistics_of

DELETE_FILE = "delete file"

ABSENT = -1
"""Stands for a row that no deleted key equals."""


def deleted_by_equality(table: Table, files: Iterable[LiveFile]) -> dict[str, BitMap]:
    """Return, by path, the positions that equality deletes take from each data file.

    Each delete file is read once, and of data files the columns that deletes compare, as far as
    their row groups may hold one of the keys by what footers say of them.

    Args:
        table: the files' table; columns are those of any of its schemas.
        files: data files with the deletes that apply to them; without any by equality, nothing is
            read, and they are absent from the result.

    Raises:
        FormatError: a delete file lacks a column that it is to delete by.
        UnsupportedTableError: deletes compare a nested column, or one that no schema has.
    """
    by_file = {file.path: (file, _by_columns(file)) for file in files}
    groups = {group for _, groups in by_file.values() for group in groups}
    if not groups:
        return {}
    run = ExecutorFactory.get_or_create().map
    deletes = list(dict.fromkeys(chain.from_iterable(groups)))
    rows = dict(zip(deletes, run(partial(_read_keys, table), deletes), strict=True))
    keys = {group: DeletedKeys([rows[delete] for delete in group]) for group in groups}

    def find(file: LiveFile, groups: Sequence[tuple[DeleteFile, ...]]) -> BitMap:
        found = BitMap()
        with open_file(table.io, file.path) as parquet:
            for group in groups:
                reader = _KeyReader(table, group[0].equality_ids, file.path, parquet)
                for first, rows in reader.row_groups_near(keys[group]):
                    found |= BitMap(np.flatnonzero(keys[group].contain(rows)) + first)
        return found

    wanted = [(file, groups) for file, groups in by_file.values() if groups]
    found = run(lambda pair: find(*pair), wanted)
    return {file.path: here for (file, _), here in zip(wanted, found, strict=True) if here}


class DeletedKeys:
    """A set of keys of one or more columns, which rows are looked up in.

    A key is held as one number: the place of its first value among that column's values, then
    combined with that of the next, column by column.

    Args:
        tables: keys, all of the same columns; at least one table.
    """

    def __init__(self, tables: Sequence[pa.Table]) -> None:
        keys = pa.concat_tables(tables)
        self._bounds = [_bounds_of(column) for column in keys.columns]
        self._values: list[pa.Array] = []
        self._combined: list[NDArray[np.int64]] = []
        codes = np.zeros(len(keys), np.int64)
        for column in keys.columns:
            column = _comparable(column)
            values = pc.unique(column)
            self._values.append(values)
            # Both are below the number of keys, so that their product is an int64.
            codes = codes * len(values) + _places(column, values)
            self._combined.append(np.unique(codes))
            codes = np.searchsorted(self._combined[-1], codes)

    def near(self, schema: Schema) -> Pruning | None:
        """Return what tells of rows if one may equal a key; None where all may.

        Args:
            schema: of the keys' columns.
        """
        parts = [
            bounds.expression(field.name)
            for field, bounds in zip(schema.fields, self._bounds, strict=True)
            if bounds is not None
        ]
        if not parts:
            return None
        try:
            return Pruning(schema, {}, bound_to(schema, reduce(And, parts)))
        except (TypeError, ValueError):  # values that PyIceberg has no literals of
            return None

    def contain(self, rows: pa.Table) -> NDArray[np.bool_]:
        """Tell of rows, with the keys' columns in their order, whether they equal a key; `(n,)`."""
        codes = np.zeros(len(rows), np.int64)
        for column, values, combined in zip(
            rows.columns, self._values, self._combined, strict=True
        ):
            places = _places(_comparable(column), values)
            known = (codes != ABSENT) & (places != ABSENT)
            sought = codes * len(values) + places
            at = np.minimum(np.searchsorted(combined, sought), len(combined) - 1)
            known &= combined[at] == sought if len(combined) else False
            codes = np.where(known, at, ABSENT)
        contained: NDArray[np.bool_] = codes != ABSENT
        return contained


def _by_columns(file: LiveFile) -> list[tuple[DeleteFile, ...]]:
    """Return the equality deletes of a file, those by the same columns together."""
    groups: dict[tuple[int, ...], list[DeleteFile]] = defaultdict(list)
    for delete in file.deletes:
        if delete.kind == "equality":
            groups[delete.equality_ids].append(delete)
    return [tuple(group) for group in groups.values()]


def _read_keys(table: Table, delete: DeleteFile) -> pa.Table:
    with open_parquet(table.io, delete.path, DELETE_FILE) as parquet:
        return _KeyReader(table, delete.equality_ids, delete.path, parquet).all_keys()


class _KeyReader:
    """Reads the columns that deletes compare, in their own types.

    Args:
        table: of the file.
        field_ids: of the columns.
        path: of the file, for messages.
        parquet: the file, open.
    """

    def __init__(
        self, table: Table, field_ids: Sequence[int], path: str, parquet: pq.ParquetFile
    ) -> None:
        self._schema = Schema(*(_key_field(table, field_id) for field_id in field_ids))
        self._reader = RowGroupReader(table, self._schema, path, parquet)
        self._types = schema_to_pyarrow(self._schema, include_field_ids=False)
        self._path, self._parquet = path, parquet

    def all_keys(self) -> pa.Table:
        """Return the rows of a delete file.

        Raises:
            FormatError: the file lacks a column.
        """
        missing = self._reader.missing
        if missing:
            ids = [field.field_id for field in self._schema.fields]
            raise FormatError(
                f"{self._path} is to delete rows by the columns with field ids {ids}, and has no "
                f"{sorted(missing)}"
            )
        tables = [self._read(number) for number in range(self._parquet.num_row_groups)]
        return pa.concat_tables([self._types.empty_table(), *tables])

    def row_groups_near(self, keys: DeletedKeys) -> Iterator[tuple[int, pa.Table]]:
        """Give the first position and the rows of row groups in which a key may be."""
        metadata, named = self._parquet.metadata, self._reader.names_by_id
        near = keys.near(self._schema)
        columns = {
            field.field_id: (named[field.field_id], field.field_type)
            for field in self._schema.fields
            if field.field_id in named
        }
        first = 0
        for number in range(metadata.num_row_groups):
            rows = metadata.row_group(number).num_rows
            told = statistics_of(metadata, self._parquet.schema_arrow, number, columns)
            if near is None or near.some_of(rows, told):
                yield first, self._read(number)
            first += rows

    def _read(self, number: int) -> pa.Table:
        return self._reader.read(number).cast(self._types)


def _key_field(table: Table, field_id: int) -> NestedField:
    """Return a column of the newest schema that has it, since deletes outlive their columns."""
    older = sorted(table.schemas().values(), key=lambda schema: -schema.schema_id)
    for schema in (table.schema(), *older):
        for field in schema.fields:
            if field.field_id == field_id and isinstance(field.field_type, PrimitiveType):
                # Dropped columns may share a name; files from before the column have null.
                return field.model_copy(update={"name": f"key {field_id}", "required": False})
    raise UnsupportedTableError(
        f"{name_of(table)} has equality deletes by the column with field id {field_id}, which is "
        "no top-level column of a single value; run a compaction that applies them"
    )


class _Bounds(NamedTuple):
    """What the keys of a column lie between; None and None where all are null."""

    least: Any
    most: Any
    has_null: bool

    def expression(self, name: str) -> BooleanExpression:
        """Return what a row has to match that equals one of them."""
        term = Reference(name)
        if self.least is None:
            return IsNull(term=term)
        between = And(
            GreaterThanOrEqual(term=term, value=self.least),
            LessThanOrEqual(term=term, value=self.most),
        )
        return Or(between, IsNull(term=term)) if self.has_null else between


def _bounds_of(column: pa.ChunkedArray) -> _Bounds | None:
    """Return the bounds of keys; None where there are none, or bounds do not tell what is equal."""
    kind = column.type
    if not len(column) or not any(is_kind(kind) for is_kind in _ORDERED):
        return None
    found = pc.min_max(column).as_py()
    return _Bounds(found["min"], found["max"], column.null_count > 0)


_ORDERED = (
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_decimal,
)
"""Types whose values are equal in a file just where they are equal here, and lie in one order."""


def _comparable(column: pa.ChunkedArray) -> pa.Array:
    """Return values of which just those that Iceberg takes for equal are equal in Arrow, too."""
    values = column.combine_chunks()
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_floating(values.type):
        numbers = pc.fill_null(values, 0).to_numpy().astype(np.float64)
        numbers[np.isnan(numbers)] = np.nan  # one of the many bit patterns
        return pa.array(numbers.view(np.int64), mask=np.asarray(values.is_null()))
    return values


def _places(column: pa.Array, values: pa.Array) -> NDArray[np.int64]:
    """Return where each value of a column is among distinct ones, nulls included; or ABSENT."""
    found = pc.index_in(column, value_set=values, skip_nulls=False)
    return np.asarray(pc.fill_null(found, ABSENT), dtype=np.int64)
