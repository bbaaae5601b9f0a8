"""Find a row of the table by key, to search with its vector."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.expressions import EqualTo
from pyiceberg.expressions.literals import StringLiteral
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from puffin_ann.errors import ColumnNotFoundError, QueryError, RowNotFoundError
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.read.conditions.values import Beyond, fitted
from puffin_ann.lake.read.data.column_chunks import ChunkReader, DataFile, RowGroup
from puffin_ann.lake.read.data.columns import ColumnReader
from puffin_ann.lake.read.data.parquet import find_column
from puffin_ann.lake.read.data.vectors import vectors_of
from puffin_ann.lake.read.deletes.row_deletes import deleted_positions
from puffin_ann.lake.read.files.live_files import LiveFile, live_files
from puffin_ann.lake.read.files.pruning import may_match
from puffin_ann.search.index import Index
from puffin_ann.wording import meant


@dataclass(frozen=True)
class KeyedRow:
    """A row found by key.

    Attributes:
        label: the key's value, as it was given.
        vector: (d,) float32.
        locator: file, row group and row offset, as a search answers them.
        bytes_read: of data files, to find it; what was in memory does not count.
    """

    label: str
    vector: NDArray[np.float32]
    locator: dict[str, Any]
    bytes_read: int


def vector_of_row(index: Index, key: str, value: str) -> KeyedRow:
    """Return the one live row whose key column, as the index's snapshot names it, has a value.

    Raises:
        ColumnNotFoundError: no such column.
        QueryError: the value does not fit the column's type, or more than one row has it.
        RowNotFoundError: no row has it, or the one that has it has no usable vector.
    """
    table, where = index.table, f"{name_of(index.table)}: {key} = {value!r}"
    found: list[_Place] = []
    schema = index.view.schema(table)
    reader = _reader_of(table, key, schema)
    for place in _find(table, index.view.snapshot_id, schema, key, value, reader):
        found.append(place)
        if len(found) > 1:
            raise QueryError(
                f"{where}: more than one row has this key; ask by a column that tells rows apart, "
                "or by a vector"
            )
    if not found:
        raise RowNotFoundError(f"{where}: no live row has this key")
    place, chunks = found[0], ChunkReader(table)
    vector = _vector(chunks, place, index)
    if vector is None:
        raise RowNotFoundError(
            f"{where}: the row has no usable vector of {index.dimension} numbers"
        )
    return KeyedRow(value, vector, place.locator, reader.bytes_read + chunks.bytes_read)


def without_themselves(
    rows: Sequence[KeyedRow], answers: pa.Table, k: int | None = None
) -> tuple[pa.Table, list[int]]:
    """Return answers to rows' vectors without these rows, ranked anew, and how many each has.

    Args:
        rows: that were asked for, in the order of the queries.
        answers: as a search gives them; of k rows where k - 1 others are wanted.
        k: others to keep of each; None for all.
    """
    keep, taken = [], [0] * len(rows)
    for place, answer in enumerate(answers.select(["query", "locator"]).to_pylist()):
        query = answer["query"]
        if answer["locator"] != rows[query].locator and (k is None or taken[query] < k):
            taken[query] += 1
            keep.append((place, taken[query]))
    chosen = answers.take(pa.array([place for place, _ in keep], pa.int64()))
    rank = pa.array([rank for _, rank in keep], pa.int32())
    return chosen.set_column(chosen.column_names.index("rank"), "rank", rank), taken


class _Place(NamedTuple):
    """Where a row is."""

    file: DataFile
    row_group: int
    row_offset: int

    @property
    def locator(self) -> dict[str, Any]:
        """As a search answers it."""
        return {**self._asdict(), "file": self.file.path}


def _vector(chunks: ChunkReader, place: _Place, index: Index) -> NDArray[np.float32] | None:
    """Return the vector of a row, (d,) float32; None if it has none that is usable."""
    (footer,) = chunks.footers([place.file])
    # By field id: the snapshot may call the column otherwise than the table does now.
    column = find_column(footer.schema, index.column, place.file.path)
    if column is None:
        return None
    name = str(footer.schema.field(column).name)
    ((_, columns),) = chunks.columns([(RowGroup(place.file, place.row_group), (name,))])
    read = vectors_of(columns[name], index.dimension, view=True)
    if not read.valid[place.row_offset]:
        return None
    return np.array(read.matrix[place.row_offset], np.float32)


def _reader_of(table: Table, key: str, schema: Schema) -> ColumnReader:
    """Return what reads a key's column."""
    names = [field.name for field in schema.fields]
    if key not in names:
        raise ColumnNotFoundError(
            f"{name_of(table)} has no top-level column {key!r}{meant(key, names)}; it has: "
            f"{', '.join(names)}"
        )
    return ColumnReader(table, [key], schema)


def _find(
    table: Table, snapshot_id: int, schema: Schema, key: str, value: str, reader: ColumnReader
) -> Iterator[_Place]:
    """Yield the places of the live rows with a key, from files that may hold it."""
    try:
        wanted = fitted(StringLiteral(value), schema.find_type(key))
        if isinstance(wanted, Beyond):
            return
        may_hold = may_match(table, EqualTo(term=key, value=wanted), schema)
    except (ValueError, TypeError) as error:
        raise QueryError(f"{key}={value!r} cannot be looked up: {error}") from None
    files = live_files(table, snapshot_id, may_hold)
    deleted = deleted_positions(table, files)
    for file in files:
        for place, position in _matches(reader, file, key, wanted.value):
            if position not in deleted.get(file.path, ()):
                yield place


def _matches(
    reader: ColumnReader, file: LiveFile, key: str, wanted: Any
) -> Iterator[tuple[_Place, int]]:
    """Yield place and position of the rows of a file with a key."""
    data_file = DataFile(file.path, file.size)
    first = 0
    for group, rows in reader.all_rows([data_file]):
        values = rows.column(key)
        equal = pc.fill_null(pc.equal(values, pa.scalar(wanted, values.type)), False)
        for offset in np.flatnonzero(np.asarray(equal)).tolist():
            yield _Place(data_file, group.number, offset), first + offset
        first += len(values)
