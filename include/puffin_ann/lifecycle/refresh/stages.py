"""The stages of a refresh that do the heavy work: what the Spark applications and the CLI call.

As the stages of a build: small JSON through the driver, data through staging, a document at the end
of each part.
"""

import json
import logging
import time
from collections import Counter
from collections.abc import Sequence

from pydantic import TypeAdapter

from puffin_ann.errors import BadVectorsError, StagingError
from puffin_ann.lifecycle.build import assign as assigning
from puffin_ann.lifecycle.documents.refresh import (
    ADDED,
    CHANGES,
    MATCH,
    REMOVED,
    AddedRows,
    AddedRowsOfTask,
    AppliedGroup,
    AppliedShard,
    Changes,
    Matched,
    MatchedBucket,
    RefreshPlan,
    RemovedRows,
    RemovedRowsOfShard,
    applied_name,
)
from puffin_ann.lifecycle.documents.run import AssignOutcome, StagedFile, done, load, store
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.refresh.apply.remap import touch_up
from puffin_ann.lifecycle.refresh.apply.rewrite_shard import ShardRewriter
from puffin_ann.lifecycle.refresh.apply.take_from_deltas import take_from_deltas
from puffin_ann.lifecycle.refresh.detect import added_rows, removed_rows
from puffin_ann.lifecycle.refresh.detect.relocated_rows import match_bucket
from puffin_ann.lifecycle.runtime.runners import Runner
from puffin_ann.lifecycle.runtime.workspace import (
    Workspace,
    arrays_from_bytes,
    arrays_to_bytes,
    at_work,
)

log = logging.getLogger("puffin_ann")

_REMOVED = TypeAdapter(list[RemovedRowsOfShard])
_APPLIED = TypeAdapter(list[AppliedShard])

TASK_ROWS = 1_000_000
"""Rows of shards whose rows blobs one task reads; about a second's work."""


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
        return _read_changes(runner, workspace, run)


def _read_changes(runner: Runner, workspace: Workspace, run: RunRef) -> Changes:
    began = time.monotonic()
    removed = _find_removed(runner, workspace, run)
    added = _read_added(runner, workspace, run, removed)
    matched = _match(runner, workspace, run, removed, added)
    outcomes = [task.outcome for task in added.tasks]
    again = _read_again(runner, workspace, run, matched)
    found = _changes(removed, matched, [*outcomes, *again])
    outcomes += [
        *again,
        *_take_from_deltas(runner, workspace, run, len(outcomes + again), found),
    ]
    skipped = found.skipped
    if skipped and workspace.refresh_plan.declaration.bad_vectors == "refuse":
        raise BadVectorsError(_refusal(workspace.refresh_plan, skipped))
    summary = _sum_up(runner, run, outcomes)
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
        "changes: %d rows removed, %d relocated, %d for shards or a delta, %d skipped, in %.1f s",
        changes.dead,
        changes.relocated,
        changes.rows,
        sum(skipped.values()),
        changes.seconds,
    )
    return store(workspace.staging, CHANGES, changes)


def _find_removed(runner: Runner, workspace: Workspace, run: RunRef) -> RemovedRows:
    finished = done(workspace.staging, REMOVED, RemovedRows)
    if finished:
        return finished
    began = time.monotonic()
    decision = workspace.refresh_plan.decision
    shards: list[int] = []
    # Where rows were only added, no shard is looked into.
    if decision.rows_gone or decision.matches:
        shards = [shard.shard_id for shard in decision.shards]

    def find(payload: str) -> str:
        there = Workspace.open(run)
        version = there.source
        entries = {shard.shard_id: shard for shard in version.routing.shards}
        given = [entries[number] for number in json.loads(payload)]
        found = removed_rows.find_removed_rows(there, version, given)
        return _REMOVED.dump_json(found).decode()

    payloads = [json.dumps(batch) for batch in _batches(workspace, shards)]
    found = [shard for many in runner.run(find, payloads) for shard in _REMOVED.validate_json(many)]
    prefixes = None
    if decision.matches:

        def collect(payload: str) -> str:
            there = Workspace.open(run)
            values = removed_rows.collect_prefixes(there, _REMOVED.validate_json(payload))
            return there.stage_bytes("prefixes.npz", arrays_to_bytes(values)).model_dump_json()

        (answer,) = runner.run(collect, [_REMOVED.dump_json(found).decode()])
        prefixes = StagedFile.model_validate_json(answer)
    document = RemovedRows(shards=tuple(found), prefixes=prefixes, seconds=time.monotonic() - began)
    return store(workspace.staging, REMOVED, document)


