"""The FastAPI application of the page of indexes: who may see which."""

import gc
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import FastAPI, Header, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse

from puffin_ann.airflow.page import database
from puffin_ann.airflow.page.index_page import index_page
from puffin_ann.airflow.page.overview_page import overview_page
from puffin_ann.airflow.page.permissions import may_start, readable_dags
from puffin_ann.airflow.page.query import QueryRefused, nearest
from puffin_ann.airflow.page.rows import Row, rows_of

STATIC = Path(__file__).parent / "static"
MEDIA = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
HEADERS = {
    # Our own files alone are loaded, whatever a table or an error message is called.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class _Seen:
    rows: list[Row]
    now_ms: int

    def require(self, reference: str) -> Row:
        """Return an index that the user may see; others are as if they were not there."""
        for row in self.rows:
            if row.reference == reference and row.invalid is None:
                return row
        raise HTTPException(404, "there is no such index, or you may not see it", HEADERS)


def _see(user: Any) -> _Seen:
    now_ms = time.time_ns() // 1_000_000
    return _Seen(rows_of(database.read(readable_dags(user)), now_ms), now_ms)


@cache
def application() -> Any:
    """Return the FastAPI application of the page, for the users that Airflow knows.

    Airflow checks nobody's login on a plugin's routes: `GetUserDep` of each route is what does.
    """
    _leave_to_itself_what_is_loaded()
    app = FastAPI(title="puffin-ann", docs_url=None, redoc_url=None, openapi_url=None)
    app.middleware("http")(_with_headers)
    app.exception_handler(Exception)(_failed)
    loaded = {file.name: file.read_bytes() for file in STATIC.iterdir() if file.suffix in MEDIA}

    @app.get("/", response_class=HTMLResponse)
    def show(user: GetUserDep) -> HTMLResponse:
        """Show the indexes whose DAGs this user may read."""
        seen = _see(user)
        return HTMLResponse(overview_page(seen.rows, seen.now_ms), headers=HEADERS)

    @app.get("/index", response_class=HTMLResponse)
    def show_index(of: str, user: GetUserDep) -> HTMLResponse:
        """Show one index."""
        seen = _see(user)
        row = seen.require(of)
        runs = database.history(dag.dag_id for dag in row.dags.values())
        startable = [kind for kind, dag in row.dags.items() if may_start(user, dag.dag_id)]
        return HTMLResponse(index_page(row, runs, startable, seen.now_ms), headers=HEADERS)

    @app.get("/api")
    def tell(user: GetUserDep) -> JSONResponse:
        """Tell monitoring the same as the page shows."""
        seen = _see(user)
        return JSONResponse({"indexes": [_told(row) for row in seen.rows]}, headers=HEADERS)

    @app.get("/query")
    async def search(of: str, key: str, user: GetUserDep, where: str = "") -> JSONResponse:
        """Search by a row's key: for those who may start runs, since it reads the table."""
        seen = await run_in_threadpool(_see, user)
        row = seen.require(of)
        found = row.document.overview if row.document else None
        if not any(may_start(user, dag.dag_id) for dag in row.dags.values()):
            raise HTTPException(403, "only who may start runs of the index may search it", HEADERS)
        if found is None or found.key is None:
            raise HTTPException(409, "the index is not built, or declares no key", HEADERS)
        try:
            given = (row.table, row.index, found.key, key, where.strip())
            answer = await run_in_threadpool(nearest, *given)
        except QueryRefused as error:
            raise HTTPException(422, str(error), HEADERS) from None
        return JSONResponse(answer.model_dump(), headers=HEADERS)

    @app.get("/static/{name}")
    def static(
        name: str, user: GetUserDep, if_none_match: Annotated[str, Header()] = ""
    ) -> Response:
        """Return a file that the page loads, unless the browser has it."""
        if name not in loaded:
            raise HTTPException(404, headers=HEADERS)
        return _file(name, loaded[name], if_none_match)

    return app


async def _with_headers(
    request: Request, answer: Callable[[Request], Awaitable[Response]]
) -> Response:
    """Give every answer the headers, those to what no route takes or a user may not have, too."""
    made = await answer(request)
    for name, value in HEADERS.items():
        made.headers.setdefault(name, value)
    return made


async def _failed(_: Request, __: Exception) -> Response:
    """Answer where a route failed, which is outside of middleware; Airflow logs the error."""
    return PlainTextResponse(
        "the page failed: the log of Airflow's API server says why", 500, HEADERS
    )


def _leave_to_itself_what_is_loaded() -> None:
    """Have Python's collector of garbage pass over what there is, which lives as long as Airflow.

    It is a million objects, of Airflow for the most part; to look through them took 0.2 s of some
    pages, whose own objects bring a round of the collector about.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def _file(name: str, data: bytes, known: str) -> Response:
    """Return a file, or that it is the one that the browser knows by its tag."""
    tag = f'"{sha256(data).hexdigest()}"'
    headers = HEADERS | {"Cache-Control": "private, no-cache", "ETag": tag}
    if known == tag:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=MEDIA[Path(name).suffix], headers=headers)


def _told(row: Row) -> dict[str, Any]:
    document = row.document
    return {
        "index": row.index,
        "table": row.table,
        "state": row.state,
        "reason": row.words,
        "dags": {kind: dag.dag_id for kind, dag in row.dags.items()},
        "last_run": row.last and vars(row.last),
        "next_run_ms": row.next_ms,
        "looked_ms": document.looked_ms if document else None,
        "found_ms": document.found_ms if document else None,
        "limits": document.limits.model_dump() if document and document.limits else None,
        "figures": (
            document.overview.figures.model_dump() if document and document.overview else None
        ),
    }
