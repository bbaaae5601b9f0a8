"""Drop an index: later publications do not hold it, and clean-up removes its files."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict
from pyiceberg.table import Table

from puffin_ann.declaration import IndexDeclaration, check_name
from puffin_ann.errors import BadInputError, FormatError, IndexNotFoundError
from puffin_ann.lake.catalog.tables import load_table, name_of
from puffin_ann.lake.commit.statistics_slots import SlotChange, change_slots
from puffin_ann.lake.metadata.dropped import NEVER, find_dropped, mark
from puffin_ann.lake.metadata.registered import find_registered
from puffin_ann.lake.store.listing import canonical
from puffin_ann.lifecycle.publish.carried_blobs import is_foreign
from puffin_ann.lifecycle.publish.republish import republish
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.lifecycle.runtime.retry import retry_on_conflict
from puffin_ann.lifecycle.runtime.run_ids import new_run_id
from puffin_ann.lifecycle.versions.inventory import (
    IndexFile,
    Inventory,
    live_files,
    take_inventory,
)
from puffin_ann.lifecycle.versions.recorded_declaration import Recorded
from puffin_ann.search.version.index_files import open_puffin
from puffin_ann.wording import meant

log = logging.getLogger("puffin_ann")


class DropReport(BaseModel):
    """What dropping an index did, or would do in a dry run.

    Attributes:
        versions: the versions that go, by the runs that published them.
        others: indexes of the table that stay.
        file: the new file, without the index; empty if none had to be made.
        snapshot_id: snapshot the new file is registered under.
        deregistered: files that hold nothing else, and are not registered any more.
        tags: of ours, that held such files and go with them.
        actions: one sentence for each thing done.
        declaration: what its newest version was published by, as the table records it.
    """

    model_config = ConfigDict(frozen=True)

    index: str
    table: str
    dry_run: bool
    versions: tuple[str, ...]
    others: tuple[str, ...]
    file: str = ""
    snapshot_id: int | None = None
    deregistered: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    declaration: dict[str, Any] = {}


def drop(
    table: str | Table,
    index: str,
    declarations: Iterable[IndexDeclaration] = (),
    *,
    force: bool = False,
    dry_run: bool = False,
    at_ms: int | None = None,
) -> DropReport:
    """Deregister the files of an index, with their tags; publish what they hold besides without it.

    From that one commit on the index is not found, neither at the head nor in the past, whichever
    file still holds it. Files go by `clean`, when their grace is over.

    Args:
        table: by name, or as loaded.
        index: name of the index.
        declarations: of this table's indexes.
        force: drop it although it is declared.
        dry_run: change nothing; say what would be done.
        at_ms: what counts as now, milliseconds since 1970.

    Raises:
        BadInputError: the index is declared, or none can have such a name.
        IndexNotFoundError: no version of it is published.
        ConflictError: the table was changed by others during every attempt; nothing was changed.
        UnclearCommitError: the catalog's answer was lost.
        LeaseHeldError: a run is at work on the index.
    """
    check_name(index)
    loaded = load_table(table)
    if not force and any(declaration.name == index for declaration in declarations):
        raise BadInputError(
            f"index {index!r} is declared, so its next run would build it again: remove its "
            "declaration first, or give --force"
        )
    if dry_run:
        return _drop(loaded, index, dry_run=True, at_ms=at_ms)
    owner = new_run_id(f"drop-{index}")
    with (
        leases.writing(loaded, index, owner, "drop the index", wait=False),
        leases.publishing(loaded, owner, f"drop index {index!r}"),
    ):
        return retry_on_conflict("drop", lambda: _drop(loaded, index, dry_run=False, at_ms=at_ms))


def _drop(table: Table, index: str, *, dry_run: bool, at_ms: int | None) -> DropReport:
    inventory = take_inventory(table, at_ms=at_ms)
    versions = versions_of(inventory, index)
    if not versions:
        raise _not_found(inventory, index)
    marks = mark(inventory.table, index, versions, inventory.now_ms)
    rest = without(inventory, index)
    live = live_files(rest.published)
    report = DropReport(
        index=index,
        table=name_of(inventory.table),
        dry_run=dry_run,
        versions=versions,
        others=tuple(sorted(live)),
        declaration=dict(Recorded.of(_recorded(inventory, index)).fields),
    )
    others = rest.untagged(live)
    mine = [file for file in inventory.files if _holds(file, index)]
    if all(map(inventory.is_tagged, mine)) or not (others or _has_foreign(inventory, index)):
        return _deregister(inventory, rest, marks, report)
    return _publish_without(rest, others, marks, report)


def versions_of(inventory: Inventory, index: str) -> tuple[str, ...]:
    """Return the versions of an index that are there, the newest first."""
    held = (
        hold.version for file in inventory.published for hold in file.holds if hold.index == index
    )
    return tuple(dict.fromkeys(held))


def _recorded(inventory: Inventory, index: str) -> str:
    held = (hold for file in inventory.published for hold in file.holds if hold.index == index)
    return next(held).declaration


def without(inventory: Inventory, index: str) -> Inventory:
    """Return the inventory as it is once an index is dropped."""
    return replace(
        inventory,
        files=tuple(
            replace(
                file,
                holds=tuple(hold for hold in file.holds if hold.index != index),
                dropped=(*file.dropped, *(hold for hold in file.holds if hold.index == index)),
            )
            for file in inventory.files
        ),
    )


def _not_found(inventory: Inventory, index: str) -> IndexNotFoundError:
    name = name_of(inventory.table)
    if find_dropped(inventory.table).get(index, NEVER).at_ms:
        return IndexNotFoundError(f"index {index!r} of {name} was dropped before")
    others = sorted(live_files(inventory.published))
    return IndexNotFoundError(
        f"table {name} has no index named {index!r}{meant(index, others)}; it has: "
        f"{', '.join(others) or 'none'}"
    )


def _has_foreign(inventory: Inventory, index: str) -> bool:
    """Tell whether a file of the index has statistics of others that count.

    A snapshot has one place for statistics; an optimizer's are in the index's file where that took
    it, and have to stay when the index goes.
    """
    table, head = inventory.table, inventory.head
    held = {canonical(file.path) for file in inventory.files if _holds(file, index)}
    for entry in sorted(find_registered(table), key=lambda entry: head not in entry.snapshot_ids):
        try:
            with open_puffin(table.io, entry.path, entry.file_size) as reader:
                foreign = any(is_foreign(blob) for blob in reader.metadata.blobs)
        except (FormatError, FileNotFoundError) as error:
            log.warning("drop: registered file %s cannot be read: %s", entry.path, error)
            continue
        if foreign:
            return canonical(entry.path) in held
    return False


def _holds(file: IndexFile, index: str) -> bool:
    return any(hold.index == index for hold in file.holds)


def _publish_without(
    rest: Inventory, live: Mapping[str, IndexFile], marks: Mapping[str, str], report: DropReport
) -> DropReport:
    kept = ", ".join(sorted(live)) or "others' statistics"
    if report.dry_run:
        first = f"would publish a file without it, with {kept}"
        return _told(report, rest, _only_dropped(rest), first)
    mine = {file.path for file in rest.files if file.dropped}
    new = republish(rest, live, replaces=mine, properties=marks)
    done = f"published {new.path} as snapshot {new.snapshot_id}, with {kept}"
    fresh = take_inventory(rest.table, at_ms=rest.now_ms)
    empty = _only_dropped(fresh)
    if empty:
        _clear(fresh, empty, {})
    report = report.model_copy(update={"file": new.path, "snapshot_id": new.snapshot_id})
    return _told(report, fresh, empty, done)


def _deregister(
    inventory: Inventory, rest: Inventory, marks: Mapping[str, str], report: DropReport
) -> DropReport:
    empty = _only_dropped(rest)
    if not report.dry_run:
        _clear(inventory, empty, marks)
    return _told(report, rest, empty)


def _told(
    report: DropReport, inventory: Inventory, empty: Sequence[IndexFile], *done: str
) -> DropReport:
    """Return the report with the files that are deregistered, and the tags that go with them."""
    verb = "would deregister" if report.dry_run else "deregistered"
    tags = {file.path: inventory.tags_of(file) for file in empty}
    actions = [
        f"{verb} {file.path}, which holds {_content(file, report.index)}"
        + (f", with tag {', '.join(tags[file.path])}" if tags[file.path] else "")
        for file in empty
    ]
    return report.model_copy(
        update={
            "deregistered": tuple(tags),
            "tags": tuple(name for names in tags.values() for name in names),
            "actions": (*done, *actions),
        }
    )


def _content(file: IndexFile, index: str) -> str:
    """Say what a file holds, of which nothing is needed once an index is dropped."""
    others = sorted({repr(held.index) for held in file.dropped} - {repr(index)})
    if not others:
        return "nothing else"
    return f"what was dropped or renamed before, of index {', '.join(others)}, and nothing else"


def _only_dropped(inventory: Inventory) -> list[IndexFile]:
    """Return the registered files that hold nothing else, and that no version names."""
    needed = inventory.needed
    return [
        file
        for file in inventory.files
        if file.dropped and not file.holds and file.entries and canonical(file.path) not in needed
    ]


def _clear(inventory: Inventory, files: Iterable[IndexFile], marks: Mapping[str, str]) -> None:
    seen = {slot: entry.statistics_path for file in files for slot, entry in file.entries.items()}
    change = SlotChange(seen=seen, clear=frozenset(seen), properties=marks)
    change_slots(inventory.table, change, expected_head=inventory.head)
