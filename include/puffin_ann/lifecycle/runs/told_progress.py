"""How far an application is, for a task that does not see what it prints.

Where the driver runs on a cluster, or a service submits, its log is elsewhere. So an application
leaves each line on its progress among what its run has staged, under the name of the attempt, and
the task that waits for it logs the newest one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.runtime.progress import EVERY_SECONDS, FOLDER, every, listening
from puffin_ann.lifecycle.runtime.workspace import Workspace


@contextmanager
def leaving_progress(run: RunRef, attempt: str) -> Iterator[None]:
    """Leave the lines on the progress of the body's work where `following_progress` looks."""

    def leave(line: str) -> None:
        Workspace.open(run).staging.put(_name(attempt), line.encode())

    with listening(leave):
        yield


@contextmanager
def following_progress(
    table: str, plan: str, attempt: str, tell: Callable[[str], None]
) -> Iterator[None]:
    """Hand on the lines that an application leaves while the body waits for it.

    Args:
        table: `catalog.namespace.table`.
        plan: location of the run's plan.
        attempt: as the application was told it.
        tell: gets each line once.
    """
    told = [""]

    def look() -> None:
        staging = Workspace.open(RunRef.at(table, plan)).staging
        if not staging.exists(_name(attempt)):
            return
        line = staging.read(_name(attempt)).decode()
        if line != told[0]:
            told[0] = line
            tell(line)

    with every(EVERY_SECONDS, look):
        yield


def _name(attempt: str) -> str:
    return f"{FOLDER}/{attempt}"
