"""The column that a declaration names as `key`: checked when a run is planned, before any work."""

from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import ColumnNotFoundError, UnsupportedColumnError
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.wording import meant


def require_key(table: Table, declaration: IndexDeclaration) -> None:
    """Check that rows can be told apart by the declared key, if there is one.

    Raises:
        ColumnNotFoundError: the table has no such column; tells what it is called now, if it was
            renamed, else which columns there are.
        UnsupportedColumnError: it holds lists, maps or structs.
    """
    if declaration.key is not None:
        require_key_column(table, declaration.key, f"key of index {declaration.name!r}")


def require_key_column(table: Table, key: str, whose: str) -> None:
    """Check that rows can be told apart by a column.

    Args:
        table: that has them.
        key: name of the column.
        whose: begins the messages.

    Raises:
        ColumnNotFoundError, UnsupportedColumnError: as `require_key`.
    """
    fields = {field.name: field for field in table.schema().fields}
    if key not in fields:
        now = renamed_to(table, key)
        raise ColumnNotFoundError(
            f"{whose}: {name_of(table)} has no top-level column {key!r}"
            + (
                f"; it is called {now!r} now: change `key:` in the declaration to that"
                if now is not None
                else f"{meant(key, fields)}; it has: {', '.join(fields)}"
            )
        )
    kind = fields[key].field_type
    if not isinstance(kind, PrimitiveType):
        raise UnsupportedColumnError(
            f"{whose}: column {key!r} of {name_of(table)} is of type {kind}; a key is a single "
            "value, such as a number or a string"
        )


def renamed_to(table: Table, name: str) -> str | None:
    """Return what the column is called that last had a name; None if there is none any more."""
    now = {field.field_id: field.name for field in table.schema().fields}
    for _, schema in sorted(table.schemas().items(), reverse=True):
        for field in schema.fields:
            if field.name == name and field.field_id in now:
                return now[field.field_id]
    return None
