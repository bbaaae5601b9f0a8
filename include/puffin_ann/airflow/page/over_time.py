"""Figures of an index over time: a card for each, and one table of them all.

The browser draws each card's picture from the table, by uPlot; whoever sees no picture, or runs no
script, has the table.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from puffin_ann.airflow.page import figures
from puffin_ann.airflow.page.cards import card
from puffin_ann.airflow.page.markup import Markup, element
from puffin_ann.airflow.state.document import Point, StateDocument
from puffin_ann.lifecycle.report.overview import IndexOverview

SHOWN_LIMIT = 5
"""A limit is drawn unless it is so many times what was found: the line would lie at the bottom."""


@dataclass(frozen=True)
class _Column:
    """One figure: its name, what it is at a moment, and how people read it."""

    name: str
    of: Callable[[Point], float | None]
    tell: Callable[[float | None], str]


COLUMNS = (
    _Column("Recall", lambda point: point.recall, figures.recall),
    _Column("Coverage", lambda point: point.coverage, lambda value: figures.share(value, 2)),
    _Column("Lag", lambda point: point.lag_seconds, figures.duration),
    _Column("Bytes", lambda point: point.bytes, figures.size),
)


def figure_cards(document: StateDocument, found: IndexOverview) -> list[Markup]:
    """Return a card for each figure: how it is now, what is asked for, and how it came about."""
    told, limits = found.figures, document.limits
    target = limits.recall_target if limits else None
    least = limits.min_coverage if limits else None
    most_lag = limits.max_lag_seconds if limits else None
    measured = found.evaluated_recall if found.evaluated_recall is not None else told.recall
    spread = found.recall_range
    interval = (
        f"at its build {figures.recall(told.recall)}, 95 % {spread[0]:.3f} to {spread[1]:.3f}; "
        if spread
        else ""
    )
    behind = f"{figures.count(found.rows_to_scan)} rows to scan, "
    behind += f"{figures.count(found.rows_masked)} masked"
    now = (
        (figures.recall(measured), f"{interval}target {figures.recall(target)}", target),
        (
            figures.share(told.coverage, 2),
            f"{behind}; at least {figures.share(least)}",
            least,
        ),
        (
            figures.duration(told.lag_seconds),
            f"of the oldest change; at most {figures.duration(most_lag)}",
            most_lag,
        ),
        (
            figures.size(found.all_bytes),
            f"of all versions' files; the newest version is {figures.size(told.bytes)}",
            None,
        ),
    )
    return [
        card(
            column.name,
            element("p", figure, class_="figure"),
            element("small", words),
            _picture(column, document.trend, limit),
            width="quarter",
        )
        for column, (figure, words, limit) in zip(COLUMNS, now, strict=True)
    ]


def table_card(trend: Sequence[Point]) -> Markup | None:
    """Return the card with the table of all figures over time, closed; None without any."""
    if not trend:
        return None
    heads = [element("th", "when", scope="col", data_column="at")] + [
        element("th", column.name, scope="col", class_="number", data_column=column.name.lower())
        for column in COLUMNS
    ]
    table = element(
        "table",
        element("caption", "Figures over time, the newest first", class_="unseen"),
        element("thead", element("tr", *heads)),
        element("tbody", *(_line(point) for point in reversed(trend))),
        id="over-time",
    )
    region = element(
        "div", table, class_="scroll low", role="region", tabindex=0, aria_label="Figures over time"
    )
    return element(
        "details", element("summary", "These figures over time, as a table"), region, class_="wide"
    )


def _line(point: Point) -> Markup:
    cells = [
        element(
            "td",
            column.tell(column.of(point)),
            class_="number",
            data_value="" if column.of(point) is None else column.of(point),
        )
        for column in COLUMNS
    ]
    return element("tr", element("td", _moment(point.at_ms), data_value=point.at_ms), *cells)


def _moment(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def _picture(column: _Column, trend: Sequence[Point], limit: float | None) -> Markup:
    """Return the place of a picture, which tells in words what is to be seen on it."""
    known = [value for point in trend if (value := column.of(point)) is not None]
    if not known:
        return element("span", figures.NOTHING, class_="nothing")
    drawn = limit is not None and limit <= SHOWN_LIMIT * max(known)
    words = (
        f"{column.name} over time, {_moment(trend[0].at_ms)} to {_moment(trend[-1].at_ms)}: "
        f"from {column.tell(known[0])} to {column.tell(known[-1])}, "
        f"lowest {column.tell(min(known))}, highest {column.tell(max(known))}"
    )
    if drawn:
        words += f"; the dashed line is at {column.tell(limit)}"
    return element(
        "div",
        role="img",
        class_="plot",
        aria_label=words,
        data_column=column.name.lower(),
        data_limit=limit if drawn else None,
    )
