"""Read the rows that a version does not cover: each is new, or may be a relocated one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.blobs.version.routing import Routing
from puffin_ann.declaration import CENTROID
from puffin_ann.lake.read.data.parquet import row_group_rows
from puffin_ann.lifecycle.build.assign import place, summary_of
from puffin_ann.lifecycle.build.train import TrainResult
from puffin_ann.lifecycle.documents.refresh import AddedRowsOfTask
from puffin_ann.lifecycle.documents.run import AssignOutcome, StagedFile
from puffin_ann.lifecycle.evaluate import ground_truth
from puffin_ann.lifecycle.ingest.parts import Parts, read_parts
from puffin_ann.lifecycle.ingest.row_groups import IdentifiedRows, RowLookup
from puffin_ann.lifecycle.ingest.segments import VectorRows, write_segment
from puffin_ann.lifecycle.refresh.read_changes.removed_rows import (
    MaskedAndRestored,
    RemovedIdentityPrefixes,
    bucket_of,
)
from puffin_ann.lifecycle.runtime.workspace import (
    Workspace,
    arrays_from_bytes,
    arrays_to_bytes,
    attempt_unique,
)
from puffin_ann.search.version.index_version import IndexVersion


def trained_of(routing: Routing, cells: Partitions) -> TrainResult:
    """Return a version's centroids, as a build has them."""
    return TrainResult(
        centroids=cells.centroids,
        partition_shards=cells.shards,
        norm_bound=np.array([routing.norm_bound], np.float32),
        queries=np.zeros((0, routing.dimension), np.float32),
        tuning=np.zeros(1, np.int64),
    )


def cell_order(cells: Partitions) -> NDArray[np.int64]:
    """Return (k,) int64, the cells so that those of a shard adjoin: the order of blocks."""
    order: NDArray[np.int64] = np.argsort(cells.shards, kind="stable")
    return order


def read_task(
    workspace: Workspace,
    number: int,
    version: IndexVersion,
    prefixes: RemovedIdentityPrefixes | None,
    row_lookup: RowLookup | None = None,
    *,
    threads: int,
) -> AddedRowsOfTask:
    """Read one task's parts; stage new rows, and identities of those that may be relocated.

    Args:
        workspace: of the run.
        number: of the task.
        version: that is refreshed.
        prefixes: of the removed rows; None if nothing is matched.
        row_lookup: finds removed rows by their row ids; None if none is known by that.
        threads: threads to use.
    """
    plan = workspace.refresh_plan
    task, wanted = plan.read_tasks[number], _wanted(workspace)
    # In a table that was rewritten, nearly all rows were only relocated: their vectors are dropped
    # as they are read. Centroids of a file represent all its rows, so all of those are kept.
    is_filtered = prefixes is not None and plan.algorithm != CENTROID
    row_filter = prefixes.may_hold if prefixes is not None and is_filtered else None
    parts = read_parts(
        workspace,
        plan.files,
        task,
        wanted,
        row_filter=row_filter,
        row_lookup=row_lookup if is_filtered else None,
        threads=threads,
    )
    rows = parts.rows(plan.dimension)
    candidates: list[StagedFile] = []
    known = 0
    if prefixes is not None:
        relocated = parts.filtered_out
        if not is_filtered:
            may_have_moved = prefixes.may_hold(rows.identities)
            relocated = IdentifiedRows(
                rows.locators[may_have_moved],
                rows.identities[may_have_moved],
                np.zeros(np.count_nonzero(may_have_moved), np.bool_),
            )
        known = int(np.count_nonzero(relocated.by_row_id))
        buckets = bucket_of(relocated.identities, plan.buckets)
        for bucket in range(plan.buckets):
            mine = np.flatnonzero(buckets == bucket)
            came = relocated.take(mine)
            name = f"added-{number:05d}-{bucket:04d}.arrays"
            candidates.append(workspace.stage_bytes(name, arrays_to_bytes(came)))
    outcome = stage(workspace, number, parts, rows, version, threads=threads)
    return AddedRowsOfTask(outcome=outcome, candidates=tuple(candidates), known=known)


