"""Give a shard new tombstones and locators, from its removed and relocated rows.

No vector is read, and only the blobs that change are made.
"""

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.shards.rows import Rows
from puffin_ann.blobs.version import tombstones as tombstones_blob
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.lifecycle.build.shard import stage_shard, write_rows
from puffin_ann.lifecycle.documents.refresh import AppliedShard, Changes, RemovedRowsOfShard
from puffin_ann.lifecycle.refresh.apply_changes.added_tombstones import added_tombstones
from puffin_ann.lifecycle.refresh.apply_changes.changed_columns import column_changes
from puffin_ann.lifecycle.refresh.read_changes.relocated_rows import Relocations
from puffin_ann.lifecycle.refresh.read_changes.removed_rows import DeletedRows
from puffin_ann.lifecycle.runtime.scratch import scratch_folder
from puffin_ann.lifecycle.runtime.workspace import Workspace, arrays_from_bytes
from puffin_ann.search.shards.opening.rows import Wanted, read_rows
from puffin_ann.search.version.index_version import IndexVersion


@dataclass(frozen=True)
class ShardRows:
    """The rows of a shard as they are now.

    Attributes:
        rows: locators of live rows are those of the new version.
        deleted: (n,) bool.
        relocated: whether a locator changed.
        already_deleted: (t,) ordinals that are deleted in the version refreshed.
    """

    rows: Rows
    deleted: NDArray[np.bool_]
    relocated: bool
    already_deleted: NDArray[np.int64]


def rows_now(
    workspace: Workspace,
    version: IndexVersion,
    shard: ShardEntry,
    changes: Changes,
    *,
    identities: Wanted = "all",
) -> ShardRows:
    """Return the rows of a shard, relocated and deleted ones as they are in the new version.

    Args:
        workspace: of the run.
        version: that is refreshed.
        shard: of it.
        changes: removed and relocated rows.
        identities: of its rows that are read.

    Raises:
        FormatError: a blob is missing or broken, or says what another contradicts.
    """
    with version.files(workspace.table.io) as files:
        rows, already_deleted = read_rows(files, version, shard, identities=identities)
    removed = next(
        (
            rows_of_shard
            for rows_of_shard in changes.removed
            if rows_of_shard.shard_id == shard.shard_id
        ),
        None,
    )
    deleted = np.zeros(len(rows), np.bool_)
    deleted[already_deleted] = True
    if removed is None:
        return ShardRows(rows, deleted, relocated=False, already_deleted=already_deleted)
    deleted[_read_deleted(workspace, removed).newly_deleted] = True
    locators = [rows.file_ids.copy(), rows.row_groups.copy(), rows.offsets.copy()]
    count = 0
    for relocation in changes.relocations:
        if relocation.shard_id == shard.shard_id:
            relocations = arrays_from_bytes(
                Relocations, workspace.fetch_bytes(relocation.relocations)
            )
            deleted[relocations.ordinals] = False
            for column, values in zip(locators, relocations.locators.T, strict=True):
                column[relocations.ordinals] = values
            count += len(relocations.ordinals)
    if not count:
        return ShardRows(rows, deleted, relocated=False, already_deleted=already_deleted)
    now = replace(rows, file_ids=locators[0], row_groups=locators[1], offsets=locators[2])
    return ShardRows(
        set_aside_clashes(now, deleted),
        deleted,
        relocated=True,
        already_deleted=already_deleted,
    )


def _read_deleted(workspace: Workspace, removed: RemovedRowsOfShard) -> DeletedRows:
    return arrays_from_bytes(DeletedRows, workspace.fetch_bytes(removed.deleted))


def set_aside_clashes(rows: Rows, deleted: NDArray[np.bool_]) -> Rows:
    """Move deleted rows out of places that others have taken: no two rows may have one locator.

    That happens to equal rows: one of them comes back to its place under the ordinal of another.
    """
    if not _may_clash(rows):
        return rows
    order = np.lexsort((rows.offsets, rows.row_groups, rows.file_ids))
    ordered = np.stack([rows.file_ids[order], rows.row_groups[order], rows.offsets[order]])
    same = (ordered[:, 1:] == ordered[:, :-1]).all(axis=0)
    if not same.any():
        return rows
    clash = np.zeros(len(rows), np.bool_)
    clash[order[1:][same]] = True
    clash[order[:-1][same]] = True
    return rows_blob.set_aside(rows, np.flatnonzero(clash & deleted))


def _may_clash(rows: Rows) -> bool:
    """Tell whether two rows may have one locator: equal ones are mixed to equal numbers."""
    mixed = rows.file_ids.astype(np.uint64)
    for column in (rows.row_groups, rows.offsets):
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed += column
    mixed.sort()
    return bool((mixed[1:] == mixed[:-1]).any())


def update_rows_and_tombstones(
    workspace: Workspace, version: IndexVersion, shard: ShardEntry, changes: Changes
) -> AppliedShard:
    """Write a shard's tombstones and, if rows were relocated, its rows blob; the others stay.

    Identities do not change; those that stand in the rows blob move to a blob of their own.
    """
    began = time.monotonic()
    if any(relocation.shard_id == shard.shard_id for relocation in changes.relocations):
        now = rows_now(workspace, version, shard, changes, identities="to move")
        deleted, rows, before = np.flatnonzero(now.deleted), now.rows, now.already_deleted
    else:
        rows = None
        removed = next(
            (
                rows_of_shard
                for rows_of_shard in changes.removed
                if rows_of_shard.shard_id == shard.shard_id
            ),
            None,
        )
        found = DeletedRows(np.zeros(0, np.int64), np.zeros(0, np.int64))
        if removed is not None and removed.newly_deleted:
            found = _read_deleted(workspace, removed)
        before = found.already_deleted
        deleted = np.union1d(found.newly_deleted, before)
    tombstones_changed = not np.array_equal(deleted, before)
    added = None
    if rows is None and not tombstones_changed:
        return AppliedShard.kept(shard).model_copy(update={"seconds": time.monotonic() - began})
    with ExitStack() as stack:
        blobs: dict[str, Path | bytes] = {}
        if rows is not None:
            folder = stack.enter_context(scratch_folder(f"shard-{shard.shard_id}"))
            blobs |= write_rows(rows, folder)
            blobs |= column_changes(workspace, version, shard, rows, now.deleted)
        if tombstones_changed and len(deleted):
            added = added_tombstones(version, shard, before, deleted)
            if added is None:
                blobs[tombstones_blob.TYPE] = tombstones_of(deleted)
        return AppliedShard(
            shard_id=shard.shard_id,
            kind=shard.kind,
            rows=shard.rows,
            tombstones=len(deleted),
            bytes=shard.bytes,
            file=stage_shard(workspace, workspace.refresh_plan, shard.shard_id, blobs)
            if blobs
            else None,
            blobs=tuple(blobs),
            action="mask" if rows is None else "remap",
            seconds=time.monotonic() - began,
            added_tombstones=added,
        )


def write_tombstones(deleted: NDArray[np.int64], folder: Path) -> Path:
    """Write a tombstones blob of ordinals to a file of a folder."""
    path = folder / "tombstones.blob"
    path.write_bytes(tombstones_of(deleted))
    return path


def tombstones_of(deleted: NDArray[np.int64]) -> bytes:
    """Return a tombstones blob of ordinals."""
    return tombstones_blob.encode(BitMap(deleted.astype(np.uint32)))
