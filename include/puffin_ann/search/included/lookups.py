"""Look up which rows of a snapshot satisfy a condition, by lookups of the columns it asks.

A lookup takes a sort of a column's values, so it is made from the second condition on that an open
index is asked, or when the index is warmed, and kept for all that are asked later.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pyiceberg.types import NestedField
from pyroaring import BitMap

from puffin_ann.lake.read.conditions.condition import Condition
from puffin_ann.lake.read.conditions.matching_rows import LookedUp
from puffin_ann.lake.read.conditions.tree import leaves
from puffin_ann.lake.read.data.column_chunks import Kept
from puffin_ann.lake.read.diff.coverage_diff import ALL, Positions
from puffin_ann.search.included.arrow_values import arrow_type
from puffin_ann.search.included.asking import rows_that_match
from puffin_ann.search.included.collected_values import CollectedValues
from puffin_ann.search.included.column_lookup import (
    BYTES_A_ROW,
    BYTES_A_VALUE,
    ColumnLookup,
    column_lookup,
)
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
from puffin_ann.settings import MIB, settings

LOOKUPS = Kept(lambda: settings().lookups_max_bytes)
"""Lookups that this process keeps, those used longest ago leaving first."""

FIRST_ASKED = 2
"""The condition of an open index by which lookups are made, counted from 1. Of fewer, bounds of
blocks may decide, and less is read."""

PACKED = 4
"""Times that values of any width are larger in memory than where they are packed, about: it is
found out where they are read."""

ROUND_BYTES = 64 * MIB
"""Bytes of blobs that are read at once, at most, if they are more than one."""


@dataclass(frozen=True, eq=False)
class _Files:
    """Data files of which a version has all rows that matter.

    Attributes:
        rows: by path, of each.
        paths: by place among the version's covered files; None of the others.
        firsts: (m + 1,) int64, number of the first row of each covered file, and behind the last.
    """

    rows: Mapping[str, int]
    paths: Sequence[str | None]
    firsts: NDArray[np.int64]


class Lookups:
    """Lookups of the columns that a version includes; any number of threads use it.

    Args:
        scope: names the table, see `scope_of`.
        kept: values that the version keeps.
        version: of the index.
        view: of it, from the snapshot asked for.
    """

    def __init__(
        self, scope: str, kept: KeptColumns, version: IndexVersion, view: SnapshotView
    ) -> None:
        self._scope = scope
        self._kept, self._version, self._view = kept, version, view
        self._lock = threading.Lock()
        self._asked = 0
        self._made: set[int] = set()

    def looked_up(self, condition: Condition) -> LookedUp | None:
        """Return the rows that satisfy a condition, of the files of which all are known.

        Rows that are not live, and rows without a usable vector, need not be among them. None: the
        condition asks what is not looked up, or not yet.

        Raises:
            StoreUnavailableError: a file of the index cannot be read now.
        """
        self._asked += 1
        columns = {column.field_id: column for column in condition.columns}
        if any(leaf.field_id not in columns for leaf in leaves(condition.tree)) or not columns:
            return None
        found = self._lookups(condition.columns, is_to_make=self._asked >= FIRST_ASKED)
        numbers = None if found is None else self._numbers()
        if found is None or numbers is None:
            return None
        files = self._files
        rows = rows_that_match(condition.tree, found, len(numbers))
        return LookedUp(files.rows, dict(_by_file(files, _ascending(numbers[rows]))))

    def make(self, fields: Sequence[NestedField]) -> None:
        """Make the lookups of some columns, as far as they fit; raises as `looked_up` does."""
        if self._lookups(fields, is_to_make=True) is not None:
            _ = self._files

    def _lookups(
        self, fields: Sequence[NestedField], *, is_to_make: bool
    ) -> dict[int, ColumnLookup] | None:
        """Return lookups by field id; None if one is not there."""
        found: dict[int, ColumnLookup] = {}
        missing = []
        for field in fields:
            lookup: ColumnLookup | None = LOOKUPS.get(self._key(field))
            if lookup is None:
                missing.append(field)
            else:
                found[field.field_id] = lookup
        if not missing:
            return found
        if not is_to_make or not self._blobs or not self._fit(fields):
            return None
        with self._lock:
            for field in missing:
                lookup = LOOKUPS.get(self._key(field)) or self._make(field)
                if lookup is None:
                    return None
                found[field.field_id] = lookup
        return found

    def _fit(self, fields: Sequence[NestedField]) -> bool:
        """Tell whether lookups of some columns may be kept together, if all values differ.

        Of values of any width it is a guess.
        """
        size = sum(blob.reader.rows for blob in self._blobs) * BYTES_A_ROW * (len(fields) + 1)
        for blob in self._blobs:
            for number in map(blob.column_of, fields):
                if number is not None:
                    size += _value_bytes(blob, number)
        return size <= settings().lookups_max_bytes

    def _make(self, field: NestedField) -> ColumnLookup | None:
        """Make a lookup, once: one that had to leave would have to leave again."""
        if field.field_id in self._made:
            return None
        made = self._read(field)
        self._made.add(field.field_id)
        if made is not None:
            LOOKUPS.put(self._key(field), made, made.size)
        return made

    def _read(self, field: NestedField) -> ColumnLookup | None:
        is_wide = any(_is_wide(blob, field) for blob in self._blobs)
        kind, most = arrow_type(field.field_type), settings().lookups_max_bytes
        collected = CollectedValues(kind, most, is_wide=is_wide)
        for blobs in self._rounds():
            numbers = [blob.column_of(field) for blob in blobs]
            wanted = [
                [] if number is None else _blocks_of(blob, number, field)
                for blob, number in zip(blobs, numbers, strict=True)
            ]
            if None in numbers:
                return None
            with self._kept.reading(zip(blobs, wanted, strict=True)):
                for blob, blocks in zip(blobs, wanted, strict=True):
                    for block in blocks:
                        values = self._kept.values(blob, block)
                        if values is None or not collected.add(values):
                            return None
        return column_lookup(collected.column())

    def _numbers(self) -> NDArray[np.signedinteger] | None:
        """Return (n,) of each row that is kept its number through all covered files; -1: none."""
        version = self._version
        base = version.coverage.base_snapshot_id
        key = (*self._blob_keys, version.path, version.index, version.run_id, base)
        found: NDArray[np.signedinteger] | None = LOOKUPS.get(key)
        if found is not None:
            return found
        parts = []
        for blobs in self._rounds():
            wanted = [[locators_at(block) for block in range(blob.reader.blocks)] for blob in blobs]
            with self._kept.reading(zip(blobs, wanted, strict=True)):
                for blob, blocks in zip(blobs, wanted, strict=True):
                    for block in blocks:
                        locators = self._kept.locators(blob, block.block)
                        if locators is None:
                            return None
                        parts.append(locators)
        locators = np.concatenate([np.zeros((3, 0), np.uint32), *parts], axis=1)
        found = numbers_of(self._version, locators)
        if int(self._version.coverage.columns.rows.sum()) <= np.iinfo(np.int32).max:
            found = found.astype(np.int32)
        LOOKUPS.put(key, found, found.nbytes)
        return found

    @cached_property
    def _files(self) -> _Files:
        files = self._version.coverage.columns
        ends = np.cumsum(files.rows)
        known = np.zeros(int(ends[-1]) if len(ends) else 0, np.bool_)
        numbers = self._numbers()
        if numbers is not None:
            known[numbers[numbers >= 0]] = True
        paths: list[str | None] = [None] * len(files.rows)
        for path, place in places_of_files(self._version, self._view).items():
            span = known[int(ends[place] - files.rows[place]) : int(ends[place])]
            if span[needed_rows(self._version, self._view, path, place)].all():
                paths[place] = path
        rows = zip(paths, files.rows.tolist(), strict=True)
        return _Files(
            {path: count for path, count in rows if path is not None}, paths, np.append(0, ends)
        )

    @cached_property
    def _blobs(self) -> Sequence[KeptBlob]:
        return [blob for blobs in self._kept.blobs.values() for blob in blobs]

    @cached_property
    def _blob_keys(self) -> tuple[object, ...]:
        return (self._scope, *(blob.key(locators_at(0)) for blob in self._blobs))

    def _key(self, field: NestedField) -> tuple[object, ...]:
        return (*self._blob_keys, field.field_id, str(field.field_type))

    def _rounds(self) -> Iterator[list[KeptBlob]]:
        """Give the blobs, as many at a time as are read at once."""
        some: list[KeptBlob] = []
        size = 0
        for blob in self._blobs:
            if some and size + blob.place.metadata.length > ROUND_BYTES:
                yield some
                some, size = [], 0
            some.append(blob)
            size += blob.place.metadata.length
        if some:
            yield some


def _value_bytes(blob: KeptBlob, column: int) -> int:
    """Return the bytes that a lookup takes for the values of a column, if they all differ.

    Of values of any width it is a guess.
    """
    bits, rows = blob.reader.columns[column].bits, blob.reader.rows
    if bits:
        values = min(rows, 1 << min(bits, 32))
        return values * (-(-bits // 8) + BYTES_A_VALUE)
    first, end = blob.reader.extent(column, 0, blob.reader.blocks)
    return (end - first) * PACKED + rows * BYTES_A_VALUE


def _is_wide(blob: KeptBlob, field: NestedField) -> bool:
    """Tell whether a column is kept as values of any width."""
    number = blob.column_of(field)
    return number is not None and not blob.reader.columns[number].bits


def _blocks_of(blob: KeptBlob, column: int, field: NestedField) -> list[Wanted]:
    return [Wanted(column, block, field) for block in range(blob.reader.blocks)]


def _ascending(numbers: NDArray[np.signedinteger]) -> NDArray[np.signedinteger]:
    """Return what numbers there are, but -1, each once and ascending."""
    found = np.sort(numbers)
    if len(found):
        is_first = np.ones(len(found), np.bool_)
        is_first[1:] = found[1:] != found[:-1]
        is_first &= found >= 0
        found = found[is_first]
    return found


def _by_file(files: _Files, numbers: NDArray[np.signedinteger]) -> Iterator[tuple[str, Positions]]:
    """Give the files that have rows of some numbers, which ascend, and their positions."""
    bounds = np.searchsorted(numbers, files.firsts)
    counts = np.diff(bounds)
    for place in counts.nonzero()[0].tolist():
        path = files.paths[place]
        if path is None:
            continue
        if counts[place] == files.rows[path]:
            yield path, ALL
        else:
            here = numbers[bounds[place] : bounds[place + 1]] - files.firsts[place]
            yield path, BitMap(here.astype(np.uint32))
