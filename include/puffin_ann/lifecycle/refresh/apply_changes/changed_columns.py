"""Keep the values of relocated rows, which may be others in the files that they are in now.

A row is found again by its vector and key; what else an engine wrote with it may have changed. So
its values are read again, and written beside those of the shard, which stay where they are. Once as
much was written of changes as the shard's values take, these are written anew.
"""

from collections.abc import Mapping
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.changes import column_changes as column_changes_blob
from puffin_ann.blobs.changes.column_changes import ColumnChanges, ColumnChangesReader
from puffin_ann.blobs.shards import columns as columns_blob
from puffin_ann.blobs.shards.columns import ShardColumns
from puffin_ann.blobs.shards.rows import Rows, set_aside
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.lifecycle.ingest.included_columns import (
    Before,
    kept_of,
    locators_of,
    read_included,
)
from puffin_ann.lifecycle.runtime.workspace import Workspace
from puffin_ann.search.included.kept_columns import KeptBlob, KeptColumns, locators_at
from puffin_ann.search.version.index_version import IndexVersion

MORE_BYTES = 3
"""Of a row in a blob of changes, at least, beside what it takes in one of all rows: an ordinal."""


def column_changes(
    workspace: Workspace,
    version: IndexVersion,
    shard: ShardEntry,
    rows: Rows,
    deleted: NDArray[np.bool_],
) -> Mapping[str, bytes]:
    """Return the blob, by its type, that keeps values of a shard's rows which moved; or none.

    Args:
        workspace: of the run.
        version: that is refreshed.
        shard: of it.
        rows: all of the shard, as they are now.
        deleted: (n,) bool, those of them that are.
    """
    if not workspace.refresh_plan.included:
        return {}
    kept = kept_of(workspace.table.io, version, shard)
    blobs = kept.blobs.get(shard.shard_id, ())
    whole = [blob for blob in blobs if not isinstance(blob.reader, ColumnChangesReader)]
    changed = [blob.reader for blob in blobs if isinstance(blob.reader, ColumnChangesReader)]
    ordinals = np.arange(len(rows))
    if whole:
        ordinals = np.flatnonzero(~deleted & ~_as_kept(kept, whole[0], rows))
        if not len(ordinals):
            return {}
        size = whole[0].place.metadata.length
        written = sum(reader.written_by_now for reader in changed)
        # Values that are to be written anew in any case are not read twice.
        if written + len(ordinals) * (size / len(rows) + MORE_BYTES) <= size:
            some, before = rows.take(ordinals), Before(version, shard, ordinals)
            columns = read_included(workspace, some, before)
            if not columns:
                return {}
            out = BytesIO()
            values = ShardColumns(locators_of(some), columns)
            changes = ColumnChanges(ordinals.astype(np.uint32), values, written)
            if written + column_changes_blob.write(changes, out) <= size:
                return {column_changes_blob.TYPE: out.getvalue()}
        ordinals = np.arange(len(rows))
    here = set_aside(rows, np.flatnonzero(deleted))
    columns = read_included(workspace, here, Before(version, shard, ordinals))
    if not columns:
        return {}
    out = BytesIO()
    columns_blob.write(ShardColumns(locators_of(here), columns), out)
    return {columns_blob.TYPE: out.getvalue()}


def _as_kept(kept: KeptColumns, blob: KeptBlob, rows: Rows) -> NDArray[np.bool_]:
    """Return (n,) bool, the rows that are where they were when a columns blob was made."""
    found = np.zeros(len(rows), np.bool_)
    blocks = range(blob.reader.blocks)
    with kept.reading([(blob, [locators_at(block) for block in blocks])]):
        for block in blocks:
            locators = kept.locators(blob, block)
            if locators is not None:
                start = block * blob.reader.block_rows
                span = slice(start, start + locators.shape[1])
                now = np.stack([rows.file_ids[span], rows.row_groups[span], rows.offsets[span]])
                found[span] = (locators == now).all(axis=0)
    return found
