"""The rows that a condition lets be answered, as shards, data files and scans ask for them."""

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from puffin_ann.lake.read.conditions.condition import Condition
from puffin_ann.lake.read.conditions.matching_rows import MatchingRows
from puffin_ann.lake.read.diff.coverage_diff import ALL, Positions
from puffin_ann.search.conditions.decisions import Decisions
from puffin_ann.search.conditions.gathered import Gathered, fits
from puffin_ann.search.conditions.kept_shards import KeptShards
from puffin_ann.search.conditions.live_places import FEW_SHARE, LivePlaces
from puffin_ann.search.conditions.shard_rows import ShardRows
from puffin_ann.search.conditions.sifted import Sifted
from puffin_ann.search.conditions.ways import worth_of_mask
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.row_locators import Locators
from puffin_ann.search.version.snapshot_view import SnapshotView

PLACED_BYTES = 4
"""Of a row that is kept by its place."""

NONE, SOME, EVERY = 0, 1, 2
"""Of a file's rows."""


class AllowedRows:
    """Which rows of a version, and of the snapshot it does not cover, satisfy a condition.

    Safe to use from several threads.

    Args:
        version: of an index.
        view: of it, from the snapshot.
        condition: that is asked for.
        matching: the snapshot's rows that satisfy it.

    Attributes:
        condition: as given.
        matching: as given.
        scanned: by path of a file with rows outside the index, those of them that are allowed.
        rows_answered: live rows in the index that are allowed.
        rows_to_scan: live rows outside the index that are allowed.
        sifted: how queries fared whose nearest rows were sifted.
        asked: queries under the condition so far.
        settled: how many of them would have gained nothing by rows being gathered, as sifted ones;
            who would have gained a part of what others do counts as the rest of a query.
        may_be_gathered: whether they were not found to take too much when they were gathered.
        decisions: which ways were found to cost least.
    """

    def __init__(
        self,
        version: IndexVersion,
        view: SnapshotView,
        condition: Condition,
        matching: MatchingRows,
    ) -> None:
        self.condition, self.matching = condition, matching
        self._version, self._view = version, view
        files = version.coverage.columns
        ranks = view.rank_of_file_id[files.file_ids]
        self._positions: list[Positions | None] = [
            matching.positions.get(view.files[rank]) for rank in ranks.tolist()
        ]
        self.scanned: Mapping[str, Positions] = {
            file.path: both
            for file, positions in view.scanned
            if (both := _both(positions, matching.positions.get(file.path))) is not None
        }
        self.rows_answered = sum(map(self._count, range(len(self._positions))))
        rows = {file.path: file.rows for file, _ in view.scanned}
        self.rows_to_scan = sum(
            rows[path] if where is ALL else len(where) for path, where in self.scanned.items()
        )
        self.sifted = Sifted()
        self.asked, self.settled = 0, 0.0
        self.may_be_gathered = True
        self.decisions = Decisions()
        self._shards = KeptShards()
        self._gathered: Gathered | None = None
        self._is_placed = False

    @property
    def rows(self) -> int:
        """Live rows that are allowed, in the index and outside of it."""
        return self.rows_answered + self.rows_to_scan

    @cached_property
    def share(self) -> float:
        """Share of the rows in the index that may be answered, at most 1."""
        return min(1.0, self.rows_answered / max(1, self._version.vectors))

    @property
    def worth_of_mask(self) -> float:
        """How many times what a search with a mask takes is worth spending to miss no row."""
        return worth_of_mask(self.share, self.sifted.near_short(self.share))

    @property
    def sharing(self) -> float:
        """Queries among which it is dealt out to gather rows: they would have gained by that.

        Those are counted that asked so far, and as many that are to come: how long something has
        gone on is all there is to tell how long it will.
        """
        return 2.0 * (self.asked - self.settled)

    def can_be_gathered(self, dimension: int) -> bool:
        """Tell whether they are few enough to be gathered, of vectors of some dimension."""
        if self._gathered is not None:
            return True
        return self.may_be_gathered and fits(self.rows_answered, dimension)

    @property
    def skips_rows(self) -> bool:
        """Tell whether rows of covered files are allowed that hold no usable vector."""
        skipped = self._version.coverage.columns.skipped
        return any(_both(bits, self._positions[place]) for place, bits in skipped.items())

    def of_file(self, place: int) -> Positions:
        """Return the positions in a covered file that are allowed, live or not.

        Args:
            place: of the file among the version's covered files.
        """
        found = self._positions[place]
        return BitMap() if found is None else found

    def of_shard(
        self, shard_id: int, locators: Locators, deleted: NDArray[np.bool_] | None
    ) -> ShardRows:
        """Return the rows of a shard that may be answered; the same object as long as it is kept.

        Args:
            shard_id: of the shard.
            locators: of its rows.
            deleted: (n,) bool, those that are not live; None if all are.
        """
        found = self._shards.get(shard_id)
        if found is not None:
            return found
        excluded = ~self.among(locators)
        if deleted is not None:
            excluded |= deleted
        return self._shards.keep(shard_id, ShardRows.of(excluded))

    @property
    def gathered(self) -> Gathered | None:
        """Those in the index, side by side, once they were."""
        return self._gathered

    @gathered.setter
    def gathered(self, gathered: Gathered | None) -> None:
        self._gathered = gathered
        self._shards.make_room(0 if gathered is None else gathered.size)

    @property
    def are_to_place(self) -> bool:
        """Tell whether rows were not placed yet, and `place` finds them sooner than shards do."""
        return not self._is_placed and self._is_placing_worth_it

    @cached_property
    def _is_placing_worth_it(self) -> bool:
        """Tell whether places of rows are found soon, and may all be kept."""
        status, rows = self._status, self._version.coverage.columns.rows
        if (status == EVERY).any():
            return False
        some = sum(len(positions) for _, positions in self._in_part())
        return some * FEW_SHARE <= int(rows.sum()) and self._shards.fits(some * PLACED_BYTES)

    def place(self, live: LivePlaces) -> None:
        """Have the rows of all shards found by their places in files; they are few."""
        if not live.is_sound:
            return
        rows = self._version.coverage.columns.rows
        firsts = np.cumsum(rows) - rows
        numbers = [np.zeros(0, np.int64)]
        for place, bitmap in self._in_part():
            positions = np.asarray(bitmap.to_array(), np.int64)
            numbers.append(firsts[place] + positions[positions < rows[place]])
        for shard, ordinals in live.of(np.concatenate(numbers)):
            self._shards.keep(shard.shard_id, ShardRows.among(len(shard.locators), ordinals))
        self._is_placed = True

    @property
    def size(self) -> int:
        """Bytes that what is kept of shards takes."""
        return self._shards.bytes

    def among(self, locators: Locators) -> NDArray[np.bool_]:
        """Mark the rows of some locators that are allowed, (n,) bool, live or not."""
        covered = self._version.covered
        if not len(covered.file_ids):
            return np.zeros(len(locators), np.bool_)
        at = np.searchsorted(covered.file_ids, locators.files).clip(max=len(covered.file_ids) - 1)
        status = np.where(covered.file_ids[at] == locators.files, self._status[at], NONE)
        found: NDArray[np.bool_] = (status == EVERY)[locators.places]
        in_part = status == SOME
        if in_part.any():
            # Deleted rows may have been in any place; none of them is let be answered.
            rows = np.flatnonzero(in_part[locators.places])
            file = at[locators.places[rows]]
            group, offset = locators.row_groups[rows].astype(np.int64), locators.offsets[rows]
            there = group < covered.groups[file]
            number = covered.first_group[file] + np.where(there, group, 0)
            there &= offset < covered.group_rows[number]
            rows, file, number, offset = rows[there], file[there], number[there], offset[there]
            first = covered.group_starts[covered.first_group[file]]
            position = covered.group_starts[number] - first + offset
            found[rows] = self._flags[self._first_flag[file] + position]
        return found

    @cached_property
    def _status(self) -> NDArray[np.uint8]:
        """(files,) uint8, by place of a covered file."""
        kinds = [EVERY if where is ALL else SOME if where else NONE for where in self._positions]
        return np.array(kinds, np.uint8)

    def _in_part(self) -> Iterator[tuple[int, BitMap]]:
        """Give the places of files with some allowed rows, and the positions of those."""
        for place in np.flatnonzero(self._status == SOME).tolist():
            positions = self._positions[place]
            if isinstance(positions, BitMap):
                yield place, positions

    @cached_property
    def _first_flag(self) -> NDArray[np.int64]:
        """(files,) int64, where in `_flags` those of a file with some allowed rows begin."""
        rows = np.where(self._status == SOME, self._version.coverage.columns.rows, 0)
        found: NDArray[np.int64] = np.cumsum(rows) - rows
        return found

    @cached_property
    def _flags(self) -> NDArray[np.bool_]:
        """Of files with some allowed rows, whether each row is."""
        rows = self._version.coverage.columns.rows
        flags = np.zeros(int(rows[self._status == SOME].sum()), np.bool_)
        for place, positions in self._in_part():
            where = np.asarray(positions.to_array(), np.int64)
            flags[self._first_flag[place] + where[where < rows[place]]] = True
        return flags

    def _count(self, place: int) -> int:
        """Return how many rows of a covered file are indexed, live and allowed."""
        files, allowed = self._version.coverage.columns, self._positions[place]
        masked = self._view.masked.get(int(files.file_ids[place]))
        if not allowed or masked is ALL:
            return 0
        left_out = files.deleted.get(place, BitMap()) | files.skipped.get(place, BitMap())
        if masked is not None:
            left_out |= masked
        if allowed is ALL:
            return int(files.rows[place]) - len(left_out)
        return allowed.difference_cardinality(left_out)


def _both(one: Positions, other: Positions | None) -> Positions | None:
    """Return the positions that are among both; None if none is."""
    if other is None:
        return None
    if one is ALL:
        return other
    found = one if other is ALL else one & other
    return found or None
