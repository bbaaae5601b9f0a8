"""Find the declarations that commands name."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from puffin_ann.errors import DeclarationError

if TYPE_CHECKING:
    from puffin_ann.declaration import IndexDeclaration

DeclaredIndex = Annotated[
    str, typer.Argument(help="A declared index by name, or the path of a declaration file.")
]


def find_declared(index: str) -> "IndexDeclaration":
    """Return the declaration named, from its file or from the declarations folder."""
    from puffin_ann.declaration import load_declaration, load_declarations
    from puffin_ann.settings import settings

    if index.endswith((".yaml", ".yml")):
        return load_declaration(Path(index))
    folder = settings().declarations_dir
    declared = {one.name: one for one in load_declarations(folder)}
    if index not in declared:
        raise DeclarationError(
            f"no index named {index!r} is declared in {folder}; declared are: "
            + (", ".join(declared) or "none")
        )
    return declared[index]


def declared_on(table: str) -> "list[IndexDeclaration] | None":
    """Return the declarations of a table's indexes; None if there is no folder of declarations."""
    from puffin_ann.declaration import load_declarations
    from puffin_ann.settings import settings

    folder = settings().declarations_dir
    if not folder.is_dir():
        return None
    return [one for one in load_declarations(folder) if one.table == table]


def declaration_of(table: str, index: str) -> "IndexDeclaration":
    """Return the declaration of one index.

    Raises:
        DeclarationError: it is not declared for this table; names those that are.
    """
    from puffin_ann.declaration import load_declarations
    from puffin_ann.settings import settings

    folder = settings().declarations_dir
    known = load_declarations(folder)
    for one in known:
        if (one.table, one.name) == (table, index):
            return one
    said = ", ".join(f"{one.name} on {one.table}" for one in known)
    if any(one.table == table for one in known) or not known:
        remedy = "declare it there to have it built and refreshed"
    else:
        remedy = "the table is to be named as it is declared, catalog.namespace.table"
    raise DeclarationError(
        f"no index named {index!r} is declared for table {table} in {folder}; declared are: "
        f"{said or 'none'}; {remedy}"
    )
