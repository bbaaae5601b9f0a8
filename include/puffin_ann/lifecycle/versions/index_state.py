"""Read what a decision is made from: the state of the base version, and what changed since."""

from collections.abc import Mapping, Sequence

import numpy as np
from pyiceberg.table import Table

from puffin_ann.blobs.changes import column_changes as column_changes_blob
from puffin_ann.blobs.shards import columns as columns_blob
from puffin_ann.blobs.shards import identities as identities_blob
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.version import tombstones as tombstones_blob
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import ColumnNotFoundError
from puffin_ann.lake.metadata.index_snapshots import is_index_snapshot
from puffin_ann.lake.metadata.own_tags import held_files
from puffin_ann.lake.read.data.parquet import dimension_of
from puffin_ann.lake.read.data.vector_column import VectorColumn, table_vector_column
from puffin_ann.lake.read.diff.coverage_diff import ALL
from puffin_ann.lake.read.files.live_files import LiveFile
from puffin_ann.lake.store.locations import relative_path
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.ingest.key_column import require_key
from puffin_ann.lifecycle.policy.inputs import Change, IndexState, ShardState
from puffin_ann.lifecycle.versions.unreadable import Unreadable
from puffin_ann.moments import now_ms
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.snapshot_view import LiveState, SnapshotView, view_of
from puffin_ann.settings import settings


def state_of(
    table: Table, version: IndexVersion, unreadable: Unreadable | None = None
) -> IndexState:
    """Return what a version consists of; the footers of its files are read, no blob is.

    Args:
        table: the table.
        version: the version.
        unreadable: what of it cannot be read, as far as known.

    Raises:
        FormatError, FileNotFoundError: a file cannot be read.
        StoreUnavailableError: its store does not answer.
    """
    routing = version.routing
    noted = IndexProperties(routing.properties)
    sizes, other = _sizes(table, version)
    unreadable = unreadable or Unreadable()
    state = IndexState(
        algorithm=routing.algorithm,
        metric=routing.metric,
        dimension=routing.dimension,
        norm_bound=routing.norm_bound,
        fingerprint=noted.fingerprint,
        declaration=noted.declaration,
        base_snapshot_id=version.coverage.base_snapshot_id,
        rows=_rows(version),
        shards=tuple(_shard(entry, sizes.get(entry.shard_id, {})) for entry in routing.shards),
        other_bytes=other,
        rates=noted.rates,
        drift=noted.drift,
        undone=noted.undone,
        cells=routing.cells.count,
        unreadable=unreadable.shards,
        lost_cells=unreadable.cells,
        is_named=_is_named(table, version, other + sum(sum(s.values()) for s in sizes.values())),
    )
    return _with_imbalance(state)


def _is_named(table: Table, version: IndexVersion, size: int) -> bool:
    """Tell whether the next version names what does not change of this one, of so many bytes."""
    is_held = {version.path, *version.needs} <= held_files(table)
    return is_held and size > settings().whole_file_bytes


def _with_imbalance(state: IndexState) -> IndexState:
    """Note the imbalance of the shards, in a version that is as it was built."""
    if state.drift.imbalance or state.deltas or any(shard.tombstones for shard in state.shards):
        return state
    drift = state.drift.model_copy(update={"imbalance": state.imbalance})
    return IndexState(**{**vars(state), "drift": drift})


def _rows(version: IndexVersion) -> int:
    shards = version.routing.shards
    if shards:
        return sum(shard.rows - shard.tombstones for shard in shards)
    return version.coverage.columns.indexed_rows


def _sizes(table: Table, version: IndexVersion) -> tuple[dict[int, dict[str, int]], int]:
    """Return bytes by shard and blob type, and those of the blobs that belong to no shard."""
    sizes: dict[int, dict[str, int]] = {}
    other = 0
    with version.files(table.io) as files:
        for blob in (place.metadata for place in files.every_place(version.staged)):
            shard = blob.properties.get("shard")
            if shard is None:
                other += blob.length
            elif shard.isdecimal():
                sizes.setdefault(int(shard), {})[blob.type] = blob.length
    return sizes, other


def bytes_of(table: Table, version: IndexVersion) -> int:
    """Return the bytes of a version's blobs, as they are stored; only footers are read.

    Raises:
        FormatError, FileNotFoundError: a file cannot be read.
        StoreUnavailableError: its store does not answer.
    """
    sizes, other = _sizes(table, version)
    return other + sum(sum(kinds.values()) for kinds in sizes.values())


def _shard(entry: ShardEntry, sizes: Mapping[str, int]) -> ShardState:
    beside = (*rows_blob.TYPES, columns_blob.TYPE, column_changes_blob.TYPE)
    apart = (*beside, identities_blob.TYPE, tombstones_blob.TYPE)
    return ShardState(
        shard_id=entry.shard_id,
        kind=entry.kind,
        rows=entry.rows,
        tombstones=entry.tombstones,
        bytes=sum(size for kind, size in sizes.items() if kind not in apart) or entry.bytes,
        rows_bytes=sum(sizes.get(kind, 0) for kind in beside),
        identity_bytes=sizes.get(identities_blob.TYPE, 0),
        tombstone_bytes=sizes.get(tombstones_blob.TYPE, 0),
    )


