"""Make an Iceberg table of a Parquet file, in one commit."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table

from puffin_ann.errors import (
    BadInputError,
    ColumnNotFoundError,
    NotFoundError,
    TooFewRowsError,
    UnsupportedColumnError,
)
from puffin_ann.lake.read.errors import reading
from puffin_ann.wording import meant

CHUNK_BYTES = 256 << 20
"""Of a file that is held in memory; each chunk becomes a data file."""
ROW_GROUP_BYTES = 1 << 20
"""Of vectors: to read a column of single rows takes whole row groups."""
IMPORTED = "puffin-ann.imported-from"
"""Table property that names the file a table was made of."""

_AS_STORED = {
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
}
"""Types that Iceberg lacks, by those that hold all their values."""


def import_parquet(
    catalog: Catalog, identifier: str, file: Path, columns: Sequence[str] = ()
) -> Table:
    """Make a table of a file, or return the one that was made of it before.

    Args:
        catalog: where to.
        identifier: of the table, `namespace.table`; the namespace is made if it is not there.
        file: with a column of vectors.
        columns: to take; none for all.

    Raises:
        NotFoundError: there is no such file, or it has no such column.
        DataFileError: it is no Parquet file.
        UnsupportedColumnError: it has no column of vectors, or one that Iceberg cannot store.
        BadInputError: the table is there already, and was made of something else.
    """
    if file.is_dir():
        raise BadInputError(f"{file} is a folder: name a Parquet file")
    if not file.is_file():
        raise NotFoundError(f"there is no file {file}")
    source = _described(file, columns)
    try:
        table = catalog.load_table(identifier)
    except NoSuchTableError:
        with reading(str(file), "file"), pq.ParquetFile(file) as parquet:
            # Not without the check below: another process may have made it meanwhile.
            table = _import(catalog, identifier, parquet, columns, source)
    if table.properties.get(IMPORTED) != source:
        raise BadInputError(
            f"table {identifier} is there already, and was not made of {file} as it is now, with "
            "the columns that are asked for: choose another folder by --to"
        )
    return table


def _described(file: Path, columns: Sequence[str]) -> str:
    state = file.stat()
    return f"{file.resolve()} {state.st_size} {state.st_mtime_ns} {','.join(columns)}".rstrip()


def _import(
    catalog: Catalog, identifier: str, parquet: pq.ParquetFile, columns: Sequence[str], source: str
) -> Table:
    wanted = list(columns) or parquet.schema_arrow.names
    missing = [name for name in wanted if name not in parquet.schema_arrow.names]
    if missing:
        names = parquet.schema_arrow.names
        raise ColumnNotFoundError(
            f"the file has no column {missing[0]!r}{meant(missing[0], names)}; it has: "
            f"{', '.join(names)}"
        )
    schema = pa.schema([_stored(parquet.schema_arrow.field(name)) for name in wanted])
    _require_vectors(schema)
    if not parquet.metadata.num_rows:
        raise TooFewRowsError("the file has no rows")
    properties = {
        IMPORTED: source,
        "write.parquet.row-group-limit": str(_row_group_rows(parquet)),
    }
    catalog.create_namespace_if_not_exists(identifier.rsplit(".", 1)[0])
    try:
        transaction = catalog.create_table_transaction(identifier, schema, properties=properties)
    except (TypeError, ValueError) as error:
        raise UnsupportedColumnError(
            f"the file has a column that an Iceberg table cannot hold: {error}; name the columns "
            f"to take, of {', '.join(wanted)}"
        ) from error
    with suppress(CommitFailedException, TableAlreadyExistsError), transaction:
        for chunk in _chunks(parquet, wanted):
            transaction.append(chunk.cast(schema))
    return catalog.load_table(identifier)


def _stored(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _stored_type(field.type), nullable=field.nullable)


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of Iceberg's that a column is stored as."""
    if pa.types.is_dictionary(kind):
        return _stored_type(kind.value_type)
    if _is_list(kind):
        return pa.list_(_stored_type(kind.value_type))
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    return _AS_STORED.get(kind, kind)


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _require_vectors(schema: pa.Schema) -> None:
    for field in schema:
        if pa.types.is_list(field.type) and pa.types.is_floating(field.type.value_type):
            return
    columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
    raise UnsupportedColumnError(
        f"the file has no column of vectors, which are lists of floats; it has: {columns}"
    )


def _row_group_rows(parquet: pq.ParquetFile) -> int:
    """Return how many rows a row group holds: about `ROW_GROUP_BYTES` of what is widest."""
    metadata = parquet.metadata
    size: int = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    return max(500, ROW_GROUP_BYTES * int(metadata.num_rows) // max(size, 1))


def _chunks(parquet: pq.ParquetFile, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows in order, some `CHUNK_BYTES` at a time."""
    batches: list[pa.RecordBatch] = []
    size = 0
    for batch in parquet.iter_batches(columns=columns):
        batches.append(batch.select(columns))
        size += batch.nbytes
        if size >= CHUNK_BYTES:
            yield pa.Table.from_batches(batches)
            batches, size = [], 0
    if batches:
        yield pa.Table.from_batches(batches)
