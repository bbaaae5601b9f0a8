"""Which name an index was published under before its declaration was renamed, if that shows."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyiceberg.table import Table

from puffin_ann.declaration import IndexDeclaration, known_declarations
from puffin_ann.errors import ColumnNotFoundError, FormatError
from puffin_ann.lake.metadata.dropped import NEVER, find_dropped
from puffin_ann.lake.read.data.vector_column import table_vector_column
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.versions.inventory import (
    IndexFile,
    Inventory,
    live_files,
    take_inventory,
)
from puffin_ann.search.version.index_version import IndexVersion, load_version
from puffin_ann.search.version.versions import all_index_names, find_versions

log = logging.getLogger("puffin_ann")


@dataclass(frozen=True)
class Former:
    """An index as it was published before it was renamed.

    Attributes:
        name: it had then.
        lost: what is wrong with the file it was renamed in; empty if it was not renamed yet.
    """

    name: str
    lost: str = ""

    def advice(self, after: str) -> str:
        """Say how it is published under another name."""
        command = f"'puffin-ann rename {self.name} {after}'"
        if self.lost:
            return (
                f"its version from before it was renamed from {self.name!r} is still there: "
                f"{command} publishes that again as {after!r}, without building it"
            )
        return (
            f"index {self.name!r} is published in the shape that {after!r} declares, and is not "
            f"declared itself: if it was renamed, {command} publishes it as {after!r}, without "
            "building it"
        )


def advice_to_rename(
    table: Table,
    declaration: IndexDeclaration,
    declarations: Iterable[IndexDeclaration] | None = None,
) -> str:
    """Say how to rename an index that seems to have been published under another name.

    Args:
        table: in which no version of the index can be read.
        declaration: of the index.
        declarations: all that are declared; default: those of the folder of declarations.

    Returns:
        A sentence for people; empty if nothing suggests that the index was renamed.
    """
    known = find_declarations() if declarations is None else tuple(declarations)
    former = former_of(table, declaration, known)
    return "" if former is None else former.advice(declaration.name)


def renamings(table: Table, declarations: Iterable[IndexDeclaration]) -> dict[str, str]:
    """Return the published indexes that seem to have been renamed, each with its new name.

    Args:
        table: as it was loaded.
        declarations: all of the table's indexes.
    """
    known = tuple(declarations)
    found = ((former_name(table, declaration, known), declaration.name) for declaration in known)
    return {before: after for before, after in found if before is not None}


def find_declarations() -> tuple[IndexDeclaration, ...]:
    """Return what is declared; nothing where that cannot be told."""
    known = known_declarations()
    if known is None:
        return ()
    for problem in known.problems:
        log.warning("it is unknown whether an index was renamed: %s", problem)
    return () if known.problems else known.valid


def former_of(
    table: Table, declaration: IndexDeclaration, declarations: Iterable[IndexDeclaration]
) -> Former | None:
    """Return what an index seems to have been before its declaration was renamed.

    Args:
        table: in which no version of the index can be read.
        declaration: of the index.
        declarations: all that are declared.
    """
    name = former_name(table, declaration, declarations)
    if name is not None:
        return Former(name)
    for name in _renamed_to(table, declaration.name):
        former = renamed_before(table, name, declaration)
        if former is not None:
            return former
    return None


def former_name(
    table: Table, declaration: IndexDeclaration, declarations: Iterable[IndexDeclaration]
) -> str | None:
    """Return the name that an index was published under before its declaration was renamed.

    That is certain only if just one index of the same table, column and shape is published without
    being declared, and just one is declared without being published.
    """
    known = {other.name: other for other in declarations if other.table == declaration.table}
    shape = declaration.fingerprint()
    published = all_index_names(table)
    waiting = [
        name
        for name, declaration in known.items()
        if name not in published and declaration.fingerprint() == shape
    ]
    if waiting != [declaration.name]:
        return None
    orphans = [
        name for name in published if name not in known and _is_of_shape(table, name, declaration)
    ]
    return orphans[0] if len(orphans) == 1 else None


def _renamed_to(table: Table, after: str) -> list[str]:
    """Return the names that an index had before, unless it was dropped since."""
    marks = find_dropped(table)
    since = marks.get(after, NEVER).at_ms
    return [name for name, mark in marks.items() if mark.renamed_to == after and mark.at_ms > since]


def renamed_before(table: Table, name: str, declaration: IndexDeclaration) -> Former | None:
    """Return an index that was renamed, in files that are lost, if a version before is there."""
    if name not in _renamed_to(table, declaration.name):
        return None
    file = live_files(restored(take_inventory(table), name).published).get(name)
    if file is None or not _holds_shape(table, file, name, declaration):
        return None
    problems = find_versions(table, declaration.name).problems
    return Former(name, "; ".join(problems) or "the file that it was renamed in is gone")


def restored(inventory: Inventory, index: str) -> Inventory:
    """Return the inventory as if no version of an index had been dropped."""

    def with_dropped(file: IndexFile) -> IndexFile:
        back = tuple(replace(name, dropped_ms=0) for name in file.dropped if name.index == index)
        rest = tuple(name for name in file.dropped if name.index != index)
        return replace(file, holds=(*file.holds, *back), dropped=rest)

    return replace(inventory, files=tuple(map(with_dropped, inventory.files)))


def _holds_shape(table: Table, file: IndexFile, name: str, declaration: IndexDeclaration) -> bool:
    try:
        version = load_version(table.io, file.path, name, length=file.bytes)
    except (FormatError, FileNotFoundError):
        return False
    return version is not None and has_shape(table, version, declaration)


def _is_of_shape(table: Table, name: str, declaration: IndexDeclaration) -> bool:
    versions = find_versions(table, name).versions
    return bool(versions) and has_shape(table, versions[0], declaration)


def has_shape(table: Table, version: IndexVersion, declaration: IndexDeclaration) -> bool:
    """Tell whether a version was built as an index is declared, by the shape and the column."""
    if IndexProperties(version.routing.properties).fingerprint != declaration.fingerprint():
        return False
    try:
        column = table_vector_column(table, declaration.column)
    except ColumnNotFoundError:
        return False
    return version.field_id == column.field_id