def change_of(
    table: Table, version: IndexVersion, live: LiveState, declaration: IndexDeclaration
) -> Change:
    """Return what a snapshot has that a version lacks, and the other way round.

    Where most rows are in new files, the first of one are read, to see how wide vectors are now.

    Args:
        table: the table.
        version: the version.
        live: of the table's head.
        declaration: names the column.

    Raises:
        ColumnNotFoundError, UnsupportedColumnError: the column or the key cannot be used.
    """
    return change_in(table, version, live, view_of(table, version, live), declaration)


def change_in(
    table: Table,
    version: IndexVersion,
    live: LiveState,
    view: SnapshotView,
    declaration: IndexDeclaration,
) -> Change:
    """Return the change that a view shows, as `change_of` does."""
    require_key(table, declaration)
    columns = version.coverage.columns
    whole = [number for number, positions in view.masked.items() if positions is ALL]
    left = np.isin(columns.file_ids, np.array(whole, np.int64))
    restored = _in_covered_files(table, version, view)
    new_files = [file for file, _ in view.scanned if file.path not in restored]
    return Change(
        snapshot_id=live.snapshot_id,
        live_rows=view.live_rows,
        rows_added=view.rows_to_scan,
        rows_gone=view.rows_masked,
        rows_restored=sum(restored.values()),
        rows_left_behind=int((columns.rows - columns.left_out)[left].sum()),
        files_added=len(new_files),
        files_gone=len(whole),
        oldest_ms=oldest_uncovered_ms(table, version) if view.cost else 0,
        column=_why_not_this_column(table, version, view, new_files, declaration),
    )


def _in_covered_files(table: Table, version: IndexVersion, view: SnapshotView) -> dict[str, int]:
    """Return by path how many live rows of covered files the version does not answer."""
    partly = [(file, rows) for file, rows in view.scanned if rows is not ALL]
    if not partly:
        return {}
    columns = version.coverage.columns
    held = dict(zip(columns.paths, columns.sequence_numbers.tolist(), strict=True))
    location = table.location()
    return {
        file.path: len(rows)
        for file, rows in partly
        if held.get(relative_path(location, file.path), held.get(file.path)) == file.sequence_number
    }


def oldest_uncovered_ms(table: Table, version: IndexVersion) -> int:
    """Return when the table first had another state than a version covers, since it last had that.

    By the order in which snapshots became the head: after a rollback that is not their ancestry.
    Where the base snapshot is gone from it, so is what was before, and the oldest entry counts.
    """
    log = table.metadata.snapshot_log
    base = version.coverage.base_snapshot_id
    after = max((i + 1 for i, one in enumerate(log) if one.snapshot_id == base), default=0)
    later = log[after:]
    for entry in later:
        snapshot = table.snapshot_by_id(entry.snapshot_id)
        if snapshot is None or not is_index_snapshot(snapshot):
            return entry.timestamp_ms
    return later[0].timestamp_ms if later else table.metadata.last_updated_ms


def lag_seconds(
    table: Table, version: IndexVersion, view: SnapshotView, *, at_ms: int | None = None
) -> float:
    """Return the age of the oldest change that a version does not cover; 0 if there is none.

    Args:
        table: the table.
        version: of the index.
        view: the version as the table's head sees it.
        at_ms: what counts as now, milliseconds since 1970.
    """
    if not view.cost:
        return 0.0
    now = now_ms() if at_ms is None else at_ms
    return max(0.0, (now - oldest_uncovered_ms(table, version)) / 1000)


def _why_not_this_column(
    table: Table,
    version: IndexVersion,
    view: SnapshotView,
    new_files: Sequence[LiveFile],
    declaration: IndexDeclaration,
) -> str:
    """Say why rows of the declared column cannot be added to a version; empty if they can."""
    column = _column(table, version, declaration)
    if column.field_id != version.field_id:
        return (
            f"column {column.name!r} is not the one that was indexed: its field id is "
            f"{column.field_id}, not {version.field_id}"
        )
    before = IndexProperties(version.routing.properties).column_type
    if before not in (None, column.element):
        return f"column {column.name!r} holds {column.element} now; indexed were {before}"
    dimension = version.routing.dimension
    if not new_files or sum(file.rows for file in new_files) <= view.rows_answered:
        return ""  # most rows are as wide as ever; others are left out and counted, as in a build
    largest = max(new_files, key=lambda file: file.rows)
    now = dimension_of(table.io, [largest], column)
    if now in (None, dimension):
        return ""
    return f"column {column.name!r} holds vectors of {now} numbers now; indexed were {dimension}"


def _column(table: Table, version: IndexVersion, declaration: IndexDeclaration) -> VectorColumn:
    try:
        return table_vector_column(table, declaration.column)
    except ColumnNotFoundError as error:
        name = table.schema().find_column_name(version.field_id)
        if name is None:
            raise
        raise ColumnNotFoundError(
            f"{error}; the column that was indexed is called {name!r} now: declare that"
        ) from None
