"""`puffin-ann check`: whether declarations are valid, for a team's own checks."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from puffin_ann.cli.output import AsJson, print_json, say, warn
from puffin_ann.declaration.json_schema import declaration_schema
from puffin_ann.errors import DeclarationError, PuffinAnnError

if TYPE_CHECKING:
    from puffin_ann.declaration import IndexDeclaration


def check(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Folder of declarations, or one file.  [default: this machine's]"),
    ] = None,
    tables: Annotated[
        bool,
        typer.Option(
            "--tables",
            help="Ask the tables, too: whether an index can be built over each as it is declared, "
            "and whether its key tells rows apart.",
        ),
    ] = False,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema", help="Print the JSON schema of declarations instead, for editors."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check declarations, and with --tables what they name; exit code 2 if one is not valid.

    Example: puffin-ann check include/indexes
    """
    if schema:
        print_json(declaration_schema())
        return
    valid, problems = _checked(folder)
    fitting = []
    for declaration in valid:
        for warning in declaration.warnings:
            warn(warning)
        refused = _refused(declaration) if tables else ""
        if refused:
            problems.append(f"index {declaration.name!r}: {refused}")
        else:
            fitting.append(declaration)
    if as_json:
        print_json({"valid": [declaration.name for declaration in fitting], "problems": problems})
    else:
        for declaration in fitting:
            say(f"{declaration.name}: valid{f', and fits {declaration.table}' if tables else ''}")
    if problems:
        raise DeclarationError("\n".join(problems))


def _checked(place: Path | None) -> "tuple[Sequence[IndexDeclaration], list[str]]":
    """Return the valid declarations, and what is wrong with the others."""
    from puffin_ann.declaration import declarations_folders, load_declaration, read_declarations

    if place is not None and not place.is_dir():
        return (load_declaration(place),), []
    known = read_declarations(*(declarations_folders() if place is None else (place,)))
    problems = [str(problem) for problem in known.problems]
    if not known.valid and not problems:
        problems = [f"{known.place} has no declaration, which are *.yaml files"]
    return known.valid, problems


def _refused(declaration: "IndexDeclaration") -> str:
    """Return why a build over the table would be refused, if it would; warn of a doubtful key."""
    from puffin_ann.lake.catalog.tables import load_table
    from puffin_ann.lifecycle.declare.look import count_doubled
    from puffin_ann.lifecycle.ingest.preconditions import require_fit
    from puffin_ann.search.snapshot_view import live_state

    try:
        table = load_table(declaration.table)
        require_fit(declaration, table, live_state(table, table.metadata.current_snapshot_id))
        if declaration.key is not None:
            doubled, rows = count_doubled(table, declaration.key)
            if doubled:
                whose = f"index {declaration.name!r}: key {declaration.key!r}"
                warn(
                    f"{whose} does not tell rows apart: of the first {rows:,}, {doubled:,} have "
                    "the value of one before"
                )
    except PuffinAnnError as error:
        return str(error)
    return ""
