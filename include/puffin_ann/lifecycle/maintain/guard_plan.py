"""Decide what keeps published indexes registered: pure, from the files that there are.

A version that no tag of ours holds gets one; where tags are not kept, the live versions are
anchored: registered under the head, which no expiry removes. What stays gets back what others
dropped.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pyiceberg.table import Table

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import UnsupportedTableError
from puffin_ann.lake.catalog.index_snapshots import tag_of
from puffin_ann.lake.commit.publish_mode import publish_mode
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lake.commit.tagged_snapshot import FOR_EVER_MS
from puffin_ann.lake.metadata.dropped import find_dropped, names_index
from puffin_ann.lake.metadata.expiry import DAY_MS, Horizon, surviving
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lifecycle.retention.rules import (
    Verdict,
    apply_retention,
    names_of_snapshots,
    policies,
)
from puffin_ann.lifecycle.versions.inventory import IndexFile, Inventory, is_among, live_files
from puffin_ann.lifecycle.versions.recorded_declaration import Recorded

LEAD_MS = DAY_MS
"""Snapshots that expire within this time count as gone: the guard runs more often than that."""

_RUN_ID = re.compile(r"ann\.([a-z][a-z0-9_]*)\.run-id")


@dataclass(frozen=True)
class GuardPlan:
    """What the guard will do: pure outcome of `plan_guard`.

    Attributes:
        clear: slots to empty, whose file is gone, with that file.
        register: slots to fill, with the file and the reason.
        hold: tags of ours to set again on the snapshots that they were on, with the file there.
        move: indexes that get a tag, which their newest version has not.
        again: why all others have to be published again under the head; empty if they have not.
        live: by index, the newest usable file that holds it.
        lost: indexes of which no usable file is left.
    """

    clear: Mapping[int, str] = field(default_factory=dict)
    register: Mapping[int, tuple[IndexFile, str]] = field(default_factory=dict)
    hold: Mapping[int, tuple[str, IndexFile]] = field(default_factory=dict)
    move: tuple[str, ...] = ()
    again: str = ""
    live: Mapping[str, IndexFile] = field(default_factory=dict)
    lost: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing has to be done."""
        return not (self.clear or self.register or self.hold or self.move or self.again)


def plan_guard(
    inventory: Inventory,
    declarations: Iterable[IndexDeclaration] = (),
    *,
    horizon: Horizon | None = None,
) -> GuardPlan:
    """Decide what has to be done; reads nothing."""
    table, head, declarations = inventory.table, inventory.head, tuple(declarations)
    published = inventory.published
    live = live_files(published)
    lost = tuple(sorted(_indexes_named(table) - live.keys()))
    clear = {
        slot: file.path for file in inventory.files if file.bytes is None for slot in file.entries
    }
    register: dict[int, tuple[IndexFile, str]] = {}
    needed = inventory.needed
    for slot, file in _emptied(inventory):
        if file is not None and (file.is_usable or is_among(file, needed)):
            register[slot] = file, "its tag holds it"
        elif file is None or file.bytes is None or not (file.holds or file.problem):
            clear[slot] = file.path if file else "its file"
    if head is None:
        return GuardPlan(clear=clear, live=live, lost=lost)
    expected = surviving(table, horizon or Horizon(inventory.now_ms + LEAD_MS))
    again = ""
    verdicts = [
        verdict
        for verdict in apply_retention(
            inventory.with_needed(published),
            policies(declarations, published),
            names_of_snapshots(table),
        )
        if verdict.is_kept and not inventory.is_tagged(verdict.file)
    ]
    hold = _lost_tags(inventory, verdicts)
    for slot, (_, file) in hold.items():
        if slot not in file.entries:
            register[slot] = file, "its tag held it"
    held = {file.path for file, _ in register.values()} | {file.path for _, file in hold.values()}
    untagged = {
        index: file for index, file in inventory.untagged(live).items() if file.path not in held
    }
    move = _without_tag(table, untagged, declarations)
    anchored = {index: file for index, file in untagged.items() if index not in move}
    if anchored and not _is_anchored(inventory, head, anchored):
        carrier = _carrier(published, anchored)
        if carrier is not None and (inventory.is_free(head) or head in clear):
            register[head] = (carrier, "no expiry removes the head")
        else:
            again = _why_again(inventory, head, carrier)
    kept = [
        verdict
        for verdict in verdicts
        if verdict.file not in live.values() and verdict.file.path not in held
    ]
    _keep_others(inventory, kept, expected, clear, register)
    return GuardPlan(clear, register, hold, move, again, live, lost)


