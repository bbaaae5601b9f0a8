"""Make the plan of a refresh from what was decided: files to read, their ids, groups of shards."""

from dataclasses import dataclass, replace

from pyroaring import BitMap

from puffin_ann.blobs.version import coverage as coverage_blob
from puffin_ann.blobs.version import partitions as partitions_blob
from puffin_ann.blobs.version.coverage import Coverage, CoveredFile
from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.declaration import IndexDeclaration
from puffin_ann.lake.commit.publish_mode import publish_mode
from puffin_ann.lake.metadata.registered import find_registered
from puffin_ann.lake.read.data.vector_column import table_vector_column
from puffin_ann.lake.read.files.live_files import LiveFile
from puffin_ann.lake.store.locations import absolute_path, relative_path
from puffin_ann.lifecycle.build.plan import assign_tasks, shard_groups
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.documents.refresh import RefreshPlan
from puffin_ann.lifecycle.documents.run import (
    PlannedFile,
)
from puffin_ann.lifecycle.policy.decision import Decision
from puffin_ann.lifecycle.policy.inputs import IndexState
from puffin_ann.lifecycle.refresh.read_changes.removed_rows import (
    MaskedAndRestored,
    find_restored_rows,
)
from puffin_ann.lifecycle.refresh.read_changes.rewritten_files import find_rewritten_files
from puffin_ann.lifecycle.runtime.workspace import (
    Workspace,
    arrays_to_bytes,
)
from puffin_ann.moments import now_ms
from puffin_ann.search.open_index import require_snapshot
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.snapshot_view import LiveState, SnapshotView
from puffin_ann.settings import settings

ROWS_PER_BUCKET = 8_000_000
"""Rows matched at once: 24 bytes each, and as much again while they are sorted."""


@dataclass(frozen=True)
class Basis:
    """What the plan of a refresh rests on.

    Attributes:
        version: that the refresh starts from, as if it did not cover rows of unreadable shards.
        state: of that version.
        live: of the table's head.
        view: the version compared with the head.
    """

    version: IndexVersion
    state: IndexState
    live: LiveState
    view: SnapshotView


