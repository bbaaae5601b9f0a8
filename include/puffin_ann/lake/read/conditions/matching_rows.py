"""The rows of a snapshot that satisfy a condition, found by reading as little as decides it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField
from pyroaring import BitMap

from puffin_ann.errors import DataFileError
from puffin_ann.lake.read.conditions.condition import Condition
from puffin_ann.lake.read.conditions.evaluate import rows_that_match
from puffin_ann.lake.read.conditions.snapshot_entries import data_entries
from puffin_ann.lake.read.data.column_chunks import ChunkReader, DataFile, Footer, RowGroup
from puffin_ann.lake.read.data.projection import Projection
from puffin_ann.lake.read.diff.coverage_diff import ALL, Positions
from puffin_ann.lake.read.files.manifests import Entry
from puffin_ann.lake.read.files.pruning import Pruning
from puffin_ann.lake.read.files.row_group_statistics import statistics_of


@dataclass(frozen=True)
class MatchingRows:
    """The rows of a snapshot's data files that satisfy a condition, deleted ones among them.

    Attributes:
        positions: by path of the files that have such rows: positions, or `ALL`.
        files: data files of the snapshot.
        files_out: of those, how many have no such row by what manifests say.
        files_in: how many have none but such rows by what manifests say.
        row_groups: of the other files.
        row_groups_read: of those, how many had to be read.
        bytes_read: of data files.
        files_asked: of the other files, how many were decided by who was asked first.
    """

    positions: Mapping[str, Positions]
    files: int
    files_out: int
    files_in: int
    row_groups: int
    row_groups_read: int
    bytes_read: int
    files_asked: int = 0

    @property
    def size(self) -> int:
        """Bytes of memory that it takes, about."""
        bitmaps = (where for where in self.positions.values() if where is not ALL)
        return sum(64 + len(bitmap.serialize()) for bitmap in bitmaps) + 200 * len(self.positions)


Ask = Callable[[Sequence[Entry], Pruning], Mapping[str, Positions]]
"""Returns the rows that match, by path, of those files of which it knows them without reading."""


@dataclass(frozen=True, eq=False)
class LookedUp:
    """Rows that match, of files that were not read for it.

    Attributes:
        rows: by path of the files of which the matching rows are known, how many rows they have.
        positions: by path, those that match; files without are not among them.
    """

    rows: Mapping[str, int]
    positions: Mapping[str, Positions]


def matching_rows(
    table: Table,
    snapshot_id: int,
    condition: Condition,
    ask: Ask | None = None,
    looked_up: LookedUp | None = None,
) -> MatchingRows:
    """Return the rows of a snapshot that satisfy a condition.

    A file is not opened if its partition and statistics decide of all its rows, nor a row group
    read if its statistics do. Of the others the condition's columns are read.

    Args:
        table: that has the snapshot.
        snapshot_id: of it.
        condition: bound to a schema that the snapshot's files can be read in.
        ask: is asked about files that manifests do not decide, before any is opened; of rows that
            nobody asks about it may say what it likes.
        looked_up: what is known already, so that not even statistics of these files are asked.

    Raises:
        DataFileError: a file is damaged, or is not the one that the table names.
        UnsupportedTableError: a column is not recognised in a file.
        EnvironmentProblemError: a file is gone.
        StoreUnavailableError: a file's store does not answer.
    """
    entries = data_entries(table, snapshot_id)
    found: dict[str, Positions] = {}
    left = entries
    if looked_up is not None:
        rows = looked_up.rows
        left = [entry for entry in entries if rows.get(entry.path) != entry.rows]
        outside = {entry.path for entry in left}
        found |= {
            path: positions
            for path, positions in looked_up.positions.items()
            if path not in outside
        }
    if not left:
        return MatchingRows(found, len(entries), 0, 0, 0, 0, 0, files_asked=len(entries))
    pruning = Pruning(condition.schema, table.specs(), condition.bound)
    decided = [(entry, _decided(entry, pruning)) for entry in left]
    whole_files = [entry.path for entry, positions in decided if positions is ALL]
    found |= dict.fromkeys(whole_files, ALL)
    files_in = len(whole_files)
    open_entries = [entry for entry, positions in decided if positions is None]
    asked = ask(open_entries, pruning) if ask is not None and open_entries else {}
    reader = _Reader(table, condition, pruning)
    unread = [entry for entry in open_entries if entry.path not in asked]
    for path, positions in chain(asked.items(), reader.positions(unread)):
        if positions is ALL or positions:
            found[path] = positions
    return MatchingRows(
        positions=found,
        files=len(entries),
        files_out=len(decided) - files_in - len(open_entries),
        files_in=files_in,
        row_groups=reader.row_groups,
        row_groups_read=reader.row_groups_read,
        bytes_read=reader.bytes_read,
        files_asked=len(asked) + len(entries) - len(left),
    )


def _decided(entry: Entry, pruning: Pruning) -> Positions | None:
    """Return which rows of a file match; None if they have to be asked."""
    if not entry.rows or not pruning.may_match(entry):
        return BitMap()
    return ALL if pruning.must_match(entry) else None


@dataclass
class _OpenFile:
    """A file of which some row groups are read.

    Attributes:
        entry: of its manifest.
        footer: what it says of itself.
        projection: of the columns that are read; None if the partition has all.
        constants: by name, values that all rows have by the partition.
        parts: rows that match, so far, by the position of the first row of each part.
    """

    entry: Entry
    footer: Footer
    projection: Projection | None
    constants: Mapping[str, pa.Scalar]
    parts: list[BitMap] = field(default_factory=list)


class _Reader:
    """Reads what neither manifests nor footers decide."""

    def __init__(self, table: Table, condition: Condition, pruning: Pruning) -> None:
        self._table, self._condition, self._pruning = table, condition, pruning
        self._chunks = ChunkReader(table)
        self.row_groups = self.row_groups_read = 0

    @property
    def bytes_read(self) -> int:
        return self._chunks.bytes_read

    def positions(self, entries: Sequence[Entry]) -> Iterator[tuple[str, Positions]]:
        """Give the rows of each file that match."""
        files = [DataFile(entry.path, entry.size) for entry in entries]
        opened = {}
        wanted: list[tuple[RowGroup, Sequence[str]]] = []
        starts: dict[RowGroup, int] = {}
        for file, entry, footer in zip(files, entries, self._chunks.footers(files), strict=True):
            opened[file] = self._open(entry, footer)
            for group in self._undecided(file, opened[file], starts):
                projection = opened[file].projection
                wanted.append((group, projection.names if projection else []))
        self.row_groups_read = len(wanted)
        for group, columns in self._chunks.columns(wanted):
            at = opened[group.file]
            matching = self._matching(at, at.footer.rows(group.number), columns)
            here = np.flatnonzero(matching) + starts[group]
            at.parts.append(BitMap(here.astype(np.uint32)))
        for at in opened.values():
            rows = BitMap.union(*at.parts) if at.parts else BitMap()
            yield at.entry.path, ALL if len(rows) == at.entry.rows else rows

    def _open(self, entry: Entry, footer: Footer) -> _OpenFile:
        told = footer.metadata.num_rows
        if told != entry.rows:
            raise DataFileError(
                f"{entry.path} has {told} rows; the table's manifest says {entry.rows}"
            )
        constants = _constants(self._table.specs().get(entry.spec_id), entry, self._condition)
        columns = [column for column in self._condition.columns if column.name not in constants]
        projection = None
        if columns:
            schema = Schema(*columns)
            projection = Projection(self._table, schema, entry.path, footer.schema)
        return _OpenFile(entry, footer, projection, constants)

    def _undecided(
        self, file: DataFile, at: _OpenFile, starts: dict[RowGroup, int]
    ) -> Iterator[RowGroup]:
        """Give the row groups that have to be read; rows of those that match whole are noted."""
        projection = at.projection
        named = {} if projection is None else projection.names_by_id
        kinds = {
            column.field_id: (named[column.field_id], column.field_type)
            for column in self._condition.columns
            if column.field_id in named
        }
        first = 0
        for number in range(at.footer.metadata.num_row_groups):
            rows = at.footer.rows(number)
            self.row_groups += 1
            told = statistics_of(at.footer.metadata, at.footer.schema, number, kinds)
            if not rows or not self._pruning.some_of(rows, told):
                pass
            elif self._pruning.all_of(rows, told):
                at.parts.append(BitMap(range(first, first + rows)))
            else:
                group = RowGroup(file, number)
                starts[group] = first
                yield group
            first += rows

    def _matching(self, at: _OpenFile, rows: int, columns: Mapping[str, Any]) -> NDArray[np.bool_]:
        known = {name: pa.repeat(value, rows) for name, value in at.constants.items()}
        if at.projection is not None:
            read = [whole(columns[name]) for name in at.projection.names]
            projected = at.projection.of(read, rows)
            known |= zip(projected.column_names, projected.columns, strict=True)
        return rows_that_match(self._condition, _Columns(rows, known))


@dataclass(frozen=True)
class _Columns:
    """Columns of the same rows, by name."""

    num_rows: int
    by_name: Mapping[str, pa.Array | pa.ChunkedArray]

    def column(self, name: str) -> pa.Array | pa.ChunkedArray:
        return self.by_name[name]


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _constants(
    spec: PartitionSpec | None, entry: Entry, condition: Condition
) -> dict[str, pa.Scalar]:
    """Return the values that all rows of a file have by its partition, by name of the column.

    Files migrated from Hive have them nowhere else.
    """
    found: dict[str, pa.Scalar] = {}
    if spec is None or len(spec.fields) != len(entry.partition):
        return found
    by_id = {column.field_id: column for column in condition.columns}
    for part, value in zip(spec.fields, entry.partition, strict=True):
        column = by_id.get(part.source_id)
        if column is not None and isinstance(part.transform, IdentityTransform):
            scalar = _scalar(value, column)
            if scalar is not None:
                found[column.name] = scalar
    return found


def _scalar(value: object, column: NestedField) -> pa.Scalar | None:
    """Return a value of a partition as the column has it; None if it cannot be told exactly."""
    kind = schema_to_pyarrow(column.field_type)
    if isinstance(kind, pa.BaseExtensionType):
        return None
    try:
        return pa.scalar(value, kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None
