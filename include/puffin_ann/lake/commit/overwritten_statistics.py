"""What a registration pushed out of a snapshot's statistics slot, and how it is given back.

A snapshot has one slot and the last writer wins. Catalogs can be made to refuse a commit if a
branch moved, but not if another writer registered a statistics file meanwhile. So after a slot was
filled, the table's log of metadata files is asked what was in it right before, and that is given
back.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import AssertTableUUID, SetStatisticsUpdate

from puffin_ann.errors import StoreUnavailableError, UnclearCommitError
from puffin_ann.lake.catalog.tables import commit, name_of, reload_table
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lake.metadata.log import metadata_document, statistics_of
from puffin_ann.lake.store.objects import object_exists

ATTEMPTS = 4
THETA = "apache-datasketches-theta-v1"

_log = logging.getLogger("puffin_ann")


def path_in(table: Table, snapshot_id: int) -> str | None:
    """Return the location of the statistics file registered under a snapshot."""
    entry = slots(table).get(snapshot_id)
    return entry.statistics_path if entry else None


def overwritten(
    table: Table,
    snapshot_id: int,
    path: str,
    *,
    seen: Collection[str | None],
    seen_in: str | None = None,
) -> StatisticsFile | None:
    """Return what registering `path` under a snapshot pushed out, if it is not what we had seen.

    Args:
        table: as loaded after the registration.
        snapshot_id: whose slot was filled.
        path: location of the file that was registered.
        seen: what was in the slot when the registration was prepared, at each attempt.
        seen_in: the metadata file that was looked at then. If it is the one before the current,
            nobody wrote in between, and nothing is read.
    """
    log = table.metadata.metadata_log
    if log and seen_in is not None and log[-1].metadata_file == seen_in:
        return None
    registered = False
    for state in _known_states(table):
        entry = state.get(snapshot_id)
        if entry is not None and entry.statistics_path == path:
            registered = True
        elif registered:
            return entry if entry is not None and entry.statistics_path not in seen else None
    return None


def _known_states(table: Table) -> Iterator[Mapping[int, StatisticsFile]]:
    """Yield as `_states` does, as far as the store answers.

    What was just registered stays registered either way, and the guard looks again.
    """
    try:
        yield from _states(table)
    except StoreUnavailableError as error:
        _log.warning(
            "cannot tell whether statistics of %s were overwritten: %s", name_of(table), error
        )


def _states(table: Table) -> Iterator[Mapping[int, StatisticsFile]]:
    """Yield the table's slots now and in its earlier states, as far as those are kept."""
    yield slots(table)
    for entry in reversed(table.metadata.metadata_log):
        document = metadata_document(table.io, entry.metadata_file)
        if document is None:
            _log.warning(
                "cannot tell whether statistics of %s were overwritten: %s is not readable",
                name_of(table),
                entry.metadata_file,
            )
            return
        yield {entry.snapshot_id: entry for entry in statistics_of(document)}


@dataclass(frozen=True)
class Displaced:
    """Somebody else's registration, and the location of the file of ours that took its place."""

    entry: StatisticsFile
    by: str

    @property
    def snapshot_id(self) -> int:
        """Snapshot whose slot it is."""
        return self.entry.snapshot_id


def find_overwritten(table: Table, is_ours: Callable[[str], bool]) -> list[Displaced]:
    """Find what others had registered in slots that now have files of ours that do not list it.

    This is the trace of a request that was given up as lost and landed after the slot had been
    filled: no catalog can be told to refuse it. The earlier metadata that the table still names is
    read as far back as files of ours have been in their slots.

    Args:
        table: as loaded.
        is_ours: tells locations of our files.

    Raises:
        StoreUnavailableError: the store does not say what was there.
    """
    open_slots = {
        slot: entry for slot, entry in slots(table).items() if is_ours(entry.statistics_path)
    }
    found: list[Displaced] = []
    states = _states(table)
    while open_slots and (state := next(states, None)) is not None:
        for slot, ours in tuple(open_slots.items()):
            before = state.get(slot)
            if before is not None and is_ours(before.statistics_path):
                continue
            del open_slots[slot]
            if before is not None and not _listed(before) <= _listed(ours):
                found.append(Displaced(before, ours.statistics_path))
    return [
        displaced for displaced in found if object_exists(table.io, displaced.entry.statistics_path)
    ]


def _listed(entry: StatisticsFile) -> set[tuple[Any, ...]]:
    """Return what tells apart an entry's blobs, of those that every engine may list."""
    return {
        (
            blob.snapshot_id,
            tuple(blob.fields),
            tuple(sorted((blob.properties or {}).items())),
        )
        for blob in entry.blob_metadata
        if blob.type == THETA and blob.fields
    }


def give_back(table: Table, entry: StatisticsFile, *, ours: str) -> None:
    """Register again what `ours` pushed out of its slot, unless somebody filled the slot again.

    Raises:
        UnclearCommitError: the catalog does not say whether it is registered again.
    """
    problem: Exception | None = None
    for _ in range(ATTEMPTS):
        try:
            fresh = reload_table(table)
            if path_in(fresh, entry.snapshot_id) != ours:
                return
            commit(
                fresh,
                (SetStatisticsUpdate(statistics=entry),),
                (AssertTableUUID(uuid=fresh.metadata.table_uuid),),
            )
        except Exception as error:
            problem = error
            continue
        _log.warning(
            "%s was registered under snapshot %d of %s at the same moment; it is so again",
            entry.statistics_path,
            entry.snapshot_id,
            name_of(table),
        )
        return
    raise UnclearCommitError(
        f"{ours} took the place of {entry.statistics_path} under snapshot {entry.snapshot_id} of "
        f"{name_of(table)}, and the catalog does not let it be registered again: {problem}"
    ) from problem
