"""What of a version cannot be read, and what is wrong with it: shards, and the cells.

Whoever makes them again asks here, and whoever tells of them. What the store does not say anything
of now is none of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from pyiceberg.io import FileIO
from pyroaring import BitMap64

from puffin_ann.blobs.shards import identities as identities_blob
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.version import partitions as partitions_blob
from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.errors import FormatError, ObjectMissingError, PuffinFormatError
from puffin_ann.lake.store.objects import FOLDER, object_length
from puffin_ann.lifecycle.runtime.scratch import scratch_folder
from puffin_ann.search.cache.local_cache import LocalCache
from puffin_ann.search.included.arrow_values import check_values
from puffin_ann.search.included.kept_columns import READERS
from puffin_ann.search.shards.opening.blobs import identities_of, shard_blobs
from puffin_ann.search.shards.opening.load import LoadedShard, load_shard
from puffin_ann.search.version.consistency import check_cells
from puffin_ann.search.version.index_files import BlobPlace
from puffin_ann.search.version.index_version import IndexVersion

OWN = "doctor"
"""The folder that one shard is unpacked to has no other table's."""
UNBOUNDED = 1 << 62
"""Bytes that a folder may take which holds one shard and is removed: the disk's room bounds it."""


@dataclass(frozen=True)
class Unreadable:
    """What of a version cannot be read.

    Attributes:
        shards: by id, what is wrong with each.
        cells: what is wrong with the cells; empty if they can be read, or it was not looked.
    """

    shards: Mapping[int, str] = field(default_factory=dict)
    cells: str = ""

    @property
    def is_any(self) -> bool:
        """Tell whether anything is."""
        return bool(self.shards or self.cells)


def find_in_lost_files(io: FileIO, version: IndexVersion) -> Unreadable:
    """Return what a version has in files that are gone, or of another length.

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
    lost = [place for place in named if place.path in wrong]
    shards = {shard: wrong[place.path] for place in lost if (shard := _shard_of(place)) is not None}
    cells = [wrong[place.path] for place in lost if place.metadata.type == partitions_blob.TYPE]
    return Unreadable(shards, "".join(cells))


def find_unreadable(io: FileIO, version: IndexVersion) -> Unreadable:
    """Return what of a version cannot be read; cells are read, all shards unpacked as well.

    What is in a file of another length is not looked at: it is damaged, whatever of it is whole. Of
    shards that have the same row each is damaged, since it cannot be told which one is right.

    Raises:
        StoreUnavailableError: a store does not say.
        EnvironmentProblemError: the disk has no room for a shard.
    """
    lost = find_in_lost_files(io, version)
    wrong = dict(lost.shards)
    seen: dict[int, BitMap64] = {}
    cells, lost_cells = read_cells(io, version)
    for shard in version.routing.shards:
        number = shard.shard_id
        if number in wrong:
            continue
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
    return Unreadable(wrong, lost_cells or lost.cells)


def read_cells(io: FileIO, version: IndexVersion) -> tuple[Partitions | None, str]:
    """Return the cells of a version; None if they cannot be read, and what is wrong with them.

    Raises:
        StoreUnavailableError: their store does not say.
    """
    try:
        return version.cells(io), ""
    except FormatError as error:
        return None, str(error)


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


def _live_rows(
    io: FileIO, version: IndexVersion, shard: ShardEntry, cells: Partitions | None
) -> BitMap64:
    """Return the rows of a shard that are not deleted, numbered through all covered files."""
    _check_rows_blob(io, version, shard, cells)
    _check_columns(io, version, shard)
    with scratch_folder(f"shard-{shard.shard_id}") as folder:
        cache = LocalCache(folder, UNBOUNDED)
        return _rows_of(version, load_shard(io, version, shard, cache, OWN))


def _rows_of(version: IndexVersion, shard: LoadedShard) -> BitMap64:
    live = np.ones(len(shard.locators), np.bool_)
    live[shard.tombstones] = False
    return BitMap64(version.covered.numbers(shard.locators, np.flatnonzero(live)))


def _check_columns(io: FileIO, version: IndexVersion, shard: ShardEntry) -> None:
    """Read all values of columns that are kept of a shard; searches ask the table in their place.

    Raises:
        FormatError: a blob is damaged.
    """
    where = f"{version.file_of(shard)}: shard {shard.shard_id}"
    with version.files(io) as files:
        for kind, reader in READERS.items():
            for blob in files.find(kind, shard.shard_id, shard.file):
                try:
                    check_values(reader(blob.open(), shard.rows).all())
                except FormatError as error:
                    raise type(error)(f"{where}: {error}") from None


def _check_rows_blob(
    io: FileIO, version: IndexVersion, shard: ShardEntry, cells: Partitions | None
) -> None:
    """Hold where rows are, and their identities, to checksums: searches leave these out.

    Raises:
        FormatError: a section is damaged, or rows are in the order of cells that lie elsewhere.
    """
    where = f"{version.file_of(shard)}: shard {shard.shard_id}"
    with version.files(io) as files:
        reader = rows_blob.open_reader(shard_blobs(files, version, shard).rows.open())
        apart = identities_of(files, version, shard)
        try:
            reader.verify()
            if apart is None and shard.kind == "delta" and identities_blob.SECTION not in reader:
                # Rows of deltas go into shards with their identities.
                raise PuffinFormatError("no blob has the identities of its rows")
            if apart is not None:
                identities_blob.open_reader(apart.open(), shard.rows).verify()
        except FormatError as error:
            raise type(error)(f"{where}: {error}") from None
        starts = rows_blob.read_cells(reader, shard.rows)
    if cells is not None:
        check_cells(where, cells.shards, shard, starts)
