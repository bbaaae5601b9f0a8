"""`puffin-ann check`: whether declarations are valid, for a team's own checks."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from puffin_ann.cli.output import AsJson, print_json, say, warn
from puffin_ann.declaration.json_schema import declaration_schema
from puffin_ann.errors import DeclarationError

if TYPE_CHECKING:
    from puffin_ann.declaration import IndexDeclaration


def check(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Folder of declarations, or one file.  [default: this machine's]"),
    ] = None,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema", help="Print the JSON schema of declarations instead, for editors."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check declarations without looking at their tables; exit code 2 if one is not valid.

    Example: puffin-ann check include/indexes
    """
    if schema:
        print_json(declaration_schema())
        return
    valid, problems = _checked(folder)
    if as_json:
        print_json({"valid": valid, "problems": problems})
    else:
        for name in valid:
            say(f"{name}: valid")
    if problems:
        raise DeclarationError("\n".join(problems))


def _checked(place: Path | None) -> tuple[list[str], list[str]]:
    """Return the names of valid declarations, and what is wrong with the others."""
    from puffin_ann.declaration import declarations_folders, load_declaration, read_declarations

    if place is not None and not place.is_dir():
        found: Sequence[IndexDeclaration] = (load_declaration(place),)
        problems: list[str] = []
    else:
        known = read_declarations(*(declarations_folders() if place is None else (place,)))
        found = known.valid
        problems = [str(problem) for problem in known.problems]
        if not found and not problems:
            problems = [f"{known.place} has no declaration, which are *.yaml files"]
    for declaration in found:
        for warning in declaration.warnings:
            warn(warning)
    return [declaration.name for declaration in found], problems
