"""Find the deleted rows that no blob tells of any more, by what a version covers."""

from io import BytesIO

import numpy as np
from pyiceberg.io import FileIO
from pyroaring import BitMap

from puffin_ann.blobs.changes import tombstone_changes as tombstone_changes_blob
from puffin_ann.blobs.changes.tombstone_changes import AddedTombstones
from puffin_ann.blobs.encoding import bitmaps
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.version import tombstones as tombstones_blob
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.errors import BlobFormatError
from puffin_ann.search.version.index_files import VersionFiles
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.row_locators import Locators


def find_added_tombstones(io: FileIO, version: IndexVersion) -> dict[int, AddedTombstones]:
    """Return by shard the deleted rows that its tombstones blob does not name.

    Args:
        io: reads the files.
        version: of which the tombstone changes were not read.

    Raises:
        FormatError: a blob is missing or broken, or a shard has another number of rows in places
            where the version indexes none than it has deleted ones.
    """
    found = {}
    with version.files(io) as files:
        for shard in version.routing.shards:
            added = _added(files, version, shard) if shard.tombstones else BitMap()
            if added:
                size = len(bitmaps.encode(added)) + tombstone_changes_blob.SHARD.itemsize
                found[shard.shard_id] = AddedTombstones(added, size)
    return found


def _added(files: VersionFiles, version: IndexVersion, shard: ShardEntry) -> BitMap:
    stored = files.only(rows_blob.TYPES, shard.shard_id, shard.file)
    rows = rows_blob.read(BytesIO(stored.read()), shard.rows, identities=False)
    named = BitMap()
    for blob in files.find(tombstones_blob.TYPE, shard.shard_id, shard.file):
        named |= tombstones_blob.decode(blob.read(), shard.rows)
    nowhere = np.flatnonzero(version.covered.not_among(Locators.of(rows)))
    deleted = BitMap(nowhere.astype(np.uint32)) | named
    if len(deleted) != shard.tombstones:
        raise BlobFormatError(
            f"{version.path}: shard {shard.shard_id} has {len(deleted)} rows where no row is "
            f"indexed, and {shard.tombstones} that are deleted: which these are cannot be told"
        )
    return deleted - named
