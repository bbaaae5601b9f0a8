"""Know rows again by their row ids, in tables of version 3: without their vectors.

A row that was written to another file has its row id there, and the number of the commit that
changed it last. If that is the number which it had in the file that the version knows it in, no
column of it is another. So its identity is that of the row that was removed, which stands in its
shard, and it is matched by that as any other is. Nothing of this is stored in the index: row ids of
removed rows are read of the files they were in, or follow from what the version's base snapshot
says of these.

What a row id says is believed only where no row of another table can have it. Rows have their
vectors hashed, as rows of other tables have,

- that stand in files of other commits than `replace`, for which see `rewriting_commits`, or of a
  history that does not lead from the version's base snapshot to the new one without a gap;
- all of them, where a `replace` may have moved rows imported since the base snapshot;
- all of them, where the row ids of one removed row are not known: of a file that is gone from the
  store or cannot be read, or that the base snapshot does not tell a first row id of. It might be
  one of two that share their id;
- those whose row id another removed row has, too;
- those that had no usable vector: they would be paired with no row that went, so that nobody would
  notice that there are too many;
- those with an inherited row id or number, since the commit that added the file changed them.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from puffin_ann.lake.read.data.parquet import open_file
from puffin_ann.lake.read.files.live_files import LiveFile
from puffin_ann.lake.read.identity.row_lineage import row_lineage
from puffin_ann.lake.store.locations import absolute_path
from puffin_ann.lifecycle.documents.refresh import KnownRowsOfBucket
from puffin_ann.lifecycle.documents.run import StagedFile
from puffin_ann.lifecycle.ingest.row_groups import KnownRows
from puffin_ann.lifecycle.refresh.read_changes.rewritten_files import (
    RewrittenFiles,
    load_rewritten_files,
)
from puffin_ann.lifecycle.runtime.workspace import Workspace, arrays_from_bytes, arrays_to_bytes

log = logging.getLogger("puffin_ann")

NO_NUMBER = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Stands for the number of a row that is not to be known by it: no commit has it."""

READERS = 16
"""Files looked into at once: most of the time goes into waiting for the store."""


@dataclass(frozen=True)
class RemovedRowsOfFiles:
    """Rows removed from rewritten files.

    Attributes:
        locators: (n, 3) uint32: file id, row group, offset in it.
        identities: (n, 2) uint64.
    """

    locators: NDArray[np.uint32]
    identities: NDArray[np.uint64]


@dataclass(frozen=True)
class RowsByRowId:
    """Rows of rewritten files.

    Attributes:
        row_ids: (n,) uint64, ascending, each once.
        sequence_numbers: (n,) uint64, of the commits that changed them last; `NO_NUMBER` where
            several rows have the id, or the only one is not indexed: so rows of other parts that
            have it, too, are not believed either.
        identities: (n, 2) uint64, of those that have a number; of others any.
    """

    row_ids: NDArray[np.uint64]
    sequence_numbers: NDArray[np.uint64]
    identities: NDArray[np.uint64]

    @classmethod
    def of(cls, lineage: NDArray[np.uint64], identities: NDArray[np.uint64]) -> "RowsByRowId":
        """Return rows in order of their ids; of rows that share one, none is told by its number.

        Args:
            lineage: (n, 2) uint64, row ids and sequence numbers.
            identities: (m, 2) uint64, of the first m; the others are not indexed, and none of them
                is told by its number either.
        """
        order = np.argsort(lineage[:, 0], kind="stable")
        ids = lineage[order, 0]
        is_first, is_last = np.ones(len(order), np.bool_), np.ones(len(order), np.bool_)
        is_first[1:] = is_last[:-1] = ids[1:] != ids[:-1]
        shared = ~is_last[is_first]  # a row follows that has the id, too
        order = order[is_first]
        is_indexed = order < len(identities)
        known = np.zeros((len(order), 2), np.uint64)
        known[is_indexed] = identities[order[is_indexed]]
        numbers = lineage[order, 1]
        numbers[shared | ~is_indexed] = NO_NUMBER
        return cls(lineage[order, 0], numbers, known)


