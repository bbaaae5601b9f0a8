"""`puffin-ann doctor` and `puffin-ann clean`: is anything wrong, and may anything go."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table as Grid
from rich.text import Text

from puffin_ann.cli.declarations import all_declared_on
from puffin_ann.cli.output import AsJson, TableName, console, print_json

if TYPE_CHECKING:
    from puffin_ann.lifecycle.maintain.clean import CleanReport
    from puffin_ann.lifecycle.maintain.doctor import Diagnosis

PROBLEMS_LEFT = 8
"""Exit code: problems were found, and are there still."""


def doctor(
    table: TableName,
    fix: Annotated[
        bool, typer.Option("--fix", help="Repair what can be repaired; clean up what is due.")
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Do not read whole files for their checksums, nor unpack them."
        ),
    ] = False,
    break_lease: Annotated[
        str | None,
        typer.Option(
            metavar="INDEX",
            help="First end the lease of the run at work on an index (or, given the table's "
            "name, of the one that publishes), which goes on without: for a run that is known to "
            "be dead.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find what is wrong with a table's indexes: registrations, files, coverage, checksums.

    Blobs are unpacked, one shard at a time, to tell those that contradict each other.

    Leaves with exit code 8 if problems are found and not repaired.

    Example: puffin-ann doctor demo.glove.words --quick
    """
    from puffin_ann.lifecycle.maintain import doctor as doctors
    from puffin_ann.lifecycle.runs.maintain import declared_on
    from puffin_ann.lifecycle.runtime.leases import take_away

    if fix:
        declared_on(table)  # nothing is removed while it is not known what is to be kept
    taken = (take_away(table, break_lease),) if break_lease is not None else ()
    with all_declared_on(table) as declared:
        found = doctors.doctor(table, declared, fix=fix, quick=quick)
        found = found.model_copy(update={"actions": (*taken, *found.actions)})
        if as_json:
            print_json({**found.model_dump(), "problems_left": found.problems_left})
        else:
            _show_diagnosis(found)
        if found.problems_left:
            raise typer.Exit(PROBLEMS_LEFT)


def clean(
    table: TableName,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Remove nothing; list what would go, and why.")
    ] = False,
    grace: Annotated[
        str | None,
        typer.Option(
            help="Instead of the declared retention's grace, such as 12h. A build that has written "
            "nothing for that long, and for 15 minutes at least, is taken for a failed one.",
            show_default=False,
        ),
    ] = None,
    forget_metadata: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Let a foreign metadata file, by its name or location, be of no account from now "
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


def _show_diagnosis(found: "Diagnosis") -> None:
    if not found.findings:
        console.print(f"{found.table}: nothing is wrong", highlight=False)
    else:
        grid = Grid(title=f"indexes of {found.table}", title_justify="left")
        for name in ("finding", "index", "what", "remedy"):
            grid.add_column(name, overflow="fold")
        for one in found.findings:
            cells = (
                one.kind if one.is_problem else f"({one.kind})",
                ", ".join(one.indexes),
                f"{one.what}\n{one.file}".strip(),
                "repaired" if one.repaired else one.remedy,
            )
            grid.add_row(*map(Text, cells))
        console.print(grid)
        if not any(one.is_problem for one in found.findings):
            console.print(f"{found.table}: nothing is wrong", highlight=False)
    for action in found.actions:
        _say(f"did: {action}")


def _show_clean(report: "CleanReport") -> None:
    verb = "would go" if report.dry_run else "removed"
    if report.gone:
        grid = Grid(title=f"{verb}, of {report.table}", title_justify="left")
        for name in ("what", "bytes", "where", "why"):
            grid.add_column(name, overflow="fold", justify="right" if name == "bytes" else "left")
        for one in report.gone:
            grid.add_row(*map(Text, (one.kind, f"{one.bytes:,}", one.location, one.why)))
        console.print(grid)
    console.print(f"{report.table}: {_cleaned(report, verb)}", highlight=False, soft_wrap=True)
    for kept in report.kept:
        _say(f"kept {kept.kind} {kept.location}: {kept.why}")
    for note in report.notes:
        _say(f"note: {note}")
    for file in report.forgotten:
        _say(f"of no account{'' if report.dry_run else ' from now on'}: {file}")
    for problem in report.failed:
        _say(f"not removed: {problem}")


def _cleaned(report: "CleanReport", verb: str) -> str:
    """Return in one line what went, and how much goes later."""
    if report.gone:
        size = sum(one.bytes for one in report.gone)
        told = f"{_counted(len(report.gone), 'object')} {verb}, {size:,} bytes"
    else:
        told = "nothing removed" if report.failed else "nothing to delete"
    if report.waiting:
        told += f"; {_counted(len(report.waiting), 'object')} left until the grace has ended"
    return told


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _say(line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
