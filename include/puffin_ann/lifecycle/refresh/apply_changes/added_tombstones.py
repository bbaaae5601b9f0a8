"""Whether what a shard lost is told beside the others' losses, or by a tombstones blob of its own.

Beside the others a row costs some bytes, but all of them are written whenever one is added. So a
blob of its own is written once that would have paid, by what was written since the last one; and a
shard of thousands has room for little there, since every version brings it along.
"""

import base64

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from puffin_ann.blobs.changes import tombstone_changes as tombstone_changes_blob
from puffin_ann.blobs.changes.tombstone_changes import AddedTombstones
from puffin_ann.blobs.encoding import bitmaps
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.lifecycle.documents.refresh import StagedTombstones
from puffin_ann.search.version.index_version import IndexVersion

MOST_BYTES = 1 << 20
"""Bytes that all shards together may take there."""

LEAST_BYTES = 256
"""Bytes that a shard may take there in any case."""

BLOB_BYTES = 512
"""About what a blob costs besides its bitmap: in its container, in footers and directories."""


def added_tombstones(
    version: IndexVersion,
    shard: ShardEntry,
    before: NDArray[np.int64],
    deleted: NDArray[np.int64],
) -> StagedTombstones | None:
    """Return what a shard lost since its tombstones blob; None if that is to be written anew.

    Args:
        version: that is refreshed.
        shard: of it.
        before: (t,) ordinals deleted in the version.
        deleted: (d,) ordinals that are deleted now.
    """
    known = version.added_tombstones.get(shard.shard_id, AddedTombstones(BitMap(), 0))
    of_blob = BitMap(before.astype(np.uint32)) - known.ordinals
    now = BitMap(deleted.astype(np.uint32))
    if of_blob - now:  # rows that it names were restored
        return None
    added = now - of_blob
    bits = bitmaps.encode(added)
    size = len(bits) + tombstone_changes_blob.SHARD.itemsize
    written = known.written + size
    most = max(LEAST_BYTES, MOST_BYTES // len(version.routing.shards))
    if size > most or written > len(bitmaps.encode(now)) + BLOB_BYTES:
        return None
    return StagedTombstones(bits=base64.b64encode(bits).decode("ascii"), written=written)


def load_tombstones(staged: StagedTombstones, shard: ShardEntry) -> AddedTombstones | None:
    """Return what a document holds of a shard; None if it lost nothing since its blob.

    Raises:
        BlobFormatError: it is malformed.
    """
    where = f"shard {shard.shard_id}, added tombstones"
    ordinals = bitmaps.decode(base64.b64decode(staged.bits), shard.rows, where)
    return AddedTombstones(ordinals, staged.written) if ordinals else None
