"""Put what is whole in the place of damaged files.

What can be made again of rows of the table was, before: see `plan_repair`. Of the rest another file
may have what it held: the same version, carried over, or an older one, which covers less. That is
published again, with everything else of the damaged file that is whole. Then the damaged file is
removed, since guard and searches would try it again and again.
"""

import logging
from collections.abc import Mapping, Sequence

from pyiceberg.table import Table

from puffin_ann.blobs.describe import OURS
from puffin_ann.lake.catalog.tables import reload_table
from puffin_ann.lake.commit.statistics_slots import SlotChange, change_slots, slots
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lake.store.listing import canonical, delete_object, is_folder
from puffin_ann.lifecycle.maintain.examination.damage import (
    Damage,
    damage_of,
    why_named,
    without_damage,
)
from puffin_ann.lifecycle.maintain.guard_plan import plan_guard
from puffin_ann.lifecycle.publish.carried_blobs import is_foreign
from puffin_ann.lifecycle.publish.republish import republish
from puffin_ann.lifecycle.retention.tags import named_since
from puffin_ann.lifecycle.retention.withheld import Protection
from puffin_ann.lifecycle.runtime.retry import retry_on_conflict
from puffin_ann.lifecycle.versions.inventory import (
    IndexFile,
    Inventory,
    live_files,
    take_inventory,
)
from puffin_ann.search.version.index_files import open_puffin

log = logging.getLogger("puffin_ann")


def repair(table: Table, found: Sequence[Damage]) -> tuple[frozenset[str], list[str]]:
    """Put what is whole in the place of damaged files; returns those files, and what was done.

    Files that are read without an error now, those that hold what no other file has whole, and
    those that others may need, stay as they are.

    Raises:
        ConflictError: the table was changed during every attempt; what was done so far is sound.
        UnclearCommitError: the catalog's answer was lost; no file was removed.
    """
    actions: list[str] = []
    return retry_on_conflict("doctor", lambda: _repaired(table, found, actions)), actions


def _repaired(table: Table, found: Sequence[Damage], actions: list[str]) -> frozenset[str]:
    """Note each action once it is done: what comes after it may be superseded."""
    inventory = take_inventory(table)
    confirmed = _confirmed(inventory, {damage.file.path for damage in found})
    rest = without_damage(inventory, confirmed)
    whole = live_files(rest.published)
    lost = plan_guard(rest).lost
    damaged = {damage.file.path: damage.file for damage in confirmed}
    needed = rest.needed
    dispensable = {
        path
        for path, file in damaged.items()
        if canonical(path) not in needed
        and not why_named(rest, file, confirmed)
        and _is_dispensable(inventory.table, file, confirmed, whole, lost)
    }
    if not dispensable:
        return frozenset()
    protection = Protection.of(inventory.table)
    kept = {path: why for path in dispensable if (why := protection.why_file_kept(path))}
    untagged = rest.untagged(whole)
    if any(_is_needed(inventory, damaged[path], untagged, path in kept) for path in dispensable):
        new = republish(rest, untagged, replaces=dispensable)
        actions.append(
            f"published {new.path} as snapshot {new.snapshot_id}, of what is whole: "
            + ", ".join(f"index {index} of {file.path}" for index, file in sorted(untagged.items()))
        )
    actions += [f"left damaged file {path} as it is: {why}" for path, why in sorted(kept.items())]
    if dispensable - kept.keys():
        actions += _remove(inventory, dispensable - kept.keys())
    return frozenset(dispensable - kept.keys())


def _confirmed(inventory: Inventory, paths: set[str]) -> list[Damage]:
    """Read suspects a second time: what a network garbled is whole in the store."""
    confirmed = []
    for file in inventory.files:
        if file.path not in paths or file.bytes is None:
            continue
        if is_folder(inventory.table.io, file.path):
            log.warning("doctor: %s is a directory, and is left alone", file.path)
            continue
        confirmed += damage_of(inventory.table, file)
    return confirmed


def _is_dispensable(
    table: Table,
    file: IndexFile,
    confirmed: Sequence[Damage],
    whole: Mapping[str, IndexFile],
    lost: Sequence[str],
) -> bool:
    """Tell whether another file has all that a damaged file holds, or it can be copied from it."""
    if file.holds:
        return {held.index for held in file.holds} <= whole.keys()
    bad = {damage.index for damage in confirmed if damage.file.path == file.path}
    # If it is not even known which indexes it holds, no index may be missing.
    return bool(whole) and not lost and ("" in bad or _indexes_in(table, file) <= bad)


def _indexes_in(table: Table, file: IndexFile) -> set[str]:
    with open_puffin(table.io, file.path, file.bytes) as reader:
        return {
            blob.properties.get("index", "") for blob in reader.metadata.blobs if blob.type in OURS
        }


def _is_needed(
    inventory: Inventory, file: IndexFile, whole: Mapping[str, IndexFile], is_kept: bool
) -> bool:
    """Tell whether something has to be published before a file can go, or is not needed."""
    if whole and inventory.head in file.entries:
        return True
    if any(other.path == file.path for other in whole.values()):
        return True
    listed = (blob for entry in file.entries.values() for blob in entry.blob_metadata)
    return not is_kept and any(map(is_foreign, listed))


def _remove(inventory: Inventory, paths: set[str]) -> list[str]:
    table = reload_table(inventory.table)
    held = {
        slot: entry.statistics_path
        for slot, entry in slots(table).items()
        if entry.statistics_path in paths
    }
    tags = frozenset(own_tags(inventory.table).values())
    change = SlotChange(seen=held, clear=frozenset(held), tags=tags)
    if not change.is_empty:
        table = change_slots(table, change, expected_head=table.metadata.current_snapshot_id)
    named = named_since(inventory.table, table)
    protection = Protection.of(table)

    def why_kept(path: str) -> str:
        if named is None or canonical(path) in named:
            return "a version that was published meanwhile may name it"
        return protection.why_file_kept(path)

    return [_deleted(table, path, why_kept(path)) for path in sorted(paths)]


def _deleted(table: Table, path: str, why_kept: str) -> str:
    if why_kept:
        return f"registered no more, but did not remove, damaged file {path}: {why_kept}"
    delete_object(table.io, path)
    return f"removed damaged file {path}"
