"""Find the declarations that commands name.

A file that is not valid does not keep a command about another index from its work: it is warned of.
A command about all indexes of a table does what it can, and fails at its end.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from puffin_ann.cli.output import warn
from puffin_ann.errors import DeclarationError

if TYPE_CHECKING:
    from puffin_ann.declaration import Declared, IndexDeclaration

DeclaredIndex = Annotated[
    str, typer.Argument(help="A declared index by name, or the path of a declaration file.")
]

VectorColumn = Annotated[
    str | None, typer.Option(help="The vector column.  [default: the only one]")
]
KeyColumn = Annotated[
    str | None,
    typer.Option(help="Column that names a row.  [default: one that tells rows apart]"),
]
Metric = Annotated[
    str | None, typer.Option(help="cosine, l2 or ip.  [default: what the vectors suggest]")
]


def find_declared(index: str) -> "IndexDeclaration":
    """Return the declaration named, from its file or from the declarations folder.

    Raises:
        DeclarationError: there is none, or it is not valid.
    """
    from puffin_ann.declaration import declarations_folders, load_declaration, read_declarations

    if index.endswith((".yaml", ".yml")):
        found = load_declaration(Path(index))
    else:
        known = read_declarations(*declarations_folders())
        found = known.require(index)
        _warn_of(known)
    for warning in found.warnings:
        warn(warning)
    return found


def _warn_of(known: "Declared") -> None:
    for problem in known.problems:
        warn(str(problem))


@dataclass(frozen=True)
class DeclaredOn:
    """What is known here of the declarations of a table's indexes.

    Attributes:
        valid: those that are valid; None if this machine does not know what is declared.
        is_all: whether there are no others: a file that is not valid may declare what none does.
    """

    valid: "list[IndexDeclaration] | None"
    is_all: bool = True

    @property
    def known(self) -> "list[IndexDeclaration] | None":
        """All that are declared; None if that is not known."""
        return self.valid if self.is_all else None


@contextmanager
def all_declared_on(table: str, *, index: str | None = None) -> Iterator[DeclaredOn]:
    """Give the declarations of a table's indexes, to be looked at; fail at the end if one is bad.

    Args:
        table: by name.
        index: the one index that the command is about, for which it is enough to warn.

    Raises:
        DeclarationError: a file is not valid; after the body, if that ended well.
    """
    from puffin_ann.declaration import known_declarations

    known = known_declarations()
    if known is None:
        yield DeclaredOn(None)
        return
    try:
        yield DeclaredOn(known.on(table), is_all=not known.problems)
    except typer.Exit:
        _warn_of(known)
        raise
    if index is not None:
        _warn_of(known)
    elif known.problems:
        raise DeclarationError("; ".join(map(str, known.problems)))


def find_known_declarations(table: str, index: str, *, must_know: bool) -> "list[IndexDeclaration]":
    """Return the valid declarations of a table's indexes, to see whether one is of `index`.

    None are valid where this machine does not know what is declared.

    Args:
        table: by name.
        index: the index that the command is about.
        must_know: fail where a file that is not valid might declare it; else that is warned of.

    Raises:
        DeclarationError: it cannot be known whether the index is declared.
    """
    from puffin_ann.declaration import known_declarations

    known = known_declarations()
    if known is None:
        return []
    found = known.on(table)
    if must_know and known.problems and index not in {declaration.name for declaration in found}:
        raise DeclarationError(
            f"it cannot be known whether index {index!r} is declared: "
            + "; ".join(map(str, known.problems))
        )
    _warn_of(known)
    return found


def declaration_of(table: str, index: str) -> "IndexDeclaration":
    """Return the declaration of one index.

    Raises:
        DeclarationError: it is not declared for this table; names those that are.
    """
    from puffin_ann.declaration import declarations_folders, read_declarations

    found = read_declarations(*declarations_folders())
    if index in found.ambiguous:
        raise found.ambiguous[index]
    _warn_of(found)
    known = found.valid
    for declaration in known:
        if (declaration.table, declaration.name) == (table, index):
            return declaration
    said = ", ".join(f"{declaration.name} on {declaration.table}" for declaration in known)
    if any(declaration.table == table for declaration in known) or not known:
        remedy = "declare it there to have it built and refreshed"
    else:
        remedy = "the table is to be named as it is declared, catalog.namespace.table"
    raise DeclarationError(
        f"no index named {index!r} is declared for table {table} in {found.place}; declared are: "
        f"{said or 'none'}; {remedy}"
    )