class RowIds:
    """Finds removed rows by their row ids, in several threads.

    Args:
        workspace: of the run.
        buckets: that were looked into; unless all were read whole, no row is known.
    """

    def __init__(self, workspace: Workspace, buckets: Sequence[KnownRowsOfBucket]) -> None:
        is_whole = all(bucket.is_whole for bucket in buckets)
        self._buckets = [bucket for bucket in buckets if bucket.rows and is_whole]
        fetch = partial(_fetch, workspace)
        # Rows that were written one after the other are mostly rewritten so.
        self._fetch = lru_cache(maxsize=2)(fetch)

    def __call__(self, lineage: NDArray[np.uint64]) -> KnownRows:
        """Return what is known of rows, by row ids and sequence numbers, (n, 2) uint64."""
        rows = len(lineage)
        times = np.zeros(rows, np.int64)
        indexed = np.zeros(rows, np.bool_)
        identities = np.zeros((rows, 2), np.uint64)
        ids = lineage[:, 0]
        for bucket in self._buckets:
            asked = np.flatnonzero((ids >= bucket.first) & (ids <= bucket.last))
            if not len(asked):
                continue
            known = self._fetch(bucket.known)
            at = np.searchsorted(known.row_ids, ids[asked]).clip(max=len(known.row_ids) - 1)
            is_same = known.row_ids[at] == ids[asked]
            times[asked[is_same]] += 1
            is_same &= known.sequence_numbers[at] == lineage[asked, 1]
            is_same &= known.sequence_numbers[at] != NO_NUMBER
            asked, at = asked[is_same], at[is_same]
            indexed[asked] = True
            identities[asked] = known.identities[at]
        return KnownRows(indexed & (times == 1), identities)


def _fetch(workspace: Workspace, staged: StagedFile) -> RowsByRowId:
    return arrays_from_bytes(RowsByRowId, workspace.fetch_bytes(staged))


def stage_by_file(
    workspace: Workspace,
    files: RewrittenFiles,
    name: str,
    locators: NDArray[np.uint32],
    identities: NDArray[np.uint64],
) -> tuple[StagedFile, ...]:
    """Stage rows removed from a shard, by the bucket of the files they were in.

    Args:
        workspace: of the run.
        files: that are looked into.
        name: of the shard.
        locators: (n, 3) uint32, rows of any files.
        identities: (n, 2) uint64.
    """
    places = files.places(locators[:, 0])
    buckets = np.where(places >= 0, files.buckets[places], -1)
    staged = []
    for bucket in range(int(files.buckets[-1]) + 1):
        mine = np.flatnonzero(buckets == bucket)
        values = arrays_to_bytes(RemovedRowsOfFiles(locators[mine], identities[mine]))
        staged.append(workspace.stage_bytes(f"rewritten-{name}-{bucket:04d}.arrays", values))
    return tuple(staged)


