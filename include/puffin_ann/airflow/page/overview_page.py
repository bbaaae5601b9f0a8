"""The page of all indexes: counts of states, then a table, the worst first."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from urllib.parse import quote
from weakref import ref

from puffin_ann.airflow.page import charts, figures
from puffin_ann.airflow.page.database import Run
from puffin_ann.airflow.page.markup import Content, Markup, element, joined, page
from puffin_ann.airflow.page.rows import STATES, Row, kind_of
from puffin_ann.airflow.state.document import StateDocument

TITLE = "Vector indexes"
NOTHING = "No index that you may see is declared."
POINTS = 32
"""Of a trend, in a sparkline."""

COLUMNS = (
    ("Index", "text"),
    ("State", "state"),
    ("Recall", "number"),
    ("Coverage", "number"),
    ("Lag", "number"),
    ("Dead", "number"),
    ("Bytes", "number"),
    ("Last run", "number"),
    ("Next", "number"),
    ("Looked at", "number"),
)


def overview_page(rows: Sequence[Row], now_ms: int) -> str:
    """Return the page of all indexes that a user may see.

    Args:
        rows: the worst first.
        now_ms: milliseconds since 1970.
    """
    if not rows:
        return page(TITLE, _main(element("p", NOTHING, class_="nothing")))
    heads = [
        element(
            "th",
            element("button", name, type="button", data_sort=kind),
            scope="col",
            class_=kind,
            aria_sort="ascending" if name == "State" else None,
        )
        for name, kind in COLUMNS
    ]
    table = element(
        "table",
        element("caption", "Vector indexes, the worst first", class_="unseen"),
        element("thead", element("tr", *heads)),
        element("tbody", *(_row(row, now_ms) for row in rows)),
        id="indexes",
    )
    region = element(
        "div", table, class_="scroll", role="region", tabindex=0, aria_label="Table of indexes"
    )
    none = element("p", "No index matches.", id="no-match", class_="nothing", hidden=True)
    return page(TITLE, _main(_filters(rows), region, none))


def badge(row: Row) -> Markup:
    """Return the state of an index as a coloured word."""
    return element("span", row.state, class_=f"badge {css_class(row.state)}")


def css_class(state: str) -> str:
    """Return the class of a state in the style sheet."""
    return f"is-{state.replace(' ', '-')}"


def address(row: Row) -> str:
    """Return the address of an index's page, as seen from the page of all."""
    return f"index?of={quote(row.reference, safe='')}"


def dag_link(dag_id: str, words: str) -> Markup:
    """Return a link to a DAG in Airflow."""
    return element("a", words, href=f"../dags/{quote(dag_id, safe='')}", data_airflow=True)


def run_address(dag_id: str, run_id: str) -> str:
    """Return the address of a run in Airflow."""
    return f"../dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


def outcome(run: Run, now_ms: int) -> Markup:
    """Return a link to a run, in words of its outcome and when that was."""
    when = figures.ago(run.ended_ms or run.began_ms, now_ms)
    words = {"success": "done", "failed": "failed"}.get(run.state, run.state)
    return element(
        "a",
        element("span", words, class_=f"run {run.state}"),
        f" {when}",
        href=run_address(run.dag_id, run.run_id),
        data_airflow=True,
    )


def _main(*content: Content) -> Markup:
    return element("main", element("h1", TITLE), *content)


def _filters(rows: Sequence[Row]) -> Markup:
    counts = Counter(row.state for row in rows)
    every = element(
        "button",
        element("b", len(rows)),
        " all",
        type="button",
        class_="tile",
        data_state="",
        aria_pressed="true",
    )
    tiles = [
        element(
            "button",
            element("b", counts[state]),
            f" {state}",
            type="button",
            class_=f"tile {css_class(state)}",
            data_state=state,
            aria_pressed="false",
        )
        for state in STATES
        if counts[state]
    ]
    search = element(
        "label",
        element("span", "Filter by name or table", class_="unseen"),
        element("input", type="search", id="filter", placeholder="Filter by name or table"),
    )
    tiles_group = element(
        "div", every, *tiles, class_="tiles", role="group", aria_label="Filter by state"
    )
    return element("div", tiles_group, search, class_="filters")


