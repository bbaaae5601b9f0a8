"""`puffin-ann drop`: take an index out of its table."""

from typing import TYPE_CHECKING, Annotated

import typer

from puffin_ann.cli.declared import declared_as_far_as_known
from puffin_ann.cli.output import AsJson, TableName, console, print_json
from puffin_ann.errors import BadInputError

if TYPE_CHECKING:
    from puffin_ann.lifecycle.retire import DropReport


def drop(
    table: TableName,
    index: Annotated[str, typer.Argument(help="The published index to drop.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; say what would be done.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Drop it although it is declared.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Publish the table's index file without an index; other indexes and statistics stay.

    Its files are removed by 'puffin-ann clean' when their grace is over. While a
    declaration file is not valid, and may declare the index, --force alone drops it.

    Example: puffin-ann drop demo.glove.words glove_words --force --dry-run
    """
    from puffin_ann.lifecycle import retire

    declared = declared_as_far_as_known(table, index, must_know=not (force or dry_run))
    planned = retire.drop(table, index, declared, force=force, dry_run=True)
    if not (dry_run or yes):
        if not as_json:
            _show(planned)
        if as_json or not typer.confirm(f"Drop {index} from {planned.table}?", default=False):
            raise BadInputError("nothing was dropped; give --yes to drop without being asked")
    report = planned if dry_run else retire.drop(table, index, declared, force=force)
    if as_json:
        print_json(report.model_dump())
    else:
        _show(report)


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
        console.print(f"{action}", highlight=False, markup=False, soft_wrap=True)
