"""What tasks do that know, or find out, how indexes stand: keep it for the page."""

import time
from collections.abc import Iterable, Iterator, Sequence

from airflow.sdk import Context

from puffin_ann.airflow.dag_ids import REASON
from puffin_ann.airflow.failures import log_defect
from puffin_ann.declaration import IndexDeclaration

FORGET_MS = 24 * 3600 * 1000
"""After so long without a look at it, a document is of an index that is not declared any more."""


def tell_state(declaration: IndexDeclaration) -> None:
    """Keep how an index stands, at the end of a task that has worked on it.

    What goes wrong here is logged: work that was done is not to fail for a page.
    """
    try:
        from puffin_ann.airflow.state.collect import collect
        from puffin_ann.airflow.state.store import save

        for document in collect([declaration]):
            save(document)
    except Exception as error:
        log_defect(f"how index {declaration.name} stands is not kept for the page", error)


def say_why(context: Context, reason: str) -> None:
    """Say on the run what it does and why: an XCom of its task, which the page shows, too."""
    from puffin_ann.lifecycle.report.overview import sentence

    context["ti"].xcom_push(key=REASON, value=sentence(reason))


def collect_all(declarations: Sequence[IndexDeclaration]) -> Iterator[str]:
    """Keep how indexes stand, and what else their tables hold; yield a sentence for each.

    Raises:
        PuffinAnnError: not one of several could be reached, so that the fault is likely here.
    """
    from puffin_ann.airflow.state import store
    from puffin_ann.airflow.state.collect import collect, collect_undeclared
    from puffin_ann.errors import CatalogUnavailableError

    kept: set[str] = set()
    answering: dict[str, list[str]] = {}
    for document in collect(declarations):
        store.save(document)
        kept.add(store.key_of(document.table, document.index))
        if document.outcome != "unreachable":
            answering.setdefault(document.table, [])
        found = f"{document.outcome} {document.problem}".rstrip()
        yield f"{document.index} on {document.table}: {found}"
    for declaration in declarations:
        if declaration.table in answering:
            answering[declaration.table].append(declaration.name)
    for document in collect_undeclared(answering):
        if store.save_undeclared(document):
            kept.add(store.key_of(document.table, document.index))
            yield f"{document.index} on {document.table}: nothing declares it"
    _forget(kept)
    if len(declarations) > 1 and not answering:
        raise CatalogUnavailableError(
            f"none of {len(declarations)} indexes could be looked at: see the lines above"
        )


def _forget(kept: Iterable[str]) -> None:
    from airflow.sdk import Variable

    from puffin_ann.airflow.state import store

    if not hasattr(Variable, "keys"):  # since Airflow 3.3; the page does not show what is old
        return
    now_ms = time.time_ns() // 1_000_000
    for key in set(Variable.keys(prefix=store.PREFIX)) - set(kept):
        document = store.load(key)
        if document is None or now_ms - document.looked_ms > FORGET_MS:
            Variable.delete(key)
