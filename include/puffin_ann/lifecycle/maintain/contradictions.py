"""Whether the blobs of a published index fit together, by unpacking each of them.

Checksums tell that bytes are those that were written; a search tells of a shard that contradicts
the rest only once it is asked. This looks at all of them, one at a time, and at what no search
could afford: that together they hold every covered row once.
"""

import numpy as np
from pyiceberg.io import FileIO
from pyroaring import BitMap64

from puffin_ann.blobs import rows as rows_blob
from puffin_ann.blobs.routing import ShardEntry
from puffin_ann.declaration import CENTROID
from puffin_ann.errors import BlobFormatError, FormatError
from puffin_ann.lifecycle.runtime.scratch import scratch_folder
from puffin_ann.search.cache.local_cache import LocalCache
from puffin_ann.search.consistency import check_cells
from puffin_ann.search.files.tier import bounds_of, load_centroids
from puffin_ann.search.shards.blobs import shard_blobs
from puffin_ann.search.shards.load import LoadedShard, load_shard
from puffin_ann.search.versions import IndexVersion, load_version

OWN = "doctor"
"""The folder that one shard is unpacked to has no other table's."""
UNBOUNDED = 1 << 62
"""Bytes that a folder may take which holds one shard and is removed: the disk's room bounds it."""


def contradiction(
    io: FileIO, path: str, index: str, length: int | None, *, unpack: bool
) -> str | None:
    """Return what the blobs of an index in a file contradict each other in; None for nothing.

    Args:
        io: of the table.
        path: of the file.
        index: its name.
        length: bytes of the file.
        unpack: look at its shards, too: it takes the room of the largest one on the disk, and the
            time to read them all.

    Raises:
        FileNotFoundError, StoreUnavailableError: as `load_version`.
        EnvironmentProblemError: the disk has no room for a shard.
    """
    try:
        version = load_version(io, path, index, length=length)
        if version is not None and unpack:
            _unpack_all(io, version)
    except FormatError as error:
        return str(error)
    return None


def _unpack_all(io: FileIO, version: IndexVersion) -> None:
    if version.routing.algorithm == CENTROID:
        bounds_of(load_centroids(io, version), version)
        return
    seen = BitMap64()
    for shard in version.routing.shards:
        _check_cells(io, version, shard)
        with scratch_folder(f"shard-{shard.shard_id}") as folder:
            cache = LocalCache(folder, UNBOUNDED)
            rows = _live_rows(version, load_shard(io, version, shard, cache, OWN))
        if len(rows & seen):
            raise BlobFormatError(
                f"{version.file_of(shard)}: shard {shard.shard_id} has {len(rows & seen)} rows "
                "that another shard has, too"
            )
        seen |= rows


def _check_cells(io: FileIO, version: IndexVersion, shard: ShardEntry) -> None:
    with version.files(io) as files:
        located = shard_blobs(files, version, shard).rows.open()
        cells = rows_blob.read_cells(rows_blob.open_reader(located), shard.rows)
    where = f"{version.file_of(shard)}: shard {shard.shard_id}"
    check_cells(where, version.routing, shard, cells)


def _live_rows(version: IndexVersion, shard: LoadedShard) -> BitMap64:
    """Return the rows of a shard that are not deleted, numbered through all covered files."""
    live = np.ones(len(shard.locators), np.bool_)
    live[shard.tombstones] = False
    return BitMap64(version.covered.numbers(shard.locators, np.flatnonzero(live)))
