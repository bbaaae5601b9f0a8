"""Carry a published index over to the new name of its declaration, without building it."""

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyiceberg.table import Table

from puffin_ann.blobs import routing as routing_blob
from puffin_ann.declaration import IndexDeclaration, load_declarations
from puffin_ann.errors import (
    ColumnNotFoundError,
    ConflictError,
    DeclarationError,
    StagingError,
)
from puffin_ann.lake.catalog import load_table, name_of
from puffin_ann.lake.column import table_vector_column
from puffin_ann.lake.dropped import mark
from puffin_ann.lake.listing import delete_object, listed
from puffin_ann.lake.staging import Staging
from puffin_ann.lifecycle import leases
from puffin_ann.lifecycle.anew import anew
from puffin_ann.lifecycle.documents import EVALUATED
from puffin_ann.lifecycle.guard import live_files
from puffin_ann.lifecycle.inventory import now_ms, take_inventory
from puffin_ann.lifecycle.plan import FINGERPRINT
from puffin_ann.lifecycle.records import HISTORY, RunRecord, records_in, with_record
from puffin_ann.lifecycle.republish import Renamed, republish
from puffin_ann.lifecycle.retire import versions_of, without
from puffin_ann.search.versions import (
    IndexVersion,
    all_index_names,
    find_versions,
    load_version,
    newest_version,
)
from puffin_ann.settings import settings

log = logging.getLogger("puffin_ann")


@dataclass(frozen=True)
class CarriedOver:
    """What became of a renamed index.

    Attributes:
        before: the name it was published under.
        after: the name it is published under now.
        file: the new file.
        snapshot_id: snapshot it is registered under.
    """

    before: str
    after: str
    file: str
    snapshot_id: int

    @property
    def reason(self) -> str:
        """One sentence for people."""
        return f"index {self.before!r} was renamed: published as {self.after!r}, nothing was built"


def carry_over(
    table: str | Table,
    declaration: IndexDeclaration,
    declarations: Iterable[IndexDeclaration] | None = None,
    *,
    run_id: str = "rename",
) -> CarriedOver | None:
    """Publish an index under its declaration's new name, if it was renamed; else do nothing.

    One commit brings the new name and drops the old one. What was measured of the index goes with
    it, and nothing is left under the former name.

    Args:
        table: by name, or as loaded.
        declaration: the index that a run was asked for.
        declarations: all that are declared; default: those of the folder of declarations.
        run_id: of the run that finds it renamed, which tells what triggered it.

    Returns:
        What was done; None if the index is published, or it is not clear that it was renamed.

    Raises:
        ConflictError: the table was changed by others during every attempt; nothing was changed.
        UnclearCommitError: the catalog's answer was lost.
        LeaseHeldError: a run is at work on the index under its old name.
    """
    loaded = load_table(table)
    if newest_version(loaded, declaration.name) is not None:
        return None
    known = declared() if declarations is None else tuple(declarations)
    before = former_name(loaded, declaration, known)
    if before is None:
        return None
    owner = f"rename-{before}-{now_ms()}"
    with (
        leases.writing(loaded, before, owner, f"rename it to {declaration.name!r}", wait=False),
        leases.publishing(loaded, owner, f"rename index {before!r}"),
    ):
        run = f"{run_id}-rename"
        done = anew("rename", lambda: _published(loaded, before, declaration, run))
    _carry_records(loaded, before, declaration.name)
    return done


def declared() -> tuple[IndexDeclaration, ...]:
    """Return what is declared; nothing where that cannot be told, so that nothing is renamed."""
    try:
        return tuple(load_declarations(settings().declarations_dir))
    except DeclarationError as error:
        log.warning("it cannot be told whether an index was renamed: %s", error)
        return ()


def former_name(
    table: Table, declaration: IndexDeclaration, declarations: Iterable[IndexDeclaration]
) -> str | None:
    """Return the name that an index was published under before its declaration was renamed.

    That is certain only if just one index of the same table, column and shape is published without
    being declared, and just one is declared without being published.
    """
    known = {one.name: one for one in declarations if one.table == declaration.table}
    shape = declaration.fingerprint()
    published = all_index_names(table)
    waiting = [
        name for name, one in known.items() if name not in published and one.fingerprint() == shape
    ]
    if waiting != [declaration.name]:
        return None
    orphans = [
        name for name in published if name not in known and _is_of_shape(table, name, declaration)
    ]
    return orphans[0] if len(orphans) == 1 else None


def _is_of_shape(table: Table, name: str, declaration: IndexDeclaration) -> bool:
    versions = find_versions(table, name).versions
    if not versions or versions[0].routing.properties.get(FINGERPRINT) != declaration.fingerprint():
        return False
    try:
        column = table_vector_column(table, declaration.column)
    except ColumnNotFoundError:
        return False
    return versions[0].field_id == column.field_id


def _published(
    table: Table, before: str, declaration: IndexDeclaration, run_id: str
) -> CarriedOver:
    inventory = take_inventory(table)
    live = live_files(inventory.published)
    version = None
    if before in live and declaration.name not in live:
        version = load_version(table.io, live[before].path, before, length=live[before].bytes)
    if version is None:
        raise ConflictError(f"index {before!r} of {name_of(table)} was changed meanwhile")
    record = RunRecord(
        run_id=run_id,
        action="rename",
        at_ms=inventory.now_ms,
        reason=f"index {before!r} was renamed",
        base_snapshot_id=version.coverage.base_snapshot_id,
        rows=version.vectors,
    )
    renamed = Renamed(before, declaration.name, _routing(version, declaration, record))
    marks = mark(inventory.table, before, versions_of(inventory, before), inventory.now_ms)
    files = {file.path for file in without(inventory, before).files if file.dropped}
    path, snapshot_id = republish(
        inventory, live, replaces=files, properties=marks, renamed=renamed
    )
    done = CarriedOver(before, declaration.name, path, snapshot_id)
    log.info("%s (%s)", done.reason, path)
    return done


def _carry_records(table: Table, before: str, after: str) -> None:
    """Move what was measured of an index to its new name, and remove the former one's lease."""
    lease = leases.index_lease(table, before)
    try:
        there = Staging(table.io, leases.index_folder(table, before))
        here = Staging(table.io, leases.index_folder(table, after))
        for one in listed(table.io, there.root):
            name = one.uri.rpartition("/")[2]
            if name.startswith(EVALUATED):
                here.put_new(name, there.read(name))
                delete_object(table.io, one.uri)
        lease.remove()
    except StagingError as error:  # the index itself is renamed; clean-up takes what is left
        log.warning("rename: records of %r are left behind: %s", before, error)


def _routing(version: IndexVersion, declaration: IndexDeclaration, record: RunRecord) -> bytes:
    """Return the routing blob with the declaration in force; shards are in the same file again."""
    routing = version.routing
    recorded = {**routing.properties, "declaration": declaration.model_dump_json()}
    recorded[HISTORY] = with_record(record, records_in(routing.properties))
    recorded["renamed-from"] = json.dumps({"index": version.index, "run-id": version.run_id})
    return routing_blob.encode(
        replace(
            routing,
            properties=recorded,
            shards=tuple(replace(shard, file="") for shard in routing.shards),
        ),
        routing.apart,
    )
