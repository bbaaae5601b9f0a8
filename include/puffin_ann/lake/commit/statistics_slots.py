"""Change which files the table's `statistics` name, without a snapshot, by one guarded commit.

There is one statistics file per snapshot, its slot, and the last writer wins without a word. So a
change says what it saw in each slot. A catalog that swaps one pointer refuses it if anything moved;
others check head and table only, so that what a change threw out unseen is put back afterwards.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveStatisticsUpdate,
    SetPropertiesUpdate,
    SetStatisticsUpdate,
    TableRequirement,
    TableUpdate,
)

from puffin_ann.errors import (
    ConflictError,
    EnvironmentProblemError,
    StoreUnavailableError,
    UnclearCommitError,
)
from puffin_ann.lake.catalog.tables import commit, name_of, reload_table
from puffin_ann.lake.commit.tagged_snapshot import removal_of, tag_on
from puffin_ann.lake.metadata.log import metadata_document, statistics_of
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.redaction import shown_cause

ATTEMPTS = 4
WAIT_SECONDS = 0.25

_log = logging.getLogger("puffin_ann")


@dataclass(frozen=True)
class SlotChange:
    """What to write into slots, by snapshot id; a cleared one that a tag of ours holds goes whole.

    Attributes:
        seen: for each slot changed, the path it held when this was decided; None: it was free.
        register: entries to set.
        clear: slots to empty.
        properties: of the table, set in the same commit.
        hold: tags of ours that are gone, to be set again on the snapshots of slots.
        tags: our tags that were there when this was decided; what a newer one holds may name the
            file of a slot that is cleared. None: that does not matter.
    """

    seen: Mapping[int, str | None]
    register: Mapping[int, StatisticsFile] = field(default_factory=dict)
    clear: frozenset[int] = frozenset()
    properties: Mapping[str, str] = field(default_factory=dict)
    hold: Mapping[int, str] = field(default_factory=dict)
    tags: frozenset[str] | None = None

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to do."""
        return not (self.register or self.clear or self.properties or self.hold)

    def is_done(self, table: Table) -> bool:
        """Tell whether the table's slots are as this change leaves them."""
        held = slots(table)
        return (
            all(held.get(snapshot_id) == entry for snapshot_id, entry in self.register.items())
            and not (self.clear & (held.keys() | own_tags(table).keys()))
            and self.hold.items() <= own_tags(table).items()
            and self.properties.items() <= table.properties.items()
        )


def slots(table: Table) -> dict[int, StatisticsFile]:
    """Return the table's statistics by snapshot id, as it was loaded."""
    return {entry.snapshot_id: entry for entry in table.metadata.statistics}


def change_slots(table: Table, change: SlotChange, *, expected_head: int | None) -> Table:
    """Apply a change by one catalog commit; returns the table as it is then.

    Raises:
        ConflictError: head, slots or tags are not what was seen; nothing was changed.
        UnclearCommitError: the catalog's answer was lost.
        CatalogUnavailableError: the catalog refuses, or does not answer.
        StoreUnavailableError: the store does not give the table's metadata.
    """
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(WAIT_SECONDS * 2**attempt)
        fresh = reload_table(table)
        if change.is_done(fresh):
            return fresh
        _check(fresh, change, expected_head)
        try:
            commit(fresh, _updates(fresh, change), _requirements(fresh, change, expected_head))
        except CommitFailedException:
            continue  # if head and slots stayed, somebody was faster elsewhere in the table
        except Exception as error:
            return _look(table, change, error)
        return _put_back(fresh, change)
    raise ConflictError(
        f"{name_of(table)} was changed by others during each of {ATTEMPTS} attempts to change its "
        "statistics; nothing was changed"
    )


def _updates(table: Table, change: SlotChange) -> tuple[TableUpdate, ...]:
    held = slots(table)
    return (
        *(
            RemoveStatisticsUpdate(snapshot_id=snapshot_id)
            for snapshot_id in sorted(change.clear & held.keys())
        ),
        *removal_of(table, change.clear),
        *(SetStatisticsUpdate(statistics=entry) for entry in change.register.values()),
        *(tag_on(slot, tag) for slot, tag in sorted(change.hold.items())),
        *((SetPropertiesUpdate(updates=dict(change.properties)),) if change.properties else ()),
    )


def _requirements(
    table: Table, change: SlotChange, expected_head: int | None
) -> tuple[TableRequirement, ...]:
    return (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=expected_head),
        *(AssertRefSnapshotId(ref=tag, snapshot_id=None) for tag in sorted(change.hold.values())),
    )


def _check(table: Table, change: SlotChange, expected_head: int | None) -> None:
    head = table.metadata.current_snapshot_id
    if head != expected_head:
        raise ConflictError(f"{name_of(table)} is at snapshot {head}, not at {expected_head}")
    newer = set() if change.tags is None else set(own_tags(table).values()) - change.tags
    if newer:
        raise ConflictError(
            f"{', '.join(sorted(newer))} of {name_of(table)} was set meanwhile, by a version that "
            "may name what was to go; nothing was changed"
        )
    held = slots(table)
    for slot, path in change.seen.items():
        now = held[slot].statistics_path if slot in held else None
        if now != path and not (now is None and slot in change.clear):
            raise ConflictError(
                f"the statistics of snapshot {slot} of {name_of(table)} were {path} and are {now}"
            )
    for slot in {*change.register, *change.hold}:
        if table.snapshot_by_id(slot) is None:
            raise ConflictError(f"snapshot {slot} of {name_of(table)} has expired")


def _look(table: Table, change: SlotChange, error: Exception) -> Table:
    """Find out what became of a commit without an answer."""
    what = f"the catalog's answer to a change of the statistics of {name_of(table)} was lost"
    try:
        fresh = reload_table(table)
    except EnvironmentProblemError as problem:
        raise UnclearCommitError(
            f"{what} ({error}), and it is unknown whether it succeeded: {problem}"
        ) from shown_cause(error)
    if change.is_done(fresh):
        return fresh
    raise UnclearCommitError(
        f"{what} ({error}), and it has not come to pass so far"
    ) from shown_cause(error)


def _put_back(table: Table, change: SlotChange) -> Table:
    """Restore entries of others that came into a slot between our look at it and our commit.

    The metadata before ours says what was there; nothing is known where the catalog keeps none.
    """
    log = table.metadata.metadata_log
    try:
        before = metadata_document(table.io, log[-1].metadata_file) if log else None
    except StoreUnavailableError as error:  # the change stands; the guard looks for such, too
        _log.warning(
            "cannot tell whether other writers registered statistics in the meantime: %s", error
        )
        return table
    if before is None:
        return table
    lost = [
        entry
        for entry in statistics_of(before)
        if entry.snapshot_id in change.seen
        and entry.statistics_path != change.seen[entry.snapshot_id]
    ]
    if not lost:
        return table
    _log.warning(
        "restoring statistics that other writers registered in the meantime: %s",
        ", ".join(entry.statistics_path for entry in lost),
    )
    commit(
        table,
        tuple(SetStatisticsUpdate(statistics=entry) for entry in lost),
        (AssertTableUUID(uuid=table.metadata.table_uuid),),
    )
    raise ConflictError(
        f"statistics of snapshots {', '.join(str(entry.snapshot_id) for entry in lost)} of "
        f"{name_of(table)} were written by others in the meantime, and are kept"
    )
