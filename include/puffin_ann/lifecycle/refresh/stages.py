"""The stages `read_changes` and `apply_group` of a refresh: a runner and a run in, a document out.

As the stages of a build: small JSON through the driver, data through staging, a document at the end
of each part.
"""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial

from puffin_ann.ann.core import blas
from puffin_ann.errors import BadVectorsError, StagingError
from puffin_ann.lifecycle.build import assign as assigning
from puffin_ann.lifecycle.documents.refresh import (
    ADDED,
    CHANGES,
    MATCH,
    AddedRows,
    AddedRowsOfTask,
    AppliedGroup,
    AppliedShard,
    Changes,
    KnownRowsOfBucket,
    Matched,
    RefreshPlan,
    RemovedRows,
    applied_name,
)
from puffin_ann.lifecycle.documents.run import AssignOutcome, StagedFile, done, load, store
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.refresh.apply_changes.make_delta import make_delta
from puffin_ann.lifecycle.refresh.apply_changes.remap import update_rows_and_tombstones
from puffin_ann.lifecycle.refresh.apply_changes.rewrite_shard import ShardRewriter
from puffin_ann.lifecycle.refresh.apply_changes.take_from_deltas import take_from_deltas
from puffin_ann.lifecycle.refresh.damage import naming_the_remedy
from puffin_ann.lifecycle.refresh.find_removed import batches_of, find_removed, size_of
from puffin_ann.lifecycle.refresh.read_changes import added_rows, known_rows, removed_rows
from puffin_ann.lifecycle.refresh.read_changes.relocated_rows import match_bucket
from puffin_ann.lifecycle.runtime.progress import Size
from puffin_ann.lifecycle.runtime.run_each import run_each
from puffin_ann.lifecycle.runtime.runners import Runner
from puffin_ann.lifecycle.runtime.workspace import (
    Workspace,
    arrays_from_bytes,
    at_work,
)

log = logging.getLogger("puffin_ann")


def read_changes(runner: Runner, run: RunRef) -> Changes:
    """Find the removed rows, read the added ones, and see which of them were relocated.

    Raises:
        BadVectorsError: added rows have no usable vector, and the declaration refuses those.
    """
    workspace = Workspace.open(run)
    with at_work(workspace):
        finished = done(workspace.staging, CHANGES, Changes)
        if finished:
            log.info("changes: read before, %d rows are new", finished.rows)
            return finished
        return _read_changes(runner, workspace)


def _read_changes(runner: Runner, workspace: Workspace) -> Changes:
    began = time.monotonic()
    removed = find_removed(runner, workspace)
    added = _read_added(runner, workspace, removed)
    matched = _match(runner, workspace, removed, added)
    outcomes = [task.outcome for task in added.tasks]
    again = _read_again(runner, workspace, matched)
    found = _changes(removed, added, matched, [*outcomes, *again])
    outcomes += [
        *again,
        *_take_from_deltas(runner, workspace, len(outcomes + again), found),
    ]
    skipped = found.skipped
    if skipped and workspace.refresh_plan.declaration.bad_vectors == "refuse":
        raise BadVectorsError(_refusal(workspace.refresh_plan, skipped))
    summary = _sum_up(runner, workspace, outcomes)
    changes = found.model_copy(
        update={
            "segments": tuple(outcome.segment for outcome in outcomes) if summary else (),
            "summary": summary,
            "rows": sum(outcome.rows for outcome in outcomes),
            "seconds": time.monotonic() - began,
            "read_seconds": added.seconds,
        }
    )
    log.info(
        "changes: %d rows removed, %d relocated, %d for shards or a delta, %d skipped; %d known by "
        "their row ids, %d bytes of vectors read; in %.1f s",
        changes.rows_removed,
        changes.relocated,
        changes.rows,
        sum(skipped.values()),
        changes.known,
        changes.vector_bytes_read,
        changes.seconds,
    )
    return store(workspace.staging, CHANGES, changes)


def _read_added(runner: Runner, workspace: Workspace, removed: RemovedRows) -> AddedRows:
    finished = done(workspace.staging, ADDED, AddedRows)
    if finished:
        return finished
    began = time.monotonic()
    tasks = range(len(workspace.refresh_plan.read_tasks))
    if not tasks:
        return AddedRows(tasks=(), seconds=0.0)  # nothing that a second attempt would read again
    threads = runner.threads_per_task(len(tasks))
    read = partial(_read_task, prefixes=removed.prefixes, known=removed.known, threads=threads)
    plan = workspace.refresh_plan
    size = Size.of_vectors([plan.rows_of(task) for task in plan.read_tasks], plan.dimension)
    found = run_each(runner, workspace.run, read, tasks, size=size)
    document = AddedRows(tasks=tuple(found), seconds=time.monotonic() - began)
    return store(workspace.staging, ADDED, document)