def make_plan(
    declaration: IndexDeclaration,
    workspace: Workspace,
    basis: Basis,
    decision: Decision,
    cells: Partitions | None = None,
) -> RefreshPlan:
    """Return the plan that carries out a decision; stages what is too large for a document.

    Args:
        declaration: the index.
        workspace: of the run.
        basis: what the decision rests on.
        decision: what is to be done.
        cells: that take the place of those of the version, if they do.

    Raises:
        PuffinAnnError: the table or its column do not allow an index.
    """
    table = workspace.table
    publish_mode(table, declaration.publishes_by)  # refused here, not after the work
    version, live = basis.version, basis.live
    column = table_vector_column(table, declaration.column)
    base = require_snapshot(table, live.snapshot_id)
    manifests = tuple(manifest.path for manifest in live.at.manifests)
    covered, files, next_id = plan_files(table.location(), basis)
    rewritten = None
    if decision.matches and not decision.unreadable:  # of which no row would be known
        rewritten, files = find_rewritten_files(table, version, basis.view, files, manifests)
    ids = {absolute_path(table.location(), file.path): file.file_id for file in covered}
    covered_ids = {file.file_id for file in version.coverage.files}
    was_there = {path: file_id for path, file_id in ids.items() if file_id in covered_ids}
    difference = MaskedAndRestored.of(basis.view, find_restored_rows(basis.view, was_there))
    coverage = Coverage(live.snapshot_id, covered, manifests)
    routing = version.routing
    staged = None
    if cells is not None:
        staged = workspace.stage_bytes("_cells.bin", partitions_blob.encode(cells))
    matched = decision.rows_gone + decision.rows_added if decision.matches else 0
    return RefreshPlan(
        planned_ms=now_ms(),
        run_id=workspace.run.run_id,
        table=declaration.table,
        table_uuid=str(table.metadata.table_uuid),
        declaration=declaration,
        base_snapshot_id=base.snapshot_id,
        base_sequence_number=base.sequence_number or 0,
        field_id=column.field_id,
        dimension=routing.dimension,
        files=files,
        manifests=manifests,
        column_type=column.element,
        included=IndexProperties(routing.properties).included,
        base_path=version.path,
        base_run_id=version.run_id,
        registered=tuple(entry.path for entry in find_registered(table)),
        algorithm=routing.algorithm,
        decision=decision,
        state_rates=basis.state.rates,
        state_drift=basis.state.drift,
        read_tasks=assign_tasks(
            files, row_bytes=4 * routing.dimension, task_bytes=settings().assign_task_bytes
        ),
        next_file_id=next_id,
        buckets=1 << max(0, (matched // ROWS_PER_BUCKET).bit_length()),
        groups=deal_groups(decision, declaration.build.max_submits),
        # Hidden from orphan removal by their `_`, as the plan's copy is: they are made once.
        difference=workspace.stage_bytes("_difference.arrays", arrays_to_bytes(difference)),
        coverage=workspace.stage_bytes("_coverage.bin", coverage_blob.encode(coverage)),
        cells=staged,
        rewritten=None
        if rewritten is None
        else workspace.stage_bytes("_rewritten.arrays", arrays_to_bytes(rewritten)),
    )


def plan_files(
    location: str, basis: Basis
) -> tuple[list[CoveredFile], tuple[PlannedFile, ...], int]:
    """Return the files of the new coverage, those of them to be read, and the next free id.

    A file keeps its id as long as it is covered; an id is never given to another file. Of new files
    the row groups are not known yet: one stands for all. What did not change is taken over from the
    version: of a large table hardly any manifest has to be read for it.
    """
    version, changed = basis.version, basis.view.changed
    ids = version.coverage.columns.file_ids
    next_id = int(ids.max(initial=-1)) + 1
    next_id = max(next_id, IndexProperties(version.routing.properties).next_file_id(version.path))
    restored = {file.path: file for file, _ in basis.view.scanned}
    covered: list[CoveredFile] = []
    read: list[PlannedFile] = []
    for place, old in enumerate(version.coverage.columns):
        if place in changed.removed:
            continue
        deleted = changed.deleted.get(place, old.deleted)
        covered.append(old if deleted == old.deleted else replace(old, deleted=deleted))
        file = restored.get(absolute_path(location, old.path))
        if file is not None:
            read.append(PlannedFile.of(old.file_id, file))
    for file, deleted in sorted(changed.added, key=lambda added: added[0].path):
        covered.append(_covered(file, next_id, location, deleted))
        read.append(PlannedFile.of(next_id, file))
        next_id += 1
    covered.sort(key=lambda planned: planned.file_id)
    return covered, tuple(sorted(read, key=lambda planned: planned.file_id)), next_id


def _covered(file: LiveFile, file_id: int, location: str, deleted: BitMap) -> CoveredFile:
    return CoveredFile(
        file_id=file_id,
        path=relative_path(location, file.path),
        size=file.size,
        sequence_number=file.sequence_number,
        rows=file.rows,
        row_groups=(file.rows,) if file.rows else (),
        deleted=deleted,
        skipped=BitMap(),
    )


def deal_groups(decision: Decision, max_submits: int) -> dict[str, tuple[int, ...]]:
    """Deal the touched shards to groups: many only where there is much to do.

    To start an application takes longer than to write some tombstones.
    """
    touched = [
        shard.shard_id
        for shard in decision.shards
        if shard.action != "none" and not (shard.kind == "delta" and shard.action == "merge")
    ]
    if decision.delta is not None:
        touched.append(decision.delta.shard_id)
    is_heavy = decision.merges or any(shard.action == "rebuild" for shard in decision.shards)
    dealt = shard_groups(len(touched), max_submits if is_heavy else 1)
    return {group: tuple(touched[place] for place in places) for group, places in dealt.items()}