def _batches(workspace: Workspace, shards: Sequence[int]) -> list[list[int]]:
    """Deal shards to tasks of about `TASK_ROWS` rows: to begin a task may cost more than a shard.

    A shard that is inserted into or built is a task of its own.
    """
    rows = {shard.shard_id: shard.rows for shard in workspace.source.routing.shards}
    actions = {shard.shard_id: shard.action for shard in workspace.refresh_plan.decision.shards}
    batches: list[list[int]] = []
    filled = TASK_ROWS + 1
    for shard in shards:
        is_light = actions.get(shard) in ("none", "mask", "remap")
        size = rows[shard] if is_light else TASK_ROWS + 1
        if filled + size > TASK_ROWS:
            batches.append([])
            filled = 0
        batches[-1].append(shard)
        filled += size
    return batches


def _read_added(
    runner: Runner, workspace: Workspace, run: RunRef, removed: RemovedRows
) -> AddedRows:
    finished = done(workspace.staging, ADDED, AddedRows)
    if finished:
        return finished
    began = time.monotonic()
    tasks = range(len(workspace.refresh_plan.read_tasks))
    if not tasks:
        return AddedRows(
            tasks=(), seconds=0.0
        )  # nothing to remember, and each document costs a wait
    threads = runner.threads_per_task(len(tasks))

    def read(payload: str) -> str:
        there = Workspace.open(run)
        prefixes = None
        if removed.prefixes is not None:
            prefixes = arrays_from_bytes(
                removed_rows.RemovedIdentityPrefixes, there.fetch_bytes(removed.prefixes)
            )
        routing = there.source.routing
        return added_rows.read_task(
            there, int(payload), routing, prefixes, threads=threads
        ).model_dump_json()

    found = runner.run(read, [str(number) for number in tasks])
    document = AddedRows(
        tasks=tuple(AddedRowsOfTask.model_validate_json(text) for text in found),
        seconds=time.monotonic() - began,
    )
    return store(workspace.staging, ADDED, document)


def _match(
    runner: Runner,
    workspace: Workspace,
    run: RunRef,
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

    def match(payload: str) -> str:
        there = Workspace.open(run)
        return match_bucket(there, int(payload), removed.shards, added.tasks).model_dump_json()

    found = runner.run(match, [str(bucket) for bucket in buckets])
    document = Matched(
        buckets=tuple(MatchedBucket.model_validate_json(text) for text in found),
        seconds=time.monotonic() - began,
    )
    return store(workspace.staging, MATCH, document)


def _read_again(
    runner: Runner, workspace: Workspace, run: RunRef, matched: Matched
) -> list[AssignOutcome]:
    """Read rows of which an equal one went, and that are new all the same: rare duplicates."""
    if not workspace.refresh_plan.decision.shards:
        return []
    tasks = sorted({task for bucket in matched.buckets for task in bucket.unmatched_tasks})
    unmatched = [bucket.unmatched for bucket in matched.buckets]
    first = len(workspace.refresh_plan.read_tasks)
    threads = runner.threads_per_task(len(tasks))

    def read(payload: str) -> str:
        there = Workspace.open(run)
        place = int(payload)
        return added_rows.read_again(
            there,
            first + place,
            tasks[place],
            added_rows.load_unmatched(there, unmatched),
            there.source.routing,
            threads=threads,
        ).model_dump_json()

    found = runner.run(read, [str(place) for place in range(len(tasks))])
    return [AssignOutcome.model_validate_json(text) for text in found]


def _changes(removed: RemovedRows, matched: Matched, outcomes: Sequence[AssignOutcome]) -> Changes:
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
        dead=sum(shard.newly_deleted for shard in removed.shards),
        skipped=dict(skipped),
        read=sum(outcome.rows for outcome in outcomes) + relocated,
        vector_bytes_read=sum(outcome.vector_bytes_read for outcome in outcomes),
        seconds=0.0,
        read_seconds=0.0,
    )


