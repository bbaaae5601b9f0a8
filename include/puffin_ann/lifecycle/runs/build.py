"""The tasks of a build run that need no Spark: plan, publish, report."""

import hashlib
import logging
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from itertools import chain, count
from typing import Any

from pyiceberg.table import Table

from puffin_ann.declaration import IndexDeclaration, known_declarations
from puffin_ann.errors import IndexNotFoundError, SparkNotFoundError
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lake.store.staging import Staging
from puffin_ann.lifecycle.build.plan import (
    FINGERPRINT,
    Published,
    assign_tasks,
    nothing_to_do,
    shard_groups,
    shards_for,
    submits,
)
from puffin_ann.lifecycle.build.recovery import SPARE_PLAN, publishing, restore_plan
from puffin_ann.lifecycle.documents.run import (
    PLAN,
    BuildPlan,
    PlannedFile,
    PlanPointer,
    done,
    store,
)
from puffin_ann.lifecycle.ingest.preconditions import require_fit
from puffin_ann.lifecycle.maintain.rename import carry_over
from puffin_ann.lifecycle.publish.assemble import publish_run, was_published
from puffin_ann.lifecycle.report import status as statuses
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.lifecycle.runtime.workspace import Workspace, discard_staged, staging_root
from puffin_ann.search.index import require_snapshot
from puffin_ann.search.snapshot_view import LiveState, live_state, view_of
from puffin_ann.search.versions import newest_version
from puffin_ann.settings import settings

log = logging.getLogger("puffin_ann")


def plan_build(
    declaration: IndexDeclaration,
    *,
    run_id: str,
    overrides: Mapping[str, Any] | None = None,
    why: str = "a build is due",
) -> dict[str, Any]:
    """Decide what a build run does, and stage its plan.

    Called again with the same run id, it returns the plan that is there.

    Args:
        declaration: the index.
        run_id: names the run; any text, stable across retries of it.
        overrides: fields of the declaration for this run only; `force: true` builds even if the
            published version is up to date.
        why: the reason of a build, where the caller knows it.

    Returns:
        A `PlanPointer` as JSON: what the tasks after it need, small whatever the table's size.

    Raises:
        PuffinAnnError: the table, the column or the surroundings do not allow a build.
    """
    given = dict(overrides or {})
    force = bool(given.pop("force", False))
    declaration = declaration.overridden(given)
    warn_of(declaration)
    table = load_table(declaration.table)
    run, staging = workplace(table, declaration.name, safe_run_id(run_id))
    restore_plan(staging)
    plan = done(staging, PLAN, BuildPlan)
    if plan is None:
        renamed = None if force else carry_over(table, declaration, run_id=run)
        if renamed is not None:
            return _pointer(declaration, run, "none", renamed.reason, "", [])
        live = live_state(table, require_snapshot(table, None).snapshot_id)
        newest = _newest(table, declaration.name, live)
        reason = nothing_to_do(declaration, newest, force=force)
        if reason is not None:
            log.info("plan: nothing to build for %s: %s", declaration.name, reason)
            return _pointer(declaration, run, "none", reason, "", [])
        made = plan_of_whole_table(declaration, table, run, live)
        plan = store(staging, PLAN, made.model_copy(update={"reason": _told(made, why)}))
    staging.put_new(SPARE_PLAN, plan.model_dump_json().encode())
    log.info(
        "plan: run %s builds %s from snapshot %d: %d rows in %d files, %d shards in %d groups",
        run,
        declaration.name,
        plan.base_snapshot_id,
        plan.expected_rows,
        len(plan.files),
        plan.shard_count,
        len(plan.groups),
    )
    return _pointer(
        declaration, run, "build", plan.reason or why, staging.uri(PLAN), list(plan.groups)
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
        f"table has {plan.expected_rows} rows: a refresh or build that finds enough makes them all"
    )


def workplace(table: Table, index: str, run: str) -> tuple[str, Staging]:
    """Return the run id to use, and its staging folder.

    A run whose plan is staged goes on, published or not. One that was published and cleared away
    must not be taken for this one when its tasks are run again: it gets a number.
    """
    names = chain([run], (f"{run}-{number}" for number in count(2)))
    places = ((name, Staging(table.io, staging_root(table, index, name))) for name in names)
    return next(
        (name, staging)
        for name, staging in places
        if staging.exists(PLAN) or not was_published(table, index, name)
    )


def _pointer(
    declaration: IndexDeclaration, run: str, action: Any, reason: str, plan: str, groups: list[str]
) -> dict[str, Any]:
    return PlanPointer(
        action=action,
        reason=reason,
        table=declaration.table,
        plan=plan,
        run_id=run,
        groups=groups,
    ).model_dump()


