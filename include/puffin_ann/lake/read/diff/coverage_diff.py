"""What an index version covers against what is live: pure, over data.

A covered file is a live one if path, size, rows and file sequence number are the same; ancestry of
snapshots is never asked for, so the answer holds after expiry, rollback and branching alike.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from puffin_ann.lake.read.files.live_files import LiveFile


class Whole(Enum):
    """Stands for every position of a file, which spares a bitmap of them."""

    ALL = "all"


ALL: Final = Whole.ALL

Positions: TypeAlias = BitMap | Literal[Whole.ALL]
"""Row positions in a file: a bitmap, or ALL."""


@dataclass(frozen=True)
class Covered:
    """A data file as an index version covers it.

    Attributes:
        file_id: the version's number for the file.
        path: location, absolute.
        size: bytes.
        sequence_number: file sequence number.
        rows: rows in the file.
        deleted: positions that were deleted in the base snapshot, and so are not indexed.
        skipped: positions whose vector could not be indexed.
    """

    file_id: int
    path: str
    size: int
    sequence_number: int
    rows: int
    deleted: BitMap = field(default_factory=BitMap)
    skipped: BitMap = field(default_factory=BitMap)


@dataclass(frozen=True)
class CoveredColumns:
    """What an index version covers, by column: an object for each of 100,000 files is expensive.

    Attributes:
        paths: locations, absolute.
        file_ids, sizes, sequence_numbers, rows: (n,) int64, as of `Covered`.
        deleted, skipped: by place in the columns, bitmaps as of `Covered`; no empty ones.
    """

    paths: Sequence[str]
    file_ids: NDArray[np.int64]
    sizes: NDArray[np.int64]
    sequence_numbers: NDArray[np.int64]
    rows: NDArray[np.int64]
    deleted: Mapping[int, BitMap]
    skipped: Mapping[int, BitMap]

    @classmethod
    def of(cls, covered: "Sequence[Covered] | CoveredColumns") -> "CoveredColumns":
        """Return covered files by column, in their order."""
        if isinstance(covered, CoveredColumns):
            return covered
        return cls(
            [file.path for file in covered],
            np.array([file.file_id for file in covered], np.int64),
            np.array([file.size for file in covered], np.int64),
            np.array([file.sequence_number for file in covered], np.int64),
            np.array([file.rows for file in covered], np.int64),
            {place: file.deleted for place, file in enumerate(covered) if file.deleted},
            {place: file.skipped for place, file in enumerate(covered) if file.skipped},
        )

    @cached_property
    def indexed(self) -> NDArray[np.int64]:
        """(n,) int64, rows of each file that are indexed."""
        counts = self.rows.copy()
        for place, positions in self.deleted.items():
            counts[place] -= len(positions)
        for place, positions in self.skipped.items():
            counts[place] -= len(positions - self.deleted_from(place))
        return counts

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Place of each path; of one that is there more than once, the last."""
        return {path: place for place, path in enumerate(self.paths)}

    def deleted_from(self, place: int) -> BitMap:
        """Return the positions that were deleted in the base snapshot."""
        return self.deleted.get(place, _NONE)

    def not_indexable(self, place: int) -> BitMap:
        """Return the positions whose vector could not be indexed."""
        return self.skipped.get(place, _NONE)


_NONE: Final = BitMap()


@dataclass(frozen=True)
class Difference:
    """The three sets of rows, of which the answered one is only counted.

    Attributes:
        masked: by file id, positions that are indexed and not live, or ALL; no empty ones.
        scanned: live files with the positions that are live and not covered, or ALL.
        live_rows: rows live in the snapshot.
        covered_rows: live rows that need no scan: indexed, or skipped as not indexable.
        masked_rows: indexed rows that are not live.
        removed: places of covered files that are not live.
        deleted: by place of a live covered file, the positions deleted now; of others, what was
            deleted in the base snapshot is.
        added: live files that are not covered, with the positions deleted from them.
    """

    masked: Mapping[int, Positions]
    scanned: Sequence[tuple[LiveFile, Positions]]
    live_rows: int
    covered_rows: int
    masked_rows: int
    # How the sets were found, which may be known of more files than need be.
    removed: frozenset[int] = field(default=frozenset(), compare=False)
    deleted: Mapping[int, BitMap] = field(default_factory=dict, compare=False)
    added: Sequence[tuple[LiveFile, BitMap]] = field(default=(), compare=False)

    @property
    def scanned_rows(self) -> int:
        """Live rows that the version does not cover."""
        return self.live_rows - self.covered_rows

    @property
    def coverage(self) -> float:
        """Share of live rows covered; 1 where no row is live."""
        return self.covered_rows / self.live_rows if self.live_rows else 1.0


