"""Which version of an index a refresh starts from: the nearest to the table's head."""

from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.search.failover import may_answer
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.indexed_column import of_one_column, other_column
from puffin_ann.search.version.snapshot_view import LiveState, SnapshotView, view_of
from puffin_ann.search.version.versions import find_versions, newest_version


@dataclass(frozen=True)
class BaseVersion:
    """A version, compared with the table's head.

    Attributes:
        version: the version.
        view: which rows it answers, masks and leaves to a scan there.
    """

    version: IndexVersion
    view: SnapshotView


def version_to_refresh(
    table: Table, declaration: IndexDeclaration, live: LiveState
) -> BaseVersion | None:
    """Return the version that a refresh starts from; see `nearest_version`."""
    return nearest_version(table, declaration.name, live, declaration.fingerprint())


def nearest_version(
    table: Table, index: str, live: LiveState, fingerprint: str | None = None
) -> BaseVersion | None:
    """Return a version and how it differs from the head; None if none is published.

    That is the newest, as long as the table went on from the snapshot it covers and calls its
    column as ever. Else an older one may be nearer: of those of the column that has the name now,
    and of these that are built as declared, the one with the fewest rows to mask and to add is
    taken. One of other distances than the newest never is: searches go by that.

    Args:
        table: as it was loaded.
        index: name of the index.
        live: of the table's head.
        fingerprint: of the declaration; None: however a version was built.
    """
    newest = newest_version(table, index)
    if newest is None:
        return None
    head = table.snapshot_by_id(live.snapshot_id)
    past = {snapshot.snapshot_id for snapshot in ancestors_of(head, table.metadata)}
    schema = table.schema()
    if newest.coverage.base_snapshot_id in past and other_column(newest, schema) is None:
        return BaseVersion(newest, view_of(table, newest, live))
    others = find_versions(table, index).versions
    every = [newest, *(version for version in others if version.run_id != newest.run_id)]
    like_it = [version for version in every if may_answer(version, newest)]
    found = [
        BaseVersion(version, view_of(table, version, live))
        for version in of_one_column(like_it, schema) or [newest]
    ]

    def distance(base: BaseVersion) -> tuple[bool, int]:
        made_by = IndexProperties(base.version.routing.properties).fingerprint
        return fingerprint not in (None, made_by), base.view.cost

    return min(found, key=distance)
