"""Keep published indexes registered, whatever others do to the table's statistics and snapshots.

Registration is all that keeps an index file from being deleted, and a snapshot's expiry takes its
registration away. A tag of ours that holds a version keeps that snapshot; one that somebody dropped
is set again, and a live version that has none is published under one. Where tags are not kept, the
live versions are anchored: registered under the head, which no expiry removes. If the head has
others' statistics, all of them are published again in one file with those.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import ConflictError, TagNotKeptError
from puffin_ann.lake.catalog.tables import load_table, reload_table
from puffin_ann.lake.commit.publish_mode import not_kept_now
from puffin_ann.lake.commit.statistics_slots import SlotChange, change_slots, slots
from puffin_ann.lake.metadata.expiry import Horizon
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lifecycle.maintain.guard_plan import GuardPlan, plan_guard
from puffin_ann.lifecycle.publish.carried_blobs import listed_blobs
from puffin_ann.lifecycle.publish.changed_index import Changed
from puffin_ann.lifecycle.publish.republish import republish, republish_under_tag
from puffin_ann.lifecycle.runtime.retry import retry_on_conflict
from puffin_ann.lifecycle.versions.inventory import IndexFile, Inventory, take_inventory
from puffin_ann.search.version.index_files import open_puffin
from puffin_ann.search.version.versions import how_to_build_again

log = logging.getLogger("puffin_ann")

LOOKS = 4
"""Times that the table is looked at again, after something was published again."""


@dataclass(frozen=True)
class GuardReport:
    """What the guard did.

    Attributes:
        actions: one sentence each.
        lost: indexes that have to be built again.
    """

    actions: tuple[str, ...]
    lost: tuple[str, ...]


def guard(
    table: str | Table,
    declarations: Iterable[IndexDeclaration] = (),
    *,
    horizon: Horizon | None = None,
) -> GuardReport:
    """Make the table's index files safe from expiry and orphan removal.

    Args:
        table: by name, or as loaded.
        declarations: of this table's indexes, for their retention; what was built by is known.
        horizon: the expiry to expect; default: by the table's properties, a day from now.

    Raises:
        ConflictError: the table was changed by others during every attempt.
        UnclearCommitError: the catalog's answer was lost; the next run finds out.
    """
    loaded = load_table(table)
    declared = tuple(declarations)
    actions: list[str] = []

    def look_and_apply() -> GuardPlan:
        inventory = take_inventory(loaded)
        plan = plan_guard(inventory, declared, horizon=horizon)
        actions.extend(_apply(inventory, plan))
        return plan

    for _ in range(LOOKS):
        plan = retry_on_conflict("guard", look_and_apply)
        if not (plan.move or plan.again):  # else older versions may have other places now
            break
    for action in actions:
        log.info("guard: %s", action)
    for index in plan.lost:
        log.error(
            "guard: no readable file of index %s is left; %s", index, how_to_build_again(index)
        )
    return GuardReport(tuple(actions), plan.lost)


def _apply(inventory: Inventory, plan: GuardPlan) -> list[str]:
    done: list[str] = []
    change = _change(inventory, plan)
    if not change.is_empty:
        change_slots(inventory.table, change, expected_head=inventory.head)
        done += [_cleared(inventory, slot, path) for slot, path in plan.clear.items()]
        done += [f"set tag {tag} again, for {file.path}" for tag, file in plan.hold.values()]
        done += [
            f"registered {file.path} under snapshot {slot}: {reason}"
            for slot, (file, reason) in plan.register.items()
        ]
    if plan.move or plan.again:
        # The slots changed, not the head: what was planned holds for the table as it is now.
        fresh = replace(inventory, table=reload_table(inventory.table))
        if fresh.head != inventory.head:
            raise ConflictError(f"the head moved to snapshot {fresh.head} meanwhile")
        done += _moved(fresh, plan)
        if plan.again:
            rest = {index: file for index, file in plan.live.items() if index not in plan.move}
            new = republish(fresh, rest)
            done.append(f"published {new.path} under snapshot {new.snapshot_id}: {plan.again}")
    return done


def _moved(inventory: Inventory, plan: GuardPlan) -> list[str]:
    """Publish indexes under tags; where the catalog keeps none, that is noted in the table."""
    done: list[str] = []
    for index in plan.move:
        try:
            path = republish_under_tag(inventory, index, changed=Changed(index)).path
        except TagNotKeptError as error:
            log.warning("guard: %s", error)
            note = SlotChange(seen={}, properties=not_kept_now())
            change_slots(inventory.table, note, expected_head=inventory.head)
            return [*done, "noted that the catalog keeps no tags"]
        done.append(f"published {path}: index {index!r} had no tag")
    return done


def _cleared(inventory: Inventory, slot: int, path: str) -> str:
    """Say what went from a slot, and why: its file is gone, or there and of no use."""
    tag = own_tags(inventory.table).get(slot)
    what = f"tag {tag}" if tag else f"the registration under snapshot {slot}"
    is_there = any(file.path == path and file.bytes is not None for file in inventory.files)
    return f"removed {what}: {path} " + ("holds only what was dropped" if is_there else "is gone")


def _change(inventory: Inventory, plan: GuardPlan) -> SlotChange:
    held = slots(inventory.table)
    touched = {*plan.clear, *plan.register, *plan.hold}
    return SlotChange(
        seen={slot: held[slot].statistics_path if slot in held else None for slot in touched},
        register={slot: _entry(inventory, file, slot) for slot, (file, _) in plan.register.items()},
        clear=frozenset(plan.clear.keys() - plan.register.keys()),
        hold={slot: tag for slot, (tag, _) in plan.hold.items()},
    )


def _entry(inventory: Inventory, file: IndexFile, slot: int) -> StatisticsFile:
    """Return a file's entry for a slot, as the one it has elsewhere if it has any."""
    for entry in file.entries.values():
        return entry.model_copy(update={"snapshot_id": slot})
    with open_puffin(inventory.table.io, file.path, file.bytes) as reader:
        blobs = listed_blobs(reader.metadata.blobs)
    return StatisticsFile.model_validate(
        {
            "snapshot-id": slot,
            "statistics-path": file.path,
            "file-size-in-bytes": file.bytes,
            "file-footer-size-in-bytes": file.footer_size,
            "blob-metadata": blobs,
        }
    )
