"""Plan a refresh: from a declaration to a staged plan, or to the plan of a build where that is due.

`in_process` carries one out here.
"""

import logging

from pyiceberg.table import Table

from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import DamagedIndexError, FormatError
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lifecycle.documents.refresh import RefreshPlan
from puffin_ann.lifecycle.documents.run import (
    PLAN,
    PlanPointer,
    store,
)
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.maintain.examination.damage import require_whole
from puffin_ann.lifecycle.policy.decision import Decision
from puffin_ann.lifecycle.refresh.due import Due, find_due
from puffin_ann.lifecycle.refresh.plan import Basis, make_plan
from puffin_ann.lifecycle.refresh.remake_cells import remake_cells
from puffin_ann.lifecycle.runs import build
from puffin_ann.lifecycle.runtime import run_ids
from puffin_ann.lifecycle.runtime.progress import metering
from puffin_ann.lifecycle.runtime.workspace import Workspace
from puffin_ann.lifecycle.versions.unreadable import find_in_lost_files, find_unreadable
from puffin_ann.search.open_index import require_snapshot
from puffin_ann.search.version.snapshot_view import live_state

log = logging.getLogger("puffin_ann")


def plan_refresh(
    declaration: IndexDeclaration,
    *,
    run_id: str,
    maintenance: bool = False,
    force: bool = False,
    postpones: bool = False,
) -> PlanPointer:
    """Decide what is due for an index, and stage the plan of it.

    Called again with the same run id, it returns the plan that is there.

    Args:
        declaration: the index.
        run_id: names the run; any text, stable across retries of it.
        maintenance: this is a maintenance window: do what is due though nothing changed, and
            rebuild shards of many tombstones, too.
        force: publish changes, however few and fresh they are; where nothing changed, read the
            version's files for damage, and have made again what is damaged.
        postpones: a build, merge or rebuild that is due waits: mask, and add deltas.

    Returns:
        What the tasks after it need; of action `build` if the whole index is due.

    Raises:
        DamagedIndexError: forced, nothing changed, and a file of the version is damaged in a way
            that no refresh repairs.
        PuffinAnnError: the table, the column or the surroundings do not allow an index.
    """
    return plan_and_open(
        declaration, run_id=run_id, maintenance=maintenance, force=force, postpones=postpones
    )[0]


@metering("plan the refresh")
def plan_and_open(
    declaration: IndexDeclaration,
    *,
    run_id: str,
    maintenance: bool = False,
    force: bool = False,
    repair: bool = False,
    postpones: bool = False,
    verify: bool = False,
) -> tuple[PlanPointer, Workspace | None]:
    """Plan as `plan_refresh` does, for a process that carries the plan out, too.

    Args:
        declaration: the index.
        run_id: names the run.
        maintenance: as above.
        force: as above.
        repair: make again what is damaged, and do nothing else that is due; never build.
        postpones: as above.
        verify: read the whole version first, to know what is damaged.

    Returns:
        The pointer, and the run of a refresh that was planned now, open.
    """
    build.warn_of(declaration)
    table = load_table(declaration.table)
    workspace = build.workspace_for(table, declaration.name, run_ids.safe_run_id(run_id))
    staging = workspace.staging
    if staging.exists(PLAN):
        planned = workspace.plan
        if isinstance(planned, RefreshPlan):
            return _pointer(planned, workspace.run), None
        return build.plan_build(declaration, run_id=run_id, overrides={"force": True}), None
    live = live_state(table, require_snapshot(table, None).snapshot_id)
    due = find_due(
        table,
        declaration,
        live,
        maintenance=maintenance,
        force=force or repair,
        repair=repair,
        postpones=postpones,
        find=find_unreadable if verify or repair else find_in_lost_files,
    )
    if due.decision.action == "none" and force and due.base is not None:
        try:
            require_whole(table, due.base.version)  # of what did not change some may be damaged
        except DamagedIndexError:
            due = find_due(table, declaration, live, force=True, repair=True, find=find_unreadable)
            if due.decision.action != "refresh":
                raise
    decision, cells = _with_cells(table, due)
    base, state = due.base, due.state
    log.info("plan: %s: %s: %s", declaration.name, decision.action, decision.reason)
    if decision.action == "build" and not (repair or postpones):
        built = build.plan_build(
            declaration, run_id=run_id, overrides={"force": True}, why=decision.reason
        )
        return built.model_copy(update={"decision": _text(decision)}), None
    if decision.action != "refresh" or base is None or due.rest is None or state is None:
        waits = postpones and decision.action == "build"
        return PlanPointer(
            action="none",
            reason=f"{decision.reason}; the build waits for approval" if waits else decision.reason,
            table=declaration.table,
            plan="",
            run_id=workspace.run.run_id,
            groups=[],
            decision=_text(decision),
        ), None
    basis = Basis(due.rest.version, state, live, due.rest.view)
    made = make_plan(declaration, workspace, basis, decision, cells)
    made = store(staging, PLAN, made)
    return _pointer(made, workspace.run), workspace.knowing(made, base.version)


def _with_cells(table: Table, due: Due) -> tuple[Decision, Partitions | None]:
    """Return what is decided, and the cells that are made again for it, if they are."""
    decision = due.decision
    if not decision.remakes_cells or due.base is None:
        return decision, None
    try:
        return decision, remake_cells(table.io, due.base.version)
    except FormatError as error:
        reason = f"{decision.reason}; the cells cannot be made again so: {error}"
        return Decision(
            action="build",
            reason=reason,
            rows_added=decision.rows_added,
            rows_gone=decision.rows_gone,
        ), None


def _pointer(plan: RefreshPlan, run: RunRef) -> PlanPointer:
    return PlanPointer(
        action="refresh",
        reason=plan.decision.reason,
        table=plan.table,
        plan=run.plan,
        run_id=plan.run_id,
        groups=list(plan.groups),
        decision=_text(plan.decision),
    )


def _text(decision: Decision) -> str:
    """Return a decision for the log: a line for each shard to which something is done."""
    lines = [
        f"{decision.action}: {decision.reason}",
        f"expected: {decision.bytes_written:,} new bytes, {decision.bytes_copied:,} copied, "
        f"{decision.seconds:.1f} s",
    ]
    lines += [
        f"{shard.kind} {shard.shard_id}: {shard.action}, {shard.reason}"
        for shard in decision.shards
        if shard.action != "none"
    ]
    if decision.delta is not None:
        lines.append(f"delta {decision.delta.shard_id}: {decision.delta.reason}")
    return "\n".join(lines)