def _read_task(
    workspace: Workspace,
    number: int,
    *,
    prefixes: StagedFile | None,
    known: Sequence[KnownRowsOfBucket],
    threads: int,
) -> AddedRowsOfTask:
    begins = None
    if prefixes is not None:
        data = workspace.fetch_bytes(prefixes)
        begins = arrays_from_bytes(removed_rows.RemovedIdentityPrefixes, data)
    version = workspace.base_version
    row_ids = known_rows.RowIds(workspace, known) if known else None
    with naming_the_remedy(workspace):
        return added_rows.read_task(workspace, number, version, begins, row_ids, threads=threads)


def _match(
    runner: Runner,
    workspace: Workspace,
    removed: RemovedRows,
    added: AddedRows,
) -> Matched:
    finished = done(workspace.staging, MATCH, Matched)
    if finished:
        return finished
    began = time.monotonic()
    buckets = range(workspace.refresh_plan.buckets if removed.prefixes is not None else 0)
    if not buckets:
        return Matched(buckets=(), seconds=0.0)

    match = partial(match_bucket, removed=removed.shards, added=added.tasks)
    found = run_each(runner, workspace.run, match, buckets)
    document = Matched(buckets=tuple(found), seconds=time.monotonic() - began)
    return store(workspace.staging, MATCH, document)


def _read_again(runner: Runner, workspace: Workspace, matched: Matched) -> list[AssignOutcome]:
    """Read rows of which an equal one went, and that are new all the same: rare duplicates."""
    if not workspace.refresh_plan.decision.shards:
        return []
    tasks = sorted({task for bucket in matched.buckets for task in bucket.unmatched_tasks})
    read = partial(
        _read_task_again,
        unmatched=[bucket.unmatched for bucket in matched.buckets],
        threads=runner.threads_per_task(len(tasks)),
    )
    first = len(workspace.refresh_plan.read_tasks)
    return run_each(runner, workspace.run, read, enumerate(tasks, first))


def _read_task_again(
    workspace: Workspace,
    numbered: tuple[int, int],
    *,
    unmatched: Sequence[StagedFile],
    threads: int,
) -> AssignOutcome:
    """Read what is new of a task: its outcome's number, and its own."""
    number, task = numbered
    with naming_the_remedy(workspace):
        return added_rows.read_again(
            workspace,
            number,
            task,
            added_rows.load_unmatched(workspace, unmatched),
            workspace.base_version,
            threads=threads,
        )


def _changes(
    removed: RemovedRows, added: AddedRows, matched: Matched, outcomes: Sequence[AssignOutcome]
) -> Changes:
    """Return what is known before the deltas are taken apart."""
    relocations = tuple(move for bucket in matched.buckets for move in bucket.shards)
    skipped: Counter[str] = sum((Counter(outcome.skipped) for outcome in outcomes), Counter())
    relocated = sum(move.rows for move in relocations)
    return Changes(
        removed=removed.shards,
        relocations=relocations,
        segments=(),
        summary=None,
        rows=sum(outcome.rows for outcome in outcomes),
        relocated=relocated,
        rows_removed=sum(shard.newly_deleted for shard in removed.shards),
        skipped=dict(skipped),
        read=sum(outcome.rows for outcome in outcomes) + relocated,
        vector_bytes_read=sum(outcome.vector_bytes_read for outcome in outcomes),
        seconds=0.0,
        read_seconds=0.0,
        known=sum(task.known for task in added.tasks),
    )


def _take_from_deltas(
    runner: Runner, workspace: Workspace, first: int, changes: Changes
) -> list[AssignOutcome]:
    """Take the deltas apart that are merged, or absorbed by the new one."""
    decision = workspace.refresh_plan.decision
    deltas = [
        shard.shard_id
        for shard in decision.shards
        if shard.kind == "delta"
        and shard.action == "merge"
        and shard.shard_id not in decision.unreadable
    ]
    threads = runner.threads_per_task(len(deltas))
    take = partial(_take_from_delta, changes=changes, threads=threads)
    return run_each(runner, workspace.run, take, enumerate(deltas, first))


def _take_from_delta(
    workspace: Workspace, numbered: tuple[int, int], *, changes: Changes, threads: int
) -> AssignOutcome:
    """Take a delta apart: the outcome's number, and the shard's."""
    number, shard_id = numbered
    version = workspace.base_version
    (shard,) = (shard for shard in version.routing.shards if shard.shard_id == shard_id)
    with naming_the_remedy(workspace):
        return take_from_deltas(workspace, number, version, shard, changes, threads=threads)


def _sum_up(
    runner: Runner, workspace: Workspace, outcomes: Sequence[AssignOutcome]
) -> StagedFile | None:
    if not outcomes:
        return None
    (summary,) = run_each(runner, workspace.run, assigning.summarise, [outcomes])
    return summary


