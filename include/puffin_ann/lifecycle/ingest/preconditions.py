"""Whether an index can be built over a table: asked when a run is planned, and when one is told."""

from dataclasses import dataclass

from pyiceberg.table import Table

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.engines.base import check_subspaces
from puffin_ann.errors import TooFewRowsError
from puffin_ann.lake.commit.index_snapshot import publish_mode
from puffin_ann.lake.read.parquet import dimension_of
from puffin_ann.lake.read.vector_column import VectorColumn, table_vector_column
from puffin_ann.lifecycle.build.plan import check_partitions, check_rows
from puffin_ann.lifecycle.ingest.key_column import require_key
from puffin_ann.search.snapshot_view import LiveState


@dataclass(frozen=True)
class Fit:
    """What a build goes by.

    Attributes:
        rows: live ones.
        dimension: width of most of the vectors.
    """

    column: VectorColumn
    rows: int
    dimension: int


def require_fit(declaration: IndexDeclaration, table: Table, live: LiveState) -> Fit:
    """Refuse a table over which the declared index cannot be built, before any work is done.

    Of the data the first vectors of a file are read.

    Args:
        declaration: the index.
        table: as it was loaded.
        live: of the snapshot that is to be built from.

    Raises:
        PuffinAnnError: the table or its column do not allow an index, in the way it is declared.
    """
    publish_mode(table, declaration.publish)
    column = table_vector_column(table, declaration.column)
    require_key(table, declaration)
    rows = live.rows
    check_rows(declaration.table, rows)
    dimension = dimension_of(table.io, live.files, column)
    if not dimension:
        raise TooFewRowsError(
            f"table {declaration.table}: column {declaration.column!r} holds no vector at all "
            f"in {rows} rows"
        )
    check_subspaces(declaration.algorithm, declaration.parameters, dimension)
    check_partitions(declaration, rows, dimension)
    return Fit(column, rows, dimension)