def _without_tag(
    table: Table, untagged: Mapping[str, IndexFile], declarations: Iterable[IndexDeclaration]
) -> tuple[str, ...]:
    """Return the indexes that could have a tag, and have none.

    A catalog that kept none once is not asked by the guard again, since that copies the index.
    """
    known = {declaration.name: declaration for declaration in declarations}

    def wants_statistics(index: str, file: IndexFile) -> bool:
        if index in known:
            return known[index].publishes_by == "statistics"
        held = next(held for held in file.holds if held.index == index)
        return Recorded.of(held.declaration).wants_statistics

    found = [index for index, file in sorted(untagged.items()) if not wants_statistics(index, file)]
    try:
        mode = publish_mode(table, "auto", ask_again_ms=FOR_EVER_MS)[0] if found else "tag"
    except UnsupportedTableError:  # nothing can be published
        return ()
    return tuple(found) if mode == "tag" else ()


def _lost_tags(
    inventory: Inventory, verdicts: Iterable[Verdict]
) -> dict[int, tuple[str, IndexFile]]:
    """Return the tags of ours that somebody dropped, by the snapshot that they were on.

    Its file may have lost the registration there, too, as long as nobody else took the place.
    """
    table = inventory.table
    refs = table.refs()
    found = {}
    for verdict in verdicts:
        free = {slot for slot in verdict.file.named_by if inventory.is_free(slot)}
        for slot in verdict.file.entries.keys() | free:
            tag = tag_of(table.snapshot_by_id(slot))
            if tag is not None and tag not in refs:
                found[slot] = tag, verdict.file
    return found


def _indexes_named(table: Table) -> set[str]:
    """Return the indexes that snapshots of the table publish, but for those dropped since."""
    marks = find_dropped(table)
    return {
        match[1]
        for snapshot in table.snapshots()
        if snapshot.summary
        for match in map(_RUN_ID.fullmatch, snapshot.summary.additional_properties)
        if match and names_index(snapshot, match[1], marks)
    }


def _emptied(inventory: Inventory) -> Iterator[tuple[int, IndexFile | None]]:
    """Yield the snapshots that tags of ours hold without statistics, with the file they name."""
    named = {slot: file for file in inventory.files for slot in file.named_by}
    for slot in own_tags(inventory.table).keys() - slots(inventory.table).keys():
        yield slot, named.get(slot)


def _is_anchored(inventory: Inventory, head: int, live: Mapping[str, IndexFile]) -> bool:
    """Tell whether the file under the head has a version of every index, the live one or not.

    After a rollback it may be an older one, which covers the head better.
    """
    file = inventory.ours_in(head)
    return (
        file is not None and file.is_usable and live.keys() <= {held.index for held in file.holds}
    )


def _carrier(published: Iterable[IndexFile], live: Mapping[str, IndexFile]) -> IndexFile | None:
    """Return the newest file that holds the live version of every index."""
    wanted = {held for index, file in live.items() for held in file.holds if held.index == index}
    return next((file for file in published if wanted <= set(file.holds)), None)


def _why_again(inventory: Inventory, head: int, carrier: IndexFile | None) -> str:
    if carrier is None:
        return "no single file holds all indexes"
    if inventory.ours_in(head) is not None:
        return f"the file under the head, snapshot {head}, does not hold all indexes"
    return f"the head's statistics entry belongs to another writer, snapshot {head}"


def _keep_others(
    inventory: Inventory,
    kept: Iterable[Verdict],
    expected: frozenset[int],
    clear: Mapping[int, str],
    register: dict[int, tuple[IndexFile, str]],
) -> None:
    """Find places for the older versions that are kept, where there are any.

    A version never gets a place newer than the one of a version that is newer: of files whose names
    have the same number, or none, readers take the place for the order of versions.
    """
    table = inventory.table
    names = names_of_snapshots(table)
    order = {snapshot.snapshot_id: snapshot.sequence_number or 0 for snapshot in table.snapshots()}
    for verdict in kept:
        file = verdict.file
        newer = [
            other.order
            for other in inventory.published
            if other.order > file.order and other.number == file.number
        ]
        limit = min(newer, default=max(order.values(), default=0) + 1)
        free = {
            slot
            for slot in expected
            if (inventory.is_free(slot) or slot in clear)
            and slot not in register
            and order[slot] < limit
        }
        own = {*file.named_by, *(held.base_snapshot_id for held in file.holds)}
        if expected & file.entries.keys() - clear.keys():
            # Safe for now; for good only where a tag or a branch holds one of its own snapshots.
            free &= own & names.keys() if not names.keys() & file.entries.keys() else set()
        best = max(
            free,
            # Where a name holds it for good, there is nothing left to be done the next time.
            key=lambda slot: (slot in own, slot in own & names.keys(), order[slot]),
            default=None,
        )
        if best is not None:
            register[best] = (file, verdict.reasons[0])
