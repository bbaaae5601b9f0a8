"""The tasks of an evaluation that need no Spark: plan, finish, clear."""

import logging
import zlib
from collections.abc import Sequence

from pyiceberg.table import Table

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
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.evaluate.records import Evaluation, evaluations
from puffin_ann.lifecycle.runtime.progress import metering
from puffin_ann.lifecycle.runtime.run_ids import safe_run_id
from puffin_ann.lifecycle.runtime.workspace import Workspace, workspaces_for
from puffin_ann.search.open_index import require_snapshot
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.indexed_column import require_indexed_column
from puffin_ann.search.version.snapshot_view import LiveState, live_state
from puffin_ann.search.version.versions import require_versions

log = logging.getLogger("puffin_ann")


@metering("plan the evaluation")
def plan_evaluation(
    declaration: IndexDeclaration, *, run_id: str, queries: int | None = None
) -> RunRef:
    """Pin what is measured: the table's current snapshot, and rows of it as queries.

    They are compared as the published index compares them, whatever was declared since.

    Called again with the same run id, it returns the plan that is there.

    Args:
        declaration: the index.
        run_id: names the run; also decides which rows are queries.
        queries: how many; default: as declared.

    Returns:
        The run, whose plan is staged.

    Raises:
        IndexNotFoundError: no version is published.
        DamagedIndexError: none can be read.
        IndexedColumnError: none is of the column that its name means by now.
    """
    table = load_table(declaration.table)
    workspace, _ = next(workspaces_for(table, declaration.name, safe_run_id(run_id)))
    run, staging = workspace.run, workspace.staging
    plan = done(staging, PLAN, BuildPlan)
    if plan is None:
        versions = require_versions(table, declaration.name)
        live = live_state(table, require_snapshot(table, None).snapshot_id)
        # Other rows than those of the gate, and of the evaluation before.
        options = {"queries": queries or declaration.evaluate.queries, "k": declaration.gate.k}
        measured = _as_published(declaration, table, versions, live).model_copy(
            update={
                "seed": zlib.crc32(run.run_id.encode()),
                "gate": type(declaration.gate).model_validate(options),
            }
        )
        plan = store(staging, PLAN, plan_of_whole_table(measured, table, run.run_id, live))
    log.info(
        "evaluate: run %s measures %s by %d queries on snapshot %d, %d rows",
        run.run_id,
        declaration.name,
        plan.declaration.gate.queries,
        plan.base_snapshot_id,
        plan.expected_rows,
    )
    return run


def _as_published(
    declaration: IndexDeclaration, table: Table, versions: Sequence[IndexVersion], live: LiveState
) -> IndexDeclaration:
    """Return a declaration of the column and metric that searches answer by.

    What was declared since, and is not built yet, is not what they find.
    """
    schema = table.schema()
    answering = require_indexed_column(table, versions, schema, live)[0]
    column = schema.find_column_name(answering.field_id) or declaration.column
    found = {"column": column, "metric": answering.routing.metric}
    declared = {"column": declaration.column, "metric": declaration.metric}
    if found != declared:
        log.warning(
            "evaluate: index %s is declared by %s of column %r and measured as it is published, by "
            "%s of column %r",
            declaration.name,
            declaration.metric,
            declaration.column,
            *reversed(found.values()),
        )
    return declaration.model_copy(update=found)


def finish(run: RunRef) -> Evaluation:
    """Clear what a run staged, and return what it measured; `recall_report` judges that.

    Raises:
        StagingError: nothing was measured.
    """
    measured = evaluations(load_table(run.table), run.index)
    found = [evaluation for evaluation in measured if evaluation.run_id == run.run_id]
    if not found:
        raise StagingError(
            f"run {run.run_id} has measured nothing of index {run.index!r}; run it again"
        )
    clear_staging(run)
    return found[-1]


def clear_staging(run: RunRef) -> None:
    """Remove what a run staged."""
    Workspace.open(run).staging.delete_tree()
