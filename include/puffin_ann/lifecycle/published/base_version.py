"""Which version of an index a refresh starts from: the nearest to the table's head."""

from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.lifecycle.documents.index_properties import FINGERPRINT
from puffin_ann.search.failover import may_answer
from puffin_ann.search.snapshot_view import LiveState, View, view_of
from puffin_ann.search.versions import IndexVersion, find_versions, newest_version


def version_to_refresh(
    table: Table, declaration: IndexDeclaration, live: LiveState
) -> tuple[IndexVersion, View] | None:
    """Return the version that a refresh starts from; see `nearest_version`."""
    return nearest_version(table, declaration.name, live, declaration.fingerprint())


def nearest_version(
    table: Table, index: str, live: LiveState, fingerprint: str | None = None
) -> tuple[IndexVersion, View] | None:
    """Return a version and how it differs from the head; None if none is published.

    That is the newest, as long as the table went on from the snapshot it covers. After a rollback
    an older one may be nearer: of those that are built as declared the one with the fewest rows to
    mask and to add is taken. One of other distances than the newest never is: searches go by that.

    Args:
        table: as it was loaded.
        index: name of the index.
        live: of the table's head.
        fingerprint: of the declaration; None: however a version was built.
    """
    newest = newest_version(table, index)
    if newest is None:
        return None
    view = view_of(table, newest, live)
    head = table.snapshot_by_id(live.snapshot_id)
    past = {one.snapshot_id for one in ancestors_of(head, table.metadata)}
    if newest.coverage.base_snapshot_id in past:
        return newest, view
    found = [(newest, view)]
    for version in find_versions(table, index).versions:
        if version.run_id != newest.run_id:
            found.append((version, view_of(table, version, live)))

    def distance(one: tuple[IndexVersion, View]) -> tuple[bool, int]:
        made_by = one[0].routing.properties.get(FINGERPRINT, "")
        return fingerprint not in (None, made_by), one[1].cost

    return min((one for one in found if may_answer(one[0], newest)), key=distance)
