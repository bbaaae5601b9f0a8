"""Refresh an index: plan what is due, and do all of it in this process where that is wanted."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from pyiceberg.table import Table
from pyroaring import BitMap

from puffin_ann.blobs import coverage as coverage_blob
from puffin_ann.blobs.coverage import Coverage, CoveredFile
from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import ConflictError
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lake.commit.index_snapshot import publish_mode
from puffin_ann.lake.metadata.registered import registered
from puffin_ann.lake.read.live_files import LiveFile
from puffin_ann.lake.read.vector_column import table_vector_column
from puffin_ann.lake.store.locations import absolute_path, relative_path
from puffin_ann.lake.store.staging import Staging
from puffin_ann.lifecycle.build import stages
from puffin_ann.lifecycle.build.plan import assign_tasks, shard_groups
from puffin_ann.lifecycle.documents.refresh import RefreshPlan
from puffin_ann.lifecycle.documents.run import (
    PLAN,
    SPARE_PLAN,
    PlannedFile,
    PlanPointer,
    restore_plan,
    store,
)
from puffin_ann.lifecycle.documents.run_notes import next_file_id
from puffin_ann.lifecycle.maintain.rename import CarriedOver, carry_over
from puffin_ann.lifecycle.maintain.repair import require_whole
from puffin_ann.lifecycle.policy.decide import decide
from puffin_ann.lifecycle.policy.decision import Decision
from puffin_ann.lifecycle.policy.inputs import Change, IndexState
from puffin_ann.lifecycle.published.base_version import version_to_refresh
from puffin_ann.lifecycle.published.index_state import change_in, state_of
from puffin_ann.lifecycle.refresh import stages as refresh_stages
from puffin_ann.lifecycle.refresh.detect.removed_rows import Difference, revived_of
from puffin_ann.lifecycle.runs import build
from puffin_ann.lifecycle.runtime.runners import InProcess, Runner
from puffin_ann.lifecycle.runtime.workspace import (
    Workspace,
    arrays_to_bytes,
    is_opened_once,
    opened_once,
)
from puffin_ann.search.index import require_snapshot
from puffin_ann.search.snapshot_view import LiveState, View, live_state
from puffin_ann.search.versions import IndexVersion, find_versions
from puffin_ann.settings import settings

log = logging.getLogger("puffin_ann")

ROWS_PER_BUCKET = 8_000_000
"""Rows matched at once: 24 bytes each, and as much again while they are sorted."""

ATTEMPTS = 3
"""Times that a run is planned anew, where somebody else published meanwhile."""

Progress = Callable[[str], AbstractContextManager[None]]
"""Told the name of a step, which lasts as long as the context."""


def plan_refresh(
    declaration: IndexDeclaration,
    *,
    run_id: str,
    maintenance: bool = False,
    force: bool = False,
) -> dict[str, Any]:
    """Decide what is due for an index, and stage the plan of it.

    Called again with the same run id, it returns the plan that is there.

    Args:
        declaration: the index.
        run_id: names the run; any text, stable across retries of it.
        maintenance: this is a maintenance window: do what is due though nothing changed, and
            rebuild shards of many tombstones, too.
        force: publish changes, however few and fresh they are; where nothing changed, read the
            version's files for damage.

    Returns:
        A `PlanPointer` as JSON; of action `build` if the whole index is due.

    Raises:
        DamagedIndexError: forced, nothing changed, and a file of the version is damaged.
        PuffinAnnError: the table, the column or the surroundings do not allow an index.
    """
    build.warn_of(declaration)
    table = load_table(declaration.table)
    name, staging = build.workplace(table, declaration.name, build.safe_run_id(run_id))
    restore_plan(staging)
    if staging.exists(PLAN) and staging.discard_torn(PLAN):
        staging.delete_tree()  # the machine went down, and no stage's outcome is worth more
    if staging.exists(PLAN):
        planned = Workspace(table, staging).run
        if isinstance(planned, RefreshPlan):
            return _pointer(planned, staging).model_dump()
        return build.plan_build(declaration, run_id=run_id, overrides={"force": True})
    live = live_state(table, require_snapshot(table, None).snapshot_id)
    source = version_to_refresh(table, declaration, live)
    renamed = carry_over(table, declaration, run_id=name) if source is None else None
    if renamed is not None:
        table = load_table(declaration.table)
        live = live_state(table, require_snapshot(table, None).snapshot_id)
        source = version_to_refresh(table, declaration, live)
    if source is None:
        state, change = None, Change(live.snapshot_id, live.rows, rows_added=live.rows)
    else:
        state = state_of(table, source[0])
        change = change_in(table, source[0], live, source[1], declaration)
    decision = decide(
        state,
        change,
        declaration,
        now_ms=int(time.time() * 1000),
        maintenance=maintenance,
        force=force,
        unreadable=find_versions(table, declaration.name).problems if source is None else (),
    )
    log.info("plan: %s: %s: %s", declaration.name, decision.action, decision.reason)
    if decision.action == "build":
        built = build.plan_build(
            declaration, run_id=run_id, overrides={"force": True}, why=decision.reason
        )
        reason = _after(renamed, decision.reason)
        return {**built, "reason": reason, "decision": _text(decision)}
    if decision.action == "none" or source is None or state is None:
        if force and source is not None:
            require_whole(table, source[0])  # of nothing that changed something may be damaged
        return PlanPointer(
            action="none",
            reason=_after(renamed, decision.reason),
            table=declaration.table,
            plan="",
            run_id=name,
            groups=[],
            decision=_text(decision),
        ).model_dump()
    found = _Found(source[0], state, live, source[1])
    workspace = Workspace(table, staging)
    workspace.keep(declaration.table, staging.uri(PLAN))
    made = _make_plan(declaration, workspace, name, found, decision)
    # Within one process nobody goes by a plan but this run, or one that plans anew, see above.
    made = store(staging, PLAN, made, lasting=not is_opened_once())
    workspace.start_from(made, source[0])
    staging.put_copy(SPARE_PLAN, PLAN, made.model_dump_json().encode())
    return _pointer(made, staging, renamed).model_dump()


def _after(renamed: CarriedOver | None, reason: str) -> str:
    """Return why a run does what it does, and before it what was done already."""
    return reason if renamed is None else f"{renamed.reason}; {reason}"


def _pointer(
    plan: RefreshPlan, staging: Staging, renamed: CarriedOver | None = None
) -> PlanPointer:
    return PlanPointer(
        action="refresh",
        reason=_after(renamed, plan.decision.reason),
        table=plan.table,
        plan=staging.uri(PLAN),
        run_id=plan.run_id,
        groups=list(plan.groups),
        decision=_text(plan.decision),
    )


def _text(decision: Decision) -> str:
    """Return a decision for the log: a line for each shard to which something is done."""
    lines = [
        f"{decision.action}: {decision.reason}",
        f"expected: {decision.bytes_written:,} new bytes, {decision.bytes_copied:,} carried over, "
        f"{decision.seconds:.1f} s",
    ]
    lines += [
        f"{one.kind} {one.shard_id}: {one.action}, {one.reason}"
        for one in decision.shards
        if one.action != "none"
    ]
    if decision.delta is not None:
        lines.append(f"delta {decision.delta.shard_id}: {decision.delta.reason}")
    return "\n".join(lines)


class _Found:
    """What a plan rests on."""

    def __init__(
        self, version: IndexVersion, state: IndexState, live: LiveState, view: View
    ) -> None:
        self.version, self.state, self.live, self.view = version, state, live, view


def _make_plan(
    declaration: IndexDeclaration,
    workspace: Workspace,
    name: str,
    found: _Found,
    decision: Decision,
) -> RefreshPlan:
    table = workspace.table
    publish_mode(table, declaration.publish)  # refused here, not after the work
    version, live = found.version, found.live
    column = table_vector_column(table, declaration.column)
    base = require_snapshot(table, live.snapshot_id)
    manifests = tuple(manifest.path for manifest in live.at.manifests)
    covered, files, next_id = _files(table, found)
    ids = {absolute_path(table.location(), one.path): one.file_id for one in covered}
    known = {one.file_id for one in version.coverage.files}
    was_there = {path: file_id for path, file_id in ids.items() if file_id in known}
    difference = Difference.of(found.view, revived_of(found.view, was_there))
    coverage = Coverage(live.snapshot_id, covered, manifests)
    routing = version.routing
    matched = decision.rows_gone + decision.rows_added if decision.matches else 0
    return RefreshPlan(
        planned_ms=int(time.time() * 1000),
        run_id=name,
        table=declaration.table,
        declaration=declaration,
        base_snapshot_id=base.snapshot_id,
        base_sequence_number=base.sequence_number or 0,
        field_id=column.field_id,
        dimension=routing.dimension,
        files=files,
        manifests=manifests,
        column_type=column.element,
        source=version.path,
        source_run=version.run_id,
        registered=tuple(entry.path for entry in registered(table)),
        algorithm=routing.algorithm,
        decision=decision,
        state_rates=found.state.rates,
        state_drift=found.state.drift,
        read_tasks=assign_tasks(
            files, row_bytes=4 * routing.dimension, task_bytes=settings().assign_task_bytes
        ),
        next_file_id=next_id,
        buckets=1 << max(0, (matched // ROWS_PER_BUCKET).bit_length()),
        groups=_groups(decision, declaration.build.max_submits),
        # Hidden from orphan removal by their `_`, as the plan's copy is: they are made once.
        difference=workspace.stage_bytes("_difference.npz", arrays_to_bytes(difference)),
        coverage=workspace.stage_bytes("_coverage.bin", coverage_blob.encode(coverage)),
    )


def _files(table: Table, found: _Found) -> tuple[list[CoveredFile], tuple[PlannedFile, ...], int]:
    """Return the files of the new coverage, those of them to be read, and the next free id.

    A file keeps its id as long as it is covered; an id is never given to another file. Of new files
    the row groups are not known yet: one stands for all. What did not change is taken over from the
    version: of a large table hardly any manifest has to be read for it.
    """
    location = table.location()
    version, changed = found.version, found.view.changed
    ids = version.coverage.columns.file_ids
    next_id = int(ids.max(initial=-1)) + 1
    next_id = max(next_id, next_file_id(version.routing.properties, version.path))
    revived = {file.path: file for file, _ in found.view.scanned}
    covered: list[CoveredFile] = []
    read: list[PlannedFile] = []
    for place, old in enumerate(version.coverage.columns):
        if place in changed.gone:
            continue
        dead = changed.dead.get(place, old.deleted)
        covered.append(old if dead == old.deleted else replace(old, deleted=dead))
        file = revived.get(absolute_path(location, old.path))
        if file is not None:
            read.append(PlannedFile.of(old.file_id, file))
    for file, dead in sorted(changed.added, key=lambda one: one[0].path):
        covered.append(_covered(file, next_id, location, dead))
        read.append(PlannedFile.of(next_id, file))
        next_id += 1
    covered.sort(key=lambda one: one.file_id)
    return covered, tuple(sorted(read, key=lambda one: one.file_id)), next_id


def _covered(file: LiveFile, file_id: int, location: str, dead: BitMap) -> CoveredFile:
    return CoveredFile(
        file_id=file_id,
        path=relative_path(location, file.path),
        size=file.size,
        sequence_number=file.sequence_number,
        rows=file.rows,
        row_groups=(file.rows,) if file.rows else (),
        deleted=dead,
        skipped=BitMap(),
    )


def _groups(decision: Decision, max_submits: int) -> dict[str, tuple[int, ...]]:
    """Deal the touched shards to groups: many only where there is much to do.

    To start an application takes longer than to write some tombstones.
    """
    touched = [
        one.shard_id
        for one in decision.shards
        if one.action != "none" and not (one.kind == "delta" and one.action == "merge")
    ]
    if decision.delta is not None:
        touched.append(decision.delta.shard_id)
    is_heavy = decision.merges or any(one.action == "rebuild" for one in decision.shards)
    dealt = shard_groups(len(touched), max_submits if is_heavy else 1)
    return {group: tuple(touched[place] for place in places) for group, places in dealt.items()}


def refresh_in_process(
    declaration: IndexDeclaration,
    *,
    run_id: str,
    maintenance: bool = False,
    force: bool = False,
    runner: Runner | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Refresh an index, or build it where that is due, stage by stage.

    Args:
        declaration: the index.
        run_id: names the run.
        maintenance: as of `plan_refresh`.
        force: likewise.
        runner: where the stages' tasks run; default: in this process.
        progress: told what is done.

    Returns:
        `action`, `reason`, `run_id`, and what was published: `snapshot_id`, `bytes_written`,
        `bytes_copied`, and `rows_added` and `rows_gone` as they were found, of which the reason
        tells what was expected; None where nothing was.

    Raises:
        ConflictError: others published into the table during every attempt.
        PuffinAnnError: see the stages.
    """
    step = progress or (lambda _: nullcontext())
    for attempt in range(1, ATTEMPTS + 1):
        this_run = run_id if attempt == 1 else f"{run_id}-{attempt}"
        with opened_once():
            with step("plan"):
                plan = plan_refresh(
                    declaration, run_id=this_run, maintenance=maintenance, force=force
                )
            try:
                published = _carry_out(plan, runner or InProcess(), step)
            except ConflictError as error:
                build.discard(plan["table"], plan["plan"])
                if attempt == ATTEMPTS:
                    raise
                log.warning("refresh: %s; planning it anew", error)
                continue
        break
    return {
        "action": plan["action"],
        "reason": plan["reason"],
        "run_id": plan["run_id"],
        "snapshot_id": published.get("snapshot_id"),
        "bytes_written": published.get("bytes_written"),
        "bytes_copied": published.get("bytes_copied"),
        "rows_added": published.get("rows_added"),
        "rows_gone": published.get("rows_gone"),
    }


def _carry_out(plan: dict[str, Any], runner: Runner, step: Progress) -> dict[str, Any]:
    where = (plan["table"], plan["plan"])
    works: Sequence[tuple[str, Callable[[], Any]]] = ()
    if plan["action"] == "refresh":
        works = (
            ("read changes", lambda: refresh_stages.read_changes(runner, *where)),
            ("apply them", lambda: _each(plan, refresh_stages.apply_group, runner)),
        )
    elif plan["action"] == "build":
        works = (
            ("train centroids", lambda: stages.train(runner, *where)),
            ("assign rows", lambda: stages.assign(runner, *where)),
            ("build shards", lambda: _each(plan, stages.build_group, runner)),
            ("measure recall", lambda: stages.gate(runner, *where)),
        )
    for name, work in works:
        with step(name):
            work()
    published: dict[str, Any] = {}
    if plan["action"] != "none":
        with step("publish"):
            published = build.publish(*where)
        build.discard(*where)
    return published


def _each(plan: dict[str, Any], stage: Callable[..., Any], runner: Runner) -> None:
    for group in plan["groups"]:
        stage(runner, plan["table"], plan["plan"], group)
