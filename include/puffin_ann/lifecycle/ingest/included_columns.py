"""Columns that a declaration includes: checked when a run is planned, read as shards are made."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from puffin_ann.blobs.shards import columns as columns_blob
from puffin_ann.blobs.shards.columns import IncludedColumn, ShardColumns
from puffin_ann.blobs.shards.rows import NOWHERE, Rows
from puffin_ann.blobs.version import coverage as coverage_blob
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import ColumnNotFoundError, UnsupportedColumnError, UnsupportedTableError
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.read.data.columns import ColumnReader, DataFile
from puffin_ann.lake.store.locations import absolute_path
from puffin_ann.lifecycle.documents.refresh import RefreshPlan
from puffin_ann.lifecycle.ingest.key_column import renamed_to
from puffin_ann.lifecycle.runtime.workspace import Workspace
from puffin_ann.search.included.answers import RowPlaces, kept_values
from puffin_ann.search.included.arrow_values import arrow_type, can_be_kept, included_column
from puffin_ann.search.included.kept_columns import KeptColumns
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.wording import meant

log = logging.getLogger("puffin_ann")

BATCH_ROWS = 1 << 20
"""Rows of which values are read at once."""


def require_included(table: Table, declaration: IndexDeclaration) -> tuple[int, ...]:
    """Return the field ids of the columns that a declaration includes.

    Raises:
        ColumnNotFoundError: the table has no such column; tells what it is called now, if it was
            renamed, else which columns there are.
        UnsupportedColumnError: it holds lists, maps or structs, or what else is not kept.
    """
    fields = {field.name: field for field in table.schema().fields}
    found = []
    for name in declaration.include:
        whose = f"include of index {declaration.name!r}"
        if name not in fields:
            now = renamed_to(table, name)
            raise ColumnNotFoundError(
                f"{whose}: {name_of(table)} has no top-level column {name!r}"
                + (
                    f"; it is called {now!r} now: change `include:` in the declaration to that"
                    if now is not None
                    else f"{meant(name, fields)}; it has: {', '.join(fields)}"
                )
            )
        kind = fields[name].field_type
        if not can_be_kept(kind):
            raise UnsupportedColumnError(
                f"{whose}: column {name!r} of {name_of(table)} is of type {kind}; included are "
                "columns of single values, such as numbers, dates or strings"
            )
        found.append(fields[name].field_id)
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Before:
    """Where rows were in the version that is refreshed, which may have kept their values.

    Attributes:
        version: that is refreshed.
        shard: of it.
        ordinals: (n,) int64, of the rows in that shard; -1 of those that were not in it.
    """

    version: IndexVersion
    shard: ShardEntry
    ordinals: NDArray[np.int64]


def write_included(
    workspace: Workspace, rows: Rows, folder: Path, before: Before | None = None
) -> Mapping[str, Path]:
    """Write the values of a shard's rows to a file of a folder; return it by type of blob.

    Args:
        workspace: of the run, whose plan says which columns.
        rows: all of the shard; deleted ones are set aside.
        folder: takes the file.
        before: where they were.
    """
    columns = read_included(workspace, rows, before)
    if not columns:
        return {}
    path = folder / "columns.blob"
    with path.open("wb") as out:
        columns_blob.write(ShardColumns(locators_of(rows), columns), out)
    return {columns_blob.TYPE: path}


def read_included(
    workspace: Workspace, rows: Rows, before: Before | None = None
) -> tuple[IncludedColumn, ...]:
    """Read the values of some rows, in their order; those of rows in no file are null.

    What the version before kept of rows that are where they were is taken from there, the rest read
    from the table. Columns that the table does not have any more are left out, and so are all where
    a file holds one only in the partition that it is of.
    """
    fields = _fields(workspace)
    if not fields:
        return ()
    parts, places = [_schema(fields).empty_table()], [np.zeros(0, np.int64)]
    is_missing = rows.file_ids != NOWHERE
    if before is not None:
        found, taken = _kept(workspace, rows, before, fields)
        parts.append(taken)
        places.append(np.flatnonzero(found))
        is_missing &= ~found
    missing = np.flatnonzero(is_missing)
    order = missing[
        np.lexsort((rows.offsets[missing], rows.row_groups[missing], rows.file_ids[missing]))
    ]
    if len(order):
        try:
            parts.append(_read_all(workspace, fields, rows, order))
        except UnsupportedTableError as error:
            log.warning("no values of columns are kept: %s", error)
            return ()
        places.append(order)
    where = np.full(len(rows), -1, np.int64)
    named = np.concatenate(places)
    where[named] = np.arange(len(named))
    read = pa.concat_tables(parts).take(pa.array(where, mask=where < 0))
    return tuple(
        included_column(field.field_id, field.field_type, read.column(field.name))
        for field in fields
    )


def locators_of(rows: Rows) -> NDArray[np.uint32]:
    """Return (3, n) uint32: file ids, row groups and offsets of rows."""
    return np.stack([rows.file_ids, rows.row_groups, rows.offsets])


def _schema(fields: Sequence[NestedField]) -> pa.Schema:
    return pa.schema([(field.name, arrow_type(field.field_type)) for field in fields])


def _kept(
    workspace: Workspace, rows: Rows, before: Before, fields: Sequence[NestedField]
) -> tuple[NDArray[np.bool_], pa.Table]:
    """Return which rows have values kept in the version before, and these."""
    shards = np.where(before.ordinals >= 0, before.shard.shard_id, -1)
    locators = locators_of(rows).astype(np.int64)
    kept = kept_of(workspace.table.io, before.version, before.shard)
    return kept_values(kept, fields, RowPlaces(shards, before.ordinals, locators))


def kept_of(io: FileIO, version: IndexVersion, shard: ShardEntry) -> KeptColumns:
    """Return what a version keeps of the rows of one shard."""
    return KeptColumns(io, replace(version, routing=replace(version.routing, shards=(shard,))))


def _read_all(
    workspace: Workspace, fields: Sequence[NestedField], rows: Rows, order: NDArray[np.int64]
) -> pa.Table:
    """Return columns of rows, given by (m,) ordinals in the order of their locators."""
    reader = ColumnReader(workspace.table, [field.name for field in fields])
    files = _files(workspace)
    batches = (order[start : start + BATCH_ROWS] for start in range(0, len(order), BATCH_ROWS))
    read = pa.concat_tables([_read(reader, files, rows, batch) for batch in batches])
    return read.cast(_schema(fields))  # of rows in no file even required columns are null


def _read(
    reader: ColumnReader, files: Mapping[int, DataFile], rows: Rows, ordinals: NDArray[np.int64]
) -> pa.Table:
    named, numbers = np.unique(rows.file_ids[ordinals], return_inverse=True)
    return reader.rows(
        [files[number] for number in named.tolist()],
        numbers,
        rows.row_groups[ordinals],
        rows.offsets[ordinals],
    )


def _fields(workspace: Workspace) -> list[NestedField]:
    by_id = {field.field_id: field for field in workspace.table.schema().fields}
    planned = [by_id[number] for number in workspace.plan.included if number in by_id]
    return [field for field in planned if can_be_kept(field.field_type)]


def _files(workspace: Workspace) -> dict[int, DataFile]:
    """Return the data files of the snapshot that a run covers, by id."""
    plan = workspace.plan
    if not isinstance(plan, RefreshPlan):
        return {file.file_id: DataFile(file.path, file.size) for file in plan.files}
    location = workspace.table.location()
    covered = coverage_blob.decode(workspace.fetch_bytes(plan.coverage)).columns
    paths = [absolute_path(location, path) for path in covered.paths]
    return {
        file_id: DataFile(path, size)
        for file_id, path, size in zip(
            covered.file_ids.tolist(), paths, covered.sizes.tolist(), strict=True
        )
    }