def difference(
    covered: Sequence[Covered] | CoveredColumns,
    live: Sequence[LiveFile],
    deleted: Mapping[str, BitMap],
) -> Difference:
    """Compare covered files with live ones.

    Args:
        covered: files of an index version; of one that is there twice, the first counts.
        live: data files of a snapshot.
        deleted: by path of a live file, positions deleted in that snapshot (none where absent).
    """
    columns = CoveredColumns.of(covered)
    at = {file.path: number for number, file in enumerate(live)}
    removed: list[int] = []
    known: dict[int, LiveFile] = {}
    deleted_by_place: dict[int, BitMap] = {}
    new = np.ones(len(live), np.bool_)
    keys = zip(
        columns.paths,
        columns.sizes.tolist(),
        columns.sequence_numbers.tolist(),
        columns.rows.tolist(),
        strict=True,
    )
    for place, (path, size, sequence_number, rows) in enumerate(keys):
        number = at.get(path)
        file = None if number is None else live[number]
        if (
            file is None
            or (file.size, file.sequence_number, file.rows) != (size, sequence_number, rows)
            or not new[number]
        ):
            removed.append(place)
            continue
        new[number] = False
        if path in deleted or place in columns.deleted:
            known[place], deleted_by_place[place] = file, deleted.get(path, _NONE)
    added = [live[number] for number in np.flatnonzero(new).tolist()]
    return tally(
        columns,
        removed,
        deleted_by_place,
        [(file, deleted.get(file.path, _NONE)) for file in added],
        known.__getitem__,
    )


def tally(
    covered: CoveredColumns,
    removed: Collection[int],
    deleted: Mapping[int, BitMap],
    added: Sequence[tuple[LiveFile, BitMap]],
    file_at: Callable[[int], LiveFile],
) -> Difference:
    """Make the three sets of what is known of single files.

    Args:
        covered: files of an index version.
        removed: places of those that are not live.
        deleted: by place of a live one, the positions deleted now; of others, what was deleted in
            the base snapshot is deleted still.
        added: live files that are not covered, with the positions deleted from them.
        file_at: gives the live file at a place of `deleted`; asked where rows that were deleted in
            the base snapshot are live.
    """
    masked: dict[int, Positions] = {}
    scanned: list[tuple[LiveFile, Positions]] = []
    masked_rows = scanned_rows = 0
    is_live = np.ones(len(covered.paths), np.bool_)
    is_live[np.fromiter(removed, np.int64)] = False
    ids = covered.file_ids
    for place in sorted([*np.flatnonzero(~is_live).tolist(), *deleted]):
        if not is_live[place]:
            if covered.indexed[place]:
                masked[int(ids[place])] = ALL
                masked_rows += int(covered.indexed[place])
            continue
        was, skipped = covered.deleted_from(place), covered.not_indexable(place)
        if newly := deleted[place] - was - skipped:
            masked[int(ids[place])] = newly
            masked_rows += len(newly)
        # Rows deleted at the base were not indexed; an older snapshot may hold them live.
        if again := was - deleted[place] - skipped:
            scanned.append((file_at(place), again))
            scanned_rows += len(again)
    live_rows = int(covered.rows[is_live].sum()) - _deleted_rows(covered, is_live, deleted)
    for file, positions in added:
        if live_in_file := file.rows - len(positions):
            added_files: Positions = BitMap(range(file.rows)) - positions if positions else ALL
            scanned.append((file, added_files))
            scanned_rows += live_in_file
            live_rows += live_in_file
    scanned.sort(key=lambda found: found[0].path)
    return Difference(
        masked,
        scanned,
        live_rows,
        live_rows - scanned_rows,
        masked_rows,
        frozenset(removed),
        deleted,
        added,
    )


def _deleted_rows(
    covered: CoveredColumns, is_live: NDArray[np.bool_], deleted: Mapping[int, BitMap]
) -> int:
    as_before = (place for place in covered.deleted if is_live[place] and place not in deleted)
    return sum(len(positions) for positions in deleted.values()) + sum(
        len(covered.deleted[place]) for place in as_before
    )
