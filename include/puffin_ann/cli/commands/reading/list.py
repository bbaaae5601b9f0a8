"""`puffin-ann list`: tables, their vector columns and their indexes."""

from typing import Annotated

import typer

from puffin_ann.cli.output import AsJson, console, print_json, say
from puffin_ann.errors import CatalogUnavailableError, EnvironmentProblemError
from puffin_ann.wording import counted


def list_(
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="CATALOG[.NAMESPACE]",
            help="A catalog of PyIceberg's configuration, or a namespace in one; default: every "
            "catalog.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the tables of a catalog, with their vector columns and indexes.

    Example: puffin-ann list demo
    """
    from puffin_ann.declaration import known_declarations
    from puffin_ann.lake.catalog.listing import catalog_names
    from puffin_ann.lifecycle.report.list_tables import grid, list_tables

    known = known_declarations()
    declared = known.valid if known else ()
    places = [where] if where is not None else catalog_names()
    if not places:
        raise CatalogUnavailableError(
            "no catalog is configured: describe one in the .pyiceberg.yaml that PYICEBERG_HOME "
            "points to, or try 'puffin-ann quickstart FILE.parquet', which makes one"
        )
    tables = [table for place in places for table in list_tables(place, declared)]
    if as_json:
        print_json([table.model_dump() for table in tables])
    elif tables:
        console.print(grid(tables))
    else:
        say(f"no tables in {', '.join(places)}")
    unread = [table.table for table in tables if table.problem is not None]
    if unread:
        raise EnvironmentProblemError(
            f"{counted(len(unread), 'table')} cannot be read: {', '.join(unread)}"
        )
