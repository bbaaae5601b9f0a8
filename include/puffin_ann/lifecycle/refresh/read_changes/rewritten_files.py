"""Find the files that were rewritten into others, of tables whose rows have row ids.

Rows of such files are known again by their row ids; see `known_rows` for which of them are.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyiceberg.table import Table

from puffin_ann.declaration import CENTROID
from puffin_ann.lake.read.data.parquet import open_file
from puffin_ann.lake.read.identity.rewriting_commits import (
    commits_since,
    entries_beside,
    may_move_imported_rows,
    numbers_of_rewrites,
)
from puffin_ann.lake.read.identity.row_lineage import has_row_ids, has_stored_lineage
from puffin_ann.lake.store.locations import absolute_path
from puffin_ann.lifecycle.documents.run import PlannedFile
from puffin_ann.lifecycle.runtime.workspace import Workspace, arrays_from_bytes
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.snapshot_view import SnapshotView
from puffin_ann.settings import settings

log = logging.getLogger("puffin_ann")

ROWS_PER_BUCKET = 4_000_000
"""Rows of removed files looked into at once: 80 bytes each, and 33 while rows are read."""

FILE_BYTES = 256 << 10
"""Bytes of vectors of a removed file that are worth a look into it. On a local disk a look took
about a millisecond, and to read and hash as many bytes two to four (one thread, on a busy machine);
of an object store a look takes two or three requests."""


@dataclass(frozen=True)
class RewrittenFiles:
    """Covered files that are not live any more, and what the base snapshot says of each.

    Attributes:
        file_ids: (m,) int64, ascending.
        first_row_ids: (m,) int64.
        sequence_numbers: (m,) int64, data sequence numbers.
        buckets: (m,) int64, ascending: the part in which a file is looked into.
    """

    file_ids: NDArray[np.int64]
    first_row_ids: NDArray[np.int64]
    sequence_numbers: NDArray[np.int64]
    buckets: NDArray[np.int64]

    def places(self, file_ids: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Return (n,) int64, where files are among these; -1 of others."""
        at = np.searchsorted(self.file_ids, file_ids).clip(max=len(self.file_ids) - 1)
        return np.where(self.file_ids[at] == file_ids, at, -1)


def find_rewritten_files(
    table: Table,
    version: IndexVersion,
    view: SnapshotView,
    files: Sequence[PlannedFile],
    manifests: Collection[str],
) -> tuple[RewrittenFiles | None, tuple[PlannedFile, ...]]:
    """Find out whether rows may be known again by their row ids.

    Args:
        table: as it was loaded.
        version: that is refreshed.
        view: of it, from the snapshot that it is to cover.
        files: that are read.
        manifests: paths of that snapshot's manifests.

    Returns:
        The files that rows were removed with, and the files that are read, with those marked that
        may hold them now; None and the files as they are where nothing is to be won.
    """
    if not has_row_ids(table) or not settings().row_lineage:
        return None, tuple(files)
    if version.routing.algorithm == CENTROID:
        return None, tuple(files)  # its centroids are made of all vectors of a file
    covered = version.coverage.columns
    removed = np.array(sorted(view.changed.removed), np.int64)
    rows = int(covered.rows[removed].sum())
    if not rows or rows * 4 * version.routing.dimension < FILE_BYTES * len(removed):
        return None, tuple(files)
    base_id = version.coverage.base_snapshot_id
    commits = commits_since(table, base_id, view.snapshot_id)
    if commits is None:
        return None, tuple(files)
    numbers = numbers_of_rewrites(commits)
    added = {file.path for file, _ in view.changed.added}
    may_keep = [file for file in files if file.path in added and file.sequence_number in numbers]
    if not may_keep or not _keeps_row_ids(table, max(may_keep, key=lambda file: file.rows)):
        return None, tuple(files)
    if may_move_imported_rows(table, base_id, commits, added):
        log.info("row ids: none is believed, as rows of another table may have been moved")
        return None, tuple(files)
    found = _files_with_first_row_ids(table, version, removed, manifests)
    if found is None:
        return None, tuple(files)
    marked = {file.file_id for file in may_keep}
    return found, tuple(
        file.model_copy(update={"keeps_row_ids": True}) if file.file_id in marked else file
        for file in files
    )


def _keeps_row_ids(table: Table, file: PlannedFile) -> bool:
    """Tell of one file for all: what one engine rewrites has the columns, or has not."""
    with open_file(table.io, file.path) as parquet:
        return has_stored_lineage(parquet)


def _files_with_first_row_ids(
    table: Table, version: IndexVersion, removed: NDArray[np.int64], manifests: Collection[str]
) -> RewrittenFiles | None:
    """Return what the base snapshot says of removed files, by their places.

    None where it does not tell a first row id of each.
    """
    covered = version.coverage.columns
    # What both snapshots list is live in both.
    entries = entries_beside(table, version.coverage.base_snapshot_id, manifests)
    if entries is None:
        return None
    found = []
    for place in removed.tolist():
        entry = entries.get(absolute_path(table.location(), covered.paths[place]))
        if entry is None or entry.first_row_id is None:
            return None
        key = (covered.sizes[place], covered.sequence_numbers[place], covered.rows[place])
        if key != (entry.size, entry.file_sequence_number, entry.rows):
            return None
        found.append((place, entry.first_row_id, entry.sequence_number))
    places, first_row_ids, sequence_numbers = np.array(found, np.int64).T
    counted = np.cumsum(covered.rows[places])
    return RewrittenFiles(
        covered.file_ids[places],
        first_row_ids,
        sequence_numbers,
        (counted - covered.rows[places]) // ROWS_PER_BUCKET,
    )


def load_rewritten_files(workspace: Workspace) -> RewrittenFiles:
    """Return the files of which the plan says that they are looked into."""
    staged = workspace.refresh_plan.rewritten
    if staged is None:
        none = np.zeros(0, np.int64)
        return RewrittenFiles(none, none, none, none)
    return arrays_from_bytes(RewrittenFiles, workspace.fetch_bytes(staged))
