"""Find a row of the table by key, to search with its vector."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.expressions import EqualTo
from pyiceberg.expressions.literals import StringLiteral
from pyiceberg.table import Table

from puffin_ann.errors import ColumnNotFoundError, QueryError, RowNotFoundError
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.read.columns import ColumnReader, DataFile
from puffin_ann.lake.read.conditions.values import Beyond, fitted
from puffin_ann.lake.read.live_files import LiveFile, live_files
from puffin_ann.lake.read.parquet import read_vectors
from puffin_ann.lake.read.pruning import may_match
from puffin_ann.lake.read.row_deletes import deleted_positions
from puffin_ann.search.index import Index


@dataclass(frozen=True)
class KeyedRow:
    """A row found by key.

    Attributes:
        label: the key's value, as it was given.
        vector: (d,) float32.
        locator: file, row group and row offset, as a search answers them.
    """

    label: str
    vector: NDArray[np.float32]
    locator: dict[str, Any]


def vector_of_row(index: Index, key: str, value: str) -> KeyedRow:
    """Return the one live row whose key column has a value, in the index's snapshot.

    Raises:
        ColumnNotFoundError: no such column.
        QueryError: the value does not fit the column's type.
        RowNotFoundError: no row has it, more than one has it, or it has no usable vector.
    """
    table, where = index.table, f"{name_of(index.table)}: {key} = {value!r}"
    found: list[dict[str, Any]] = []
    for locator in _find(table, index.view.snapshot_id, key, value):
        found.append(locator)
        if len(found) > 1:
            raise RowNotFoundError(f"{where}: more than one row has this key; use --vector")
    if not found:
        raise RowNotFoundError(f"{where}: no live row has this key")
    place = found[0]
    # By field id: the snapshot may call the column otherwise than the table does now.
    read = read_vectors(
        table.io, place["file"], place["row_group"], index.column, index.dimension, view=True
    )
    if not read.valid[place["row_offset"]]:
        raise RowNotFoundError(
            f"{where}: the row has no usable vector of {index.dimension} numbers"
        )
    return KeyedRow(value, np.array(read.matrix[place["row_offset"]], np.float32), place)


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


def _find(table: Table, snapshot_id: int, key: str, value: str) -> Iterator[dict[str, Any]]:
    """Yield the locators of the live rows with a key, from files that may hold it."""
    names = [field.name for field in table.schema().fields]
    if key not in names:
        raise ColumnNotFoundError(
            f"{name_of(table)} has no top-level column {key!r}; it has: {', '.join(names)}"
        )
    try:
        wanted = fitted(StringLiteral(value), table.schema().find_type(key))
        if isinstance(wanted, Beyond):
            return
        may_hold = may_match(table, EqualTo(term=key, value=wanted))
    except (ValueError, TypeError) as error:
        raise QueryError(f"{key}={value!r} cannot be looked up: {error}") from None
    files = live_files(table, snapshot_id, may_hold)
    deleted = deleted_positions(table, files)
    for file in files:
        for row_group, offset, position in _matches(table, file, key, wanted.value):
            if position not in deleted.get(file.path, ()):
                yield {"file": file.path, "row_group": row_group, "row_offset": offset}


def _matches(table: Table, file: LiveFile, key: str, wanted: Any) -> Iterator[tuple[int, int, int]]:
    """Yield row group, offset and position of the rows of a file with a key."""
    data_file = DataFile(file.path, file.size)
    first = 0
    for group, rows in ColumnReader(table, [key]).all_rows([data_file]):
        values = rows.column(key)
        equal = pc.fill_null(pc.equal(values, pa.scalar(wanted, values.type)), False)
        for offset in np.flatnonzero(np.asarray(equal)).tolist():
            yield group.number, offset, first + offset
        first += len(values)