def read_again(
    workspace: Workspace,
    number: int,
    task: int,
    unmatched: NDArray[np.uint32],
    version: IndexVersion,
    *,
    threads: int,
) -> AssignOutcome:
    """Read rows of a task again that looked like removed rows, but are new.

    Args:
        workspace: of the run.
        number: of this outcome.
        task: the task that read them.
        unmatched: (n, 3) uint32, locators of such rows, of this task and of others.
        version: that is refreshed.
        threads: threads to use.
    """
    plan = workspace.refresh_plan
    wanted = _positions(workspace, task, unmatched)
    parts = read_parts(workspace, plan.files, plan.read_tasks[task], wanted, threads=threads)
    rows = parts.rows(plan.dimension)
    # Everything else about these row groups was counted when they were read first.
    counted = Parts([replace(read, deleted=BitMap()) for read in parts.reads], [])
    return stage(workspace, number, counted, rows, version, threads=threads)


def _positions(
    workspace: Workspace, task: int, locators: NDArray[np.uint32]
) -> Mapping[int, BitMap]:
    """Return positions of rows, given by (n, 3) uint32, by id of each file that a task reads."""
    plan = workspace.refresh_plan
    found = {}
    for number in {number for number, _, _ in plan.read_tasks[task].parts}:
        file = plan.files[number]
        mine = locators[locators[:, 0] == file.file_id].astype(np.int64)
        if len(mine):
            groups = row_group_rows(workspace.table.io, file.path)
            starts = np.append(0, np.cumsum(groups, dtype=np.int64))
            found[file.file_id] = BitMap((starts[mine[:, 1]] + mine[:, 2]).tolist())
        else:
            found[file.file_id] = BitMap()
    return found


def stage(
    workspace: Workspace,
    number: int,
    parts: Parts,
    rows: VectorRows,
    version: IndexVersion,
    *,
    threads: int,
) -> AssignOutcome:
    """Stage rows that are new to shards, by cell, with what is known of them."""
    plan = workspace.refresh_plan
    cells = version.cells(workspace.table.io)
    trained = trained_of(version.routing, cells)
    placed = place(rows, plan.declaration.metric, trained, threads=threads)
    order = cell_order(cells)
    block_of = np.zeros(max(1, len(order)), np.uint32)
    block_of[order] = np.arange(len(order), dtype=np.uint32)
    staged, blocks = rows, block_of[placed.cells]
    if plan.algorithm == CENTROID:
        staged, blocks = rows.take(np.zeros(0, np.int64)), blocks[:0]
    with workspace.staging.create(attempt_unique(f"new-{number:05d}")) as out:
        counts, checksums = write_segment(out, staged, blocks, len(order))
    summary = summary_of(
        plan,
        number,
        parts,
        rows,
        placed,
        counts,
        checksums,
        ground_truth.empty(0, 1),
        threads=threads,
    )
    return AssignOutcome(
        task=number,
        segment=StagedFile.of(out.staged),
        summary=workspace.stage_bytes(f"new-{number:05d}.arrays", arrays_to_bytes(summary)),
        rows=len(staged.vectors),
        deleted=0,
        skipped=parts.reasons,
        vector_bytes_read=sum(read.vector_bytes for read in parts.reads),
    )


def load_unmatched(workspace: Workspace, staged: Sequence[StagedFile]) -> NDArray[np.uint32]:
    """Return (n, 3) uint32, the locators of rows that are to be read again."""
    from puffin_ann.lifecycle.refresh.read_changes.relocated_rows import UnmatchedRows

    found = [np.zeros((0, 3), np.uint32)]
    found += [
        arrays_from_bytes(UnmatchedRows, workspace.fetch_bytes(file)).locators for file in staged
    ]
    return np.concatenate(found)


def _wanted(workspace: Workspace) -> Mapping[int, BitMap]:
    """Return, by id of a covered file, the positions of restored rows.

    Centroids of a file represent all its rows, so those files are read whole.
    """
    plan = workspace.refresh_plan
    if plan.algorithm == CENTROID:
        return {}
    difference = arrays_from_bytes(MaskedAndRestored, workspace.fetch_bytes(plan.difference))
    found: dict[int, BitMap] = {}
    for file_id in np.unique(difference.restored[:, 0]).tolist():
        mine = difference.restored[difference.restored[:, 0] == file_id, 1]
        found[file_id] = BitMap(mine.tolist())
    return found
