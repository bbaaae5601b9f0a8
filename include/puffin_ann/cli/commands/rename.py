"""`puffin-ann rename`: publish an index under another name, without building it."""

from typing import Annotated

import typer

from puffin_ann.cli.declarations import DeclaredIndex, find_declared
from puffin_ann.cli.output import AsJson, print_json, say


def rename(
    before: Annotated[
        str, typer.Argument(metavar="OLD", help="The name that the index is published under.")
    ],
    index: DeclaredIndex,
    as_json: AsJson = False,
) -> None:
    """Publish an index under the new name of its declaration, without building it.

    Rename the declaration first: its new name has to be declared, the old one must not be. One
    commit brings the new name and drops the old one; the index's history and evaluations go with
    it.

    Example: puffin-ann rename glove_words glove_words_v2
    """
    from puffin_ann.lifecycle.maintain import rename as renaming

    report = renaming.rename(before, find_declared(index), renaming.find_declarations())
    if as_json:
        print_json(report.model_dump())
    else:
        say(
            f"index {report.before} of {report.table} is published as {report.after}, without "
            f"being built; snapshot {report.snapshot_id}, {report.file}"
        )
