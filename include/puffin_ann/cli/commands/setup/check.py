"""`puffin-ann check`: whether declarations are valid, for a team's own checks."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from puffin_ann.cli.output import AsJson, print_json, say, warn
from puffin_ann.cli.paths import named_path
from puffin_ann.declaration.json_schema import declaration_schema
from puffin_ann.errors import DeclarationError, EnvironmentProblemError, PuffinAnnError

if TYPE_CHECKING:
    from puffin_ann.declaration import IndexDeclaration


def check(
    folder: Annotated[
        Path | None,
        typer.Argument(
            parser=named_path,
            metavar="FOLDER",
            help="Folder of declarations, or one file.  [default: this machine's]",
        ),
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
    """Check declarations, and with --tables what they name.

    Exits with code 2 if one is not valid, or cannot be built; 6 if a catalog does not answer.

    Example: puffin-ann check include/indexes
    """
    if schema:
        print_json(declaration_schema())
        return
    valid, problems = _checked(folder)
    for declaration in valid:
        for warning in declaration.warnings:
            warn(warning)
    silent: list[EnvironmentProblemError] = []
    fitting = [each for each in valid if not tables or _fits(each, problems, silent)]
    if as_json:
        print_json({"valid": [declaration.name for declaration in fitting], "problems": problems})
    else:
        for declaration in fitting:
            say(f"{declaration.name}: valid{f', and fits {declaration.table}' if tables else ''}")
    if problems:
        raise DeclarationError("\n".join([*problems, *map(str, silent[:1])]))
    if silent:
        raise silent[0]


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


def _fits(
    declaration: "IndexDeclaration", problems: list[str], silent: list[EnvironmentProblemError]
) -> bool:
    """Tell whether an index can be built over its table; note why not, or what does not answer."""
    try:
        _require_fit(declaration)
    except EnvironmentProblemError as error:
        silent.append(error)
    except PuffinAnnError as error:
        problems.append(f"index {declaration.name!r}: {error}")
    else:
        return True
    return False


def _require_fit(declaration: "IndexDeclaration") -> None:
    """Refuse an index that cannot be built over its table; warn of a doubtful key.

    Raises:
        EnvironmentProblemError: catalog or store do not answer.
        PuffinAnnError: why it cannot.
    """
    from puffin_ann.lake.catalog.tables import load_table
    from puffin_ann.lifecycle.declare.look import count_doubled
    from puffin_ann.lifecycle.ingest.preconditions import require_fit
    from puffin_ann.search.version.snapshot_view import live_state

    table = load_table(declaration.table)
    require_fit(declaration, table, live_state(table, table.metadata.current_snapshot_id))
    if declaration.key is None:
        return
    doubled, rows = count_doubled(table, declaration.key)
    if doubled:
        warn(
            f"index {declaration.name!r}: key {declaration.key!r} does not tell rows apart: of the "
            f"first {rows:,}, {doubled:,} have the value of one before"
        )
