"""`puffin-ann init`: write the declaration of an index for a table."""

from pathlib import Path
from typing import Annotated

import typer

from puffin_ann.cli.declarations import KeyColumn, Metric, VectorColumn
from puffin_ann.cli.output import TableName, say
from puffin_ann.cli.paths import named_path


def init(
    table: TableName,
    column: VectorColumn = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the index.  [default: made of the table's]")
    ] = None,
    key: KeyColumn = None,
    metric: Metric = None,
    to: Annotated[
        Path | None,
        typer.Option(
            parser=named_path,
            metavar="FILE",
            help="A new file, or - for the output.  [default: <name>.yaml in the folder of "
            "declarations]",
        ),
    ] = None,
) -> None:
    """Write the declaration of an index, after a look at the first rows of its table.

    Example: puffin-ann init demo.glove.words --name words_again --to -
    """
    from puffin_ann.declaration import declarations_folders, known_declarations
    from puffin_ann.declaration.folder import are_named
    from puffin_ann.lake.catalog.tables import load_table
    from puffin_ann.lifecycle.declare.look import look_at
    from puffin_ann.lifecycle.declare.suggest import suggest
    from puffin_ann.lifecycle.declare.write import as_yaml, write

    known = known_declarations()
    taken = {declaration.name for declaration in known.valid} if known else set()
    seen = look_at(load_table(table), column, key)
    lines = suggest(seen, name=name, key=key, metric=metric, taken=taken)
    if to is not None and str(to) == "-":
        typer.echo(as_yaml(lines), nl=False)
        return
    name = str(lines[0].value)
    path = declarations_folders()[0] / f"{name}.yaml" if to is None else to
    declaration = write(lines, path)
    say(f"{path} declares index {name} on {declaration.table}")
    if to is None and not are_named():
        say("the folder is this checkout's: let PUFFIN_ANN_DECLARATIONS_DIR name one of yours")
    say(f"next: puffin-ann refresh {name if to is None else path}, which builds it")
