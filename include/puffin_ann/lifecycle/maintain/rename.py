"""Carry a published index over to the new name of its declaration, without building it."""

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyiceberg.table import Table

from puffin_ann.blobs import routing as routing_blob
from puffin_ann.declaration import IndexDeclaration, known_declarations
from puffin_ann.errors import (
    ColumnNotFoundError,
    ConflictError,
    DamagedIndexError,
    EnvironmentProblemError,
    FormatError,
)
from puffin_ann.lake.catalog.tables import load_table, name_of
from puffin_ann.lake.metadata.dropped import NEVER, dropped, mark
from puffin_ann.lake.read.vector_column import table_vector_column
from puffin_ann.lake.store.listing import delete_object, listed
from puffin_ann.lake.store.staging import Staging
from puffin_ann.lifecycle.documents.index_properties import FINGERPRINT, HISTORY
from puffin_ann.lifecycle.documents.run import EVALUATED
from puffin_ann.lifecycle.maintain.drop import versions_of, without
from puffin_ann.lifecycle.maintain.guard import live_files
from puffin_ann.lifecycle.publish.republish import Renamed, republish
from puffin_ann.lifecycle.publish.run_records import RunRecord, records_in, with_record
from puffin_ann.lifecycle.published.inventory import IndexFile, Inventory, take_inventory
from puffin_ann.lifecycle.published.recorded_declaration import PROPERTY
from puffin_ann.lifecycle.retention.withheld import is_shared
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.lifecycle.runtime.retry import anew
from puffin_ann.lifecycle.runtime.run_ids import new_run_id
from puffin_ann.search.versions import (
    IndexVersion,
    all_index_names,
    find_versions,
    load_version,
    newest_version,
)

log = logging.getLogger("puffin_ann")


@dataclass(frozen=True)
class Former:
    """An index as it was published before its declaration was renamed.

    Attributes:
        name: it had then.
        lost: what is wrong with the file it was renamed in; empty if it was not renamed yet.
    """

    name: str
    lost: str = ""

    def expected(self, after: str) -> str:
        """Say what the next run does about it."""
        what = f"its version from before it was renamed from {self.name!r}" if self.lost else "it"
        why = self.lost or f"index {self.name!r} was renamed"
        return (
            f"{why}: the next run publishes {what} as {after!r}, without building it, and then "
            "does what is due"
        )

    def done(self, after: str) -> str:
        """Say what was done about it."""
        if not self.lost:
            return f"index {self.name!r} was renamed: published as {after!r}, nothing was built"
        return (
            f"{self.lost}: published its version from before it was renamed from {self.name!r} as "
            f"{after!r}, nothing was built"
        )


@dataclass(frozen=True)
class CarriedOver:
    """What became of a renamed index.

    Attributes:
        before: what it was.
        after: the name it is published under now.
        file: the new file.
        snapshot_id: snapshot it is registered under.
    """

    before: Former
    after: str
    file: str
    snapshot_id: int

    @property
    def reason(self) -> str:
        """One sentence for people."""
        return self.before.done(self.after)


def carry_over(
    table: str | Table,
    declaration: IndexDeclaration,
    declarations: Iterable[IndexDeclaration] | None = None,
    *,
    run_id: str = "rename",
) -> CarriedOver | None:
    """Publish an index under its declaration's new name, if it was renamed; else do nothing.

    One commit brings the new name and drops the old one. What was measured of the index goes with
    it, and nothing is left under the former name. Where the file it was renamed in cannot be read,
    that is done once more.

    Args:
        table: by name, or as loaded.
        declaration: the index that a run was asked for.
        declarations: all that are declared; default: those of the folder of declarations.
        run_id: of the run that finds it renamed, which tells what triggered it.

    Returns:
        What was done; None if the index is published, or it is not clear that it was renamed.

    Raises:
        ConflictError: the table was changed by others during every attempt; nothing was changed.
        DamagedIndexError: no file of it is whole.
        UnclearCommitError: the catalog's answer was lost.
        LeaseHeldError: a run is at work on the index under its old name.
    """
    loaded = load_table(table)
    if newest_version(loaded, declaration.name) is not None:
        return None
    known = declared() if declarations is None else tuple(declarations)
    before = former(loaded, declaration, known)
    if before is None:
        return None
    name = before.name
    owner = new_run_id(f"rename-{name}")
    with (
        leases.writing(loaded, name, owner, f"rename it to {declaration.name!r}", wait=False),
        leases.publishing(loaded, owner, f"rename index {name!r}"),
    ):
        run = f"{run_id}-rename"
        done = anew("rename", lambda: _published(loaded, before, declaration, run))
    _carry_records(loaded, name, declaration.name)
    return done


