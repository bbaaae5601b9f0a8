"""Publish an index under another name, without building it."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict
from pyiceberg.table import Table

from puffin_ann.blobs import routing as routing_blob
from puffin_ann.declaration import IndexDeclaration, check_name, known_declarations
from puffin_ann.errors import (
    BadInputError,
    ColumnNotFoundError,
    ConflictError,
    DamagedIndexError,
    EnvironmentProblemError,
    FormatError,
)
from puffin_ann.lake.catalog.tables import load_table, name_of
from puffin_ann.lake.commit.publish_mode import ModeChoice
from puffin_ann.lake.metadata.dropped import NEVER, find_dropped, mark
from puffin_ann.lake.read.vector_column import table_vector_column
from puffin_ann.lake.store.listing import delete_object
from puffin_ann.lake.store.staging import Staging
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.documents.run_record import RunRecord
from puffin_ann.lifecycle.evaluate.records import evaluation_files
from puffin_ann.lifecycle.maintain.drop import versions_of, without
from puffin_ann.lifecycle.publish.republish import Renamed, republish_renamed
from puffin_ann.lifecycle.publish.run_records import with_record
from puffin_ann.lifecycle.retention.withheld import is_shared
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.lifecycle.runtime.retry import retry_on_conflict
from puffin_ann.lifecycle.runtime.run_ids import new_run_id
from puffin_ann.lifecycle.versions.inventory import (
    IndexFile,
    Inventory,
    live_files,
    take_inventory,
)
from puffin_ann.search.index_version import IndexVersion, load_version
from puffin_ann.search.versions import (
    all_index_names,
    find_versions,
    newest_version,
    require_versions,
)

log = logging.getLogger("puffin_ann")


@dataclass(frozen=True)
class Former:
    """An index as it was published before it was renamed.

    Attributes:
        name: it had then.
        lost: what is wrong with the file it was renamed in; empty if it was not renamed yet.
    """

    name: str
    lost: str = ""

    def advice(self, after: str) -> str:
        """Say how it is published under another name."""
        command = f"'puffin-ann rename {self.name} {after}'"
        if self.lost:
            return (
                f"its version from before it was renamed from {self.name!r} is still there: "
                f"{command} publishes that again as {after!r}, without building it"
            )
        return (
            f"index {self.name!r} is published in the shape that {after!r} declares, and is not "
            f"declared itself: if it was renamed, {command} publishes it as {after!r}, without "
            "building it"
        )


class RenameReport(BaseModel):
    """What became of a renamed index.

    Attributes:
        table: the table's name.
        before: the name it had.
        after: the name it is published under now.
        file: the new file.
        snapshot_id: snapshot it is registered under.
    """

    model_config = ConfigDict(frozen=True)

    table: str
    before: str
    after: str
    file: str
    snapshot_id: int


def rename(
    before: str,
    declaration: IndexDeclaration,
    declarations: Iterable[IndexDeclaration] = (),
    *,
    run_id: str | None = None,
) -> RenameReport:
    """Publish an index under the name of its declaration, without building it.

    One commit brings the new name and drops the old one. What was measured of the index goes with
    it, and nothing is left under the former name. Where the file it was renamed in cannot be read,
    that is done once more.

    Args:
        before: the name it is published under.
        declaration: what declares it under its new name.
        declarations: all that are declared.
        run_id: names the run in the index's history; default: a new one.

    Raises:
        BadInputError: an index of the new name is published, one of the old name is declared, or
            the declaration is not of the index's shape.
        IndexNotFoundError: no index of the old name is published.
        ConflictError: the table was changed by others during every attempt; nothing was changed.
        DamagedIndexError: no file of it is whole.
        UnclearCommitError: the catalog's answer was lost.
        LeaseHeldError: a run is at work on the index under its old name.
    """
    check_name(before)
    table = load_table(declaration.table)
    former = _require_former(table, before, declaration, declarations)
    owner = new_run_id(f"rename-{before}")
    with (
        leases.writing(table, before, owner, f"rename it to {declaration.name!r}", wait=False),
        leases.publishing(table, owner, f"rename index {before!r}"),
    ):
        run = run_id or owner
        report = retry_on_conflict("rename", lambda: _published(table, former, declaration, run))
    _carry_records(table, before, declaration.name)
    return report


def _require_former(
    table: Table,
    before: str,
    declaration: IndexDeclaration,
    declarations: Iterable[IndexDeclaration],
) -> Former:
    """Return the index to be renamed; refuse what cannot be renamed, or should not be."""
    where, after = name_of(table), declaration.name
    if newest_version(table, after) is not None:
        raise BadInputError(
            f"index {after!r} of {where} is published already; nothing was renamed. Drop the one "
            "of the two that nobody needs by 'puffin-ann drop'"
        )
    if any(other.name == before and other.table == declaration.table for other in declarations):
        raise BadInputError(
            f"index {before!r} of {where} is still declared, and its next run would build it "
            f"again; nothing was renamed. Remove that declaration first"
        )
    again = _renamed_before(table, before, declaration)
    if again is not None:
        return again
    version = require_versions(table, before)[0]
    if not _has_shape(table, version, declaration):
        raise BadInputError(
            f"index {before!r} of {where} has another shape than {after!r} declares (column, "
            "metric, algorithm, parameters, shards, partitions or seed); nothing was renamed. "
            f"'puffin-ann status {where} {before} --declaration' prints what it was built by; "
            f"'puffin-ann build {after}' builds {after!r} beside it"
        )
    return Former(before)


def advice_to_rename(
    table: Table,
    declaration: IndexDeclaration,
    declarations: Iterable[IndexDeclaration] | None = None,
) -> str:
    """Say how to rename an index that seems to have been published under another name.

    Args:
        table: in which no version of the index can be read.
        declaration: of the index.
        declarations: all that are declared; default: those of the folder of declarations.

    Returns:
        A sentence for people; empty if nothing suggests that the index was renamed.
    """
    known = find_declarations() if declarations is None else tuple(declarations)
    former = former_of(table, declaration, known)
    return "" if former is None else former.advice(declaration.name)


def renamings(table: Table, declarations: Iterable[IndexDeclaration]) -> dict[str, str]:
    """Return the published indexes that seem to have been renamed, each with its new name.

    Args:
        table: as it was loaded.
        declarations: all of the table's indexes.
    """
    known = tuple(declarations)
    found = ((former_name(table, declaration, known), declaration.name) for declaration in known)
    return {before: after for before, after in found if before is not None}


def find_declarations() -> tuple[IndexDeclaration, ...]:
    """Return what is declared; nothing where that cannot be told."""
    known = known_declarations()
    if known is None:
        return ()
    for problem in known.problems:
        log.warning("it is unknown whether an index was renamed: %s", problem)
    return () if known.problems else known.valid


def former_of(
    table: Table, declaration: IndexDeclaration, declarations: Iterable[IndexDeclaration]
) -> Former | None:
    """Return what an index seems to have been before its declaration was renamed.

    Args:
        table: in which no version of the index can be read.
        declaration: of the index.
        declarations: all that are declared.
    """
    name = former_name(table, declaration, declarations)
    if name is not None:
        return Former(name)
    for name in _renamed_to(table, declaration.name):
        former = _renamed_before(table, name, declaration)
        if former is not None:
            return former
    return None


def _renamed_to(table: Table, after: str) -> list[str]:
    """Return the names that an index had before, unless it was dropped since."""
    marks = find_dropped(table)
    since = marks.get(after, NEVER).at_ms
    return [name for name, mark in marks.items() if mark.renamed_to == after and mark.at_ms > since]


def _renamed_before(table: Table, name: str, declaration: IndexDeclaration) -> Former | None:
    """Return an index that was renamed, in files that are lost, if a version before is there."""
    if name not in _renamed_to(table, declaration.name):
        return None
    file = live_files(_restored(take_inventory(table), name).published).get(name)
    if file is None or not _holds_shape(table, file, name, declaration):
        return None
    problems = find_versions(table, declaration.name).problems
    return Former(name, "; ".join(problems) or "the file that it was renamed in is gone")


def _restored(inventory: Inventory, index: str) -> Inventory:
    """Return the inventory as if no version of an index had been dropped."""

    def restored(file: IndexFile) -> IndexFile:
        back = tuple(replace(name, dropped_ms=0) for name in file.dropped if name.index == index)
        rest = tuple(name for name in file.dropped if name.index != index)
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
    known = {other.name: other for other in declarations if other.table == declaration.table}
    shape = declaration.fingerprint()
    published = all_index_names(table)
    waiting = [
        name
        for name, declaration in known.items()
        if name not in published and declaration.fingerprint() == shape
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
    if IndexProperties(version.routing.properties).fingerprint != declaration.fingerprint():
        return False
    try:
        column = table_vector_column(table, declaration.column)
    except ColumnNotFoundError:
        return False
    return version.field_id == column.field_id


def _published(
    table: Table, before: Former, declaration: IndexDeclaration, run_id: str
) -> RenameReport:
    inventory, name, after = take_inventory(table), before.name, declaration.name
    if before.lost:
        inventory = _restored(inventory, name)
    live = live_files(inventory.published)
    if name not in live:
        raise DamagedIndexError(
            f"no whole file of index {name!r} of {name_of(table)} is left that could be published "
            f"as {after!r}; 'puffin-ann build {after} --force' builds it again"
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
    path, snapshot_id = republish_renamed(
        inventory,
        live,
        renamed,
        ModeChoice(declaration.publishes_by),
        replaces=files,
        properties=marks,
    )
    log.info("rename: index %r is published as %r, by %s", name, after, path)
    return RenameReport(
        table=name_of(inventory.table), before=name, after=after, file=path, snapshot_id=snapshot_id
    )


def _carry_records(table: Table, before: str, after: str) -> None:
    """Move what was measured of an index to its new name, and remove the former one's lease."""
    lease = leases.index_lease(table, before)
    others = is_shared(table)  # a second registration has the index under its former name
    try:
        here = Staging(table.io, leases.index_folder(table, after))
        for location in evaluation_files(table, before):
            with here.fetch(location) as stream:
                here.put_new(location.rpartition("/")[2], stream.read())
            if not others:
                delete_object(table.io, location)
        if not others:
            lease.remove()
    except EnvironmentProblemError as error:  # the index is renamed; the clean-up takes the rest
        log.warning("rename: records of %r are left behind: %s", before, error)


def _routing(version: IndexVersion, declaration: IndexDeclaration, record: RunRecord) -> bytes:
    """Return the routing blob with the declaration in force; shards are in the same file again."""
    routing = version.routing
    before = IndexProperties(routing.properties)
    noted = before.noting(
        declaration=declaration.model_dump_json(),
        history=with_record(record, before.history),
        renamed_from={"index": version.index, "run-id": version.run_id},
    )
    return routing_blob.encode(
        replace(
            routing,
            properties=noted.texts,
            shards=tuple(replace(shard, file="") for shard in routing.shards),
        ),
        routing.apart,
    )