def find_row_ids(
    workspace: Workspace, bucket: int, shards: Sequence[StagedFile], *, threads: int
) -> KnownRowsOfBucket:
    """Read the row ids of rows that were removed with the files of a bucket, and stage them.

    Args:
        workspace: of the run.
        bucket: its number.
        shards: what `stage_by_file` staged of each shard for it.
        threads: threads to use; files are waited for in more.
    """
    files = load_rewritten_files(workspace)
    parts = [
        arrays_from_bytes(RemovedRowsOfFiles, workspace.fetch_bytes(staged)) for staged in shards
    ]
    locators = np.concatenate([np.zeros((0, 3), np.uint32), *(part.locators for part in parts)])
    identities = np.concatenate([np.zeros((0, 2), np.uint64), *(part.identities for part in parts)])
    order = np.argsort(locators[:, 0], kind="stable")
    locators, identities = locators[order], identities[order]
    here = np.flatnonzero(files.buckets == bucket)
    starts = np.searchsorted(locators[:, 0], files.file_ids[here])
    ends = np.searchsorted(locators[:, 0], files.file_ids[here], side="right")

    def look_into(number: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]] | None:
        rows = locators[starts[number] : ends[number], 1:]
        return _lineage_of(workspace, files, int(here[number]), rows)

    with ThreadPoolExecutor(max(threads, READERS), thread_name_prefix="lineage") as pool:
        found = list(pool.map(look_into, range(len(here))))
    none = np.zeros((0, 2), np.uint64)
    indexed, skipped, known = [none], [none], [none]
    for number, lineage in enumerate(found):
        if lineage is not None:
            indexed.append(lineage[0])
            skipped.append(lineage[1])
            known.append(identities[starts[number] : ends[number]])
    rows = RowsByRowId.of(np.concatenate([*indexed, *skipped]), np.concatenate(known))
    log.info("row ids: %d rows of %d files may be known by them", len(rows.row_ids), len(found))
    return KnownRowsOfBucket(
        known=workspace.stage_bytes(f"row-ids-{bucket:04d}.arrays", arrays_to_bytes(rows)),
        rows=len(rows.row_ids),
        first=int(rows.row_ids[0]) if len(rows.row_ids) else 0,
        last=int(rows.row_ids[-1]) if len(rows.row_ids) else 0,
        is_whole=all(lineage is not None for lineage in found),
    )


def _lineage_of(
    workspace: Workspace, files: RewrittenFiles, number: int, rows: NDArray[np.uint32]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]] | None:
    """Return row ids and sequence numbers of rows of one file; None where it cannot be read.

    Args:
        workspace: of the run.
        files: that are looked into.
        number: of the file among them.
        rows: (n, 2) uint32, row groups and offsets of rows that are indexed.

    Returns:
        (n, 2) uint64, those of `rows`; and (s, 2) uint64, of live rows without a usable vector.
    """
    covered = workspace.base_version.coverage.columns
    place = int(np.searchsorted(covered.file_ids, files.file_ids[number]))
    path = absolute_path(workspace.table.location(), covered.paths[place])
    file = LiveFile(
        path,
        int(covered.sizes[place]),
        int(covered.sequence_numbers[place]),
        int(covered.rows[place]),
        data_sequence_number=int(files.sequence_numbers[number]),
        first_row_id=int(files.first_row_ids[number]),
    )
    nothing = covered.skipped.get(place, BitMap()) - covered.deleted.get(place, BitMap())
    skipped = np.asarray(nothing.to_array(), np.int64)
    try:
        with open_file(workspace.table.io, path) as parquet:
            groups = [parquet.metadata.row_group(n).num_rows for n in range(parquet.num_row_groups)]
            if groups != list(covered.row_groups(place)):
                return None
            starts = np.append(0, np.cumsum(groups, dtype=np.int64))
            indexed = starts[rows[:, 0]] + rows[:, 1]
            wanted = np.zeros(file.rows, np.bool_)
            wanted[indexed] = True
            wanted[skipped] = True
            lineage = np.zeros((file.rows, 2), np.uint64)
            for group, (first, last) in enumerate(pairwise(starts.tolist())):
                if wanted[first:last].any():
                    lineage[first:last] = row_lineage(parquet, file, group)
    except Exception as error:
        # It may be gone, and was needed for nothing else: its rows are hashed where they are now.
        log.info("row ids: not read of %s: %s", path, error)
        return None
    # A row has no number above that of the commit which added its file: this one has it of another
    # table, and a later commit to this table may get the same.
    lineage[lineage[:, 1] > np.uint64(file.sequence_number), 1] = NO_NUMBER
    return lineage[indexed], lineage[skipped]
