"""A page of the Airflow UI: the declared vector indexes, and the state each is in.

Every Airflow process imports this file, workers included, while only the API server shows the page:
so whatever costs time is imported when the page is first asked for.
"""

import asyncio
import time
from collections.abc import Iterable
from functools import cache
from html import escape
from typing import Any, ClassVar

from airflow.plugins_manager import AirflowPlugin

from puffin_ann.declaration import declarations_folder
from puffin_ann.errors import EnvironmentProblemError
from puffin_ann_rows import PATIENCE_SECONDS, Board, Round, Row

LOOK_AGAIN_SECONDS = 0.05
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
    from fastapi.concurrency import run_in_threadpool
    from fastapi.responses import HTMLResponse

    made = FastAPI(title="puffin-ann", docs_url=None, redoc_url=None, openapi_url=None)

    board = Board()

    def begin(user: Any) -> tuple[set[str], Round]:
        readable = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
        return readable, board.round(declarations_folder())

    # Not a plain function: those that wait would take all threads that the API server has.
    @made.get("/", response_class=HTMLResponse)
    async def show(user: GetUserDep) -> HTMLResponse:
        """Show the indexes whose DAGs this user may read."""
        # Airflow checks nobody's login on a plugin's routes: `GetUserDep` is what does.
        try:
            readable, found = await run_in_threadpool(begin, user)
        except EnvironmentProblemError as error:
            return HTMLResponse(page((), nothing=str(error)), headers=HEADERS)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while found.is_worth_waiting_for() and time.monotonic() < deadline:
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        rows = [row for row in found.rows() if row.dag_id in readable]
        return HTMLResponse(page(rows), headers=HEADERS)

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
