"""What an index version knows of a snapshot: the three sets of rows, and the order of files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyiceberg.table import Table
from pyroaring import BitMap

from puffin_ann.blobs.coverage import CoveredFile
from puffin_ann.lake.deletes import deleted_positions
from puffin_ann.lake.diff import Covered, Difference, Positions, difference
from puffin_ann.lake.live import LiveFile, live_files
from puffin_ann.search.versions import IndexVersion


@dataclass(frozen=True)
class LiveState:
    """The live rows of one snapshot.

    Attributes:
        files: its data files.
        deleted: by path, positions deleted by row-level deletes.
    """

    snapshot_id: int
    files: Sequence[LiveFile]
    deleted: Mapping[str, BitMap]

    @property
    def rows(self) -> int:
        """Number of live rows."""
        dead = sum(len(positions) for positions in self.deleted.values())
        return sum(file.rows for file in self.files) - dead


def live_state(table: Table, snapshot_id: int) -> LiveState:
    """Read which rows are live in a snapshot.

    Raises:
        UnsupportedTableError: equality deletes, or data files that are not Parquet.
    """
    files = live_files(table, snapshot_id)
    return LiveState(snapshot_id, files, deleted_positions(table.io, files))


@dataclass(frozen=True)
class View:
    """An index version seen from one snapshot.

    Attributes:
        snapshot_id: the snapshot asked for.
        masked: by file id, positions that the version holds but that are not live.
        scanned: live rows that the version does not hold: file and positions.
        files: absolute paths of all files named here, sorted; a file's place is its rank, by which
            equal distances are ordered.
        rank_of_file_id: (largest file id + 1,) int64, rank of each covered file, else -1.
        row_group_starts: by file id, position in the file of each row group's first row.
        rows_answered: live rows that the version covers.
        rows_masked: rows that the version covers but that are not live.
        rows_to_scan: live rows that it does not cover.
        coverage: share of the live rows that it covers; 1 for an empty snapshot.
    """

    snapshot_id: int
    masked: Mapping[int, Positions]
    scanned: Sequence[tuple[LiveFile, Positions]]
    files: Sequence[str]
    rank_of_file_id: NDArray[np.int64]
    row_group_starts: Mapping[int, NDArray[np.int64]]
    rows_answered: int
    rows_masked: int
    rows_to_scan: int
    coverage: float

    @property
    def cost(self) -> int:
        """Rows to mask and scan: the version with the fewest serves a snapshot best."""
        return self.rows_masked + self.rows_to_scan


def absolute_path(location: str, path: str) -> str:
    """Resolve a covered file's path: relative paths lie inside the table's location."""
    if "://" in path or path.startswith(("/", "file:")):
        return path
    return f"{location.rstrip('/')}/{path}"


def relative_path(location: str, path: str) -> str:
    """Shorten a data file's path to the part below the table's location, where it lies there."""
    prefix = location.rstrip("/") + "/"
    return path[len(prefix) :] if path.startswith(prefix) else path


def covered(location: str, file: CoveredFile) -> Covered:
    """Return what the diff needs of a covered file."""
    return Covered(
        file_id=file.file_id,
        path=absolute_path(location, file.path),
        size=file.size,
        sequence_number=file.sequence_number,
        rows=file.rows,
        deleted=file.deleted,
        skipped=file.skipped,
    )


def view_of(table: Table, version: IndexVersion, live: LiveState) -> View:
    """Compare what a version covers with what is live."""
    files = version.coverage.files
    known = [covered(table.location(), file) for file in files]
    changed: Difference = difference(known, live.files, live.deleted)
    paths = sorted({file.path for file in known} | {file.path for file, _ in changed.scanned})
    rank = {path: number for number, path in enumerate(paths)}
    ranks = np.full(max((file.file_id for file in known), default=-1) + 1, -1, dtype=np.int64)
    for file in known:
        ranks[file.file_id] = rank[file.path]
    indexed = sum(file.rows - len(file.deleted | file.skipped) for file in known)
    return View(
        snapshot_id=live.snapshot_id,
        masked=changed.masked,
        scanned=changed.scanned,
        files=paths,
        rank_of_file_id=ranks,
        row_group_starts={
            file.file_id: np.concatenate([[0], np.cumsum(file.row_groups)]).astype(np.int64)
            for file in files
            if file.file_id in changed.masked
        },
        rows_answered=indexed - changed.masked_rows,
        rows_masked=changed.masked_rows,
        rows_to_scan=changed.scanned_rows,
        coverage=changed.coverage,
    )
