"""Remove what no index needs any more: superseded versions, and what failed runs left behind.

Nothing is removed before its grace period is over, and nothing that the table's metadata needs, or
that others' metadata may need: see `withheld`. The table's earlier metadata shows whether a
file was left by a failed run, or is of a publication that lost its registration.
"""

import logging
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict
from pyiceberg.table import Table

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import StagingError, StoreDeniedError
from puffin_ann.lake.catalog.tables import load_table, name_of, reload_table
from puffin_ann.lake.commit.statistics_slots import SlotChange, change_slots, slots
from puffin_ann.lake.metadata.files import MetadataReader
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lake.store.listing import abort, canonical, delete_object, unfinished_uploads
from puffin_ann.lake.store.staging import Staging
from puffin_ann.lifecycle.maintain.forget_metadata import forget_metadata
from puffin_ann.lifecycle.retention.foreign_history import describe
from puffin_ann.lifecycle.retention.removable import (
    Kind,
    Removable,
    find_needed,
    find_removable,
)
from puffin_ann.lifecycle.retention.tags import named_since
from puffin_ann.lifecycle.retention.withheld import Protection
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.lifecycle.runtime.object_names import (
    names_with_folders,
    needed_locations,
    object_name,
)
from puffin_ann.lifecycle.runtime.run_ids import new_run_id
from puffin_ann.lifecycle.versions.inventory import Inventory, take_inventory

log = logging.getLogger("puffin_ann")


class Kept(BaseModel):
    """Something that would go, and is not removed all the same.

    Attributes:
        location: the object, the folder of a run's staging, or the object an upload was to make.
        why: who may need it.
    """

    model_config = ConfigDict(frozen=True)

    kind: Kind
    location: str
    bytes: int
    why: str


class CleanReport(BaseModel):
    """What a clean-up removed, or would remove in a dry run.

    Attributes:
        gone: what went; in a dry run, exactly what would go now.
        waiting: what goes later, its grace not being over.
        failed: what could not be removed, one sentence each.
        kept: what is not removed though its grace is over, since others may need it.
        needed: files of older versions that stay since newer ones name blobs in them.
        notes: what metadata in reach says that the table may be another's, too, one sentence each;
            looked for where there is something to remove.
        forgotten: metadata files that are ignored from now on, as asked for.
    """

    model_config = ConfigDict(frozen=True)

    table: str
    dry_run: bool
    gone: tuple[Removable, ...]
    waiting: tuple[Removable, ...]
    failed: tuple[str, ...] = ()
    kept: tuple[Kept, ...] = ()
    needed: tuple[Kept, ...] = ()
    notes: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()


def clean(
    table: str | Table,
    declarations: Iterable[IndexDeclaration] = (),
    *,
    dry_run: bool = False,
    grace: str | None = None,
    at_ms: int | None = None,
    forget: Sequence[str] = (),
    owner: str = "",
) -> CleanReport:
    """Deregister superseded versions and delete their files; delete what failed runs left.

    Versions go while nobody publishes into the table: a new one might name their files.

    What a metadata file in reach names that is not of this catalog entry's history is kept, and
    everything where the table's location may be another's.

    Args:
        table: by name, or as loaded.
        declarations: of this table's indexes, for their retention; what was built by is known.
        dry_run: remove nothing, say what would go.
        grace: such as `12h`; takes the place of every index's own. Runs that wrote something in
            the last 15 minutes are spared whatever it is.
        at_ms: what counts as now, milliseconds since 1970.
        forget: foreign metadata files that are ignored from now on, see `forget_metadata`.
        owner: the run that does it, which may hold the table's lease; default: a new one.

    Raises:
        BadInputError: `grace` is not a number with its unit, or a file cannot be forgotten.
        ConflictError: the table was changed meanwhile; nothing was removed.
        UnclearCommitError: the catalog's answer was lost; nothing was deleted.
        LeaseHeldError: others publish into the table for longer than that takes.
        StoreUnavailableError: the store does not answer, or refuses access, be it to a metadata
            file in reach.
    """
    loaded = load_table(table)
    declared = tuple(declarations)
    forgotten = forget_metadata(loaded, forget, dry_run=dry_run, at_ms=at_ms) if forget else ()

    def look() -> _Found:
        return _Found.of(loaded, declared, grace, at_ms, forgotten)

    found = look()
    if dry_run:
        return found.report(found.free, (), forgotten, dry_run=True)
    if not any(removable.slots for removable in found.free):
        return found.removed(forgotten)
    with leases.publishing(loaded, owner or new_run_id("clean"), "clean"):
        return look().removed(forgotten)


