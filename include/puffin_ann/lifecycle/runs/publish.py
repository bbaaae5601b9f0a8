"""Publish what a run made, report on it, and clear what it staged."""

import logging

from puffin_ann.declaration import known_declarations
from puffin_ann.errors import IndexNotFoundError
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lifecycle.documents.run import PUBLISH, PlanPointer, PublishedVersion
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.publish.assemble import publish_run
from puffin_ann.lifecycle.report import status as statuses
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.lifecycle.runtime.progress import metering
from puffin_ann.lifecycle.runtime.workspace import Workspace, at_work, remove_staging

log = logging.getLogger("puffin_ann")


def publish(run: RunRef) -> PublishedVersion:
    """Assemble the run's Puffin file and publish it in one commit; at most once a run.

    Raises:
        ConflictError, UnclearCommitError, RecallTooLowError: see `publish_run`.
        LeaseHeldError: others are publishing into the table, for longer than that takes.
        StagingGoneError: something that the run staged is gone; start it again.
    """
    workspace = Workspace.open(run)
    with at_work(workspace):
        owner = f"{run.index}/{run.run_id}"
        with leases.publishing(workspace.table, owner, f"publish {run.index}"):
            published = publish_run(Workspace.open(run))
    log.info(
        "publish: run %s is snapshot %d, file %s; %s bytes written, %s copied",
        run.run_id,
        published.snapshot_id,
        published.path,
        f"{published.bytes_written:,}",
        f"{published.bytes_copied:,}",
    )
    if published.undone:
        log.warning("publish: left undone: %s", published.undone)
    return published


def clear_staging(run: RunRef) -> None:
    """Remove what a run staged that is not carried out; another one plans for itself."""
    remove_staging(Workspace.open(run))


@metering("look at the table's indexes")
def report(pointer: PlanPointer) -> str:
    """Return the status of a table's indexes as text, and remove what a published run staged.

    Args:
        pointer: what was planned.
    """
    if pointer.plan:
        workspace = Workspace.open(RunRef.planned(pointer))
        if workspace.staging.exists(PUBLISH):
            remove_staging(workspace)
    table = pointer.table
    known = known_declarations()
    declared = None if known is None or known.problems else known.on(table)
    try:
        return statuses.as_text(statuses.status(load_table(table), None, declared))
    except IndexNotFoundError as error:
        return str(error)  # of a table, such as one without rows, for which nothing was built
