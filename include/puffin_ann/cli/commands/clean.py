"""`puffin-ann clean`: remove what no index needs any more."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table as Grid
from rich.text import Text

from puffin_ann.cli.output import AsJson, TableName, console, print_json, say

if TYPE_CHECKING:
    from puffin_ann.lifecycle.maintain.clean import CleanReport


def clean(
    table: TableName,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Remove nothing; list what would go and what stays, and why."
        ),
    ] = False,
    grace: Annotated[
        str | None,
        typer.Option(
            help="Instead of the declared retention's grace, such as 12h. A build that has written "
            "nothing for that long, and for 15 minutes at least, is presumed failed.",
            show_default=False,
        ),
    ] = None,
    forget_metadata: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Let a foreign metadata file, by its name or location, be ignored from now "
            "on: a stray one, or one of a registration that no catalog has any more. What it names "
            "is then removed as if it were not there. Only files that are named are forgotten, "
            "since another catalog may point to any: may be given several times.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Remove superseded versions beyond their retention, and what failed runs left behind.

    What a metadata file beside the table's own names is kept, if it is not of this catalog entry's
    history: another catalog may have the table, too. Where the table's location is not where its
    metadata lies, nothing is removed.

    Example: puffin-ann clean demo.glove.words --dry-run
    """
    from puffin_ann.lifecycle.maintain import clean as cleaning
    from puffin_ann.lifecycle.runs.maintain import declared_on

    report = cleaning.clean(
        table,
        declared_on(table),
        dry_run=dry_run,
        grace=grace,
        forget=forget_metadata or (),
    )
    if as_json:
        print_json(report.model_dump())
    else:
        _show_clean(report)
    if report.failed:
        raise typer.Exit(1)


def _show_clean(report: "CleanReport") -> None:
    verb = "would go" if report.dry_run else "removed"
    if report.gone:
        grid = Grid(title=f"{verb}, of {report.table}", title_justify="left")
        for name in ("what", "bytes", "where", "why"):
            grid.add_column(name, overflow="fold", justify="right" if name == "bytes" else "left")
        for orphan in report.gone:
            grid.add_row(
                *map(Text, (orphan.kind, f"{orphan.bytes:,}", orphan.location, orphan.reason))
            )
        console.print(grid)
    console.print(f"{report.table}: {_cleaned(report, verb)}", highlight=False, soft_wrap=True)
    for kept in report.kept:
        say(f"kept {kept.kind} {kept.location}: {kept.why}")
    if report.dry_run:
        for kept in report.needed:
            say(f"stays, {kept.kind} {kept.location}: {kept.why}")
    for note in report.notes:
        say(f"note: {note}")
    for file in report.forgotten:
        say(f"ignored{'' if report.dry_run else ' from now on'}: {file}")
    for problem in report.failed:
        say(f"not removed: {problem}")


def _cleaned(report: "CleanReport", verb: str) -> str:
    """Return in one line what went, and how much goes later."""
    if report.gone:
        size = sum(orphan.bytes for orphan in report.gone)
        told = f"{_counted(len(report.gone), 'object')} {verb}, {size:,} bytes"
    else:
        told = "nothing removed" if report.failed else "nothing to delete"
    if report.waiting:
        told += f"; {_counted(len(report.waiting), 'object')} left until the grace has ended"
    return told


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