def _take_from_deltas(
    runner: Runner, workspace: Workspace, run: RunRef, first: int, changes: Changes
) -> list[AssignOutcome]:
    """Take the deltas apart that are merged, or absorbed by the new one."""
    decision = workspace.refresh_plan.decision
    deltas = [
        shard.shard_id
        for shard in decision.shards
        if shard.kind == "delta" and shard.action == "merge"
    ]
    threads = runner.threads_per_task(len(deltas))
    prefixes = changes.model_dump_json()

    def take(payload: str) -> str:
        there = Workspace.open(run)
        version = there.source
        place = int(payload)
        (shard,) = (shard for shard in version.routing.shards if shard.shard_id == deltas[place])
        return take_from_deltas(
            there,
            first + place,
            version,
            shard,
            Changes.model_validate_json(prefixes),
            threads=threads,
        ).model_dump_json()

    found = runner.run(take, [str(place) for place in range(len(deltas))])
    return [AssignOutcome.model_validate_json(text) for text in found]


def _sum_up(runner: Runner, run: RunRef, outcomes: Sequence[AssignOutcome]) -> StagedFile | None:
    if not outcomes:
        return None

    def work(payload: str) -> str:
        there = Workspace.open(run)
        given = assigning.OUTCOMES.validate_json(payload)
        return assigning.summarise(there, given).model_dump_json()

    (summary,) = runner.run(work, [assigning.OUTCOMES.dump_json(list(outcomes)).decode()])
    return StagedFile.model_validate_json(summary)


def _refusal(plan: RefreshPlan, skipped: dict[str, int]) -> str:
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.items()))
    return (
        f"table {plan.table}, column {plan.declaration.column!r}: of the added rows {counts} "
        f"(width {plan.dimension} expected); correct the rows, or declare bad_vectors: skip"
    )


def apply_group(runner: Runner, run: RunRef, group: str) -> AppliedGroup:
    """Make the blobs of one group's shards; those that rows go into have a task each.

    Raises:
        RecallTooLowError: a shard that was built again is under the target.
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
        return _apply_group(runner, workspace, run, group)


def _apply_group(runner: Runner, workspace: Workspace, run: RunRef, group: str) -> AppliedGroup:
    began = time.monotonic()
    changes = load(workspace.staging, CHANGES, Changes).model_dump_json()
    batches = _batches(workspace, workspace.refresh_plan.groups[group])
    threads = runner.threads_per_task(len(batches))

    def work(payload: str) -> str:
        there = Workspace.open(run)
        found = Changes.model_validate_json(changes)
        rewriter = ShardRewriter(there, there.source, found, threads)
        made = [_apply(rewriter, number) for number in json.loads(payload)]
        return _APPLIED.dump_json([shard for shard in made if shard is not None]).decode()

    answers = runner.run(work, [json.dumps(batch) for batch in batches])
    applied = tuple(shard for answer in answers for shard in _APPLIED.validate_json(answer))
    for shard in applied:
        log.info(
            "apply: shard %d: %s; %d rows added, %d of %d deleted, in %.2f s",
            shard.shard_id,
            shard.action,
            shard.added,
            shard.tombstones,
            shard.rows,
            shard.seconds,
        )
    document = AppliedGroup(shards=applied, seconds=time.monotonic() - began)
    return store(workspace.staging, applied_name(group), document)


def _apply(rewriter: ShardRewriter, shard_id: int) -> AppliedShard | None:
    action = rewriter.workspace.refresh_plan.action_of(shard_id)
    if action == "delta":
        return rewriter.delta(shard_id)
    (shard,) = (shard for shard in rewriter.version.routing.shards if shard.shard_id == shard_id)
    if action == "merge":
        return rewriter.insert(shard)
    if action == "rebuild":
        return rewriter.rebuild(shard)
    return touch_up(rewriter.workspace, rewriter.version, shard, rewriter.changes)
