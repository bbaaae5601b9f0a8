"""Where the rows of a shard are, read without the vectors; and a version without some shards."""

from collections.abc import Set
from dataclasses import replace
from io import BytesIO
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pyiceberg.io import FileIO
from pyroaring import BitMap

from puffin_ann.blobs.shards import identities as identities_blob
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.shards.rows import Rows
from puffin_ann.blobs.version import tombstones as tombstones_blob
from puffin_ann.blobs.version.coverage import Coverage, CoveredFile
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.errors import BlobFormatError, FormatError, ObjectMissingError
from puffin_ann.search.shards.opening.blobs import ShardBlobs, identities_of, shard_blobs
from puffin_ann.search.version.consistency import check_rows
from puffin_ann.search.version.index_files import VersionFiles
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.row_locators import Locators

LARGE = 4 << 20
"""Bytes of a blob of which identities are left out, where they are not wanted."""

Wanted = Literal["all", "to move", "none"]
"""Which identities of a shard's rows are read: those that stand in its rows blob, as earlier
releases wrote them, are to move to a blob of their own whenever it is written anew."""


def read_rows(
    files: VersionFiles, version: IndexVersion, shard: ShardEntry, *, identities: Wanted
) -> tuple[Rows, NDArray[np.int64]]:
    """Read where a shard's rows are, and the ordinals of its tombstones.

    Args:
        files: of the version.
        version: of the index.
        shard: of it.
        identities: of the rows that are read, too.

    Raises:
        FormatError: a blob is missing or broken, or says what another contradicts.
    """
    blobs = shard_blobs(files, version, shard)
    apart = None if identities == "none" else identities_of(files, version, shard)
    inside = identities != "none" and apart is None
    is_large = blobs.rows.metadata.length > LARGE
    # To leave the identities out takes a few reads more, in turn.
    content = blobs.rows.open() if is_large and not inside else BytesIO(blobs.rows.read())
    rows = rows_blob.read(content, shard.rows, identities=inside)
    if apart is not None and identities == "all":
        found = identities_blob.read(BytesIO(apart.read()), shard.rows)
        rows = replace(rows, identities=found)
    deleted = read_tombstones(blobs, shard)
    where = f"{version.file_of(shard)}: shard {shard.shard_id}"
    check_rows(where, shard, version.covered, Locators.of(rows), deleted)
    return rows, deleted


def read_tombstones(blobs: ShardBlobs, shard: ShardEntry) -> NDArray[np.int64]:
    """Return the ordinals of a shard's deleted rows, ascending; errors as of `read_rows`."""
    bitmap = blobs.added
    if blobs.tombstones is not None:
        data = blobs.tombstones.read()
        bitmap |= tombstones_blob.decode(data, shard.rows, shard.tombstones - len(blobs.added))
    return np.asarray(bitmap.to_array(), np.int64)


def without_shards(io: FileIO, version: IndexVersion, lost: Set[int]) -> IndexVersion:
    """Return a version as if it did not cover the rows of shards that cannot be read.

    A search scans those in the table. Cells of these shards lead to one of the others, see
    `Partitions.among`.

    Args:
        io: reads the files.
        version: of the index.
        lost: ids of shards.

    Raises:
        StoreUnavailableError: a file's store does not say.
    """
    graphs = {shard.shard_id for shard in version.routing.shards if shard.kind == "graph"}
    every = {shard.shard_id for shard in version.routing.shards}
    # A delta's rows are in cells, of which none is left without graphs.
    coverage, lost = coverage_without(io, version, every if graphs <= lost else lost)
    if graphs <= lost < every:
        coverage, lost = coverage_without(io, version, every)
    kept = tuple(shard for shard in version.routing.shards if shard.shard_id not in lost)
    return replace(version, routing=replace(version.routing, shards=kept), coverage=coverage)


def coverage_without(
    io: FileIO, version: IndexVersion, lost: Set[int]
) -> tuple[Coverage, Set[int]]:
    """Return what a version covers but for the rows of some shards, and which those are.

    Where it can be read which rows these have, nothing else is read; else the rows blobs of all
    others are, and one of those that cannot be is lost, too.

    Args:
        io: reads the files.
        version: of the index.
        lost: ids of shards.

    Raises:
        StoreUnavailableError: a file's store does not say.
    """
    with version.files(io) as files:
        try:
            missing = _live_rows(files, version, lost)
        except (FormatError, ObjectMissingError):
            missing, lost = _not_in_others(files, version, lost)
    covered = tuple(map(_lacking, version.coverage.files, missing))
    # Without manifests all of the table's are read: what equals the base is not what is covered.
    return Coverage(version.coverage.base_snapshot_id, covered, ()), lost


def _live_rows(files: VersionFiles, version: IndexVersion, numbers: Set[int]) -> list[BitMap]:
    """Return the live rows of some shards: positions, by place of the covered file.

    Raises:
        FormatError: a blob is missing or broken, or two shards have the same row.
        ObjectMissingError: a file is gone.
    """
    found = [BitMap() for _ in version.coverage.columns.paths]
    live = 0
    for shard in version.routing.shards:
        if shard.shard_id in numbers:
            rows, deleted = read_rows(files, version, shard, identities="none")
            _add_live_rows(found, version, shard, rows, deleted)
            live += shard.rows - shard.tombstones
    if sum(map(len, found)) != live:
        raise BlobFormatError(f"{version.path}: shards {sorted(numbers)} have rows of each other")
    return found


def _not_in_others(
    files: VersionFiles, version: IndexVersion, lost: Set[int]
) -> tuple[list[BitMap], frozenset[int]]:
    """Return the positions in covered files that no other shard has, and the shards left out."""
    columns = version.coverage.columns
    held = [BitMap() for _ in columns.paths]
    left_out = set(lost)
    for shard in version.routing.shards:
        if shard.shard_id not in lost:
            try:
                found = read_rows(files, version, shard, identities="none")
            except (FormatError, ObjectMissingError):
                left_out.add(shard.shard_id)
                continue
            _add_live_rows(held, version, shard, *found)
    pairs = zip(columns.rows.tolist(), held, strict=True)
    return [BitMap(range(rows)) - here for rows, here in pairs], frozenset(left_out)


def _add_live_rows(
    positions: list[BitMap],
    version: IndexVersion,
    shard: ShardEntry,
    rows: Rows,
    deleted: NDArray[np.int64],
) -> None:
    """Add the live rows of a shard to the positions, by place of the covered file."""
    columns = version.coverage.columns
    firsts = np.cumsum(columns.rows) - columns.rows
    live = np.ones(len(rows), np.bool_)
    live[deleted] = False
    ordinals = np.flatnonzero(live)
    numbers = version.covered.numbers(Locators.of(rows), ordinals).astype(np.int64)
    places = np.searchsorted(firsts, numbers, side="right") - 1
    for place in np.unique(places).tolist():
        here = numbers[places == place] - firsts[place]
        positions[place] |= BitMap(here.astype(np.uint32))


def _lacking(file: CoveredFile, missing: BitMap) -> CoveredFile:
    """Return a file as if some rows had been deleted before they could be indexed."""
    return replace(file, deleted=file.deleted | (missing - file.skipped))
