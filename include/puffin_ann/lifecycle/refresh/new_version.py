"""The version that a refresh publishes: its routing and coverage, and where its blobs come from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from puffin_ann.blobs.changes import column_changes as column_changes_blob
from puffin_ann.blobs.changes import coverage_changes as coverage_changes_blob
from puffin_ann.blobs.changes import tombstone_changes as tombstone_changes_blob
from puffin_ann.blobs.changes.coverage_changes import CoverageChanges
from puffin_ann.blobs.changes.tombstone_changes import AddedTombstones
from puffin_ann.blobs.shards import columns as columns_blob
from puffin_ann.blobs.shards import identities as identities_blob
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.version import centroid as centroid_blob
from puffin_ann.blobs.version import coverage as coverage_blob
from puffin_ann.blobs.version import tombstones as tombstones_blob
from puffin_ann.blobs.version.centroid import Centroids
from puffin_ann.blobs.version.coverage import Coverage, CoveredFile
from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.blobs.version.routing import Apart, ShardEntry
from puffin_ann.declaration import CENTROID
from puffin_ann.engines import engine
from puffin_ann.engines.delta import DELTA
from puffin_ann.lake.store.locations import relative_path
from puffin_ann.lifecycle.build.assign import AssignSummary
from puffin_ann.lifecycle.documents.refresh import (
    CHANGES,
    AppliedGroup,
    AppliedShard,
    Changes,
    RefreshPlan,
    applied_name,
)
from puffin_ann.lifecycle.documents.run import load
from puffin_ann.lifecycle.refresh.apply_changes.added_tombstones import load_tombstones
from puffin_ann.lifecycle.refresh.notes import noting
from puffin_ann.lifecycle.runtime.workspace import Workspace, arrays_from_bytes
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.settings import settings

SMALL_COVERAGE = 64 << 10
"""Bytes of a coverage blob that every version has of its own."""


@dataclass(frozen=True)
class VersionContent:
    """What a run publishes of its index.

    Attributes:
        version: its routing and coverage; paths of files are those of the version refreshed, or of
            staged ones.
        blobs: by shard, by blob type, the Puffin file that holds the blob.
        rows_added: rows that the version before did not have, or all of a build.
        rows_gone: rows of the version before that are not live any more.
        centroids: of data files, if the index consists of them and they are not in a file yet.
        same: types of small blobs that are as they were in the version refreshed.
        coverage_changes: how the coverage differs from that version's coverage blob, if it may be
            told so.
    """

    version: IndexVersion
    blobs: Mapping[int, Mapping[str, str]]
    rows_added: int
    rows_gone: int = 0
    centroids: Centroids | None = None
    same: frozenset[str] = frozenset()
    coverage_changes: CoverageChanges | None = None

    @classmethod
    def of(
        cls,
        base: IndexVersion,
        version: IndexVersion,
        blobs: Mapping[int, Mapping[str, str]],
        centroids: Centroids | None,
        changes: Changes,
        lost: int = 0,
    ) -> "VersionContent":
        """Return what becomes of a version.

        Relocated rows were neither added nor gone, nor were so many `lost` rows that were read
        again for shards that cannot be read.
        """
        added = max(0, changes.read - changes.relocated - lost)
        removed = max(0, base.vectors + added - version.vectors)
        same = frozenset[str]()
        if version.added_tombstones and version.added_tombstones == base.added_tombstones:
            same = frozenset({tombstone_changes_blob.TYPE})
        changed = coverage_changes(base, version.coverage)
        return cls(version, blobs, added, removed, centroids, same, changed)


def coverage_changes(base: IndexVersion, coverage: Coverage) -> CoverageChanges | None:
    """Return how a coverage differs from the coverage blob of the version refreshed.

    Changes are told against the same blob by version after version, and grow. None where that blob
    is small, or where as much was written of changes since it was as a new one takes.

    Args:
        base: the version refreshed.
        coverage: of the new one.
    """
    before = base.covered_before
    if before is None or before.length <= min(SMALL_COVERAGE, settings().whole_file_bytes):
        return None
    changes = CoverageChanges.between(before.coverage, coverage, written=0, digest=before.digest)
    written = before.written + len(coverage_changes_blob.encode(changes))
    return None if written > before.length else replace(changes, written=written)


def make_new_version(workspace: Workspace) -> VersionContent:
    """Put together what the stages of a refresh made.

    Raises:
        StagingError: a stage is not done.
    """
    plan = workspace.refresh_plan
    base = workspace.base_version
    changes = load(workspace.staging, CHANGES, Changes)
    groups = [load(workspace.staging, applied_name(group), AppliedGroup) for group in plan.groups]
    applied = {shard.shard_id: shard for group in groups for shard in group.shards}
    summary = None
    if changes.summary is not None:
        summary = arrays_from_bytes(AssignSummary, workspace.fetch_bytes(changes.summary))
    coverage = coverage_of(workspace, summary)
    entries: list[ShardEntry] = []
    blobs: dict[int, Mapping[str, str]] = {}
    added_tombstones: dict[int, AddedTombstones] = {}
    unreadable = frozenset(plan.decision.unreadable)
    for kept in _kept(plan, base, applied):
        if kept.shard_id in unreadable and not kept.rows:
            continue  # nothing is left that it could be built of
        entries.append(_entry(kept, base))
        blobs[kept.shard_id] = _sources(kept, plan, base)
        added = _added_tombstones(kept, entries[-1], base)
        if added is not None:
            added_tombstones[kept.shard_id] = added
    noted = noting(plan, base, changes, summary, groups, entries)
    routing = replace(
        base.routing,
        cells=_cells(workspace, base, summary, entries, applied),
        shards=tuple(entries),
        properties=noted.texts,
    )
    version = replace(
        base,
        path=plan.base_path,
        snapshot_id=None,
        routing=routing,
        coverage=coverage,
        added_tombstones=added_tombstones,
    )
    centroids = _centroids(workspace, base, coverage, summary)
    return VersionContent.of(base, version, blobs, centroids, changes, plan.decision.rows_lost)


def _kept(
    plan: RefreshPlan, base: IndexVersion, applied: Mapping[int, AppliedShard]
) -> Sequence[AppliedShard]:
    """Return the shards of the new version, including those that did not change."""
    removed = {
        shard.shard_id
        for shard in plan.decision.shards
        if shard.kind == "delta" and shard.action == "merge"
    }
    found = [
        applied.get(shard.shard_id) or AppliedShard.kept(shard)
        for shard in base.routing.shards
        if shard.shard_id not in removed
    ]
    before = {shard.shard_id for shard in base.routing.shards}
    return [*found, *(shard for number, shard in sorted(applied.items()) if number not in before)]


def _entry(applied: AppliedShard, base: IndexVersion) -> ShardEntry:
    return ShardEntry(
        shard_id=applied.shard_id,
        file=applied.file.uri if applied.file and len(applied.blobs) > 1 else base.path,
        rows=applied.rows,
        bytes=applied.bytes,
        tombstones=applied.tombstones,
        kind=applied.kind,
    )


def _sources(applied: AppliedShard, plan: RefreshPlan, base: IndexVersion) -> Mapping[str, str]:
    has_new_rows = applied.file is not None and rows_blob.TYPE in applied.blobs
    of_engine = DELTA.blob_type if applied.kind == "delta" else engine(plan.algorithm).blob_type
    # Those before are of other rows where the shard was made anew.
    has_identities = identities_blob.TYPE in applied.blobs or of_engine not in applied.blobs
    kinds = [
        of_engine,
        *((rows_blob.TYPE,) if has_new_rows else rows_blob.TYPES),
        *([tombstones_blob.TYPE] if applied.tombstones else []),
        *([identities_blob.TYPE] if has_identities else []),
        *_kinds_of_columns(applied, is_made=of_engine in applied.blobs),
    ]
    before = {shard.shard_id: base.file_of(shard) for shard in base.routing.shards}
    return {
        kind: applied.file.uri
        if applied.file and kind in applied.blobs
        else before[applied.shard_id]
        for kind in kinds
    }


def _kinds_of_columns(applied: AppliedShard, *, is_made: bool) -> Sequence[str]:
    """Return the types of a shard's blobs that keep values: changes are of the blob before them.

    Args:
        applied: what became of the shard.
        is_made: its ordinals are others now.
    """
    kinds = (columns_blob.TYPE, column_changes_blob.TYPE)
    if is_made or columns_blob.TYPE in applied.blobs:
        return [kind for kind in kinds if kind in applied.blobs]
    return kinds


def _added_tombstones(
    applied: AppliedShard, shard: ShardEntry, base: IndexVersion
) -> AddedTombstones | None:
    """Return what a shard lost that its tombstones blob does not name; None for nothing."""
    if not shard.tombstones or tombstones_blob.TYPE in applied.blobs:
        return None
    if applied.added_tombstones is not None:
        return load_tombstones(applied.added_tombstones, shard)
    return base.added_tombstones.get(shard.shard_id)


def _cells(
    workspace: Workspace,
    base: IndexVersion,
    summary: AssignSummary | None,
    shards: Sequence[ShardEntry],
    applied: Mapping[int, AppliedShard],
) -> Partitions | Apart:
    """Return the cells of the new version: where nothing became of them, what names them."""
    plan = workspace.refresh_plan
    took = summary is not None and bool(plan.decision.merges or plan.decision.unreadable)
    graphs = [shard.shard_id for shard in shards if shard.kind == "graph"]
    lost = graphs and not set(base.routing.graph_ids) <= set(graphs)
    if plan.algorithm == CENTROID or not (took or lost):
        return base.routing.cells
    before = base.cells(workspace.table.io)
    refused = [number for number, shard in applied.items() if shard.refused is not None]
    cells = before if summary is None else _raised(before, plan, summary, refused)
    cells = cells.among(graphs) if lost else cells
    return base.routing.cells if cells is before else cells


def _raised(
    cells: Partitions, plan: RefreshPlan, summary: AssignSummary, refused: Sequence[int]
) -> Partitions:
    """Return cells with the figures of those that took rows; those of refused shards did not."""
    again = np.isin(cells.shards, np.array(plan.decision.unreadable, np.uint32))
    took = again | plan.decision.merges
    took &= ~np.isin(cells.shards, np.array(refused, np.uint32))
    radii = np.maximum(cells.radii, np.where(took, summary.partition_radii, 0))
    rows = cells.rows
    if plan.decision.merges:
        rows = np.where(again, 0, rows) + np.where(took, summary.partition_rows, 0)
    elif np.array_equal(radii, cells.radii):
        return cells
    return replace(cells, rows=rows.astype(np.uint64), radii=radii.astype(np.float32))


def coverage_of(workspace: Workspace, summary: AssignSummary | None) -> Coverage:
    """Return which rows of the base snapshot the new version covers: all that are usable."""
    plan = workspace.refresh_plan
    staged = coverage_blob.decode(workspace.fetch_bytes(plan.coverage))
    read = {file.file_id for file in plan.files}
    groups: dict[int, NDArray[np.int64]] = {}
    skipped: dict[int, NDArray[np.int64]] = {}
    if summary is not None:
        ordered = summary.row_groups[np.lexsort(summary.row_groups[:, 1::-1].T)]
        for file_id in read:
            groups[file_id] = ordered[ordered[:, 0] == file_id][:, 2]
            mine = summary.skipped[:, 0] == file_id
            if mine.any():
                skipped[file_id] = summary.skipped[mine, 1]
    files = [
        _read_file(file, groups.get(file.file_id), skipped.get(file.file_id))
        if file.file_id in read
        else file
        for file in staged.files
    ]
    return Coverage(staged.base_snapshot_id, files, staged.manifests)


def _read_file(
    file: CoveredFile, groups: NDArray[np.int64] | None, skipped: NDArray[np.int64] | None
) -> CoveredFile:
    if groups is not None and len(groups):
        file = replace(file, row_groups=tuple(int(rows) for rows in groups))
    if skipped is not None:
        file = replace(file, skipped=file.skipped | BitMap(skipped.tolist()))
    return file


def _centroids(
    workspace: Workspace,
    base: IndexVersion,
    coverage: Coverage,
    summary: AssignSummary | None,
) -> Centroids | None:
    """Return the centroids of data files: those of files that stay, and of files that were read."""
    plan = workspace.refresh_plan
    if plan.algorithm != CENTROID:
        return None
    with base.files(workspace.table.io) as opened:
        before = centroid_blob.decode(opened.only(centroid_blob.TYPE).read())
    place = {file.path: number for number, file in enumerate(coverage.files)}
    location = workspace.table.location()
    read = {relative_path(location, file.path) for file in plan.files}
    stays = np.array(
        [before.paths[file] in place and before.paths[file] not in read for file in before.files],
        np.bool_,
    )
    paths = [before.paths[file] for file in before.files[stays].tolist()]
    centroids, radii = [before.centroids[stays]], [before.max_distances[stays]]
    if summary is not None:
        names = {file.file_id: relative_path(location, file.path) for file in plan.files}
        paths += [names[int(number)] for number in summary.file_ids]
        centroids.append(summary.file_centroids)
        radii.append(summary.file_radii)
    files = np.array([place[path] for path in paths], np.uint32)
    order = np.argsort(files, kind="stable")
    return Centroids(
        metric=base.routing.metric,
        centroids=np.concatenate(centroids)[order],
        files=files[order],
        max_distances=np.concatenate(radii)[order],
        paths=tuple(file.path for file in coverage.files),
    )
