"""Whether a snapshot still calls the indexed column by the name that the index was declared with.

An index is of one field id. Where its column was only renamed, it answers as before. Where the
column is gone, or its declared name went to another one, answers would be of a column that nobody
asked for: such a version does not answer for the snapshot.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from puffin_ann.errors import IndexedColumnError
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.read.data.vector_column import vector_columns
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.snapshot_view import LiveState, SnapshotView


@dataclass(frozen=True)
class OtherColumn:
    """Why a version is not of the column that its name means in a schema.

    Attributes:
        what: what it was built of and what became of that, as a predicate of the index.
        remedy: what to do.
    """

    what: str
    remedy: str


def other_column(version: IndexVersion, schema: Schema) -> OtherColumn | None:
    """Return why a version does not answer for snapshots of a schema; None if it does."""
    declared = version.routing.declared_column
    called = schema.find_column_name(version.field_id)
    named = next((field for field in schema.fields if field.name == declared), None)
    if called is not None and (named is None or named.field_id == version.field_id):
        return None
    what = f"was built of column {declared!r}" if declared else "was built of a column"
    what += f" (field id {version.field_id}), which is "
    what += "not in the schema" if called is None else f"called {called!r}"
    if named is not None:
        what += f", and {declared!r} is another column (field id {named.field_id})"
    return OtherColumn(what, _remedy(version, schema, called))


def _remedy(version: IndexVersion, schema: Schema, called: str | None) -> str:
    declared = version.routing.declared_column
    ways = []
    if declared in vector_columns(schema):
        ways.append(f"'puffin-ann refresh {version.index}' builds it of what is {declared!r} now")
    if called is not None:
        ways.append(f"with column: {called} in its declaration, a refresh builds it of that")
    return "; ".join(ways) or "declare another column for it and refresh it, or drop the index"


def of_one_column(versions: Sequence[IndexVersion], schema: Schema) -> tuple[IndexVersion, ...]:
    """Return the versions that may answer for snapshots of a schema, in their order.

    They are all of one column: that of the newest, or another that had its declared name when they
    were built, and has it in the schema. An index that was declared of another column since must
    not answer by its former one, wherever that leaves fewer rows to scan, or the new one is gone.

    Args:
        versions: of an index, the newest first.
        schema: that the snapshots are read by.
    """
    found = [
        version
        for version in versions
        if _is_of_index(version, versions[0]) and other_column(version, schema) is None
    ]
    return tuple(version for version in found if version.field_id == found[0].field_id)


def _is_of_index(version: IndexVersion, newest: IndexVersion) -> bool:
    """Tell whether a version is of the newest one's column, or was declared of that name."""
    if version.field_id == newest.field_id:
        return True
    return version.routing.declared_column == newest.routing.declared_column


def why_unanswered(
    table: Table, versions: Sequence[IndexVersion], view: SnapshotView
) -> OtherColumn | None:
    """Return why none of some versions, the newest first, answers for a snapshot; None if one does.

    Where no row is live, nothing is answered, which is right of any column.
    """
    schema = view.schema(table)
    if not view.live_rows or of_one_column(versions, schema):
        return None
    return other_column(versions[0], schema)


def require_indexed_column(
    table: Table, versions: Sequence[IndexVersion], schema: Schema, live: LiveState
) -> Sequence[IndexVersion]:
    """Return the versions that may answer for a snapshot, in their order.

    Args:
        table: that is indexed.
        versions: at least one, the newest first.
        schema: that the snapshot is read by.
        live: of the snapshot.

    Raises:
        IndexedColumnError: none may, and there are rows that could be answered.
    """
    found = of_one_column(versions, schema)
    other = None if found else other_column(versions[0], schema)
    if other is None or not live.rows:
        return found or versions
    raise IndexedColumnError(
        f"index {versions[0].index!r} of {name_of(table)} does not answer for snapshot "
        f"{live.snapshot_id}: it {other.what}; {other.remedy}; snapshots of which the schema has "
        "the column by its name can be searched by id or tag"
    )
