"""Which rows of data files satisfy a condition, by values that the index keeps of them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import NestedField
from pyroaring import BitMap

from puffin_ann.lake.read.conditions.condition import Condition
from puffin_ann.lake.read.conditions.evaluate import rows_that_match
from puffin_ann.lake.read.diff.coverage_diff import ALL, Positions
from puffin_ann.lake.read.files.manifests import Entry, Statistics
from puffin_ann.lake.read.files.pruning import Pruning
from puffin_ann.search.included.covered_files import needed_rows, places_of_files
from puffin_ann.search.included.kept_columns import (
    KeptBlob,
    KeptColumns,
    Wanted,
    locators_at,
    numbers_of,
)
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.snapshot_view import SnapshotView
from puffin_ann.settings import MIB

ROUND_BYTES = 64 * MIB
"""Bytes of blobs that are read at once, at most, if they are more than one."""


@dataclass(frozen=True)
class MatchingByIndex:
    """Answers which rows of a snapshot's files satisfy a condition, as far as an index knows.

    What is kept of a row is kept under its place in a data file, and data files never change: so
    it holds in whatever snapshot has the file, and wherever the row is in the index by now.

    Attributes:
        kept: values that the version keeps.
        version: of the index.
        view: of it, from the snapshot.
        condition: bound to a schema of the snapshot's.
    """

    kept: KeptColumns
    version: IndexVersion
    view: SnapshotView
    condition: Condition

    def positions(self, entries: Sequence[Entry], pruning: Pruning) -> dict[str, Positions]:
        """Return the rows that match, by path, of those files of which all answers are known.

        Rows that are not live, and rows without a usable vector, need not be among them.

        Args:
            entries: of data files.
            pruning: by the condition.

        Raises:
            StoreUnavailableError: a file of the index cannot be read now.
        """
        files = self.version.coverage.columns
        covered = places_of_files(self.version, self.view)
        places = {
            entry.path: covered[entry.path]
            for entry in entries
            if entry.path in covered and entry.rows == int(files.rows[covered[entry.path]])
        }
        if not places or not self.condition.columns:
            return {}
        rows = files.rows
        known, matching = (np.zeros(int(rows.sum()), np.bool_) for _ in range(2))
        for part in self._rounds():
            self._ask(part, pruning, known, matching)
        firsts = np.cumsum(rows) - rows
        found: dict[str, Positions] = {}
        for path, place in places.items():
            span = slice(int(firsts[place]), int(firsts[place] + rows[place]))
            if known[span][needed_rows(self.version, self.view, path, place)].all():
                here = matching[span]
                positions = BitMap(np.flatnonzero(here).astype(np.uint32))
                found[path] = ALL if here.all() else positions
        return found

    def _rounds(self) -> list[list[KeptBlob]]:
        """Return the blobs that keep all columns of the condition, as many as are read at once."""
        rounds: list[list[KeptBlob]] = []
        size = ROUND_BYTES + 1
        for blobs in self.kept.blobs.values():
            for blob in blobs:
                if any(blob.column_of(column) is None for column in self.condition.columns):
                    continue
                if size + blob.place.metadata.length > ROUND_BYTES:
                    rounds.append([])
                    size = 0
                rounds[-1].append(blob)
                size += blob.place.metadata.length
        return rounds

    def _ask(
        self,
        blobs: Sequence[KeptBlob],
        pruning: Pruning,
        known: NDArray[np.bool_],
        matching: NDArray[np.bool_],
    ) -> None:
        """Note the rows of some blobs, by their numbers through all files."""
        decided = {id(blob): self._decided(blob, pruning) for blob in blobs}
        wanted = []
        for blob in blobs:
            blocks = [locators_at(block) for block in range(blob.reader.blocks)]
            blocks += [
                ask
                for block, says in enumerate(decided[id(blob)])
                if says is None
                for ask in self._wanted(blob, block)
            ]
            wanted.append((blob, blocks))
        with self.kept.reading(wanted):
            for blob in blobs:
                self._note(blob, decided[id(blob)], known, matching)

    def _note(
        self,
        blob: KeptBlob,
        decided: Sequence[bool | None],
        known: NDArray[np.bool_],
        matching: NDArray[np.bool_],
    ) -> None:
        """Note the rows of a blob, of whose blocks it is decided whether all match, or none."""
        matches = self._matches(blob, [at for at, says in enumerate(decided) if says is None])
        for block, says in enumerate(decided):
            locators = self.kept.locators(blob, block)
            if locators is None or (says is None and block not in matches):
                continue
            numbers = numbers_of(self.version, locators)
            there = numbers >= 0
            known[numbers[there]] = True
            matching[numbers[there]] = matches[block][there] if says is None else says

    def _decided(self, blob: KeptBlob, pruning: Pruning) -> list[bool | None]:
        """Return of each block whether all rows match, or none; None where they are asked.

        All are where all values are at hand: to ask the bounds of a block takes longer.
        """
        blocks = range(blob.reader.blocks)
        if all(self.kept.are_at_hand(blob, self._wanted(blob, block)) for block in blocks):
            return [None for _ in blocks]
        numbers = {column: blob.column_of(column) for column in self.condition.columns}
        found: list[bool | None] = []
        for block in blocks:
            told = _statistics(blob, numbers, block)
            rows = blob.reader.rows_of(block)
            if told is None:
                found.append(None)
            elif not pruning.some_of(rows, told):
                found.append(False)
            else:
                found.append(True if pruning.all_of(rows, told) else None)
        return found

    def _wanted(self, blob: KeptBlob, block: int) -> list[Wanted]:
        numbers = ((column, blob.column_of(column)) for column in self.condition.columns)
        return [Wanted(number, block, column) for column, number in numbers if number is not None]

    def _matches(self, blob: KeptBlob, blocks: Sequence[int]) -> dict[int, NDArray[np.bool_]]:
        """Return (n,) bool, which rows match, of those blocks whose values are kept."""
        there, columns = [], defaultdict[str, list[pa.Array]](list)
        for block in blocks:
            values = [self.kept.values(blob, wanted) for wanted in self._wanted(blob, block)]
            if all(part is not None for part in values):
                there.append(block)
                for column, part in zip(self.condition.columns, values, strict=True):
                    columns[column.name].append(part)
        if not there:
            return {}
        # All blocks at once: a condition of many parts takes longer to ask than to answer.
        sizes = [blob.reader.rows_of(block) for block in there]
        whole = {name: pa.chunked_array(parts) for name, parts in columns.items()}
        found = rows_that_match(self.condition, _Columns(sum(sizes), whole))
        return dict(zip(there, np.split(found, np.cumsum(sizes)[:-1]), strict=True))


@dataclass(frozen=True)
class _Columns:
    """Columns of the same rows, by name."""

    num_rows: int
    by_name: Mapping[str, pa.ChunkedArray]

    def column(self, name: str) -> pa.ChunkedArray:
        return self.by_name[name]


def _statistics(
    blob: KeptBlob, numbers: Mapping[NestedField, int | None], block: int
) -> Statistics | None:
    """Return what a blob tells of a block; None if values of it are not kept, or not as wanted."""
    values, nulls, nans = {}, {}, {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for column, number in numbers.items():
        told = None if number is None else blob.reader.bounds(number, block)
        if number is None or told is None:
            return None
        kept = blob.reader.columns[number]
        if kept.type != str(column.field_type):
            return None
        values[kept.field_id] = blob.reader.rows_of(block)
        nulls[kept.field_id], nans[kept.field_id] = told.nulls, told.nans
        if told.lower is not None and told.upper is not None:
            lower[kept.field_id], upper[kept.field_id] = told.lower, told.upper
    return Statistics(values, nulls, nans, lower, upper)
