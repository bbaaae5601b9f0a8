"""`puffin-ann history`: every run of an index, and which versions are retained."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table as Grid
from rich.text import Text

from puffin_ann.cli.output import WIDE, AsJson, TableName, console, print_json
from puffin_ann.moments import as_utc

if TYPE_CHECKING:
    from puffin_ann.lifecycle.report.history import History, HistoryEntry

_NUMBERS = ("rows", "+", "−", "written", "copied", "seconds", "recall", "coverage")


def history(
    table: TableName,
    index: Annotated[str, typer.Argument(help="A published index.")],
    as_json: AsJson = False,
) -> None:
    """Show runs that published an index, and evaluations: what each did, took and found.

    Example: puffin-ann history demo.glove.words glove_words
    """
    from puffin_ann.lifecycle.report.history import history as histories

    found = histories(table, index)
    if as_json:
        print_json({**found.model_dump(), "retained": found.retained})
    else:
        _show(found)


def _show(found: "History") -> None:
    if console.width >= WIDE:
        console.print(_grid(found))
    else:
        console.print(f"runs of {found.index} on {found.table}", highlight=False, soft_wrap=True)
        for entry in found.entries:
            console.print(_lines(entry), highlight=False, soft_wrap=True)
    versions = "1 version is" if found.retained == 1 else f"{found.retained} versions are"
    console.print(f"{versions} retained", highlight=False)


def _grid(found: "History") -> Grid:
    grid = Grid(title=f"runs of {found.index} on {found.table}", title_justify="left")
    for name in ("when", "run", "trigger", "action"):
        grid.add_column(name, overflow="fold")
    for name in _NUMBERS:
        grid.add_column(name, justify="right", no_wrap=True)
    grid.add_column("retained as", overflow="fold")
    for entry in found.entries:
        grid.add_row(*map(Text, _cells(entry)))
    return grid


def _lines(entry: "HistoryEntry") -> Text:
    """Return a run in two lines, without the figures that it has not."""
    when, run, trigger, action, rows, came, went, written, copied, seconds, recall, share, kept = (
        _cells(entry)
    )
    changed = ", ".join(f"{sign}{count}" for sign, count in (("+", came), ("−", went)) if count)
    told = (
        (rows, f"{rows} rows" + (f" ({changed})" if changed else "")),
        (written, f"{written} bytes written"),
        (copied, f"{copied} copied"),
        (seconds, f"{seconds} s"),
        (recall, f"recall {recall}"),
        (share, f"covers {share} now"),
    )
    head = f"{when}  {action} by {trigger}" + (f", retained as {kept}" if kept else "")
    figures = "; ".join(text for there, text in told if there)
    return Text(f"{head}\n    run {run}" + (f": {figures}" if figures else ""))


def _cells(entry: "HistoryEntry") -> tuple[str, ...]:
    record = entry.record
    changed = (record.rows_added, record.rows_gone)
    # An index of an emptied table has no row; of other runs that tell none it is not known.
    rows = f"{record.rows:,}" if record.rows or any(changed) else ""
    sizes = (record.bytes_written, record.bytes_copied)
    return (
        as_utc(record.at_ms),
        record.run_id,
        entry.trigger,
        record.action,
        rows,
        *(f"{count:,}" if count else "" for count in (*changed, *sizes)),
        f"{record.seconds:.1f}" if record.seconds else "",
        f"{record.recall:.4f}" if record.recall is not None else "",
        f"{entry.coverage:.2%}" if entry.coverage is not None else "",
        f"snapshot {entry.snapshot_id}" if entry.snapshot_id is not None else "",
    )
