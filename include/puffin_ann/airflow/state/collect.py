"""Find how indexes stand, side by side; a catalog that does not answer costs its own rows only."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

from puffin_ann.airflow.failures import log_defect
from puffin_ann.airflow.state.document import Limits, StateDocument
from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import EnvironmentProblemError, IndexNotFoundError, PuffinAnnError
from puffin_ann.lifecycle.report.overview import overview, sentence, undeclared

log = logging.getLogger("airflow.task")

A = TypeVar("A")
F = TypeVar("F")

DEADLINE_SECONDS = 30.0
"""For one index: what a catalog and a store need for a few hundred small requests."""

PATIENCE_SECONDS = 3.0
"""What takes longer is waited for beside the others: it keeps no place that they could have."""

AT_ONCE = 8
MOST_AT_ONCE = 64
"""Those that are waited for beside the others included."""
UNREACHABLE = "its catalog or its store does not answer; the log of the task says more"


def look_at(declaration: IndexDeclaration) -> StateDocument:
    """Return how an index stands; whatever keeps that from being found is told in the document."""
    try:
        found = overview(declaration)
    except IndexNotFoundError:
        return document_of(declaration, "not_built")
    except EnvironmentProblemError as error:
        # It quotes what a catalog or a store said of itself: addresses and files, not for everyone.
        log.warning("index %s: %s", declaration.name, error)
        return document_of(declaration, "unreachable", UNREACHABLE)
    except PuffinAnnError as error:
        return document_of(declaration, "problem", sentence(str(error)))
    except Exception as error:
        log_defect(f"index {declaration.name}: how it stands cannot be found", error)
        return document_of(declaration, "problem", "it cannot be told; see the log")
    made = document_of(declaration, "found")
    return made.model_copy(update={"overview": found, "found_ms": made.looked_ms})


def document_of(declaration: IndexDeclaration, outcome: str, problem: str = "") -> StateDocument:
    """Return the document of an index of which nothing else was found."""
    return StateDocument.model_validate(
        {
            "index": declaration.name,
            "table": declaration.table,
            "outcome": outcome,
            "looked_ms": time.time_ns() // 1_000_000,
            "problem": problem,
            "limits": Limits.of(declaration),
        }
    )


def collect(
    declarations: Iterable[IndexDeclaration],
    *,
    look: Callable[[IndexDeclaration], StateDocument] = look_at,
    deadline: float = DEADLINE_SECONDS,
) -> Iterator[StateDocument]:
    """Yield how each index stands, as it is found; after its deadline one counts as unreachable.

    Args:
        declarations: of the indexes.
        look: looks at one.
        deadline: seconds that one may take.
    """
    for declaration, found in _side_by_side(declarations, look, deadline):
        if found is None:
            words = f"there was no answer within {deadline:.0f} s"
            log.warning("index %s: %s", declaration.name, words)
            found = document_of(declaration, "unreachable", words)
        yield found


def collect_undeclared(declared: Mapping[str, Sequence[str]]) -> Iterator[StateDocument]:
    """Yield a document for each index of tables that nothing declares.

    Args:
        declared: names of the declared indexes, by table.
    """

    def look(table: str) -> list[str]:
        try:
            return undeclared(table, declared[table])
        except PuffinAnnError as error:
            log.warning("what else table %s holds is not known: %s", table, error)
        except Exception as error:  # else it would be waited for in vain
            log_defect(f"what else table {table} holds is not known", error)
        return []

    for table, names in _side_by_side(declared, look, DEADLINE_SECONDS):
        for name in names or ():
            yield StateDocument(
                index=name,
                table=table,
                outcome="orphaned",
                looked_ms=time.time_ns() // 1_000_000,
                problem="it is published, and no declaration here names it",
            )


def _side_by_side(
    asked: Iterable[A], look: Callable[[A], F], deadline: float
) -> Iterator[tuple[A, F | None]]:
    """Yield what is found of each, as it is found; None of what takes longer.

    What is given up on goes on in a thread that no process waits for.
    """
    waiting = list(asked)
    patience = min(PATIENCE_SECONDS, deadline)
    places = threading.BoundedSemaphore(AT_ONCE)
    crowd = threading.BoundedSemaphore(MOST_AT_ONCE)
    done: SimpleQueue[tuple[A, F | None]] = SimpleQueue()

    def work(subject: A) -> None:
        answer: SimpleQueue[F] = SimpleQueue()
        threading.Thread(target=lambda: answer.put(look(subject)), daemon=True).start()
        found = _within(answer, patience)
        places.release()
        if found is None:
            found = _within(answer, deadline - patience)
        crowd.release()
        done.put((subject, found))

    def deal() -> None:
        for subject in waiting:
            crowd.acquire()
            places.acquire()
            threading.Thread(target=work, args=(subject,), daemon=True).start()

    threading.Thread(target=deal, daemon=True).start()
    for _ in waiting:
        yield done.get()


def _within(answer: SimpleQueue[F], seconds: float) -> F | None:
    try:
        return answer.get(timeout=seconds)
    except Empty:
        return None
