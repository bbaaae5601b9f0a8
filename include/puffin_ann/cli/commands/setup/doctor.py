"""`puffin-ann doctor`: is anything wrong with a table's indexes, and can it be repaired."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from puffin_ann.cli.declarations import all_declared_on
from puffin_ann.cli.output import WIDE, AsJson, TableName, console, print_json, say

if TYPE_CHECKING:
    from puffin_ann.lifecycle.maintain.examination.findings import Finding
    from puffin_ann.lifecycle.runs.doctor import Diagnosis

PROBLEMS_LEFT = 8
"""Exit code: problems were found, and are there still."""


def doctor(
    table: TableName,
    fix: Annotated[
        bool, typer.Option("--fix", help="Repair what can be repaired; clean up what may go.")
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
            help="First end the lease of the run that works on an index (or, given the table's "
            "name, of the one that publishes), which goes on without: for a run that is known to "
            "be dead.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find what is wrong with a table's indexes: declarations, registrations, files, checksums.

    Blobs are unpacked, one shard at a time, to tell those that contradict each other.

    Exits with code 8 if problems are found and not repaired.

    Example: puffin-ann doctor demo.glove.words --quick
    """
    from puffin_ann.lifecycle.runs import doctor as doctors
    from puffin_ann.lifecycle.runtime import leases

    taken = (leases.break_lease(table, break_lease),) if break_lease is not None else ()
    with all_declared_on(table) as declared:
        found = doctors.doctor(table, declared.valid, is_all=declared.is_all, fix=fix, quick=quick)
        found = found.model_copy(update={"actions": (*taken, *found.actions)})
        if as_json:
            print_json({**found.model_dump(), "problems_left": found.problems_left})
        else:
            _show_diagnosis(found)
        if found.problems_left:
            raise typer.Exit(PROBLEMS_LEFT)


def _show_diagnosis(found: "Diagnosis") -> None:
    if not found.findings:
        console.print(f"{found.table}: nothing is wrong", highlight=False)
    elif console.width < WIDE:
        say(f"indexes of {found.table}")
        for finding in found.findings:
            _show_lines(finding)
    else:
        grid = Grid(title=f"indexes of {found.table}", title_justify="left")
        for name in ("finding", "index", "what", "remedy"):
            grid.add_column(name, overflow="fold")
        for finding in found.findings:
            kind, indexes, what, file, remedy = _cells(finding)
            grid.add_row(*map(Text, (kind, indexes, f"{what}\n{file}".strip(), remedy)))
        console.print(grid)
    if found.findings and not any(finding.is_problem for finding in found.findings):
        told = "nothing is wrong: what stands in brackets is no problem, but told"
        console.print(f"{found.table}: {told}", highlight=False)
    for action in found.actions:
        say(f"did: {action}")


def _cells(finding: "Finding") -> tuple[str, str, str, str, str]:
    return (
        finding.kind if finding.is_problem else f"({finding.kind})",
        ", ".join(finding.indexes),
        finding.what,
        finding.file,
        "repaired" if finding.repaired else finding.remedy,
    )


def _show_lines(finding: "Finding") -> None:
    """Print a finding in lines, for a terminal that has no room for four columns."""
    kind, indexes, what, file, remedy = _cells(finding)
    console.print(Text(f"{kind} {indexes}".rstrip(), style="bold"))
    for text in (what, file, f"remedy: {remedy}"):
        if text:
            console.print(Padding(Text(text, overflow="fold"), (0, 0, 0, 4)), highlight=False)
