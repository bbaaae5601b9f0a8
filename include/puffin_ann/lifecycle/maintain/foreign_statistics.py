"""Give others' statistics back what a request of ours took that landed late.

A publication whose answer was lost may land when somebody else has filled the slot, and takes its
place: catalogs can assert the head, which has not moved, and no slot. So the guard looks for it.
"""

import logging

from pyiceberg.table import Table

from puffin_ann.lake.catalog.tables import reload_table
from puffin_ann.lake.commit.overwritten_statistics import Displaced, displaced
from puffin_ann.lake.commit.statistics_slots import SlotChange, change_slots, slots
from puffin_ann.lifecycle.publish.republish import republish
from puffin_ann.lifecycle.published.inventory import (
    Inventory,
    is_index_name,
    live_files,
    take_inventory,
)

log = logging.getLogger("puffin_ann")


def find_displaced(table: Table) -> list[Displaced]:
    """Return statistics of others that files of ours stand in the place of, unlike them."""
    return displaced(table, is_index_name)


def restore_displaced(table: Table) -> list[str]:
    """Make such statistics visible again; returns one sentence for each.

    Where readers of the head would use them, one file is published that holds both. Else theirs is
    registered again, if ours is registered under another snapshot, too: as it is after the guard.

    Raises:
        ConflictError: the table was changed meanwhile.
        UnclearCommitError: the catalog's answer was lost.
    """
    actions: list[str] = []
    fresh = reload_table(table)
    for one in find_displaced(fresh):
        actions += _restore(take_inventory(table), one)
    return actions


def _restore(inventory: Inventory, one: Displaced) -> list[str]:
    slot, path = one.snapshot_id, one.entry.statistics_path
    actions: list[str] = []
    if _is_hidden(inventory, slot):
        ours, snapshot_id = republish(
            inventory, live_files(inventory.published), replaces={one.by}, foreign_from=path
        )
        actions.append(f"published {ours} as snapshot {snapshot_id}, with what {path} lists")
        inventory = take_inventory(inventory.table)
    held = slots(inventory.table)
    if slot not in held or held[slot].statistics_path != one.by:
        return actions
    if actions or any(entry.statistics_path == one.by for at, entry in held.items() if at != slot):
        change = SlotChange(seen={slot: one.by}, register={slot: one.entry})
        change_slots(inventory.table, change, expected_head=inventory.head)
        return [*actions, f"registered {path} of others under snapshot {slot} again"]
    log.warning("guard: %s is registered nowhere but in the place of %s", one.by, path)
    return actions


def _is_hidden(inventory: Inventory, slot: int) -> bool:
    """Tell whether readers of the head would use the statistics of a snapshot: it has its rows."""
    head = inventory.table.current_snapshot()
    if head is None or head.snapshot_id == slot:
        return head is not None
    here = inventory.ours_in(head.snapshot_id)
    is_index = here is not None and head.snapshot_id in here.named_by
    return is_index and head.parent_snapshot_id == slot
