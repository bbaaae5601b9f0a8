"""Plan a build run: decide what it does, and stage its plan."""

import logging
from collections.abc import Mapping
from typing import Any

from pyiceberg.table import Table

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lifecycle.build.plan import (
    NewestVersion,
    nothing_to_do,
)
from puffin_ann.lifecycle.build.whole_table import plan_of_whole_table
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.documents.run import (
    PLAN,
    BuildPlan,
    PlanPointer,
    done,
    store,
)
from puffin_ann.lifecycle.maintain.former_names import advice_to_rename
from puffin_ann.lifecycle.publish.assemble import was_published
from puffin_ann.lifecycle.runtime.progress import metering
from puffin_ann.lifecycle.runtime.run_ids import safe_run_id
from puffin_ann.lifecycle.runtime.workspace import Workspace, workspaces_for
from puffin_ann.search.open_index import require_snapshot
from puffin_ann.search.version.snapshot_view import LiveState, live_state, view_of
from puffin_ann.search.version.versions import newest_version
from puffin_ann.wording import counted

log = logging.getLogger("puffin_ann")


@metering("plan the build")
def plan_build(
    declaration: IndexDeclaration,
    *,
    run_id: str,
    overrides: Mapping[str, Any] | None = None,
    why: str = "a build is required",
) -> PlanPointer:
    """Decide what a build run does, and stage its plan.

    Called again with the same run id, it returns the plan that is there.

    Args:
        declaration: the index.
        run_id: names the run; any text, stable across retries of it.
        overrides: fields of the declaration for this run only; `force: true` builds even if the
            published version is up to date.
        why: the reason of a build, where the caller knows it.

    Returns:
        What the tasks after it need, small whatever the table's size.

    Raises:
        PuffinAnnError: the table, the column or the surroundings do not allow a build.
    """
    given = dict(overrides or {})
    force = bool(given.pop("force", False))
    declaration = declaration.overridden(given)
    warn_of(declaration)
    table = load_table(declaration.table)
    workspace = workspace_for(table, declaration.name, safe_run_id(run_id))
    run, staging = workspace.run, workspace.staging
    plan = done(staging, PLAN, BuildPlan)
    if plan is None:
        live = live_state(table, require_snapshot(table, None).snapshot_id)
        newest = newest_published(table, declaration.name, live)
        reason = nothing_to_do(declaration, newest, force=force)
        if reason is not None:
            log.info("plan: nothing to build for %s: %s", declaration.name, reason)
            return _pointer(declaration, run.run_id, "none", reason, "", [])
        advice = advice_to_rename(table, declaration) if newest is None else ""
        if advice:
            log.warning("plan: %s", advice)
            why = f"{why}; {advice}"
        made = plan_of_whole_table(declaration, table, run.run_id, live)
        plan = store(staging, PLAN, made.model_copy(update={"reason": _told(made, why)}))
    log.info(
        "plan: run %s builds %s from snapshot %d: %s in %s, %s in %s; %s",
        run.run_id,
        declaration.name,
        plan.base_snapshot_id,
        counted(plan.expected_rows, "row"),
        counted(len(plan.files), "data file"),
        counted(plan.shard_count, "shard"),
        counted(len(plan.groups), "group"),
        plan.reason or why,
    )
    return _pointer(
        declaration, run.run_id, "build", plan.reason or why, run.plan, list(plan.groups)
    )


def warn_of(declaration: IndexDeclaration) -> None:
    """Log what is allowed in a declaration and should not be."""
    for warning in declaration.warnings:
        log.warning("plan: %s", warning)


def _told(plan: BuildPlan, why: str) -> str:
    """Say why an index is built, and with how many shards, where that is not what is declared."""
    if plan.shards is None:
        return why
    return (
        f"{why}; with {plan.shards} of the {plan.declaration.shards} declared shards, since the "
        f"table has {counted(plan.expected_rows, 'row')}: a refresh or build that finds enough "
        "makes them all"
    )


def workspace_for(table: Table, index: str, run_id: str) -> Workspace:
    """Return the workspace of the run id to use.

    A run whose plan is staged goes on, published or not. One that was published and cleared away
    must not be taken for this one when its tasks are run again: it gets a number. So does one whose
    staging was lost, which is planned again.
    """
    return next(
        workspace
        for workspace, is_planned in workspaces_for(table, index, run_id)
        if is_planned or not was_published(table, index, workspace.run.run_id)
    )


def _pointer(
    declaration: IndexDeclaration,
    run_id: str,
    action: Any,
    reason: str,
    plan: str,
    groups: list[str],
) -> PlanPointer:
    return PlanPointer(
        action=action,
        reason=reason,
        table=declaration.table,
        plan=plan,
        run_id=run_id,
        groups=groups,
    )


def nothing(declaration: IndexDeclaration, reason: str) -> PlanPointer:
    """Return the plan of a run that finds nothing to work on yet.

    Args:
        declaration: the index.
        reason: why there is nothing to be done.
    """
    log.info("plan: nothing to do for %s: %s", declaration.name, reason)
    return _pointer(declaration, "", "none", reason, "", [])


def newest_published(table: Table, index: str, live: LiveState) -> NewestVersion | None:
    """Return what a plan needs to know of the newest version, if there is one."""
    version = newest_version(table, index)
    if version is None:
        return None
    routing = version.routing
    return NewestVersion(
        fingerprint=IndexProperties(routing.properties).fingerprint,
        is_current=view_of(table, version, live).cost == 0,
        recall=1.0 if routing.recall is None else routing.recall.recall,
    )
