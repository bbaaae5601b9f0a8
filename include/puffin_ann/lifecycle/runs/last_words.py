"""Why an application failed, for a task that does not see what it printed.

Where the driver runs on a cluster, Spark tells its submitter that it failed and no more. So an
application leaves the error among what its run has staged, under the name of the attempt, and the
task reads it there. What keeps it from doing so, such as a catalog that is down, is only printed.
"""

import logging

from puffin_ann.errors import PuffinAnnError
from puffin_ann.lifecycle.documents.run import Document, load
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.runtime.workspace import Workspace

log = logging.getLogger("puffin_ann")


class LastWords(Document):
    """The error that ended an application."""

    message: str
    exit_code: int


def leave_last_words(table: str, plan: str, attempt: str, error: PuffinAnnError) -> None:
    """Leave the error that ends an application where the task that submitted it looks for it."""
    words = LastWords(message=str(error), exit_code=error.exit_code)
    try:
        staging = Workspace.open(RunRef.at(table, plan)).staging
        staging.put(_name(attempt), words.model_dump_json().encode())
    except PuffinAnnError as problem:
        log.warning("the task that submitted this will not learn why it failed: %s", problem)


def last_words(table: str, plan: str, attempt: str) -> LastWords | None:
    """Return the error that an attempt at a stage left; None if it left none.

    Args:
        table: `catalog.namespace.table`.
        plan: location of the run's plan.
        attempt: as the application was told it.

    Raises:
        PuffinAnnError: it cannot be read now.
    """
    staging = Workspace.open(RunRef.at(table, plan)).staging
    name = _name(attempt)
    return load(staging, name, LastWords) if staging.exists(name) else None


def _name(attempt: str) -> str:
    """Return a name that no document has: what ends in `.json` tells that a stage is done."""
    return f"last-words.{attempt}"
