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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; say what would be done.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Publish an index under the new name of its declaration, without building it.

    Rename the declaration first: its new name has to be declared, the old one must not be. One
    commit brings the new name and drops the old one; the index's history and evaluations go with
    it. Its shards stay in the files they are in, which the new version names.

    In this example include/indexes/glove_words.yaml says `name: glove_words_v2` by now.

    Example: puffin-ann rename glove_words glove_words_v2 --dry-run
    """
    from puffin_ann.lifecycle.maintain import rename as renaming
    from puffin_ann.lifecycle.maintain.former_names import find_declarations

    report = renaming.rename(before, find_declared(index), find_declarations(), dry_run=dry_run)
    if as_json:
        print_json(report.model_dump())
    elif dry_run:
        say(
            f"index {report.before} of {report.table} would be published as {report.after}, "
            f"without being built; {report.bytes_copied:,} bytes would be copied"
        )
    else:
        say(
            f"index {report.before} of {report.table} is published as {report.after}, without "
            f"being built, {report.bytes_copied:,} bytes copied; snapshot {report.snapshot_id}, "
            f"{report.file}"
        )
