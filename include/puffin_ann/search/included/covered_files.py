"""The data files that a version covers as a snapshot has them, and which of their rows matter."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from puffin_ann.lake.read.diff.coverage_diff import ALL, Positions
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.snapshot_view import SnapshotView


def places_of_files(version: IndexVersion, view: SnapshotView) -> Mapping[str, int]:
    """Return the covered files that are live as they are covered, by path, with their places."""
    files = version.coverage.columns
    paths = [view.files[rank] for rank in view.rank_of_file_id[files.file_ids].tolist()]
    replaced = {file.path for file, positions in view.scanned if positions is ALL}
    return {
        path: place
        for place, path in enumerate(paths)
        if path not in replaced and view.masked.get(int(files.file_ids[place])) is not ALL
    }


def needed_rows(
    version: IndexVersion, view: SnapshotView, path: str, place: int
) -> NDArray[np.bool_]:
    """Return (n,) bool, the rows of a covered file that may be answered."""
    files = version.coverage.columns
    needed = np.ones(int(files.rows[place]), np.bool_)
    masked = view.masked.get(int(files.file_ids[place]))
    for left_out in (files.deleted.get(place), files.skipped.get(place), masked):
        if left_out:
            needed[_among(left_out, len(needed))] = False
    for positions in (scanned for file, scanned in view.scanned if file.path == path):
        needed[_among(positions, len(needed))] = True
    return needed


def _among(positions: Positions, rows: int) -> NDArray[np.int64]:
    if positions is ALL:
        return np.arange(rows)
    found: NDArray[np.int64] = np.asarray(positions.to_array(), np.int64)
    return found[found < rows]
