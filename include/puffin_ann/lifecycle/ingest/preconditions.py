"""Whether an index can be built over a table: asked when a run is planned or shown."""

from dataclasses import dataclass

from pyiceberg.table import Table

from puffin_ann.blobs.version import partitions
from puffin_ann.declaration import CENTROID, IndexDeclaration
from puffin_ann.engines.base import check_subspaces
from puffin_ann.errors import BadInputError, TooFewRowsError
from puffin_ann.lake.commit.publish_mode import publish_mode
from puffin_ann.lake.read.data.parquet import dimension_of
from puffin_ann.lake.read.data.vector_column import VectorColumn, table_vector_column
from puffin_ann.lifecycle.ingest.included_columns import require_included
from puffin_ann.lifecycle.ingest.key_column import require_key
from puffin_ann.puffin.layout import MAX_JAVA_BLOB
from puffin_ann.search.version.snapshot_view import LiveState
from puffin_ann.wording import counted


@dataclass(frozen=True)
class Fit:
    """What a build goes by.

    Attributes:
        rows: live ones.
        dimension: of most of the vectors.
        included: field ids of the columns that shards keep values of.
    """

    column: VectorColumn
    rows: int
    dimension: int
    included: tuple[int, ...]


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
    publish_mode(table, declaration.publishes_by)
    column, included = require_columns(declaration, table)
    rows = live.rows
    check_rows(declaration.table, rows)
    dimension = dimension_of(table.io, live.files, column)
    if not dimension:
        raise TooFewRowsError(
            f"table {declaration.table}: column {declaration.column!r} holds no vector at all "
            f"in {counted(rows, 'row')}"
        )
    check_subspaces(declaration.algorithm, declaration.parameters, dimension)
    check_cells(declaration, rows, dimension)
    return Fit(column, rows, dimension, included)


def require_columns(
    declaration: IndexDeclaration, table: Table
) -> tuple[VectorColumn, tuple[int, ...]]:
    """Return the vector column of an index, and the field ids of those that it includes.

    Raises:
        ColumnNotFoundError: the table does not have one that is declared, or the key.
        UnsupportedColumnError: it is of a type that does not serve for that.
    """
    column = table_vector_column(table, declaration.column)
    require_key(table, declaration)
    return column, require_included(table, declaration)


def check_rows(table: str, rows: int) -> None:
    """Refuse a table without rows.

    Fewer rows than cells are no harm: some cells are empty then. Nor are fewer than
    shards: a young table gets as many as it can fill.

    Raises:
        TooFewRowsError: there is nothing to index.
    """
    if rows == 0:
        raise TooFewRowsError(f"table {table} has no live rows; there is nothing to index")


def shards_for(declaration: IndexDeclaration, rows: int) -> int:
    """Return how many shards are built of so many rows: the declared ones, if that many can be."""
    return min(declaration.shards_built, rows)


def check_cells(declaration: IndexDeclaration, rows: int, dimension: int) -> None:
    """Refuse more cells than one blob holds, which is written when all else is built.

    That it is compressed does not count: centroids hardly can be.

    Args:
        declaration: of the index.
        rows: of the table.
        dimension: numbers in a vector.

    Raises:
        BadInputError: says how many there may be.
    """
    if declaration.algorithm == CENTROID:
        return
    shards, each = shards_for(declaration, rows), declaration.partitions_per_shard
    size = partitions.size_of(shards * each, declaration.metric, dimension)
    if size <= MAX_JAVA_BLOB:
        return
    most = each * MAX_JAVA_BLOB // size
    advice = f"a partitions_per_shard of at most {most}" if most else "fewer shards"
    raise BadInputError(
        f"index {declaration.name!r}: the centroids of {counted(shards, 'shard')} of "
        f"{counted(each, 'partition')}, in {dimension} dimensions, are stored in one "
        f"blob, which would have {size:,} bytes; Iceberg's Java reader takes at most "
        f"{MAX_JAVA_BLOB:,}: declare {advice}"
    )
