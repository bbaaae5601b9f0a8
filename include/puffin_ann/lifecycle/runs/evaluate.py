"""The tasks of an evaluation that need no Spark: plan, finish, clear."""

import logging
import zlib

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import StagingError
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lifecycle.build.whole_table import plan_of_whole_table
from puffin_ann.lifecycle.documents.run import (
    PLAN,
    BuildPlan,
    done,
    store,
)
from puffin_ann.lifecycle.evaluate.records import evaluations, recall_report
from puffin_ann.lifecycle.runtime.run_ids import safe_run_id
from puffin_ann.lifecycle.runtime.workspace import Workspace, run_places
from puffin_ann.search.index import require_snapshot
from puffin_ann.search.snapshot_view import live_state
from puffin_ann.search.versions import require_versions

log = logging.getLogger("puffin_ann")


def plan_evaluation(
    declaration: IndexDeclaration, *, run_id: str, queries: int | None = None
) -> dict[str, str]:
    """Pin what is measured: the table's current snapshot, and rows of it as queries.

    Called again with the same run id, it returns the plan that is there.

    Args:
        declaration: the index.
        run_id: names the run; also decides which rows are queries.
        queries: how many; default: as declared.

    Returns:
        The table's name, the location of the plan, and the run's id.

    Raises:
        IndexNotFoundError: no version is published.
        DamagedIndexError: none can be read.
    """
    table = load_table(declaration.table)
    run, staging, _ = next(run_places(table, declaration.name, safe_run_id(run_id)))
    plan = done(staging, PLAN, BuildPlan)
    if plan is None:
        require_versions(table, declaration.name)
        # Other rows than those of the gate, and of the evaluation before.
        options = {"queries": queries or declaration.evaluate.queries, "k": declaration.gate.k}
        measured = declaration.model_copy(
            update={
                "seed": zlib.crc32(run.encode()),
                "gate": type(declaration.gate).model_validate(options),
            }
        )
        live = live_state(table, require_snapshot(table, None).snapshot_id)
        plan = store(staging, PLAN, plan_of_whole_table(measured, table, run, live))
    log.info(
        "evaluate: run %s measures %s by %d queries on snapshot %d, %d rows",
        run,
        declaration.name,
        plan.declaration.gate.queries,
        plan.base_snapshot_id,
        plan.expected_rows,
    )
    return {"table": declaration.table, "plan": staging.uri(PLAN), "run_id": run}


def finish(table: str, plan: str) -> str:
    """Clear what a run staged, and return what it measured as text.

    Raises:
        RecallTooLowError: it is under the target; says what to do.
        StagingError: nothing was measured.
    """
    loaded = load_table(table)
    index, run = plan.split("/")[-3:-1]
    found = [evaluation for evaluation in evaluations(loaded, index) if evaluation.run_id == run]
    if not found:
        raise StagingError(f"run {run} has measured nothing of index {index!r}; run it again")
    clear(table, plan)
    return recall_report(found[-1])


def clear(table: str, plan: str) -> None:
    """Remove what a run staged."""
    Workspace.open(table, plan).staging.delete_tree()
