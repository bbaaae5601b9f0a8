"""Look at a few rows of a table: what its vectors are like, and which columns tell rows apart."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, StringType, UUIDType

from puffin_ann.errors import BadInputError, TooFewRowsError, UnsupportedColumnError
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.read.data.columns import DataFile, read_rows
from puffin_ann.lake.read.data.parquet import row_group_rows
from puffin_ann.lake.read.data.vector_column import table_vector_column, vector_columns
from puffin_ann.lake.read.data.vectors import VectorBatch, vectors_of
from puffin_ann.lake.read.files.live_files import LiveFile
from puffin_ann.lifecycle.ingest.key_column import require_key_column
from puffin_ann.search.version.snapshot_view import live_state
from puffin_ann.wording import counted

ROWS_LOOKED_AT = 1000
MOST_GROUPS = 128
"""Row groups that a sample is drawn of, at most: each is read whole."""
LONGEST_KEY = 200
"""Characters: a longer text is content, not a key, though no two rows may have the same."""


@dataclass(frozen=True)
class Seen:
    """What the first rows of a table's largest data file say of it.

    Attributes:
        table: by name.
        column: the vector column.
        kind: its type, as Iceberg writes it.
        rows: live rows of the table.
        files: data files that they are in.
        looked_at: rows read.
        dimension: of most of their vectors.
        shortest: the least norm of those that an index takes.
        longest: the greatest.
        is_counts: they hold whole numbers, none negative, as histograms do.
        keys: columns in which no value came twice, the most likely key first.
    """

    table: str
    column: str
    kind: str
    rows: int
    files: int
    looked_at: int
    dimension: int
    shortest: float
    longest: float
    is_counts: bool
    keys: tuple[str, ...]


def look_at(table: Table, column: str | None = None, key: str | None = None) -> Seen:
    """Read the first rows of a table's largest data file.

    Args:
        table: the table.
        column: the vector column; None where the table has only one.
        key: a column that is to name rows, which is checked before any is read.

    Raises:
        BadInputError: the table has several vector columns, and none was named.
        ColumnNotFoundError: it has no such column.
        UnsupportedColumnError: it has no vector column, or the one named is none; or rows cannot
            be told apart by values of the key's type.
        TooFewRowsError: it has no rows, or no vector in those that were read.
        PuffinAnnError: it cannot be read.
    """
    column = _only_vector_column(table) if column is None else column
    found = table_vector_column(table, column)
    if key is not None:
        require_key_column(table, key, "--key")
    live = live_state(table, table.metadata.current_snapshot_id)
    if not live.rows:
        raise TooFewRowsError(
            f"table {name_of(table)} has no live rows: append some first, which tell what its "
            "vectors are like"
        )
    file = max(live.files, key=lambda file: file.rows)
    candidates = _possible_keys(table.schema())
    rows = _first_rows(table, file, [column, *candidates])
    vectors = vectors_of(rows.column(column))
    if not vectors.valid.any():
        raise TooFewRowsError(
            f"table {name_of(table)}: column {column!r} holds no usable vector in the first "
            f"{counted(len(rows), 'row')} of {file.path}"
        )
    norms, is_counts = _describe(vectors)
    return Seen(
        table=name_of(table),
        column=column,
        kind=str(table.schema().find_field(found.field_id).field_type),
        rows=live.rows,
        files=len(live.files),
        looked_at=len(rows),
        dimension=vectors.matrix.shape[1],
        shortest=float(norms.min()),
        longest=float(norms.max()),
        is_counts=is_counts,
        keys=tuple(name for name in candidates if _tells_rows_apart(rows.column(name))),
    )


def sample_vectors(table: Table, column: str, rows: int) -> NDArray[np.float32]:
    """Return vectors drawn at random, the same each time.

    They are of few row groups, where there are many; so of a table whose rows are sorted by what
    they are like, they are not of all kinds.

    Args:
        table: the table.
        column: the vector column.
        rows: wanted; fewer come where there are fewer, or some are not usable.

    Returns:
        (n, d) float32, in random order.

    Raises:
        PuffinAnnError: it cannot be read.
    """
    live = live_state(table, table.metadata.current_snapshot_id)
    generator = np.random.default_rng(0)
    files = [live.files[at] for at in generator.permutation(len(live.files))[:MOST_GROUPS]]
    held = [
        (number, group, count)
        for number, file in enumerate(files)
        for group, count in enumerate(row_group_rows(table.io, file.path))
        if count
    ]
    chosen = [held[at] for at in generator.permutation(len(held))[:MOST_GROUPS]]
    sizes = np.array([count for _, _, count in chosen], np.int64)
    places = np.sort(generator.permutation(int(sizes.sum()))[:rows])
    at = np.searchsorted(np.cumsum(sizes), places, side="right")
    read = read_rows(
        table,
        [DataFile(file.path, file.size) for file in files],
        np.array([number for number, _, _ in chosen], np.int64)[at],
        np.array([group for _, group, _ in chosen], np.int64)[at],
        places - (np.cumsum(sizes) - sizes)[at],
        [column],
    )
    vectors = vectors_of(read.column(column))
    usable = vectors.matrix[vectors.valid]
    return np.ascontiguousarray(usable[generator.permutation(len(usable))])


def count_doubled(table: Table, column: str) -> tuple[int, int]:
    """Return how many of the first rows share their value with one before, and how many rows.

    Args:
        table: the table.
        column: of single values.

    Raises:
        PuffinAnnError: it cannot be read.
    """
    live = live_state(table, table.metadata.current_snapshot_id)
    if not live.rows:
        return 0, 0
    file = max(live.files, key=lambda file: file.rows)
    values = _first_rows(table, file, [column]).column(column)
    return len(values) - pc.count_distinct(values, mode="all").as_py(), len(values)


def _only_vector_column(table: Table) -> str:
    names = vector_columns(table.schema())
    if len(names) == 1:
        return names[0]
    if names:
        raise BadInputError(
            f"{name_of(table)} has several vector columns, {', '.join(names)}: name one by --column"
        )
    columns = ", ".join(f"{field.name} ({field.field_type})" for field in table.schema().fields)
    raise UnsupportedColumnError(
        f"{name_of(table)} has no vector column, which is a list<float> or list<double>; it has: "
        f"{columns}"
    )


def _first_rows(table: Table, file: LiveFile, columns: list[str]) -> pa.Table:
    groups = row_group_rows(table.io, file.path)
    group = int(np.argmax(np.array(groups) > 0))
    count = min(groups[group], ROWS_LOOKED_AT)
    (files, first) = [DataFile(file.path, file.size)], np.zeros(count, np.int64)
    return read_rows(table, files, first, first + group, np.arange(count), columns)


def _possible_keys(schema: Schema) -> list[str]:
    """Return the columns that may be keys, the most likely first."""
    kinds = (IntegerType, LongType, StringType, UUIDType)
    names = [field.name for field in schema.fields if isinstance(field.field_type, kinds)]
    identifiers = schema.identifier_field_names()

    def likelihood(name: str) -> int:
        lower = name.lower()
        if identifiers == {name}:
            return 0
        if lower in ("id", "key", "uuid"):
            return 1
        return 2 if lower.endswith(("id", "key")) else 3

    return sorted(names, key=likelihood)


def _tells_rows_apart(values: pa.ChunkedArray) -> bool:
    if values.null_count or len(values) != pc.count_distinct(values).as_py():
        return False
    if not pa.types.is_string(values.type) and not pa.types.is_large_string(values.type):
        return True
    return int(pc.max(pc.utf8_length(values)).as_py()) <= LONGEST_KEY


def _describe(vectors: VectorBatch) -> tuple[NDArray[np.float64], bool]:
    """Return the norms of the usable vectors, and whether they look like counts."""
    usable = vectors.matrix[vectors.valid].astype(np.float64)
    is_counts = bool((usable >= 0).all() and (usable == np.floor(usable)).all())
    return np.linalg.norm(usable, axis=1), is_counts