@dataclass(frozen=True)
class _Found:
    """What there is to remove.

    Attributes:
        inventory: of the table.
        all: now or later.
        look: at the metadata in reach.
        free: what may go now.
        kept: what is due and stays.
        needed: what stays since newer versions need it.
    """

    inventory: Inventory
    all: Sequence[Removable]
    look: "_Look"
    free: Sequence[Removable]
    kept: Sequence[Kept]
    needed: Sequence[Kept]

    @classmethod
    def of(
        cls,
        table: Table,
        declarations: Sequence[IndexDeclaration],
        grace: str | None,
        at_ms: int | None,
        forgotten: Sequence[str],
    ) -> "_Found":
        inventory = take_inventory(table, at_ms=at_ms)
        found = find_removable(inventory, declarations, grace=grace)
        look = _Look(inventory, found, forgotten)
        free, kept = look.split([removable for removable in found if removable.is_due])
        needed = [
            Kept(kind="superseded version", location=file.path, bytes=file.bytes or 0, why=why)
            for file, why in find_needed(inventory, declarations)
        ]
        return cls(inventory, found, look, free, kept, needed)

    def removed(self, forgotten: tuple[str, ...]) -> CleanReport:
        """Remove what may go."""
        failed: list[str] = []
        kept = list(self.kept)
        gone = _remove(self.inventory, self.free, failed, kept, self.look)
        return replace(self, kept=kept).report(gone, failed, forgotten)

    def report(
        self,
        gone: Sequence[Removable],
        failed: Sequence[str],
        forgotten: tuple[str, ...],
        *,
        dry_run: bool = False,
    ) -> CleanReport:
        return CleanReport(
            table=name_of(self.inventory.table),
            dry_run=dry_run,
            gone=tuple(gone),
            waiting=tuple(removable for removable in self.all if not removable.is_due),
            failed=tuple(failed),
            kept=tuple(self.kept),
            needed=tuple(self.needed),
            notes=self.look.notes,
            forgotten=forgotten,
        )


class _Look:
    """Looks at the metadata in reach each time something is about to be removed.

    Args:
        inventory: of the table.
        found: what there is to remove, now or later; if nothing, no metadata is read.
        forget: metadata files that are ignored.
    """

    def __init__(
        self, inventory: Inventory, found: Sequence[Removable], forget: Sequence[str]
    ) -> None:
        self._inventory, self._forget, self._any = inventory, forget, bool(found)
        self._grace_ms = 1000 * max((removable.grace_seconds for removable in found), default=0)
        self._reader = MetadataReader()
        self.notes: tuple[str, ...] = ()

    def split(self, due: Sequence[Removable]) -> tuple[list[Removable], list[Kept]]:
        """Return what may go, and what is kept.

        Raises:
            StoreUnavailableError: the store does not give what has to be known.
        """
        if not self._any:
            return [], []
        protection = Protection.of(
            self._inventory.table,
            at_ms=self._inventory.now_ms,
            grace_ms=self._grace_ms,
            forget=self._forget,
            reader=self._reader,
        )
        self.notes = tuple(f"{note.what}; {note.remedy}" for note in describe(protection.reach))
        if due:
            protection.require_readable()
        reasons = [protection.why_kept(removable) for removable in due]
        kept = [
            Kept(kind=removable.kind, location=removable.location, bytes=removable.bytes, why=why)
            for removable, why in zip(due, reasons, strict=True)
            if why
        ]
        return [removable for removable, why in zip(due, reasons, strict=True) if not why], kept


def _remove(
    inventory: Inventory,
    due: Sequence[Removable],
    failed: list[str],
    kept: list[Kept],
    look: _Look,
) -> tuple[Removable, ...]:
    """Deregister what is registered, then delete; what a late commit registered meanwhile stays."""
    if not due:
        return ()
    table = _deregister(inventory, due)
    named = named_since(inventory.table, table)
    free, more = look.split(due)  # another catalog that has the table may have committed
    kept += more
    gone = []
    for removable in free:
        try:
            if _delete(inventory, table, removable, named):
                gone.append(removable)
                log.info(
                    "clean: removed %s %s: %s", removable.kind, removable.location, removable.reason
                )
        except (StagingError, StoreDeniedError) as error:
            failed.append(f"{removable.location}: {error}")
            log.warning("clean: %s is left behind: %s", removable.location, error)
    return tuple(gone)


def _deregister(inventory: Inventory, due: Iterable[Removable]) -> Table:
    held = slots(inventory.table)
    cleared = frozenset(slot for removable in due for slot in removable.slots)
    if not cleared:
        return reload_table(inventory.table)
    change = SlotChange(
        seen={slot: held[slot].statistics_path for slot in cleared},
        clear=cleared,
        tags=frozenset(own_tags(inventory.table).values()),
    )
    return change_slots(inventory.table, change, expected_head=inventory.head)


def _delete(
    inventory: Inventory, table: Table, removable: Removable, named: Set[str] | None
) -> bool:
    io = inventory.table.io
    if named is None or canonical(removable.location) in named:
        log.warning("clean: %s may be named by a new version, and stays", removable.location)
        return False
    if object_name(removable.location) in names_with_folders(needed_locations(table)):
        log.warning("clean: %s was registered in the meantime and stays", removable.location)
        return False
    if removable.kind == "staging":
        Staging(io, removable.location).delete_tree()
    elif removable.kind == "upload":
        for uri, upload in unfinished_uploads(io, removable.location):
            if uri == removable.location and upload.id == removable.upload_id:
                abort(io, uri, upload)
    else:
        delete_object(io, removable.location)
    return True
