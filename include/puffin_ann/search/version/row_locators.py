"""Where the rows of a shard are, in the form they are searched in, and which of them are masked.

Ordinals are in the order of cells, or in none after a merge, and deleted rows may name files
that the coverage no longer knows. So nothing here takes an order for granted: files are numbered
within the shard, and each question is asked once for each file and then looked up for all rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.array_files import load_array
from puffin_ann.blobs.shards import cells as cell_starts
from puffin_ann.blobs.shards.cells import CellStarts
from puffin_ann.blobs.shards.rows import Rows
from puffin_ann.errors import BlobFormatError, LocalCopyError
from puffin_ann.lake.read.diff.coverage_diff import ALL, Positions
from puffin_ann.search.merge import LocatorKeys

_ARRAYS = ("files", "places", "row_groups", "offsets", "in_order")
_CELLS = "cells.npy"


@dataclass(frozen=True, eq=False)
class FileRanks:
    """Ranks of covered files by file id; ids are never given twice, so they may be any numbers.

    Attributes:
        file_ids: (n,) int64, ascending.
        ranks: (n,) int64.
    """

    file_ids: NDArray[np.int64]
    ranks: NDArray[np.int64]

    def __getitem__(self, file_ids: Any) -> NDArray[np.int64]:
        """Return the ranks of covered files, in the shape of their ids."""
        found: NDArray[np.int64] = self.ranks[self.file_ids.searchsorted(file_ids)]
        return found

    @property
    def in_order(self) -> bool:
        """Tell whether files ascend by rank as they do by id."""
        return bool((self.ranks[1:] > self.ranks[:-1]).all())


@dataclass(frozen=True, eq=False)
class MaskedRows:
    """Rows of covered files that are not live, laid out for questions about many rows.

    Attributes:
        file_ids: (m,) int64, ascending.
        whole: (m,) bool, files of which no row is live.
        groups: (m,) int64, row groups of the others, 0 of those.
        first_group: (m,) int64, place of a file's first row group in `group_starts`.
        group_starts: number of each row group's first row, counted through all files.
        rows: (p,) int64, the masked rows of files that are masked in part, counted so; ascending.
    """

    file_ids: NDArray[np.int64]
    whole: NDArray[np.bool_]
    groups: NDArray[np.int64]
    first_group: NDArray[np.int64]
    group_starts: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def of(
        cls, masked: Mapping[int, Positions], row_group_starts: Mapping[int, NDArray[np.int64]]
    ) -> "MaskedRows":
        """Lay out what a view says.

        Args:
            masked: by file id, positions in the file that are not live, or `ALL`.
            row_group_starts: by file id, position in the file of each row group's first row, and
                behind them the number of its rows.
        """
        ids = sorted(masked)
        groups, starts, rows = [], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        base = 0
        for file_id in ids:
            positions = masked[file_id]
            if positions is ALL:
                groups.append(0)
                continue
            bounds = row_group_starts[file_id]
            groups.append(len(bounds) - 1)
            starts.append(bounds[:-1] + base)
            here = np.asarray(positions.to_array(), dtype=np.int64)
            rows.append(here[here < bounds[-1]] + base)  # nothing must run into the next file
            base += int(bounds[-1])
        counts = np.array(groups, np.int64)
        return cls(
            file_ids=np.array(ids, np.int64),
            whole=np.array([masked[file_id] is ALL for file_id in ids], np.bool_),
            groups=counts,
            first_group=np.cumsum(counts) - counts,
            group_starts=np.concatenate(starts),
            rows=np.concatenate(rows),
        )


@dataclass(frozen=True, eq=False)
class Locators:
    """The locators of a shard's rows, by ordinal; mostly memory-mapped.

    Attributes:
        files: (f,) uint32, the file ids there are, ascending.
        places: (n,) uint32, place in `files` of each row's file.
        row_groups: (n,) uint32.
        offsets: (n,) uint32, row offset inside the row group.
        in_order: ordinals ascend by file id, row group and offset.
        cells: where the rows of cells are, of the leading rows; None if that is not known.
    """

    files: NDArray[np.uint32]
    places: NDArray[np.uint32]
    row_groups: NDArray[np.uint32]
    offsets: NDArray[np.uint32]
    in_order: bool
    cells: CellStarts | None = None

    @classmethod
    def of(cls, rows: Rows) -> "Locators":
        """Take over a rows blob."""
        files, places = _numbered(rows.file_ids)
        return cls(files, places, rows.row_groups, rows.offsets, rows.in_order, rows.cells)

    @staticmethod
    def save(rows: Rows, folder: Path) -> None:
        """Write what `open` maps to an existing folder."""
        values = Locators.of(rows)
        for name in _ARRAYS:
            np.save(folder / f"{name}.npy", np.asarray(getattr(values, name)))
        if values.cells is not None:
            encoded = cell_starts.encode(values.cells)
            np.save(folder / _CELLS, np.frombuffer(encoded, cell_starts.NUMBER))

    @classmethod
    def open(cls, folder: Path) -> "Locators":
        """Map what `save` wrote.

        Raises:
            OSError, ValueError, BlobFormatError: it is not there, or not whole.
        """
        # As plain arrays: indexing a memmap costs several times as much.
        files, places, row_groups, offsets, in_order = (
            load_array(folder / f"{name}.npy", mapped=True).view(np.ndarray) for name in _ARRAYS
        )
        if not len(places) == len(row_groups) == len(offsets):
            raise ValueError(f"{folder}: columns of different lengths")
        cells = None
        if (folder / _CELLS).exists():  # folders made before have none
            encoded = load_array(folder / _CELLS, mapped=False).tobytes()
            cells = cell_starts.decode(encoded, len(places), str(folder))
        return cls(files, places, row_groups, offsets, bool(in_order), cells)

    def __len__(self) -> int:
        """Return the number of rows n."""
        return len(self.places)

    @property
    def file_ids(self) -> NDArray[np.uint32]:
        """(n,) uint32, the coverage's number of each row's file; made again each time."""
        ids: NDArray[np.uint32] = self.files[self.places]
        return ids

    def take(self, ordinals: NDArray[np.int64]) -> "Locators":
        """Return those of some rows, (m,) int64, in the order given."""
        return Locators.of(
            Rows(self.file_ids[ordinals], self.row_groups[ordinals], self.offsets[ordinals])
        )

    @classmethod
    def joined(cls, parts: Sequence["Locators"]) -> "Locators":
        """Return those of several shards, one behind the other; there is at least one."""
        return cls.of(
            Rows(
                np.concatenate([part.file_ids for part in parts]),
                np.concatenate([part.row_groups for part in parts]),
                np.concatenate([part.offsets for part in parts]),
            )
        )

    def keys(self, ranks: FileRanks, ordinals: NDArray[np.int64]) -> LocatorKeys:
        """Return file rank, row group and offset of live rows, by which ties are broken.

        Args:
            ranks: of the covered files.
            ordinals: of any shape; the files of these rows are covered.

        Raises:
            LocalCopyError: they were when the shard was opened, and what is mapped says otherwise.
        """
        try:
            return (
                ranks[self.files[self.places[ordinals]]],
                self.row_groups[ordinals].astype(np.int64),
                self.offsets[ordinals].astype(np.int64),
            )
        except IndexError:
            raise LocalCopyError(
                "the copy of a shard in the local cache was changed while it was open: it names a "
                "data file that the index does not cover; open the index again, which checks the "
                "copy and unpacks the shard again"
            ) from None

    def masked(self, masked: MaskedRows) -> NDArray[np.bool_] | None:
        """Return (n,) bool, the rows that are masked; None if none is.

        Raises:
            BlobFormatError: a row is in a row group that its file has not.
        """
        if not len(masked.file_ids) or not len(self):
            return None
        at = np.searchsorted(masked.file_ids, self.files).clip(max=len(masked.file_ids) - 1)
        named = masked.file_ids[at] == self.files
        if not named.any():
            return None
        found: NDArray[np.bool_] = (named & masked.whole[at])[self.places]
        in_part = named & ~masked.whole[at]
        if in_part.any():
            rows = np.flatnonzero(in_part[self.places])
            found[rows] = are_among(masked.rows, self._numbers(masked, at, rows))
        return found

    def _numbers(
        self, masked: MaskedRows, at: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the rows' numbers, as `MaskedRows` counts them through all files."""
        file, group = at[self.places[rows]], self.row_groups[rows].astype(np.int64)
        if (group >= masked.groups[file]).any():
            raise BlobFormatError("rows blob: a row is in a row group that its file has not")
        numbers: NDArray[np.int64] = masked.group_starts[masked.first_group[file] + group]
        return numbers + self.offsets[rows]


def _numbered(ids: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the ids there are, ascending, and (n,) uint32, the place of each row's among them."""
    most = int(ids.max(initial=0))
    if most > len(ids):  # rows set aside have the highest id there can be
        files, places = np.unique(ids, return_inverse=True)
        return files, places.astype(np.uint32)
    there = np.zeros(most + 1, np.bool_)
    there[ids] = True
    # Files are few and numbered from 0: this needs no sort of the rows.
    numbers = np.cumsum(there, dtype=np.uint32) - np.uint32(1)
    return np.flatnonzero(there).astype(np.uint32), numbers[ids]


def are_among(ascending: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which numbers, (n,) int64, are among others that ascend: (n,) bool."""
    if not len(ascending):
        return np.zeros(len(numbers), np.bool_)
    at = np.searchsorted(ascending, numbers).clip(max=len(ascending) - 1)
    among: NDArray[np.bool_] = ascending[at] == numbers
    return among
