"""Make the tombstone changes of a version again, where that blob alone cannot be read.

What a shard lost since its tombstones blob are its rows in places where the version indexes none.
That is all of them, unless a row came back to the place of a deleted one that equals it: then the
count that the routing has of the shard's tombstones tells, and an older version is published.
"""

import logging

from pyiceberg.table import Table

from puffin_ann.blobs.changes import tombstone_changes as tombstone_changes_blob
from puffin_ann.errors import FormatError
from puffin_ann.lifecycle.publish.changed_index import Remade
from puffin_ann.lifecycle.publish.republish import Republished, republish_under_tag
from puffin_ann.lifecycle.runtime.retry import retry_on_conflict
from puffin_ann.lifecycle.versions.inventory import IndexFile, Inventory, live_files, take_inventory
from puffin_ann.search.shards.opening.lost_tombstones import find_added_tombstones
from puffin_ann.search.version.index_version import IndexVersion, load_version

log = logging.getLogger("puffin_ann")


def lacks_tombstones(inventory: Inventory, index: str) -> bool:
    """Tell whether the newest version of an index could be read without its tombstone changes.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    file = live_files(inventory.published).get(index)
    if file is None or not inventory.is_tagged(file):
        return False
    return _without_tombstones(inventory.table, file, index) is not None


def remake_tombstones(table: Table, index: str) -> Republished | None:
    """Publish the newest version of an index with tombstone changes that are made again.

    None where that is not what it lacks.

    Raises:
        FormatError: a shard cannot be read, or it cannot be told which of its rows are deleted.
        TagNotKeptError: the catalog keeps no tags any more.
        ConflictError: the table was changed by others during every attempt.
        UnclearCommitError: the catalog's answer was lost.
    """
    return retry_on_conflict("doctor", lambda: _remade(table, index))


def _remade(table: Table, index: str) -> Republished | None:
    inventory = take_inventory(table)
    file = live_files(inventory.published).get(index)
    if file is None or not inventory.is_tagged(file):
        return None
    version = _without_tombstones(inventory.table, file, index)
    if version is None:
        return None
    found = find_added_tombstones(inventory.table.io, version)
    log.info("doctor: tombstone changes of %d shards of index %s made again", len(found), index)
    made = Remade(index, tombstone_changes_blob.TYPE, tombstone_changes_blob.encode(found))
    return republish_under_tag(inventory, index, changed=made)


def _without_tombstones(table: Table, file: IndexFile, index: str) -> IndexVersion | None:
    """Return a version as if it had no tombstone changes, if it cannot be read with them."""
    try:
        load_version(table.io, file.path, index, length=file.bytes)
    except FormatError:
        pass
    else:
        return None
    try:
        return load_version(table.io, file.path, index, length=file.bytes, tombstone_changes=False)
    except (FormatError, FileNotFoundError):
        return None
