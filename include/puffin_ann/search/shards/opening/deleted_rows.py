"""Which rows of a shard are not live where it has them: of all its locators, a look at a few."""

from dataclasses import dataclass
from io import BytesIO
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.memmap import read_only
from puffin_ann.blobs.shards import identities as identities_blob
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.shards.rows import Rows
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.search.shards.opening.blobs import identities_of, shard_blobs
from puffin_ann.search.shards.opening.rows import LARGE, read_tombstones
from puffin_ann.search.version.consistency import CoveredRows, check_counts, check_places
from puffin_ann.search.version.index_files import VersionFiles
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.row_locators import Locators, MaskedRows

SPARSE = 6
"""Of the last bits of a row's number, so many more are looked at than number the rows marked: of
the others, one of 64 is looked at twice."""
MOST_BITS = 26


@dataclass(frozen=True, eq=False)
class DeletedOfShard:
    """Ordinals of a shard's rows that are not live where it has them.

    Attributes:
        newly_deleted: (n,) int64, ascending: live at the version's base.
        already_deleted: (m,) int64, ascending: tombstoned in the version.
        locators: (n, 3) uint32, of those newly deleted: file id, row group, offset in it.
        identities: (n + m, 2) uint64, of the former and then the latter; None if they were not
            asked for, or there are none by which rows are found again.
    """

    newly_deleted: NDArray[np.int64]
    already_deleted: NDArray[np.int64]
    locators: NDArray[np.uint32]
    identities: NDArray[np.uint64] | None


@dataclass(frozen=True, eq=False)
class Suspects:
    """Tells which rows of shards may not be live, by one pass over their locators.

    Attributes:
        covered: the rows that the version covers.
        masked: those of them that are not live.
        is_whole: (m,) bool, covered files of which every row is looked at.
        marks: (2^b,) bool, the last bits of numbers of rows that are not live, or not covered.
    """

    covered: CoveredRows
    masked: MaskedRows
    is_whole: NDArray[np.bool_]
    marks: NDArray[np.bool_]

    @classmethod
    def of(cls, covered: CoveredRows, masked: MaskedRows) -> "Suspects":
        """Lay out which rows are to be looked at."""
        is_whole = np.zeros(len(covered.file_ids), np.bool_)
        is_whole[list(covered.many)] = True
        is_whole |= np.isin(covered.file_ids, masked.file_ids[masked.whole])
        numbers = np.concatenate([covered.few, _numbers(covered, masked)])
        size = 1 << min(MOST_BITS, SPARSE + len(numbers).bit_length())
        marks = np.zeros(size, np.bool_)
        marks[numbers & (size - 1)] = True
        return cls(covered, masked, is_whole, marks)

    def among(self, rows: Rows) -> NDArray[np.int64]:
        """Return the ordinals of rows that may not be live, (s,) int64, ascending."""
        from puffin_ann.search.shards.opening.kernels_deleted import mark_suspects

        found = np.empty(len(rows), np.bool_)
        covered = self.covered
        # Decoded or mapped, writable or not: for each kind the kernel would be compiled anew.
        mark_suspects(
            read_only(rows.file_ids),
            read_only(rows.row_groups),
            read_only(rows.offsets),
            read_only(covered.file_ids),
            read_only(self.is_whole),
            read_only(covered.groups),
            read_only(covered.first_group),
            read_only(covered.group_rows),
            read_only(covered.group_starts),
            read_only(self.marks),
            found,
        )
        return np.flatnonzero(found)


def _numbers(covered: CoveredRows, masked: MaskedRows) -> NDArray[np.int64]:
    """Return the masked rows of files that are masked in part, numbered as covered ones are."""
    in_part = np.flatnonzero(masked.groups > 0)
    in_part = in_part[np.isin(masked.file_ids[in_part], covered.file_ids)]
    if not len(in_part):
        return np.zeros(0, np.int64)
    places = np.searchsorted(covered.file_ids, masked.file_ids[in_part])
    starts = masked.group_starts[masked.first_group[in_part]]
    shift = covered.group_starts[covered.first_group[places]] - starts
    file = np.searchsorted(starts, masked.rows, side="right") - 1
    numbers: NDArray[np.int64] = masked.rows + shift[file]
    return numbers


def find_deleted(
    files: VersionFiles,
    version: IndexVersion,
    shard: ShardEntry,
    suspects: Suspects,
    *,
    identities: bool,
) -> DeletedOfShard:
    """Find the rows of a shard that are not live where it has them.

    That no row is there twice is not looked at: who counts the rows of all shards finds out.

    Args:
        files: of the version.
        version: of the index.
        shard: of it.
        suspects: of that version.
        identities: read those of the rows found.

    Raises:
        FormatError: a blob is missing or broken, or says what another contradicts.
    """
    blobs = shard_blobs(files, version, shard)
    is_large = blobs.rows.metadata.length > LARGE
    # To leave the identities out takes a few reads more, in turn.
    content = blobs.rows.open() if is_large else BytesIO(blobs.rows.read())
    rows = rows_blob.read(content, shard.rows, identities=False)
    deleted = read_tombstones(blobs, shard)
    where = f"{version.file_of(shard)}: shard {shard.shard_id}"
    check_counts(where, shard, len(rows), deleted)
    is_deleted = np.zeros(len(rows), np.bool_)
    is_deleted[deleted] = True
    ordinals = suspects.among(rows)
    locators = Locators.of(rows.take(ordinals))
    check_places(where, version.covered, locators, is_deleted[ordinals], ordinals)
    masked = locators.masked(suspects.masked)
    newly = ordinals[:0] if masked is None else ordinals[masked & ~is_deleted[ordinals]]
    found = None
    if identities:
        wanted = np.concatenate([newly, deleted])
        found = _identities(files, version, shard, content, wanted)
    columns = (rows.file_ids, rows.row_groups, rows.offsets)
    places = np.stack([column[newly] for column in columns], axis=1).astype(np.uint32)
    return DeletedOfShard(newly, deleted, places, found)


def _identities(
    files: VersionFiles,
    version: IndexVersion,
    shard: ShardEntry,
    rows: BinaryIO,
    ordinals: NDArray[np.int64],
) -> NDArray[np.uint64] | None:
    """Return `(m, 2) uint64`, the identities of some rows; None if they have none to be found by.

    Args:
        files: of the version.
        version: of the index.
        shard: of it.
        rows: its rows blob, which earlier releases wrote them to.
        ordinals: (m,) int64.
    """
    if not len(ordinals):
        return np.zeros((0, 2), np.uint64)
    apart = identities_of(files, version, shard)
    if apart is None:
        return rows_blob.read_identities(rows_blob.open_reader(rows), shard.rows, ordinals)
    is_large = apart.metadata.length > LARGE
    content = apart.open() if is_large else BytesIO(apart.read())
    reader = identities_blob.open_reader(content, shard.rows)
    return identities_blob.read_some(reader, shard.rows, ordinals)
