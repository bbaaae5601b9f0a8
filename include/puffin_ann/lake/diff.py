"""What an index version covers against what is live: pure, over data.

A covered file is a live one if path, size and file sequence number are the same; ancestry of
snapshots is never asked for, so the answer holds after expiry, rollback and branching alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, TypeAlias

from pyroaring import BitMap

from puffin_ann.lake.live import LiveFile


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
class Difference:
    """The three sets of rows, of which the answered one is only counted.

    Attributes:
        masked: by file id, positions that are indexed and not live, or ALL; no empty ones.
        scanned: live files with the positions that are live and not covered, or ALL.
        live_rows: rows live in the snapshot.
        covered_rows: live rows that need no scan: indexed, or skipped as not indexable.
        masked_rows: indexed rows that are not live.
    """

    masked: Mapping[int, Positions]
    scanned: Sequence[tuple[LiveFile, Positions]]
    live_rows: int
    covered_rows: int
    masked_rows: int

    @property
    def scanned_rows(self) -> int:
        """Live rows that the version does not cover."""
        return self.live_rows - self.covered_rows

    @property
    def coverage(self) -> float:
        """Share of live rows covered; 1 where no row is live."""
        return self.covered_rows / self.live_rows if self.live_rows else 1.0


def difference(
    covered: Sequence[Covered],
    live: Sequence[LiveFile],
    deleted: Mapping[str, BitMap],
) -> Difference:
    """Compare covered files with live ones.

    Args:
        covered: files of an index version, none of them twice.
        live: data files of a snapshot.
        deleted: by path of a live file, positions deleted in that snapshot (none where absent).
    """
    present = {_key(file): file for file in live}
    known = {_key(file): file for file in covered}
    masked: dict[int, Positions] = {}
    masked_rows = 0
    for one in covered:
        if _key(one) in present:
            dead = deleted.get(one.path, BitMap()) - one.deleted - one.skipped
            positions: Positions = dead
            count = len(dead)
        else:
            positions = ALL
            count = one.rows - len(one.deleted | one.skipped)
        if count:
            masked[one.file_id] = positions
            masked_rows += count
    scanned: list[tuple[LiveFile, Positions]] = []
    live_rows = covered_rows = 0
    for file in live:
        dead = deleted.get(file.path, BitMap())
        alive = file.rows - len(dead)
        fresh = _not_covered(file, dead, known.get(_key(file)))
        count = alive if fresh is ALL else len(fresh)
        live_rows += alive
        covered_rows += alive - count
        if count:
            scanned.append((file, fresh))
    return Difference(masked, scanned, live_rows, covered_rows, masked_rows)


def _key(file: Covered | LiveFile) -> tuple[str, int, int]:
    return (file.path, file.size, file.sequence_number)


def _not_covered(file: LiveFile, dead: BitMap, known: Covered | None) -> Positions:
    if known is not None:
        # Rows deleted at the base were not indexed; an older snapshot may hold them alive.
        return known.deleted - dead - known.skipped
    if not dead:
        return ALL
    return BitMap(range(file.rows)) - dead
