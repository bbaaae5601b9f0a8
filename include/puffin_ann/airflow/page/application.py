"""The FastAPI application of the page of indexes: who may see which, and how long to wait."""

import asyncio
import time
from functools import cache
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse

from puffin_ann.airflow.page.html import page_of
from puffin_ann.airflow.page.rounds import PATIENCE_SECONDS, Round, Rounds
from puffin_ann.declaration import declarations_folders
from puffin_ann.errors import EnvironmentProblemError

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


@cache
def application() -> Any:
    """Return the FastAPI application of the page, for the users that Airflow knows."""
    app = FastAPI(title="puffin-ann", docs_url=None, redoc_url=None, openapi_url=None)

    rounds = Rounds()

    def begin(user: Any) -> tuple[set[str], Round]:
        readable = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
        return readable, rounds.current(declarations_folders())

    # Not a plain function: those that wait would take all threads that the API server has.
    @app.get("/", response_class=HTMLResponse)
    async def show(user: GetUserDep) -> HTMLResponse:
        """Show the indexes whose DAGs this user may read."""
        # Airflow checks nobody's login on a plugin's routes: `GetUserDep` is what does.
        try:
            readable, found = await run_in_threadpool(begin, user)
        except EnvironmentProblemError as error:
            return HTMLResponse(page_of((), nothing=str(error)), headers=HEADERS)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while found.is_worth_waiting_for() and time.monotonic() < deadline:
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        rows = [row for row in found.rows() if row.dag_id in readable]
        return HTMLResponse(page_of(rows), headers=HEADERS)

    return app