def declared() -> tuple[IndexDeclaration, ...]:
    """Return what is declared; nothing where that cannot be told, so that nothing is renamed."""
    known = known_declarations()
    if known is None:
        return ()
    for problem in known.problems:
        log.warning("it cannot be told whether an index was renamed: %s", problem)
    return () if known.problems else known.valid


def former(
    table: Table, declaration: IndexDeclaration, declarations: Iterable[IndexDeclaration]
) -> Former | None:
    """Return what an index was before its declaration was renamed, if that is to be carried over.

    Args:
        table: in which no version of the index can be read.
        declaration: of the index.
        declarations: all that are declared.
    """
    name = former_name(table, declaration, declarations)
    if name is not None:
        return Former(name)
    lost = find_versions(table, declaration.name).problems
    marks = dropped(table)
    since = marks.get(declaration.name, NEVER).at_ms  # it may have been dropped since
    names = [
        name
        for name, one in marks.items()
        if one.renamed_to == declaration.name and one.at_ms > since
    ]
    if not lost or not names:
        return None
    inventory = take_inventory(table)
    for name in names:
        file = live_files(_restored(inventory, name).published).get(name)
        if file is not None and _holds_shape(table, file, name, declaration):
            return Former(name, "; ".join(lost))
    return None


def _restored(inventory: Inventory, index: str) -> Inventory:
    """Return the inventory as if no version of an index had been dropped."""

    def restored(file: IndexFile) -> IndexFile:
        back = tuple(replace(one, dropped_ms=0) for one in file.dropped if one.index == index)
        rest = tuple(one for one in file.dropped if one.index != index)
        return replace(file, holds=(*file.holds, *back), dropped=rest)

    return replace(inventory, files=tuple(map(restored, inventory.files)))


def _holds_shape(table: Table, file: IndexFile, name: str, declaration: IndexDeclaration) -> bool:
    try:
        version = load_version(table.io, file.path, name, length=file.bytes)
    except (FormatError, FileNotFoundError):
        return False
    return version is not None and _has_shape(table, version, declaration)


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
    return bool(versions) and _has_shape(table, versions[0], declaration)


def _has_shape(table: Table, version: IndexVersion, declaration: IndexDeclaration) -> bool:
    if version.routing.properties.get(FINGERPRINT) != declaration.fingerprint():
        return False
    try:
        column = table_vector_column(table, declaration.column)
    except ColumnNotFoundError:
        return False
    return version.field_id == column.field_id


def _published(
    table: Table, before: Former, declaration: IndexDeclaration, run_id: str
) -> CarriedOver:
    inventory, name, after = take_inventory(table), before.name, declaration.name
    if before.lost:
        inventory = _restored(inventory, name)
    live = live_files(inventory.published)
    if name not in live:
        raise DamagedIndexError(
            f"no whole file of index {name!r} of {name_of(table)} is left that could be published "
            f"as {after!r}; 'puffin-ann build {after} --force' builds it anew"
        )
    version = None
    if after not in live:
        version = load_version(table.io, live[name].path, name, length=live[name].bytes)
    if version is None:
        raise ConflictError(f"index {name!r} of {name_of(table)} was changed meanwhile")
    record = RunRecord(
        run_id=run_id,
        action="rename",
        at_ms=inventory.now_ms,
        reason=f"index {name!r} was renamed",
        base_snapshot_id=version.coverage.base_snapshot_id,
        rows=version.vectors,
    )
    renamed = Renamed(name, after, _routing(version, declaration, record))
    gone = versions_of(inventory, name)
    marks = mark(inventory.table, name, gone, inventory.now_ms, renamed_to=after)
    files = {file.path for file in without(inventory, name).files if file.dropped}
    path, snapshot_id = republish(
        inventory, live, replaces=files, properties=marks, renamed=renamed
    )
    done = CarriedOver(before, after, path, snapshot_id)
    log.info("%s (%s)", done.reason, path)
    return done


def _carry_records(table: Table, before: str, after: str) -> None:
    """Move what was measured of an index to its new name, and remove the former one's lease."""
    lease = leases.index_lease(table, before)
    others = is_shared(table)  # a second registration has the index under its former name
    try:
        there = Staging(table.io, leases.index_folder(table, before))
        here = Staging(table.io, leases.index_folder(table, after))
        for one in listed(table.io, there.root):
            name = one.uri.rpartition("/")[2]
            if name.startswith(EVALUATED):
                here.put_new(name, there.read(name))
                if not others:
                    delete_object(table.io, one.uri)
        if not others:
            lease.remove()
    except EnvironmentProblemError as error:  # the index is renamed; the clean-up takes the rest
        log.warning("rename: records of %r are left behind: %s", before, error)


def _routing(version: IndexVersion, declaration: IndexDeclaration, record: RunRecord) -> bytes:
    """Return the routing blob with the declaration in force; shards are in the same file again."""
    routing = version.routing
    recorded = {**routing.properties, PROPERTY: declaration.model_dump_json()}
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
