"""`puffin-ann plan`: what the next run would do, why, and what it would take."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table as Grid
from rich.text import Text

from puffin_ann.cli.declarations import declaration_of
from puffin_ann.cli.output import (
    NOTHING,
    WIDE,
    AsJson,
    TableName,
    console,
    in_words,
    print_json,
    say,
)

if TYPE_CHECKING:
    from puffin_ann.lifecycle.policy.decision import Decision
    from puffin_ann.lifecycle.report.plan import Preview

_ALL = "all"


def plan(
    table: TableName,
    index: Annotated[str, typer.Argument(help="A declared index.")],
    maintenance: Annotated[
        bool,
        typer.Option(
            "--maintenance",
            help="As in a maintenance window: also what is required although nothing changed.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a refresh would do to each shard, with its reason, rows, bytes and seconds.

    Example: puffin-ann plan demo.glove.words glove_words
    """
    from puffin_ann.lifecycle.report.plan import preview

    found = preview(table, declaration_of(table, index), maintenance=maintenance)
    if as_json:
        print_json(_as_json(found))
    else:
        _show(found)


def _as_json(found: "Preview") -> dict[str, object]:
    data = found.model_dump()
    decision = found.decision
    data["decision"] |= {
        "bytes_written": decision.bytes_written,
        "bytes_copied": decision.bytes_copied,
        "seconds": decision.seconds,
    }
    return data


def _show(found: "Preview") -> None:
    decision = found.decision
    if decision.action != "none" or decision.shards:
        title = f"plan for {found.index} on {found.table}"
        if console.width >= WIDE:
            console.print(_grid(title, decision))
        else:
            say(title)
            for row in _rows(decision):
                console.print(_lines(*row), highlight=False, soft_wrap=True)
    console.print(
        f"{in_words(decision.action)}: {decision.reason}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _grid(title: str, decision: "Decision") -> Grid:
    grid = Grid(title=title, title_justify="left")
    for name in ("shard", "action", "reason"):
        grid.add_column(name, overflow="fold")
    for name in ("rows", "written", "copied", "seconds"):
        grid.add_column(name, justify="right", no_wrap=True)
    for row in _rows(decision):
        grid.add_row(*map(Text, row))
    return grid


def _lines(
    shard: str, action: str, reason: str, rows: str, written: str, copied: str, seconds: str
) -> Text:
    """Return what is done to a shard, and under it the reason, without figures that are none."""
    figures = [
        f"{count} {what}"
        for count, what in ((rows, "rows"), (written, "bytes written"), (copied, "copied"))
        if count != "0"
    ]
    if not shard:
        name, reason = reason, ""
    else:
        name = f"{shard if shard == _ALL else f'shard {shard}'}: {action}"
    if action != NOTHING:
        figures.append(f"{seconds} s")
    head = "; ".join([name, *figures])
    return Text(f"{head}\n    {reason}" if reason else head)


def _rows(decision: "Decision") -> list[tuple[str, str, str, str, str, str, str]]:
    rows = []
    for shard in decision.shards:
        name = f"{shard.shard_id}" if shard.kind == "graph" else f"{shard.shard_id} (delta)"
        reason = shard.reason if shard.reason != decision.reason else ""
        figures = (shard.rows, shard.bytes_written, shard.bytes_copied, shard.seconds)
        rows.append(_row(name, shard.action, reason, *figures))
    delta = decision.delta
    if delta is not None and delta.rows:  # without any, none is made
        name = f"{delta.shard_id} (new delta)"
        figures = (delta.rows, delta.bytes_written, 0, delta.seconds)
        rows.append(_row(name, "add", delta.reason, *figures))
    if decision.action != "none":
        what = "the whole index" if decision.action == "build" else "rows read, routing, coverage"
        figures = (decision.rows_added, decision.other_bytes, 0, decision.other_seconds)
        rows.append(_row("", "", what, *figures))
    changed = decision.rows_added + decision.rows_gone
    figures = (changed, decision.bytes_written, decision.bytes_copied, decision.seconds)
    return [*rows, _row(_ALL, decision.action, "", *figures)]


def _row(
    shard: str, action: str, reason: str, rows: int, written: int, copied: int, seconds: float
) -> tuple[str, str, str, str, str, str, str]:
    said = in_words(action)
    return (shard, said, reason, f"{rows:,}", f"{written:,}", f"{copied:,}", f"{seconds:.2f}")