def _refusal(plan: RefreshPlan, skipped: dict[str, int]) -> str:
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.items()))
    return (
        f"table {plan.table}, column {plan.declaration.column!r}: of the added rows {counts} "
        f"(dimension {plan.dimension} expected); correct the rows, or declare bad_vectors: skip"
    )


def apply_group(runner: Runner, run: RunRef, group: str) -> AppliedGroup:
    """Make the blobs of one group's shards; those that rows go into have a task each.

    Where a shard would lose recall by a merge, it stays as it is, but for masks and locators, and
    the rows that were to go into such shards become a delta.

    Raises:
        RecallTooLowError: a shard that cannot be read, made again, surely finds too little.
    """
    workspace = Workspace.open(run)
    with at_work(workspace):
        groups = workspace.refresh_plan.groups
        if group not in groups:
            raise StagingError(
                f"run {workspace.refresh_plan.run_id} has no shard group {group!r}; it has: "
                + ", ".join(groups)
            )
        finished = done(workspace.staging, applied_name(group), AppliedGroup)
        if finished:
            log.info("apply: group %s done before", group)
            return finished
        return _apply_group(runner, workspace, group)


def _apply_group(runner: Runner, workspace: Workspace, group: str) -> AppliedGroup:
    began = time.monotonic()
    batches = batches_of(workspace, workspace.refresh_plan.groups[group])
    changes = load(workspace.staging, CHANGES, Changes)
    apply = partial(
        _apply_batch,
        changes=changes,
        threads=runner.threads_per_task(len(batches)),
    )
    size = size_of(workspace, batches)
    made = run_each(runner, workspace.run, apply, batches, size=size)
    applied = tuple(shard for batch in made for shard in batch)
    applied += tuple(_leave(runner, workspace, group, changes, applied))
    for shard in applied:
        log.info(
            "apply: shard %d: %s; %d rows added, %d of %d deleted, %d bytes of vectors read of the "
            "table, in %.2f s",
            shard.shard_id,
            shard.action,
            shard.added,
            shard.tombstones,
            shard.rows,
            shard.vector_bytes_read,
            shard.seconds,
        )
    document = AppliedGroup(shards=applied, seconds=time.monotonic() - began)
    return store(workspace.staging, applied_name(group), document)


def _leave(
    runner: Runner,
    workspace: Workspace,
    group: str,
    changes: Changes,
    applied: Sequence[AppliedShard],
) -> list[AppliedShard]:
    """Make a delta of the rows that were to go into shards of a group which could not take them."""
    refused = {shard.shard_id: shard.refused for shard in applied if shard.refused is not None}
    for found in refused.values():
        log.warning("apply: %s: it stays as it is", found.why)
    plan, version = workspace.refresh_plan, workspace.base_version
    if not (refused and plan.decision.merges):
        return []
    first = max(shard.shard_id for shard in version.routing.shards) + 1
    make = partial(
        _make_delta_of,
        number=first + list(plan.groups).index(group),
        changes=changes,
        threads=runner.threads_per_task(1),
    )
    made = run_each(runner, workspace.run, make, [sorted(refused)])
    return [delta for found in made for delta in found]


def _make_delta_of(
    workspace: Workspace, refused: list[int], *, number: int, changes: Changes, threads: int
) -> list[AppliedShard]:
    """Make a delta of the rows in cells of some shards."""
    version = workspace.base_version
    with naming_the_remedy(workspace):
        made = make_delta(workspace, version, changes, number, of=set(refused), threads=threads)
    return [] if made is None else [made]


def _apply_batch(
    workspace: Workspace, shards: list[int], *, changes: Changes, threads: int
) -> list[AppliedShard]:
    rewriter = ShardRewriter(workspace, workspace.base_version, changes, threads)
    with naming_the_remedy(workspace):
        # Several are such as need one thread each.
        made = list(blas.parallel(partial(_apply, rewriter), shards, threads))
    return [shard for shard in made if shard is not None]


def _apply(rewriter: ShardRewriter, shard_id: int) -> AppliedShard | None:
    action = rewriter.workspace.refresh_plan.action_of(shard_id)
    if action == "delta":
        return make_delta(
            rewriter.workspace,
            rewriter.version,
            rewriter.changes,
            shard_id,
            threads=rewriter.threads,
        )
    (shard,) = (shard for shard in rewriter.version.routing.shards if shard.shard_id == shard_id)
    if action == "merge":
        return rewriter.insert(shard)
    if shard_id in rewriter.workspace.refresh_plan.decision.unreadable:
        return rewriter.build_of_table(shard)
    if action == "rebuild":
        return rewriter.rebuild(shard)
    return update_rows_and_tombstones(rewriter.workspace, rewriter.version, shard, rewriter.changes)
