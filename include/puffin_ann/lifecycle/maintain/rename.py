"""Publish an index under another name, without building it."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict
from pyiceberg.table import Table

from puffin_ann.blobs.version import routing as routing_blob
from puffin_ann.declaration import IndexDeclaration, check_name
from puffin_ann.errors import (
    BadInputError,
    ConflictError,
    DamagedIndexError,
    EnvironmentProblemError,
)
from puffin_ann.lake.catalog.tables import load_table, name_of
from puffin_ann.lake.commit.publish_mode import ModeChoice
from puffin_ann.lake.metadata.dropped import lifted, mark
from puffin_ann.lake.store.listing import delete_object
from puffin_ann.lake.store.staging import Staging
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.documents.run_record import RunRecord
from puffin_ann.lifecycle.evaluate.records import evaluation_files
from puffin_ann.lifecycle.maintain.drop import versions_of, without
from puffin_ann.lifecycle.maintain.former_names import (
    Former,
    has_shape,
    renamed_before,
    restored,
)
from puffin_ann.lifecycle.publish.changed_index import Renamed
from puffin_ann.lifecycle.publish.republish import bytes_to_copy, republish_renamed
from puffin_ann.lifecycle.publish.run_records import as_published, with_record
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
from puffin_ann.search.version.index_version import IndexVersion, load_version
from puffin_ann.search.version.versions import (
    how_to_build_again,
    newest_version,
    require_versions,
)

log = logging.getLogger("puffin_ann")


class RenameReport(BaseModel):
    """What became of a renamed index.

    Attributes:
        table: the table's name.
        before: the name it had.
        after: the name it is published under now.
        file: the new file; empty in a dry run.
        snapshot_id: snapshot it is registered under; None in a dry run.
        bytes_copied: bytes of blobs that were copied into it, or would be: the rest is named where
            it is.
        dry_run: whether nothing was done.
    """

    model_config = ConfigDict(frozen=True)

    table: str
    before: str
    after: str
    file: str
    snapshot_id: int | None
    bytes_copied: int
    dry_run: bool = False


def rename(
    before: str,
    declaration: IndexDeclaration,
    declarations: Iterable[IndexDeclaration] = (),
    *,
    run_id: str | None = None,
    dry_run: bool = False,
) -> RenameReport:
    """Publish an index under the name of its declaration, without building or copying it.

    One commit brings the new name and drops the old one. The new version names what is in files
    already; a small index, and what no tag holds, is copied. What was measured of the index goes
    with it. Where the file it was renamed in cannot be read, that is done once more.

    Args:
        before: the name it is published under.
        declaration: what declares it under its new name.
        declarations: all that are declared.
        run_id: names the run in the index's history; default: a new one.
        dry_run: change nothing; say what would be done.

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
    if dry_run:
        return _Renaming.of(table, former, declaration, run_id or owner).foretold()
    with (
        leases.writing(table, before, owner, f"rename it to {declaration.name!r}", wait=False),
        leases.publishing(table, owner, f"rename index {before!r}"),
    ):
        run = run_id or owner
        report = retry_on_conflict(
            "rename", lambda: _Renaming.of(table, former, declaration, run).done()
        )
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
    again = renamed_before(table, before, declaration)
    if again is not None:
        return again
    version = require_versions(table, before)[0]
    if not has_shape(table, version, declaration):
        raise BadInputError(
            f"index {before!r} of {where} has another shape than {after!r} declares (column, "
            "metric, algorithm, parameters, shards, partitions or seed); nothing was renamed. "
            f"'puffin-ann status {where} {before} --declaration' prints what it was built by; "
            f"'puffin-ann build {after}' builds {after!r} beside it"
        )
    return Former(before)


@dataclass(frozen=True)
class _Renaming:
    """What is to be published.

    Attributes:
        inventory: of the table.
        live: by index, the newest file that holds it.
        renamed: the index.
        choice: how it is declared to be published.
    """

    inventory: Inventory
    live: Mapping[str, IndexFile]
    renamed: Renamed
    choice: ModeChoice

    @classmethod
    def of(
        cls, table: Table, before: Former, declaration: IndexDeclaration, run_id: str
    ) -> "_Renaming":
        """Look at what is there; raises as `rename` does."""
        inventory, name, after = take_inventory(table), before.name, declaration.name
        if before.lost:
            inventory = restored(inventory, name)
        live = live_files(inventory.published)
        if name not in live:
            raise DamagedIndexError(
                f"no whole file of index {name!r} of {name_of(table)} is left that could be "
                f"published as {after!r}; {how_to_build_again(after)}"
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
        return cls(inventory, live, renamed, ModeChoice(declaration.publishes_by))

    def foretold(self) -> RenameReport:
        """Say what would be done."""
        copied = bytes_to_copy(self.inventory, self.live, self.renamed.before, self.choice)
        return self._report("", None, copied).model_copy(update={"dry_run": True})

    def done(self) -> RenameReport:
        """Publish it."""
        name = self.renamed.before
        gone = versions_of(self.inventory, name)
        marks = mark(
            self.inventory.table,
            name,
            gone,
            self.inventory.now_ms,
            renamed_to=self.renamed.after,
        )
        files = {file.path for file in without(self.inventory, name).files if file.dropped}
        new = republish_renamed(
            self.inventory,
            self.live,
            self.renamed,
            self.choice,
            replaces=files,
            properties={**marks, **self._back()},
        )
        log.info(
            "rename: index %r is published as %r, by %s, %d bytes copied",
            name,
            self.renamed.after,
            new.path,
            new.bytes_copied,
        )
        return self._report(new.path, new.snapshot_id, new.bytes_copied)

    def _back(self) -> dict[str, str]:
        """Return what says that the version is not dropped under a name that it had before."""
        versions = {
            held.version
            for held in self.live[self.renamed.before].holds
            if held.index == self.renamed.before
        }
        (version,) = versions
        return lifted(self.inventory.table, self.renamed.after, version)

    def _report(self, path: str, snapshot_id: int | None, copied: int) -> RenameReport:
        return RenameReport(
            table=name_of(self.inventory.table),
            before=self.renamed.before,
            after=self.renamed.after,
            file=path,
            snapshot_id=snapshot_id,
            bytes_copied=copied,
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
    """Return the routing blob with the declaration in force."""
    routing = version.routing
    before = IndexProperties(routing.properties)
    told = (
        as_published(earlier, version) if earlier.run_id == version.run_id else earlier
        for earlier in before.history
    )
    noted = before.noting(
        declaration=declaration.model_dump_json(),
        history=with_record(record, told),
        renamed_from={"index": version.index, "run-id": version.run_id},
    )
    return routing_blob.encode(
        replace(
            routing,
            properties=noted.texts,
            shards=tuple(replace(shard, file="") for shard in routing.shards),
        )
    )