def nothing(declaration: IndexDeclaration, reason: str) -> dict[str, Any]:
    """Return the plan of a run that finds nothing to work on yet: a `PlanPointer` as JSON.

    Args:
        declaration: the index.
        reason: why there is nothing to be done.
    """
    log.info("plan: nothing to do for %s: %s", declaration.name, reason)
    return _pointer(declaration, "", "none", reason, "", [])


def _newest(table: Table, index: str, live: LiveState) -> Published | None:
    version = newest_version(table, index)
    if version is None:
        return None
    routing = version.routing
    return Published(
        fingerprint=routing.properties.get(FINGERPRINT, ""),
        is_current=view_of(table, version, live).cost == 0,
        recall=1.0 if routing.recall is None else routing.recall.recall,
    )


def plan_of_whole_table(
    declaration: IndexDeclaration, table: Table, run: str, live: LiveState
) -> BuildPlan:
    """Return the plan of a run that reads every live row of a snapshot.

    Raises:
        PuffinAnnError: the table or its column do not allow an index.
    """
    fit = require_fit(declaration, table, live)
    shards = shards_for(declaration, fit.rows)
    base = require_snapshot(table, live.snapshot_id)
    files = tuple(PlannedFile.of(number, file) for number, file in enumerate(live.files))
    return BuildPlan(
        planned_ms=int(time.time() * 1000),
        run_id=run,
        table=declaration.table,
        declaration=declaration,
        base_snapshot_id=base.snapshot_id,
        base_sequence_number=base.sequence_number or 0,
        field_id=fit.column.field_id,
        dimension=fit.dimension,
        expected_rows=fit.rows,
        files=files,
        manifests=tuple(manifest.path for manifest in live.at.manifests),
        assign_tasks=assign_tasks(
            files, row_bytes=4 * fit.dimension, task_bytes=settings().assign_task_bytes
        ),
        shards=shards if shards < declaration.shards_built else None,
        groups=shard_groups(
            shards,
            submits(4 * fit.dimension * fit.rows, declaration.build.max_submits),
        ),
        column_type=fit.column.element,
    )


def safe_run_id(run_id: str) -> str:
    """Return a run id that can stand in a path: readable, and different for different runs."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", run_id).strip("-.")[:60]
    if readable == run_id:
        return readable
    return f"{readable}-{hashlib.sha256(run_id.encode()).hexdigest()[:8]}"


def require_spark(commands: Sequence[str] = ("spark-submit", "java")) -> None:
    """Make sure that Spark can be started here, before anything is read or staged.

    Raises:
        SparkNotFoundError: a command is not on PATH; says how to get it.
    """
    remedies = {
        "spark-submit": "activate the environment that pyspark is installed in, or put "
        "$SPARK_HOME/bin on PATH",
        "java": "Spark needs Java 17 or newer",
    }
    for command in commands:
        if shutil.which(command) is None:
            raise SparkNotFoundError(f"{command} is not on PATH; {remedies[command]}")


def publish(table: str, plan: str) -> dict[str, Any]:
    """Assemble the run's Puffin file and publish it in one commit; at most once a run.

    Returns:
        A `PublishedVersion` as JSON.

    Raises:
        ConflictError, UnclearCommitError, RecallTooLowError: see `publish_run`.
        LeaseHeldError: others are publishing into the table, for longer than that takes.
    """
    workspace = Workspace.open(table, plan)
    index, run = workspace.run.declaration.name, workspace.run.run_id
    with leases.publishing(workspace.table, f"{index}/{run}", f"publish {index}"):
        published = publishing(lambda: publish_run(Workspace.open(table, plan)), table, plan)
    log.info(
        "publish: run %s is snapshot %d, file %s; %d bytes written, %d copied",
        run,
        published.snapshot_id,
        published.path,
        published.bytes_written,
        published.bytes_copied,
    )
    return published.model_dump()


def discard(table: str, plan: str) -> None:
    """Remove what a run staged that is not carried out; another one plans for itself."""
    discard_staged(Workspace.open(table, plan))


def report(table: str, plan: str) -> str:
    """Return the index's status as text, and remove what a published run staged.

    Args:
        plan: location of the run's plan; empty where nothing had to be built.
    """
    if plan:
        workspace = Workspace.open(table, plan)
        if workspace.staging.exists("publish.json"):
            discard_staged(workspace)
    known = known_declarations()
    declared = None if known is None or known.problems else known.on(table)
    try:
        return statuses.as_text(statuses.status(load_table(table), None, declared))
    except IndexNotFoundError as error:
        return str(error)  # of a table, such as one without rows, for which nothing was built
