"""The difference of a version to a snapshot, from what only one of the two snapshots lists.

A commit writes few manifests again and carries the others over. A manifest never changes, so files
of one that both the base snapshot and the one asked for have are live in both. Only the others are
read: files that only the base's list are gone, files that only the other's list are new. The same
holds for delete manifests: a file that no differing delete file speaks of has the same rows deleted
as at the base, and those the version holds.

What is found must be what reading everything would find. Where that is not certain (the base's
manifests are gone from the store, counts do not agree, rows deleted at the base are live again),
nothing is found, and the caller reads everything.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from pyiceberg.utils.concurrent import ExecutorFactory
from pyroaring import BitMap

from puffin_ann.lake.read.deletes.row_deletes import deleted_positions
from puffin_ann.lake.read.diff.coverage_diff import CoveredColumns, Difference, tally
from puffin_ann.lake.read.files.live_files import (
    DeleteIndex,
    Listed,
    LiveFile,
    live_file,
    may_name,
    read_entries,
)
from puffin_ann.lake.read.files.manifests import Entry, FileContent, read_unlisted_manifest

log = logging.getLogger("puffin_ann")


class _Uncertain(Exception):
    """It takes reading every manifest; the message says why."""


def changes(at: Listed, covered: CoveredColumns, base: Collection[str]) -> Difference | None:
    """Compare by the manifests that differ.

    Args:
        at: the snapshot to compare with.
        covered: files of an index version, just those of its base snapshot.
        base: paths of the base snapshot's manifests.

    Returns:
        What `difference` would return of all files, or None where that cannot be told.

    Raises:
        UnsupportedTableError: as `live_files` does.
    """
    try:
        return _Comparison(at, covered, base).difference()
    except _Uncertain as reason:
        log.debug("%s: every manifest is read: %s", at.table_name, reason)
        return None


@dataclass(frozen=True)
class _Files:
    """What became of covered files, by place, and the entries of files that are new, by path."""

    removed: Sequence[int]
    is_live: NDArray[np.bool_]
    added: Sequence[Entry]


class _Comparison:
    def __init__(self, at: Listed, covered: CoveredColumns, base: Collection[str]) -> None:
        self._at, self._covered = at, covered
        here = {manifest.path for manifest in at.manifests}
        in_base = frozenset(base)
        self._base_only = [path for path in base if path not in here]
        data = [manifest for manifest in at.manifests if not manifest.holds_deletes]
        deletes = [manifest for manifest in at.manifests if manifest.holds_deletes]
        self._spec_ids = {manifest.spec_id for manifest in data}
        self._shared = [manifest for manifest in data if manifest.path in in_base]
        self._new = [manifest for manifest in data if manifest.path not in in_base]
        self._shared_deletes = [delete for delete in deletes if delete.path in in_base]
        self._new_deletes = [delete for delete in deletes if delete.path not in in_base]

    def difference(self) -> Difference:
        was_data, was_deletes = self._base_entries()
        files = self._files(was_data)
        new_deletes = read_entries(self._at.io, self._new_deletes)
        deleted_by_place = self._deleted_otherwise(files, new_deletes, was_deletes)
        added = self._added(files, new_deletes)
        deleted = deleted_positions(self._at.table, added)
        return tally(
            self._covered,
            files.removed,
            deleted_by_place,
            [(file, deleted.get(file.path, BitMap())) for file in added],
            _live_again,
        )

    def _base_entries(self) -> tuple[list[Entry], list[Entry]]:
        """Return what only the base's manifests list: data, and deletes."""
        left, left_rows = self._left()
        try:
            read = ExecutorFactory.get_or_create().map(
                lambda path: read_unlisted_manifest(self._at.io, path), self._base_only
            )
            found = list(chain.from_iterable(read))
        except Exception as error:
            # Expired ones are gone. Anything else that is wrong with them does not matter
            # either: they only save work.
            raise _Uncertain(f"a manifest of the base cannot be read: {error}") from error
        data = [entry for entry in found if entry.content == FileContent.DATA]
        if (len(data), sum(entry.rows for entry in data)) != (left, left_rows):
            raise _Uncertain("manifests of the base do not list just the files that are covered")
        return data, [entry for entry in found if entry.content != FileContent.DATA]

    def _left(self) -> tuple[int, int]:
        """Return how many covered files no shared manifest lists, and their rows."""
        if len(self._covered.places) < len(self._covered.paths):
            raise _Uncertain("a covered file is listed twice")
        files = rows = 0
        for manifest in self._shared:
            if manifest.files is None or manifest.rows is None:
                raise _Uncertain("the manifest list has no counts")
            files += manifest.files
            rows += manifest.rows
        left = len(self._covered.paths) - files
        if not 0 <= left <= files:
            raise _Uncertain(f"shared manifests list {files} files, {left} fewer than are covered")
        return left, int(self._covered.rows.sum()) - rows

    def _files(self, was: Sequence[Entry]) -> _Files:
        covered = self._covered
        left = {covered.places.get(entry.path, -1) for entry in was}
        if -1 in left or len(left) < len(was):
            raise _Uncertain("a manifest of the base lists a file that is not covered, or twice")
        kept: set[int] = set()
        added: dict[str, Entry] = {}
        for entry in read_entries(self._at.io, self._new):
            place = covered.places.get(entry.path)
            if entry.path in added or place in kept or (place is not None and place not in left):
                raise _Uncertain(f"{entry.path} is listed twice")
            if place is not None and self._is_covered(place, entry):
                kept.add(place)
            else:
                added[entry.path] = entry
        removed = sorted(left - kept)
        is_live = np.ones(len(covered.paths), np.bool_)
        is_live[removed] = False
        return _Files(removed, is_live, [added[path] for path in sorted(added)])

    def _is_covered(self, place: int, entry: Entry) -> bool:
        covered = self._covered
        key = (covered.sizes[place], covered.sequence_numbers[place], covered.rows[place])
        return key == (entry.size, entry.file_sequence_number, entry.rows)

    def _added(self, files: _Files, new_deletes: Iterable[Entry]) -> list[LiveFile]:
        """Return the files that are not covered, with their deletes."""
        first = min((entry.sequence_number for entry in files.added), default=None)
        # A manifest's number is no less than those of its entries.
        may_apply = [
            delete
            for delete in self._shared_deletes
            if first is not None and delete.sequence_number >= first
        ]
        index = self._at.delete_index((*read_entries(self._at.io, may_apply), *new_deletes))
        return [live_file(entry, index, self._at.table_name) for entry in files.added]

    def _deleted_otherwise(
        self, files: _Files, new: Sequence[Entry], was: Sequence[Entry]
    ) -> dict[int, BitMap]:
        """Return, by place, the positions deleted from live files of which deletes came or went."""
        came, went = _unlike(new, was), _unlike(was, new)
        index = self._at.delete_index(came)
        with_new = self._touched(files, index, came)
        with_old = self._touched(files, index, went)
        now = self._with_deletes(index, with_new)
        # A deletion vector is all there is to its file (spec); other deletes add up.
        whole = {
            at
            for at, file in now.items()
            if any(delete.kind == "vector" for delete in file.deletes)
        }
        unsure = (with_old - whole) | {at for at in whole - with_old if at in self._covered.deleted}
        if unsure or whole:
            deletes = (*read_entries(self._at.io, self._shared_deletes), *new)
            if any(entry.content == FileContent.EQUALITY_DELETES for entry in deletes):
                raise _Uncertain("rows are deleted by equality, beside those deleted by position")
        if unsure:
            index = self._at.delete_index(deletes)
            now = self._with_deletes(index, with_new | with_old)
            whole = set(now)
        found = deleted_positions(self._at.table, now.values())
        return {
            at: found.get(file.path, BitMap())
            | (BitMap() if at in whole else self._covered.deleted_from(at))
            for at, file in now.items()
        }

    def _touched(self, files: _Files, index: DeleteIndex, differing: Iterable[Entry]) -> set[int]:
        """Return the places of live files that deletes may speak of."""
        paths, touched = self._covered.paths, set()
        for entry in differing:
            if entry.content == FileContent.EQUALITY_DELETES:
                raise _Uncertain(f"equality deletes were added or removed: {entry.path}")
            path = index.delete_file(entry).referenced_data_file
            if path is None:
                touched |= {at for at, path in enumerate(paths) if may_name(entry, path)}
            elif (at := self._covered.places.get(path)) is not None:
                touched.add(at)
        return {at for at in touched if files.is_live[at]}

    def _with_deletes(self, index: DeleteIndex, places: Collection[int]) -> dict[int, LiveFile]:
        """Return covered files by place, with their deletes.

        Their entries were not read, so that neither their partitions are known, nor their data
        sequence numbers, but for that these are no greater than the file sequence number.
        """
        spec_id = min(self._spec_ids, default=0)
        if index.partitions and (len(self._spec_ids), *index.partitions) != (1, (spec_id, ())):
            raise _Uncertain("deletes differ, and the partitions of covered files are not known")
        covered = self._covered
        found: dict[int, LiveFile] = {}
        for at in sorted(places):
            path, number = covered.paths[at], int(covered.sequence_numbers[at])
            deletes = index.by_position(path, number, (spec_id, ()))
            if deletes != index.by_position(path, -1, (spec_id, ())):
                raise _Uncertain(f"whether deletes are older than {path} is not known")
            size, rows = int(covered.sizes[at]), int(covered.rows[at])
            found[at] = LiveFile(path, size, number, rows, deletes)
        return found


def _unlike(entries: Iterable[Entry], others: Iterable[Entry]) -> list[Entry]:
    """Return the entries of deletes that are not among others, whatever number they inherit."""
    known = {_identity(entry) for entry in others}
    return [entry for entry in entries if _identity(entry) not in known]


def _identity(entry: Entry) -> tuple[str, int | None, str | None]:
    return (entry.path, entry.content_offset, entry.referenced_data_file)


def _live_again(place: int) -> LiveFile:
    raise _Uncertain(f"rows deleted from covered file {place} at the base are live again")
