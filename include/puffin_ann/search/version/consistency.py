"""Whether the blobs of an index version agree with each other.

Each blob may be sound by itself and yet belong to another shard, to another version, or to none.
What one says of another is compared once, where they meet: the small blobs when a version is read,
those of a shard when it is loaded. Later code may rely on it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from puffin_ann.blobs.shards.cells import CellStarts
from puffin_ann.blobs.version.coverage import Coverage, CoveredFiles
from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.blobs.version.routing import Routing, ShardEntry
from puffin_ann.declaration import AUTO, CENTROID, PARAMETERS
from puffin_ann.engines import SearchableShard
from puffin_ann.engines.delta import DeltaShard
from puffin_ann.errors import BlobFormatError
from puffin_ann.search.version.row_locators import Locators, are_among

FEW_ROWS = 1 << 22
"""Rows left out of the index that are looked up as numbers. A bitmap of very many takes no room, in
a file as in memory, but their numbers would."""


def check_version(routing: Routing, coverage: Coverage) -> None:
    """Compare what the small blobs of a version say.

    Raises:
        BlobFormatError: they contradict each other; says in what.
    """
    known = [algorithm for algorithm in PARAMETERS if algorithm != AUTO]
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
        has_few: (m,) bool, files with rows, deleted or not usable at the base snapshot, that are
            among `few`.
        few: (p,) int64, ascending, such rows.
        many: by place of the other files that have such rows, their positions.
    """

    file_ids: NDArray[np.int64]
    groups: NDArray[np.int64]
    first_group: NDArray[np.int64]
    group_rows: NDArray[np.uint32]
    group_starts: NDArray[np.int64]
    has_few: NDArray[np.bool_]
    few: NDArray[np.int64]
    many: Mapping[int, BitMap]

    @classmethod
    def of(cls, files: CoveredFiles) -> "CoveredRows":
        """Lay out what a coverage blob says."""
        firsts = np.cumsum(files.rows) - files.rows
        has_few = _smallest(files.left_out)
        few, many = [np.zeros(0, np.int64)], {}
        for place in np.flatnonzero(files.left_out).tolist():
            positions = files.deleted.get(place, BitMap()) | files.skipped.get(place, BitMap())
            if has_few[place]:
                few.append(np.asarray(positions.to_array(), np.int64) + firsts[place])
            else:
                many[place] = positions
        sizes = files.all_row_groups.astype(np.int64)
        return cls(
            file_ids=files.file_ids,
            groups=files.group_counts,
            first_group=np.cumsum(files.group_counts) - files.group_counts,
            group_rows=files.all_row_groups,
            group_starts=np.cumsum(sizes) - sizes,
            has_few=has_few,
            few=np.concatenate(few),
            many=many,
        )

    def not_among(self, locators: Locators) -> NDArray[np.bool_]:
        """Mark the rows in places where the version indexes none, (n,) bool."""
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
        few = self.has_few[at] & is_covered
        if few.any():
            rows = np.flatnonzero(few[locators.places] & ~wrong)
            numbers = self.group_starts[number[rows]] + locators.offsets[rows]
            wrong[rows] = _are_among_few(self.few, numbers)
        for place in sorted({*at[is_covered].tolist()} & self.many.keys()):
            rows = np.flatnonzero((at == place)[locators.places] & ~wrong)
            start = self.group_starts[self.first_group[place]]
            positions = self.group_starts[number[rows]] - start + locators.offsets[rows]
            found = self.many[place] & BitMap(positions.astype(np.uint32))
            wrong[rows] = np.isin(positions, np.asarray(found.to_array(), np.int64))
        return wrong

    def numbers(self, locators: Locators, ordinals: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the numbers of covered rows, (m,), given by their (m,) ordinals in a shard."""
        file = np.searchsorted(self.file_ids, locators.files[locators.places[ordinals]])
        group = self.first_group[file] + locators.row_groups[ordinals]
        found: NDArray[np.int64] = self.group_starts[group] + locators.offsets[ordinals]
        return found.astype(np.uint64)


def _smallest(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark counts above 0, (m,) bool, the smallest first, as long as they sum up to few rows."""
    order = np.argsort(counts, kind="stable")
    found: NDArray[np.bool_] = np.zeros(len(counts), np.bool_)
    found[order] = np.cumsum(counts[order]) <= FEW_ROWS
    return found & (counts > 0)


def _are_among_few(ascending: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which numbers, (n,) int64, are among others that ascend: (n,) bool.

    Most differ in their last bits, which saves a search for each.
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
    check_counts(where, shard, len(locators), tombstones)
    live = np.ones(len(locators), np.bool_)
    live[tombstones] = False
    check_places(where, covered, locators, ~live, np.arange(len(locators)))
    check_once(where, covered, locators, live)


def check_once(
    where: str, covered: CoveredRows, locators: Locators, live: NDArray[np.bool_]
) -> None:
    """Refuse two live rows in one place, all of them in places that the version covers.

    Args:
        where: names the shard in errors.
        covered: by the version's coverage.
        locators: of rows of the shard.
        live: (n,) bool, those that are.

    Raises:
        BlobFormatError: a row of the table is there twice.
    """
    if not locators.in_order:  # of those that ascend no two are the same
        numbers = np.sort(covered.numbers(locators, np.flatnonzero(live)))
        if (numbers[1:] == numbers[:-1]).any():
            raise BlobFormatError(f"{where} has a row of the table twice")


def check_shards_have_cells(where: str, shards: Sequence[ShardEntry], cells: Partitions) -> None:
    """Refuse cells of which a shard with rows has none: no query would be led to its rows.

    Args:
        where: names the index in errors.
        shards: of the version.
        cells: of it.

    Raises:
        BlobFormatError: a shard has rows, and no cell.
    """
    owners = {*np.unique(cells.shards).tolist()}
    for shard in shards:
        if shard.kind == "graph" and shard.rows and shard.shard_id not in owners:
            raise BlobFormatError(
                f"{where}: no partition lies in shard {shard.shard_id}, which has {shard.rows} rows"
            )


def check_counts(where: str, shard: ShardEntry, rows: int, tombstones: NDArray[np.integer]) -> None:
    """Hold how many rows a shard has, and has lost, to the routing blob; see `check_rows`.

    Raises:
        BlobFormatError: they contradict each other; says in what.
    """
    if rows != shard.rows:
        raise BlobFormatError(f"{where} has {rows} locators, {shard.rows} rows by the routing blob")
    if len(tombstones) != shard.tombstones or int(tombstones.max(initial=0)) >= max(1, shard.rows):
        raise BlobFormatError(
            f"{where} has {len(tombstones)} tombstones, {shard.tombstones} by the routing blob"
        )


def check_places(
    where: str,
    covered: CoveredRows,
    locators: Locators,
    is_deleted: NDArray[np.bool_],
    ordinals: NDArray[np.int64],
) -> None:
    """Hold where some rows of a shard are to what the version covers.

    Args:
        where: names the shard in errors.
        covered: by the version's coverage.
        locators: of the rows.
        is_deleted: (n,) bool, rows that may be anywhere.
        ordinals: (n,) int64, of the rows in the shard.

    Raises:
        BlobFormatError: one is where no row is indexed.
    """
    wrong = covered.not_among(locators) & ~is_deleted
    if wrong.any():
        row = int(wrong.argmax())
        raise BlobFormatError(
            f"{where} has row {int(ordinals[row])} in file "
            f"{int(locators.files[locators.places[row]])}, row group "
            f"{int(locators.row_groups[row])}, row {int(locators.offsets[row])}, where by the "
            "coverage blob no row is indexed"
        )


def check_cells(
    where: str, owners: NDArray[np.uint32], shard: ShardEntry, cells: CellStarts | None
) -> None:
    """Hold the cells that a shard's rows are in the order of to those that lie in the shard.

    Whoever reads the rows of some cells alone has to ask this; who asks whole shards need not.

    Args:
        where: names the shard in errors.
        owners: (k,) uint32, the id of the shard that each cell of the index lies in.
        shard: what the routing says of it.
        cells: that its rows are in the order of; None if they are in no such order.

    Raises:
        BlobFormatError: one does not lie in it.
    """
    if cells is None:
        return
    there = cells.cells < len(owners)
    there[there] = owners[cells.cells[there]] == shard.shard_id
    if not there.all():
        cell = int(cells.cells[there.argmin()])
        raise BlobFormatError(f"{where} has rows of partition {cell}, which does not lie in it")


def check_engine(
    where: str,
    routing: Routing,
    shard: ShardEntry,
    searchable: SearchableShard,
    errors: NDArray[np.float32] | None = None,
) -> None:
    """Compare an engine's blob with the routing; what else a shard has is read by its figures.

    Args:
        where: names the shard in errors.
        routing: of the version.
        shard: an entry of it.
        searchable: the shard, as its engine opens it.
        errors: of its vectors, if they are rounded.

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
    is_rounded, is_coded = errors is not None, hasattr(searchable, "candidates")
    allowed = {"none": is_coded, "float16": is_rounded, "int8": is_rounded}
    if (is_rounded or is_coded) and not allowed.get(routing.vectors, False):
        raise BlobFormatError(
            f"{where} has {'rounded vectors' if is_rounded else 'no vectors'}; by the routing blob "
            f"they are of form {routing.vectors}"
        )
    if isinstance(searchable, DeltaShard) and searchable.rows:
        highest, cells = int(searchable.cells.max()), routing.cells.count
        if highest >= cells:
            raise BlobFormatError(f"{where} has a row of partition {highest}, of {cells}")
