"""Compare a version with a snapshot: which rows to answer, to mask and to scan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyroaring import BitMap

from puffin_ann.blobs.version.coverage import CoveredFiles
from puffin_ann.lake.catalog.tables import schema_of_snapshot
from puffin_ann.lake.read.deletes.row_deletes import deleted_positions
from puffin_ann.lake.read.diff.coverage_diff import (
    ALL,
    CoveredColumns,
    Difference,
    Positions,
    difference,
)
from puffin_ann.lake.read.diff.manifest_diff import changes
from puffin_ann.lake.read.files.live_files import Listed, LiveFile, files_of, load_manifest_list
from puffin_ann.lake.store.locations import TableFolders, absolute_path
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.row_locators import FileRanks


@dataclass(frozen=True)
class LiveState:
    """The live rows of one snapshot; files and deletes are read only when they are asked for.

    Attributes:
        at: the snapshot's manifests.
        by_branch: whether it was asked for by the name of a branch.
    """

    snapshot_id: int
    at: Listed
    by_branch: bool = False

    @cached_property
    def files(self) -> Sequence[LiveFile]:
        """Data files of the snapshot, every manifest read.

        Raises:
            UnsupportedTableError: data files that are not Parquet.
        """
        return files_of(self.at)

    @cached_property
    def deleted(self) -> Mapping[str, BitMap]:
        """By path, positions deleted by row-level deletes."""
        return deleted_positions(self.at.table, self.files)

    @property
    def rows(self) -> int:
        """Number of live rows."""
        deleted = sum(len(positions) for positions in self.deleted.values())
        return sum(file.rows for file in self.files) - deleted


def live_state(table: Table, snapshot_id: int | None, *, by_branch: bool = False) -> LiveState:
    """Return which rows are live in a snapshot; none, where a table has no snapshot yet."""
    return LiveState(snapshot_id or 0, load_manifest_list(table, snapshot_id), by_branch)


@dataclass(frozen=True)
class SnapshotView:
    """An index version seen from one snapshot.

    Attributes:
        snapshot_id: the snapshot asked for.
        masked: by file id, positions that the version holds but that are not live.
        scanned: live rows that the version does not hold: file and positions.
        files: absolute paths of all files named here, sorted; a file's place is its rank, by which
            equal distances are ordered.
        sizes: (files,) int64, bytes of each.
        rank_of_file_id: rank of each covered file.
        row_group_starts: by id of a file masked in part, position in it of each row group's first
            row.
        live_rows: rows live in the snapshot.
        rows_answered: live rows that the version covers.
        rows_masked: rows that the version covers but that are not live.
        rows_to_scan: live rows that it does not cover.
        coverage: share of the live rows that it covers; 1 for an empty snapshot.
        changed: what all this was made of; places are those of the version's covered files.
        by_branch: see `LiveState`.
    """

    snapshot_id: int
    masked: Mapping[int, Positions]
    scanned: Sequence[tuple[LiveFile, Positions]]
    files: Sequence[str]
    sizes: NDArray[np.int64]
    rank_of_file_id: FileRanks
    row_group_starts: Mapping[int, NDArray[np.int64]]
    live_rows: int
    rows_answered: int
    rows_masked: int
    rows_to_scan: int
    coverage: float
    changed: Difference
    by_branch: bool

    def schema(self, table: Table) -> Schema:
        """Return the schema of the table by which columns are named, see `schema_of_snapshot`."""
        return schema_of_snapshot(table, self.snapshot_id, by_branch=self.by_branch)

    def live(self, table: Table) -> LiveState:
        """Return which rows are live in the snapshot."""
        return live_state(table, self.snapshot_id, by_branch=self.by_branch)

    @property
    def rows_skipped(self) -> int:
        """Live rows of covered files that are not indexed: they hold no usable vector."""
        return self.live_rows - self.rows_answered - self.rows_to_scan

    @property
    def cost(self) -> int:
        """Rows to mask and scan: the version with the fewest serves a snapshot best."""
        return self.rows_masked + self.rows_to_scan


def covered_columns(location: str, files: CoveredFiles) -> CoveredColumns:
    """Return what the diff needs of covered files."""
    return CoveredColumns(
        [absolute_path(location, path) for path in files.paths],
        files.file_ids,
        files.sizes,
        files.sequence_numbers,
        files.rows,
        files.deleted,
        files.skipped,
    )


def view_of(table: Table, version: IndexVersion, live: LiveState) -> SnapshotView:
    """Compare what a version covers with what is live.

    Only manifests that differ from those of the version's base snapshot are read, if they tell
    enough, and if all that the version names is in the table's folders. Otherwise every manifest is
    read, and a file that none of them lists is not live, whatever the version says.

    Raises:
        UnsupportedTableError: data files that are not Parquet.
    """
    files = version.coverage.columns
    known = covered_columns(table.location(), files)
    changed = None
    if _may_be_live(table, version, live):
        changed = changes(live.at, known, version.coverage.manifests)
    if changed is None:
        changed = difference(known, live.files, live.deleted)
    paths, sizes, ranks = _ranks(known, [file for file, _ in changed.scanned])
    return SnapshotView(
        snapshot_id=live.snapshot_id,
        masked=changed.masked,
        scanned=changed.scanned,
        files=paths,
        sizes=sizes,
        rank_of_file_id=ranks,
        row_group_starts={
            int(files.file_ids[at]): np.append(0, np.cumsum(files.row_groups(at), dtype=np.int64))
            for at in _places(files, changed)
        },
        live_rows=changed.live_rows,
        rows_answered=files.indexed_rows - changed.masked_rows,
        rows_masked=changed.masked_rows,
        rows_to_scan=changed.scanned_rows,
        coverage=changed.coverage,
        changed=changed,
        by_branch=live.by_branch,
    )


def _may_be_live(table: Table, version: IndexVersion, live: LiveState) -> bool:
    """Tell whether what a version names may be read without being asked of every manifest."""
    folders = TableFolders.of(table)
    known = {manifest.path for manifest in live.at.manifests}
    return folders.hold_data_files(version.coverage.columns.paths) and folders.hold_manifests(
        path for path in version.coverage.manifests if path not in known
    )


def _places(files: CoveredFiles, changed: Difference) -> list[int]:
    """Return the places of files masked in part."""
    ids = [file_id for file_id, positions in changed.masked.items() if positions is not ALL]
    places: list[int] = np.searchsorted(files.file_ids, ids).tolist()
    return places


def _ranks(
    known: CoveredColumns, scanned: Sequence[LiveFile]
) -> tuple[Sequence[str], NDArray[np.int64], FileRanks]:
    """Return all paths in order, the bytes of each, and by file id the place of each covered."""
    extra = [file.path for file in scanned if file.path not in known.places]
    # Covered paths are mostly in order already, which makes the sort faster.
    paths = sorted([*known.places, *extra])
    rank = {path: number for number, path in enumerate(paths)}
    covered = np.array([rank[path] for path in known.paths], np.int64)
    sizes = np.zeros(len(paths), np.int64)
    sizes[covered] = known.sizes
    for file in scanned:  # what is live is what is read, should a covered one have had its path
        sizes[rank[file.path]] = file.size
    return paths, sizes, FileRanks(known.file_ids, covered)
