"""`puffin-ann status`: what is published, and how well it covers the table."""

from typing import Annotated

import typer

from puffin_ann.cli.declarations import all_declared_on
from puffin_ann.cli.output import AsJson, TableName, console, print_json
from puffin_ann.terminal import printable


def status(
    table: TableName,
    index: Annotated[str | None, typer.Argument(help="One index; default: all.")] = None,
    declaration: Annotated[
        bool,
        typer.Option(
            "--declaration",
            help="Print the declaration that each was published by, as the table records it, as "
            "a declaration file; its 'spark' is never recorded.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the indexes of a table: snapshot, shards, bytes, coverage, recall, time per stage.

    Example: puffin-ann status demo.glove.words glove_words
    """
    from puffin_ann.lake.catalog.tables import load_table
    from puffin_ann.lifecycle.report import status as statuses
    from puffin_ann.lifecycle.versions.recorded_declaration import Recorded

    with all_declared_on(table, index=index) as declared:
        found = statuses.status(load_table(table), index, declared.known)
        if declaration and not as_json:
            documents = "---\n".join(Recorded(status.declaration).as_yaml() for status in found)
            typer.echo(printable(documents), nl=False)
            return
        if as_json:
            print_json([status.model_dump() for status in found])
            return
        for status in found:
            console.print(statuses.grid(status))
