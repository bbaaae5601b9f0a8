"""`puffin-ann clean`: remove what no index needs any more."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table as Grid
from rich.text import Text

from puffin_ann.cli.output import AsJson, console, print_json, say, unless_nobody_answers
from puffin_ann.errors import BadInputError
from puffin_ann.wording import counted

if TYPE_CHECKING:
    from puffin_ann.lifecycle.maintain.clean import CleanReport
    from puffin_ann.lifecycle.maintain.clean_location import LocationReport


def clean(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="The table, as catalog.namespace.table; with --location, the catalog alone.",
        ),
    ],
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
    location: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Remove what a table left there that was dropped without PURGE: index files and "
            "staging of ours. Refused where a table of any configured catalog uses the location, "
            "or something there was written within --grace (7d).",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="With --location, remove without being asked.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove superseded versions beyond their retention, and what failed runs left behind.

    What a metadata file beside the table's own names is kept, if it is not of this catalog entry's
    history: another catalog may have the table, too. Where the table's location is not where its
    metadata lies, nothing is removed. What is left of a table that was dropped is removed by the
    catalog's name and --location.

    Example: puffin-ann clean demo.glove.words --dry-run
    """
    if location is not None:
        if forget_metadata:
            raise BadInputError("give either --location or --forget-metadata, not both")
        _clean_location(table, location, dry_run, grace, force, as_json=as_json)
        return
    if force:
        raise BadInputError("--force is for --location alone; nothing else is asked")
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


def _clean_location(
    catalog: str, location: str, dry_run: bool, grace: str | None, force: bool, *, as_json: bool
) -> None:
    from puffin_ann.lifecycle.maintain.clean_location import GRACE, clean_location

    grace = grace or GRACE
    report = clean_location(catalog, location, dry_run=True, grace=grace)
    if not dry_run and (report.gone or report.uploads):
        if not force:
            _ask_for_the_location(report, may_ask=not as_json)
        report = clean_location(catalog, location, grace=grace)
    if as_json:
        print_json(report.model_dump())
    else:
        _show_location(report)
    if report.failed:
        raise typer.Exit(1)


def _ask_for_the_location(report: "LocationReport", *, may_ask: bool) -> None:
    """Have the location typed: a table of a catalog that is not configured here may be there."""
    if not may_ask:
        raise BadInputError("nothing was removed: with --json, give --force or --dry-run")
    _show_location(report)
    told = "nothing was removed: nobody typed the location; type it at a terminal, or give --force"
    with unless_nobody_answers(told):
        typed = typer.prompt("Type the location to remove these", default="").strip()
    if typed.rstrip("/") != report.location:
        raise BadInputError("nothing was removed; that is not the location")


def _show_location(report: "LocationReport") -> None:
    verb = "would go" if report.dry_run else "removed"
    for uri in report.gone:
        say(f"{verb}: {uri}")
    aborted = "would be aborted" if report.dry_run else "aborted"
    for uri in report.uploads:
        say(f"{aborted}: an upload of {uri} that nobody completed")
    told = f"{counted(len(report.gone), 'object')} {verb}, {report.bytes:,} bytes"
    nothing = "nothing removed" if report.failed else "nothing of ours is there that may go"
    console.print(
        f"{report.location}: {told if report.gone else nothing}", highlight=False, soft_wrap=True
    )
    for sentence in (*report.kept, *report.tables):
        say(f"note: {sentence}")
    for problem in report.failed:
        say(f"not removed: {problem}")


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
        told = f"{counted(len(report.gone), 'object')} {verb}, {size:,} bytes"
    else:
        told = "nothing removed" if report.failed else "nothing to delete"
    if report.waiting:
        told += f"; {counted(len(report.waiting), 'object')} left until the grace has ended"
    return told
