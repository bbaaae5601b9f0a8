"""Which shards of a version cannot be read, and what is wrong with each.

Whoever rebuilds them asks here, and whoever tells of them. A shard of which the store does not say
anything now is none of them.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np
from pyiceberg.io import FileIO
from pyroaring import BitMap64

from puffin_ann.blobs import rows as rows_blob
from puffin_ann.blobs.partitions import Partitions
from puffin_ann.blobs.routing import ShardEntry
from puffin_ann.errors import FormatError, ObjectMissingError
from puffin_ann.lake.store.objects import FOLDER, object_length
from puffin_ann.lifecycle.runtime.scratch import scratch_folder
from puffin_ann.search.cache.local_cache import LocalCache
from puffin_ann.search.consistency import check_cells
from puffin_ann.search.index_files import BlobPlace
from puffin_ann.search.index_version import IndexVersion
from puffin_ann.search.shards.blobs import shard_blobs
from puffin_ann.search.shards.load import LoadedShard, load_shard

OWN = "doctor"
"""The folder that one shard is unpacked to has no other table's."""
UNBOUNDED = 1 << 62
"""Bytes that a folder may take which holds one shard and is removed: the disk's room bounds it."""


def find_shards_of_lost_files(io: FileIO, version: IndexVersion) -> dict[int, str]:
    """Return by id the shards of which a file is gone or of another length, and what is wrong.

    Files are not read: each that the version names is asked for once.

    Raises:
        StoreUnavailableError: a store does not say.
    """
    wrong: dict[str, str] = {}
    with version.files(io) as files:
        named = files.named
    for path, length in sorted({(place.path, place.file_length) for place in named}):
        found = object_length(io, path)
        if found is None:
            wrong[path] = f"{path} is gone from the store"
        elif found == FOLDER:
            wrong[path] = f"{path} is a directory, not a file"
        elif found != length:
            wrong[path] = f"{path} has {found} bytes; the version names one of {length}"
    return {
        shard: wrong[place.path]
        for place in named
        if place.path in wrong and (shard := _shard_of(place)) is not None
    }


def find_damaged_shards(io: FileIO, version: IndexVersion) -> dict[int, str]:
    """Return by id the shards that cannot be read, and what is wrong; all are read and unpacked.

    Of shards that have the same row each is damaged, since it cannot be told which one is right.

    Raises:
        StoreUnavailableError: a store does not say.
        EnvironmentProblemError: the disk has no room for a shard.
    """
    wrong: dict[int, str] = {}
    seen: dict[int, BitMap64] = {}
    cells = _cells(io, version)
    for shard in version.routing.shards:
        number = shard.shard_id
        problem, rows = _confirmed(partial(_live_rows, io, version, shard, cells))
        if problem:
            wrong[number] = problem
            continue
        for other, others in seen.items():
            if common := len(rows & others):
                said = (
                    f"{version.path}: shard {number} has {common} rows that another shard has, "
                    f"too, shard {other}"
                )
                wrong.setdefault(other, said)
                wrong.setdefault(number, said)
        seen[number] = rows
    return wrong


def _confirmed(read: Callable[[], BitMap64]) -> tuple[str, BitMap64]:
    """Return what is wrong, and what was read; broken twice, it is: a network may garble it."""
    problem = ""
    for _ in range(2):
        try:
            return "", read()
        except (FormatError, ObjectMissingError) as error:
            problem = str(error)
    return problem, BitMap64()


def _shard_of(place: BlobPlace) -> int | None:
    shard = place.metadata.properties.get("shard")
    return None if shard is None else int(shard)


def _cells(io: FileIO, version: IndexVersion) -> Partitions | None:
    """Return the cells; None if they cannot be read, which is damage of no shard."""
    with suppress(FormatError):
        return version.cells(io)
    return None


def _live_rows(
    io: FileIO, version: IndexVersion, shard: ShardEntry, cells: Partitions | None
) -> BitMap64:
    """Return the rows of a shard that are not deleted, numbered through all covered files."""
    _check_rows_blob(io, version, shard, cells)
    with scratch_folder(f"shard-{shard.shard_id}") as folder:
        cache = LocalCache(folder, UNBOUNDED)
        return _rows_of(version, load_shard(io, version, shard, cache, OWN))


def _rows_of(version: IndexVersion, shard: LoadedShard) -> BitMap64:
    live = np.ones(len(shard.locators), np.bool_)
    live[shard.tombstones] = False
    return BitMap64(version.covered.numbers(shard.locators, np.flatnonzero(live)))


def _check_rows_blob(
    io: FileIO, version: IndexVersion, shard: ShardEntry, cells: Partitions | None
) -> None:
    """Hold all of a rows blob to its checksums: searches leave out identities, refreshes do not.

    Raises:
        FormatError: a section is damaged, or rows are in the order of cells that lie elsewhere.
    """
    where = f"{version.file_of(shard)}: shard {shard.shard_id}"
    with version.files(io) as files:
        reader = rows_blob.open_reader(shard_blobs(files, version, shard).rows.open())
        try:
            reader.verify()
        except FormatError as error:
            raise type(error)(f"{where}: {error}") from None
        starts = rows_blob.read_cells(reader, shard.rows)
    if cells is not None:
        check_cells(where, cells.shards, shard, starts)
