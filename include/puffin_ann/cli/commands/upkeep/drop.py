"""`puffin-ann drop`: take an index out of its table."""

from typing import TYPE_CHECKING, Annotated

import typer

from puffin_ann.cli.declarations import find_known_declarations
from puffin_ann.cli.output import AsJson, TableName, console, print_json, say, unless_nobody_answers
from puffin_ann.errors import BadInputError

if TYPE_CHECKING:
    from puffin_ann.lifecycle.maintain.drop import DropReport


def drop(
    table: TableName,
    index: Annotated[str, typer.Argument(help="The published index to drop.")],
    yes: Annotated[bool, typer.Option("--yes", help="With --force: do not ask.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; say what would be done.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Drop it although it is declared, or though it is not known who declares it.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take an index out of its table; other indexes, and statistics of others, stay.

    Its files are removed by 'puffin-ann clean' when their grace is over. An index that is
    not declared here may be declared elsewhere: its name has to be typed, or --force
    given. While a declaration file is not valid, and may declare the index, --force
    alone drops it.

    Example: puffin-ann drop demo.glove.words glove_words --force --dry-run
    """
    from puffin_ann.lifecycle.maintain import drop as dropping

    declared = find_known_declarations(table, index, must_know=not (force or dry_run))
    planned = dropping.drop(table, index, declared, force=force, dry_run=True)
    if not dry_run and not (force and yes):
        if force:
            _ask(planned, as_json=as_json)
        else:
            _ask_for_the_name(planned, may_ask=not (yes or as_json))
    report = planned if dry_run else dropping.drop(table, index, declared, force=force)
    if as_json:
        print_json(report.model_dump())
    else:
        _show(report)


def _ask(planned: "DropReport", *, as_json: bool) -> None:
    if not as_json:
        _show(planned)
    question = f"Drop {planned.index} from {planned.table}?"
    told = "nothing was dropped; give --yes, too, to drop without being asked"
    with unless_nobody_answers(told):
        may_drop = not as_json and typer.confirm(question, default=False)
    if not may_drop:
        raise BadInputError(told)


def _ask_for_the_name(planned: "DropReport", *, may_ask: bool) -> None:
    """Have the index's name typed: that no declaration here names it may be this machine's lack."""
    from puffin_ann.lifecycle.versions.recorded_declaration import Recorded

    told = (
        f"index {planned.index!r} of {planned.table} is published and not declared here, which is "
        f"no sign that nobody needs it; {Recorded(planned.declaration).in_words()}"
    )
    if not may_ask:
        raise BadInputError(
            f"nothing was dropped: {told}; leave out --yes and --json and type its name, or give "
            "--force"
        )
    _show(planned)
    say(told)
    with unless_nobody_answers(
        "nothing was dropped: nobody typed the index's name; type it at a terminal, or give "
        "--force and --yes to drop the index without being asked"
    ):
        name = typer.prompt("Type the index's name to drop it", default="").strip()
    if name != planned.index:
        raise BadInputError("nothing was dropped; that is not the name of the index")


def _show(report: "DropReport") -> None:
    verb = "would be dropped" if report.dry_run else "was dropped"
    versions = f"{len(report.versions)} version{'s' if len(report.versions) != 1 else ''}"
    console.print(
        f"index {report.index} of {report.table} {verb}, {versions}; "
        f"other indexes: {', '.join(report.others) or 'none'}",
        highlight=False,
        soft_wrap=True,
    )
    for action in report.actions:
        say(action)
