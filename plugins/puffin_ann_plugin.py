"""A page of the Airflow UI: the declared vector indexes, and the state each is in.

Every Airflow process imports this file, workers included, while only the API server shows the page:
so whatever costs time is imported when the page is first asked for.
"""

import logging
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.plugins_manager import AirflowPlugin

from puffin_ann.declaration import (
    IndexDeclaration,
    declaration_files,
    declarations_folder,
    load_declaration,
)
from puffin_ann.errors import (
    DeclarationError,
    EnvironmentProblemError,
    IndexNotFoundError,
    PuffinAnnError,
)

if TYPE_CHECKING:
    from puffin_ann.lifecycle.status import IndexStatus

log = logging.getLogger("puffin_ann")

FRESH_SECONDS = 15
"""For how long a page is answered from what was found before; catalogs are slow and metered."""

THREADS = 8
UNKNOWN = "cannot be found now; see the log of the API server"
HEADERS = {
    # Nothing is loaded and nothing runs, whatever a table or an error message is called.
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
STYLE = """
:root { color-scheme: light dark; font: 14px/1.5 system-ui, sans-serif; }
table { border-collapse: collapse; }
caption { text-align: left; padding: 0 0 .8em; font-size: 1.3em; }
th, td { text-align: left; vertical-align: top; padding: .4em 1.2em .4em 0; }
tr { border-bottom: 1px solid #8884; }
.number { text-align: right; white-space: nowrap; }
"""
COLUMNS = (
    "index",
    "table",
    "state",
    "vectors",
    "in deltas",
    "tombstones",
    "coverage",
    "recall",
    "MB",
    "published",
    "DAG",
)
NUMBERS = {"vectors", "in deltas", "tombstones", "coverage", "recall", "MB"}


@dataclass(frozen=True)
class Row:
    """One index as the page shows it: texts, not yet escaped, by column."""

    dag_id: str
    cells: dict[str, str]


def rows(folder: Path) -> list[Row]:
    """Return a row for each declaration of a folder, by name of its file.

    An index whose state cannot be found has the reason as its state: the others are shown anyway.
    """
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(_row, declaration_files(folder)))


@lru_cache(maxsize=1)
def _rows_of(folder: Path, moment: int) -> Sequence[Row]:
    return rows(folder)


def _row(path: Path) -> Row:
    try:
        declaration = load_declaration(path)
    except DeclarationError as error:
        return _made(path.stem, "", {"state": f"declaration not valid: {error}"})
    return _made(declaration.name, declaration.table, _state(declaration))


def _made(index: str, table: str, state: dict[str, str]) -> Row:
    dag_id = f"ann_build_{index}"
    return Row(dag_id, {"index": index, "table": table, "DAG": dag_id, **state})


def _state(declaration: IndexDeclaration) -> dict[str, str]:
    from puffin_ann.lake.catalog import load_table
    from puffin_ann.lifecycle.status import status

    try:
        (found,) = status(load_table(declaration.table), declaration.name)
    except IndexNotFoundError:
        return {"state": "not built yet"}
    except EnvironmentProblemError as error:
        # It quotes what a catalog or a store said of itself: addresses and files, not for everyone.
        log.warning("the state of index %s cannot be found: %s", declaration.name, error)
        return {"state": UNKNOWN}
    except PuffinAnnError as error:
        return {"state": str(error)}
    except Exception:
        log.exception("the state of index %s cannot be found", declaration.name)
        return {"state": UNKNOWN}
    return _figures(found, declaration)


def _figures(found: "IndexStatus", declaration: IndexDeclaration) -> dict[str, str]:
    if found.fingerprint != declaration.fingerprint():
        state = "declaration changed since it was built"
    elif found.rows_to_scan or found.rows_masked:
        state = f"{found.rows_to_scan:,} rows added, {found.rows_masked:,} deleted since"
    else:
        state = "up to date"
    return {
        "state": state,
        "vectors": f"{found.vectors:,}",
        "in deltas": f"{found.delta_rows:,}" if found.deltas else "",
        "tombstones": f"{found.tombstone_ratio:.1%}" if found.tombstones else "",
        "coverage": f"{found.coverage:.2%}",
        "recall": "" if found.recall is None else f"{found.recall:.4f}",
        "MB": f"{found.bytes / 1e6:,.1f}",
        "published": found.published_at or "",
    }


def page(found: Iterable[Row], nothing: str = "No index that you may see is declared.") -> str:
    """Return the page; every text is escaped. Where there are no rows, it says `nothing`."""
    head = "".join(f"<th{_class(name)}>{escape(name)}</th>" for name in COLUMNS)
    body = "\n".join(
        "<tr>"
        + "".join(f"<td{_class(name)}>{escape(row.cells.get(name, ''))}</td>" for name in COLUMNS)
        + "</tr>"
        for row in found
    )
    instead = "" if body else f"<p>{escape(nothing)}</p>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>Vector indexes</title><style>{STYLE}</style></head>\n<body>"
        f"<table><caption>Vector indexes</caption><thead><tr>{head}</tr></thead>\n"
        f"<tbody>{body}</tbody></table>{instead}</body></html>\n"
    )


def _class(column: str) -> str:
    return ' class="number"' if column in NUMBERS else ""


@cache
def application() -> Any:
    """Return the FastAPI application of the page, for the users that Airflow knows."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.core_api.security import GetUserDep
    from fastapi import FastAPI
    from fastapi.responses import HTMLResponse

    made = FastAPI(title="puffin-ann", docs_url=None, redoc_url=None, openapi_url=None)

    @made.get("/", response_class=HTMLResponse)
    def show(user: GetUserDep) -> HTMLResponse:
        """Show the indexes whose DAGs this user may read."""
        # Airflow checks nobody's login on a plugin's routes: `GetUserDep` is what does.
        readable = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
        try:
            folder = declarations_folder()
        except EnvironmentProblemError as error:
            return HTMLResponse(page((), nothing=str(error)), headers=HEADERS)
        found = _rows_of(folder, int(time.monotonic() // FRESH_SECONDS))
        return HTMLResponse(page(r for r in found if r.dag_id in readable), headers=HEADERS)

    return made


async def serve(scope: Any, receive: Any, send: Any) -> None:
    """Answer as `application` does; made at the first request."""
    await application()(scope, receive, send)


class PuffinAnnPlugin(AirflowPlugin):
    """Adds the page to Airflow's navigation."""

    name = "puffin_ann"
    fastapi_apps: ClassVar[list[Any]] = [
        {"name": "puffin-ann", "app": serve, "url_prefix": "/puffin-ann"}
    ]
    external_views: ClassVar[list[Any]] = [
        {
            "name": "Vector indexes",
            # Without a leading slash, so that it is right wherever Airflow is served from.
            "href": "puffin-ann/",
            "url_route": "vector-indexes",
            "category": "browse",
            "destination": "nav",
        }
    ]
