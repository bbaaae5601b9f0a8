"""Whether the blobs of an index version agree with each other.

Each blob may be sound by itself and yet be another shard's, another version's or nobody's. What one
says of another is compared once, where they meet: the small blobs when a version is read, those of
a shard when it is loaded. Whoever comes after that may rely on it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from puffin_ann.blobs.coverage import Coverage, CoveredFiles
from puffin_ann.blobs.routing import Routing, ShardEntry
from puffin_ann.declaration import AUTO, CENTROID, PARAMETERS
from puffin_ann.engines import SearchableShard
from puffin_ann.engines.delta import DeltaShard
from puffin_ann.errors import BlobFormatError
from puffin_ann.search.locators import Locators, are_among


def check_version(routing: Routing, coverage: Coverage) -> None:
    """Compare what the small blobs of a version say.

    Raises:
        BlobFormatError: they contradict each other; says in what.
    """
    known = [one for one in PARAMETERS if one != AUTO]
    if routing.algorithm not in known:
        raise BlobFormatError(
            f"routing blob: algorithm {routing.algorithm!r} is not known; this version of "
            f"puffin-ann knows {', '.join(known)}"
        )
    if routing.algorithm == CENTROID:
        if routing.shards:
            raise BlobFormatError(
                f"routing blob: {len(routing.shards)} shards of an index of centroids, which has "
                "none"
            )
        return
    held = sum(shard.rows - shard.tombstones for shard in routing.shards)
    if held != coverage.columns.indexed_rows:
        raise BlobFormatError(
            f"routing blob: its shards hold {held} rows that are not deleted, and the coverage "
            f"blob covers {coverage.columns.indexed_rows}"
        )


@dataclass(frozen=True, eq=False)
class CoveredRows:
    """The rows that a version covers, laid out to look up the locators of a shard.

    Rows are numbered through all covered files, in the order of file ids.

    Attributes:
        file_ids: (m,) int64, ascending.
        groups: (m,) int64, row groups of each file.
        first_group: (m,) int64, place of a file's first row group in those below.
        group_rows: (g,) uint32, rows of each row group.
        group_starts: (g,) int64, number of each row group's first row.
        has_left_out: (m,) bool, files with rows that are not indexed.
        left_out: (p,) int64, ascending, rows deleted or not usable at the base snapshot.
    """

    file_ids: NDArray[np.int64]
    groups: NDArray[np.int64]
    first_group: NDArray[np.int64]
    group_rows: NDArray[np.uint32]
    group_starts: NDArray[np.int64]
    has_left_out: NDArray[np.bool_]
    left_out: NDArray[np.int64]

    @classmethod
    def of(cls, files: CoveredFiles) -> "CoveredRows":
        """Lay out what a coverage blob says."""
        firsts = np.cumsum(files.rows) - files.rows
        left_out = [np.zeros(0, np.int64)]
        for place in np.flatnonzero(files.left_out).tolist():
            deleted, skipped = files.deleted.get(place), files.skipped.get(place)
            positions = BitMap.union(*(one for one in (deleted, skipped) if one is not None))
            left_out.append(np.asarray(positions.to_array(), np.int64) + firsts[place])
        sizes = files.all_row_groups.astype(np.int64)
        return cls(
            file_ids=files.file_ids,
            groups=files.group_counts,
            first_group=np.cumsum(files.group_counts) - files.group_counts,
            group_rows=files.all_row_groups,
            group_starts=np.cumsum(sizes) - sizes,
            has_left_out=files.left_out > 0,
            left_out=np.concatenate(left_out),
        )

    def not_among(self, locators: Locators) -> NDArray[np.bool_]:
        """Mark the rows that lie where the version indexes none, (n,) bool."""
        if not len(self.group_rows):
            return np.ones(len(locators), np.bool_)
        at = np.searchsorted(self.file_ids, locators.files).clip(max=len(self.file_ids) - 1)
        is_covered = self.file_ids[at] == locators.files
        groups = np.where(is_covered, self.groups[at], 0).astype(np.uint32)
        wrong: NDArray[np.bool_] = locators.row_groups >= groups[locators.places]
        number = self.first_group[at][locators.places] + locators.row_groups
        if wrong.any():
            number[wrong] = 0
        wrong |= locators.offsets >= self.group_rows[number]
        in_part = self.has_left_out[at] & is_covered
        if in_part.any():
            rows = np.flatnonzero(in_part[locators.places] & ~wrong)
            positions = self.group_starts[number[rows]] + locators.offsets[rows]
            wrong[rows] = _are_among_few(self.left_out, positions)
        return wrong


def _are_among_few(ascending: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which numbers, (n,) int64, are among others that ascend: (n,) bool.

    Most are told apart by their last bits, which spares a search for each.
    """
    size = 1 << min(26, 3 + len(ascending).bit_length())
    ends = np.zeros(size, np.bool_)
    ends[ascending & (size - 1)] = True
    found: NDArray[np.bool_] = ends[numbers & (size - 1)]
    alike = np.flatnonzero(found)
    found[alike] = are_among(ascending, numbers[alike])
    return found


def check_rows(
    where: str,
    shard: ShardEntry,
    covered: CoveredRows,
    locators: Locators,
    tombstones: NDArray[np.integer],
) -> None:
    """Hold where a shard's rows are, and which of them are deleted, to the small blobs.

    Args:
        where: names the shard in errors.
        shard: what the routing says of it.
        covered: by the version's coverage.
        locators: of its rows.
        tombstones: (t,) ordinals of rows that are deleted, ascending.

    Raises:
        BlobFormatError: they contradict each other; says in what.
    """
    if len(locators) != shard.rows:
        raise BlobFormatError(
            f"{where} has {len(locators)} locators, {shard.rows} rows by the routing blob"
        )
    if len(tombstones) != shard.tombstones or int(tombstones.max(initial=0)) >= max(1, shard.rows):
        raise BlobFormatError(
            f"{where} has {len(tombstones)} tombstones, {shard.tombstones} by the routing blob"
        )
    wrong = covered.not_among(locators)
    wrong[tombstones] = False
    if wrong.any():
        row = int(wrong.argmax())
        raise BlobFormatError(
            f"{where} has row {row} in file {int(locators.files[locators.places[row]])}, row group "
            f"{int(locators.row_groups[row])}, row {int(locators.offsets[row])}, where by the "
            "coverage blob no row is indexed"
        )


def check_engine(
    where: str, routing: Routing, shard: ShardEntry, searchable: SearchableShard
) -> None:
    """Compare an engine's blob with the routing; what else a shard has is read by its figures.

    Raises:
        BlobFormatError: they contradict each other; says in what.
    """
    has = searchable.rows, searchable.dimension, searchable.metric
    should = shard.rows, routing.dimension, routing.metric
    if has != should:
        raise BlobFormatError(
            "{} has {} vectors of {} dimensions for {}; ".format(where, *has)
            + "the routing blob says {} of {} for {}".format(*should)
        )
    if isinstance(searchable, DeltaShard) and searchable.rows:
        highest, partitions = int(searchable.partitions.max()), len(routing.centroids)
        if highest >= partitions:
            raise BlobFormatError(f"{where} has a row of partition {highest}, of {partitions}")
