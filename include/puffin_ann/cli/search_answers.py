"""Show what a search answers: tables for people or JSON, what to warn of, how it was found."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table as Grid
from rich.text import Text
from rich.tree import Tree

from puffin_ann.cli.output import console, warn
from puffin_ann.settings import StalePolicy
from puffin_ann.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from puffin_ann.search.explain.explanation import Explanation


def answers_in_json(
    answers: "pa.Table", labels: list[str], told: "Explanation | None"
) -> dict[str, Any]:
    """Return answers with their report, and how they were found if that was asked.

    Args:
        answers: that were found.
        labels: of the queries.
        told: how.
    """
    explanation = {} if told is None else {"explanation": asdict(told)}
    return {
        **_report(answers),
        **explanation,
        "queries": labels,
        "answers": answers.to_pylist(),
    }


def _report(answers: "pa.Table") -> dict[str, Any]:
    """Return the answers' `SearchReport`."""
    report: dict[str, Any] = json.loads((answers.schema.metadata or {})[b"puffin_ann"])
    return report


def warn_of_answers(answers: "pa.Table", table: str, index: str, stale_policy: StalePolicy) -> None:
    """Warn of what the report of answers tells."""
    from puffin_ann.search.questions.checks import told_zeros

    report = _report(answers)
    rows = report["rows_scanned"]
    if stale_policy == "warn" and rows:
        warn(
            f"{counted(rows, 'row')} outside the index {'was' if rows == 1 else 'were'} compared "
            "one by one; "
            f"'puffin-ann refresh {index}' takes them in"
        )
    if report["queries_of_zeros"]:
        warn(told_zeros(report["queries_of_zeros"]))
    for damage in report["damaged"]:
        warn(f"{damage}; 'puffin-ann doctor {table}' shows more, its --fix repairs")


def why_nothing(answers: "pa.Table", within: float | None, *, others: bool) -> str:
    """Return what to tell where no row is answered.

    Args:
        answers: of none.
        within: the distance that rows had to be at less of.
        others: whether the rows that were asked for are left out.
    """
    from puffin_ann.lake.read.conditions.text import quoted

    report = _report(answers)
    where, snapshot = report["where"], report["snapshot"]
    if where is not None and not report["rows_allowed"]:
        return f"no live row of snapshot {snapshot} with a usable vector satisfies {quoted(where)}"
    told = [] if where is None else [f"satisfies {quoted(where)}"]
    told.append("holds a usable vector" if within is None else f"is nearer than {within:g}")
    return f"no {'other ' if others else ''}live row of snapshot {snapshot} {' and '.join(told)}"


def show_answers(answers: "pa.Table", labels: list[str], columns: list[str]) -> None:
    """Print a table of answers; of several queries and one column, a column for each.

    Args:
        answers: that were found.
        labels: of the queries.
        columns: of the table, that were asked for.
    """
    if len(columns) == 1 and len(labels) > 1:
        console.print(f"nearest {columns[0]}, with distance")
        for grid in _side_by_side(answers, labels, columns[0]):
            console.print()
            console.print(grid)
        return
    grid = Grid()
    shown = ["query", "rank", "distance", *columns]
    for name in shown:
        grid.add_column(name, justify="right" if name in ("rank", "distance") else "left")
    if not columns:
        grid.add_column("locator", overflow="fold")
    for row in answers.to_pylist():
        cells = [labels[row["query"]], str(row["rank"]), f"{row['distance']:.4f}"]
        cells += [str(row[name]) for name in columns]
        if not columns:
            place = row["locator"]
            name = place["file"].rsplit("/", 1)[-1]
            cells.append(f"{name} row group {place['row_group']} row {place['row_offset']}")
        grid.add_row(*cells)
    console.print(grid)


def show_explanation(told: "Explanation") -> None:
    """Print how answers were found, as a tree."""
    from puffin_ann.search.explain.tree import Branch, tree_of

    def add(branch: Branch, to: Tree) -> None:
        for part in branch.below:
            add(part, to.add(Text(part.text)))

    root = tree_of(told)
    shown = Tree(Text(root.text))
    add(root, shown)
    console.print(shown)


def _side_by_side(answers: "pa.Table", labels: list[str], column: str) -> Iterator[Grid]:
    """One column of answers per query, which is how people compare them; as many as fit."""
    cells: dict[tuple[int, int], str] = {}
    for row in answers.to_pylist():
        cells[row["query"], row["rank"]] = f"{row[column]}  {row['distance']:.3f}"
    ranks = range(1, max((rank for _, rank in cells), default=0) + 1)
    unbounded = console.options.update_width(1 << 16)
    left = list(range(len(labels)))
    while left:
        fitting = len(left)
        grid = _grid_of(cells, labels, ranks, left)
        while fitting > 1 and console.measure(grid, options=unbounded).maximum > console.width:
            fitting -= 1
            grid = _grid_of(cells, labels, ranks, left[:fitting])
        yield grid
        left = left[fitting:]


def _grid_of(
    cells: Mapping[tuple[int, int], str],
    labels: list[str],
    ranks: range,
    queries: list[int],
) -> Grid:
    # Without edges four columns of words fit a terminal of 80.
    grid = Grid(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    grid.add_column("rank", justify="right", no_wrap=True, min_width=4)
    for query in queries:
        grid.add_column(labels[query], no_wrap=True)
    for rank in ranks:
        grid.add_row(str(rank), *(cells.get((query, rank), "") for query in queries))
    return grid
