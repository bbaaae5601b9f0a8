"""Name the tables of a catalog, their vector columns and their indexes."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pydantic import BaseModel, ConfigDict
from rich.table import Table as Grid

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import PuffinAnnError
from puffin_ann.lake.catalog.listing import table_names
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lake.read.data.vector_column import vector_columns
from puffin_ann.search.version.versions import all_index_names

AT_ONCE = 8
"""Tables loaded side by side: each takes a catalog and a store some time to answer."""


class TableOverview(BaseModel):
    """A table, and the indexes on it.

    `rows` are those that its current snapshot's summary counts; `unbuilt` are declared and not
    published; `problem` says why the table cannot be read, and is None where it can.
    """

    model_config = ConfigDict(frozen=True)

    table: str
    rows: int = 0
    vector_columns: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    unbuilt: tuple[str, ...] = ()
    problem: str | None = None


def list_tables(where: str, declared: Sequence[IndexDeclaration] = ()) -> list[TableOverview]:
    """Look at every table of a catalog or namespace.

    Args:
        where: `catalog` or `catalog.namespace`.
        declared: what this machine knows to be declared.

    Raises:
        TableNotFoundError: there is no such namespace.
        CatalogUnavailableError: the catalog does not answer.
    """
    names = table_names(where)
    if not names:
        return []
    with ThreadPoolExecutor(min(AT_ONCE, len(names))) as pool:
        return list(pool.map(lambda name: _look_at(name, declared), names))


def _look_at(name: str, declared: Sequence[IndexDeclaration]) -> TableOverview:
    try:
        table = load_table(name)
        snapshot = table.current_snapshot()
        counted = snapshot.summary["total-records"] if snapshot and snapshot.summary else None
        indexes = tuple(all_index_names(table))
        return TableOverview(
            table=name,
            rows=int(counted or 0),
            vector_columns=tuple(vector_columns(table.schema())),
            indexes=indexes,
            unbuilt=tuple(
                declaration.name
                for declaration in declared
                if declaration.table == name and declaration.name not in indexes
            ),
        )
    except PuffinAnnError as error:
        return TableOverview(table=name, problem=str(error))


def grid(tables: Sequence[TableOverview]) -> Grid:
    """Return tables as people are shown them."""
    shown = Grid()
    for heading, justify in (
        ("table", "left"),
        ("rows", "right"),
        ("vector columns", "left"),
        ("indexes", "left"),
    ):
        shown.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for table in tables:
        if table.problem is not None:
            shown.add_row(table.table, "", "", f"cannot be read: {table.problem}")
            continue
        indexes = [*table.indexes, *(f"{name} (not built)" for name in table.unbuilt)]
        columns = ", ".join(table.vector_columns)
        shown.add_row(table.table, f"{table.rows:,}", columns, ", ".join(indexes))
    return shown