def _row(row: Row, now_ms: int) -> Markup:
    name = (
        dag_link(row.invalid.dag_id, row.index)
        if row.invalid is not None
        else element("a", row.index, href=address(row))
    )
    title = element("th", name, element("small", row.table), scope="row")
    found = [element("small", log) for log in logs(row)]  # beside words that may be cut off
    state = element("td", badge(row), element("small", row.words), *found, data_value=row.rank)
    return element(
        "tr",
        title,
        state,
        _figures(row.document),
        *_times(row, now_ms),
        data_state=row.state,
        data_text=f"{row.index} {row.table}".lower(),
    )


def logs(row: Row) -> list[Markup]:
    """Return links to the logs of the tasks that an index's last runs failed by."""
    found = []
    for broken in row.broke:
        run, task = broken.run, broken.task_id
        at = f"{run_address(run.dag_id, run.run_id)}/tasks/{quote(task, safe='')}"
        found.append(element("a", f"log of {task}", href=at, data_airflow=True))
    return found


_kept: dict[int, tuple[ref[StateDocument], Markup]] = {}
"""Cells of figures by the identity of their document, while that is there.

By its value it would be hashed, all its points with it, whenever it is looked up.
"""


def _figures(document: StateDocument | None) -> Markup:
    """Return the cells of an index's figures: the same from page to page, until it is looked at."""
    if document is None:
        return _no_figures()
    kept = _kept.get(id(document))
    if kept is not None and kept[0]() is document:
        return kept[1]
    made = _figures_of(document)
    key = id(document)
    _kept[key] = (ref(document, lambda _: _kept.pop(key, None)), made)
    return made


@cache
def _no_figures() -> Markup:
    return joined(*(_cell(label, None, figures.NOTHING) for label, _ in COLUMNS[2:7]))


def _figures_of(document: StateDocument) -> Markup:
    if document.overview is None:
        return _no_figures()
    found, limits = document.overview, document.limits
    told = found.figures
    measured = found.evaluated_recall if found.evaluated_recall is not None else told.recall
    target = limits.recall_target if limits else None
    trend = document.trend[-POINTS:]
    recalls = charts.sparkline([point.recall for point in trend], "recall over time", target)
    lags = charts.sparkline([point.lag_seconds for point in trend], "lag over time")
    return joined(
        _cell(
            "Recall", measured, figures.recall(measured), f"of {figures.recall(target)}", recalls
        ),
        _cell("Coverage", told.coverage, figures.share(told.coverage)),
        _cell(
            "Lag",
            told.lag_seconds,
            figures.duration(told.lag_seconds),
            f"of {figures.duration(limits.max_lag_seconds)}" if limits else None,
            lags,
        ),
        _cell("Dead", told.tombstone_ratio, figures.share(told.tombstone_ratio)),
        _cell("Bytes", found.all_bytes, figures.size(found.all_bytes)),
    )


def _times(row: Row, now_ms: int) -> list[Markup]:
    last = row.last
    document = row.document
    looked = document.looked_ms if document else None
    older = (
        f"figures {figures.ago(document.found_ms, now_ms)}"
        if document and document.found_ms and document.outcome == "unreachable"
        else None
    )
    return [
        _cell(
            "Last run",
            last.ended_ms if last else None,
            outcome(last, now_ms) if last else figures.NOTHING,
            element("small", dag_link(last.dag_id, kind_of(last))) if last else None,
        ),
        _cell("Next", row.next_ms, figures.until(row.next_ms, now_ms)),
        _cell("Looked at", looked, figures.ago(looked, now_ms), older),
    ]


def _cell(label: str, value: float | None, *content: Content) -> Markup:
    first, *rest = content
    more = [part if isinstance(part, Markup) else element("small", part) for part in rest if part]
    return element(
        "td",
        joined(first, *more),
        class_="number",
        data_label=label,
        data_value="" if value is None else value,
    )
