"""Publish again what is published already: no index is built for it.

One index goes under a tag: as one file, or as a version that names what is in files already that
tags of ours hold. Where tags are not kept, all of the table's go under the head, in one file.
"""

import logging
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from pyiceberg.table import Table

from puffin_ann.blobs.version.routing import TYPE as ROUTING
from puffin_ann.errors import (
    ConflictError,
    EnvironmentProblemError,
    TagNotKeptError,
    UnclearCommitError,
)
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.commit.attempt import Request
from puffin_ann.lake.commit.commit_index_file import commit_index_file
from puffin_ann.lake.commit.publish_mode import ModeChoice
from puffin_ann.lake.metadata.own_tags import tag_name
from puffin_ann.lake.metadata.registered import publication_number
from puffin_ann.lake.store.assemble.compose import Assembly, Names
from puffin_ann.lake.store.assemble.object_plan import ObjectPlan
from puffin_ann.lake.store.listing import delete_object
from puffin_ann.lake.store.locations import metadata_folder
from puffin_ann.lifecycle.build.shard import CREATED_BY
from puffin_ann.lifecycle.publish.carried_blobs import Blob, listed_blobs
from puffin_ann.lifecycle.publish.changed_index import Changed, Renamed
from puffin_ann.lifecycle.publish.layers import Layers
from puffin_ann.lifecycle.publish.make_file import make_file
from puffin_ann.lifecycle.publish.published_blobs import foreign_blobs, layered_blobs, live_blobs
from puffin_ann.lifecycle.retention.tags import NEEDS, needs_text
from puffin_ann.lifecycle.versions.inventory import IndexFile, Inventory, live_files
from puffin_ann.puffin.metadata import BlobMetadata
from puffin_ann.puffin.writer import FinishedFile, PuffinWriter

log = logging.getLogger("puffin_ann")

NAME = "re-published"
"""Stands where the name of an index would; those have no hyphen."""

_NO_LAYERS = Layers((), ())


@dataclass(frozen=True)
class Republished:
    """What was published again.

    Attributes:
        path: location of the new file.
        snapshot_id: snapshot it is registered under.
        bytes_copied: bytes of blobs that were copied into it.
    """

    path: str
    snapshot_id: int
    bytes_copied: int


def republish(
    inventory: Inventory,
    live: Mapping[str, IndexFile],
    *,
    replaces: Collection[str] = (),
    properties: Mapping[str, str] | None = None,
    renamed: Renamed | None = None,
) -> Republished:
    """Publish one file with all live indexes under the head.

    What a tag of ours holds stays where it is. The file takes the place of the one under the head,
    whose content is carried over: others' blobs, which stay listed, and after a rollback an older
    version, which may have no other place.

    Args:
        inventory: of the table, whose head is published on.
        live: by index, the file to take it from.
        replaces: files whose places the new one may take, whatever it has of them.
        properties: of the table, set in the same commit.
        renamed: one of the indexes, if it gets another name.

    Raises:
        ConflictError: the head moved, or there is none; nothing was published, and no file is left.
        UnclearCommitError: the catalog's answer was lost; the file is kept.
    """
    head = _require_head(inventory)
    here = inventory.ours_in(head)
    untagged = inventory.untagged(live)
    source = _as_under_head(here, untagged, but=renamed.before if renamed else "")
    if here is not None and here.is_usable:  # what it has besides, tags have newer
        replaces = {*replaces, here.path}
    new = _NewFile.of(inventory, source)
    ours = list(live_blobs(inventory.table, source, new.assembly.object_plan))
    carried, foreign = foreign_blobs(inventory.table, head, new.assembly.object_plan)
    return new.publish(
        [*ours, *foreign],
        renamed,
        carried=carried | {file.path for file in source.values()} | set(replaces),
        properties=properties or {},
    )


def republish_under_tag(
    inventory: Inventory,
    index: str,
    *,
    properties: Mapping[str, str] | None = None,
    changed: Changed | None = None,
) -> Republished:
    """Publish one live index under a tag, as one file, or as a version that names others.

    The latter, as a refresh does, copies only what is in files that no tag of ours holds.

    Args:
        inventory: of the table.
        index: its name; what held it before stays as it is.
        properties: of the table, set in the same commit.
        changed: what becomes of it, if anything, in a version that names others; None: one file.

    Raises:
        TagNotKeptError: the catalog keeps no tags; nothing was published, and no file is left.
        ConflictError: the table has no snapshot, as above.
        UnclearCommitError: the catalog's answer was lost; the file is kept.
    """
    live = {index: live_files(inventory.published)[index]}
    new = _NewFile.of(inventory, live)
    plan = new.assembly.object_plan
    if changed is None:
        ours, layers = list(live_blobs(inventory.table, live, plan)), _NO_LAYERS
    else:
        left_out = changed.made.keys() - {ROUTING}
        ours, layers = layered_blobs(inventory.table, index, live[index], plan, left_out)
    tag = tag_name(changed.after if changed else index, new.run_id)
    return new.publish(ours, changed, tag=tag, properties=properties or {}, layers=layers)


def republish_renamed(
    inventory: Inventory,
    live: Mapping[str, IndexFile],
    renamed: Renamed,
    choice: ModeChoice,
    *,
    replaces: Collection[str],
    properties: Mapping[str, str],
) -> Republished:
    """Publish an index under its new name, by a tag if it has one or tags are kept.

    Args:
        inventory: of the table.
        live: by index, the newest file that holds it.
        renamed: the index, which is one of these.
        choice: how it is declared to be published.
        replaces: files whose places a new one without a tag may take.
        properties: of the table, set in the same commit.

    Raises:
        TagNotKeptError: it has a tag, or is to have one, and the catalog keeps none by now.
        ConflictError, UnclearCommitError: as above.
    """
    has_tag = inventory.is_tagged(live[renamed.before])
    if has_tag or choice.of(inventory.table)[0] == "tag":
        try:
            return republish_under_tag(
                inventory, renamed.before, properties=properties, changed=renamed
            )
        except TagNotKeptError as error:
            without_tag = None if has_tag else choice.after(error)
            if without_tag is None:
                raise
            log.warning("rename: %s", error)
            choice = without_tag
    properties = {**properties, **choice.properties}
    return republish(inventory, live, replaces=replaces, properties=properties, renamed=renamed)


def bytes_to_copy(
    inventory: Inventory, live: Mapping[str, IndexFile], index: str, choice: ModeChoice
) -> int:
    """Return how many bytes `republish_renamed` copies; the footers of files are read."""
    if inventory.is_tagged(live[index]) or choice.of(inventory.table)[0] == "tag":
        return bytes_to_copy_under_tag(inventory.table, index, live[index], but=ROUTING)
    plan = ObjectPlan(lambda _: "")
    return _copied(live_blobs(inventory.table, inventory.untagged(live), plan), index)


def bytes_to_copy_under_tag(table: Table, index: str, file: IndexFile, *, but: str = "") -> int:
    """Return how many bytes `republish_under_tag` copies in a version that names others.

    Args:
        table: as it was loaded.
        index: name of the index.
        file: that has its newest version.
        but: a type of blob that is made anew.

    Raises:
        FormatError, FileNotFoundError: footers, which are read, are damaged or gone.
        StoreUnavailableError: the store does not say.
    """
    blobs, _ = layered_blobs(table, index, file, ObjectPlan(lambda _: ""))
    return sum(blob.length for _, blob in blobs if blob.type != but)


@dataclass(frozen=True)
class _NewFile:
    """A file that is put together of what published ones have.

    Attributes:
        inventory: of the table.
        live: by index, the file to take it from.
        run_id: names what is done, in place of a run.
        names: of the file.
        assembly: puts it together.
    """

    inventory: Inventory
    live: Mapping[str, IndexFile]
    run_id: str
    names: Names
    assembly: Assembly

    @classmethod
    def of(cls, inventory: Inventory, live: Mapping[str, IndexFile]) -> "_NewFile":
        """Plan a file in the table's folder, of the number of the newest that it is made of."""
        run_id = uuid.uuid4().hex[:12]
        number = max((publication_number(file.path) for file in live.values()), default=0)
        name = f"{NAME}-{_require_head(inventory)}-{run_id}"
        names = Names(metadata_folder(inventory.table), "ann", name, number)
        return cls(inventory, live, run_id, names, Assembly(inventory.table.io, names))

    def publish(
        self,
        blobs: Sequence[Blob],
        changed: Changed | None,
        *,
        properties: Mapping[str, str],
        tag: str = "",
        carried: Set[str] = frozenset(),
        layers: Layers = _NO_LAYERS,
    ) -> Republished:
        """Make the file of blobs and commit it; by the statistics of the head, without a tag."""
        table, head = self.inventory.table, _require_head(self.inventory)
        finished = _written(blobs, self.assembly.object_plan, changed, layers, self.run_id)
        path = make_file(self.assembly)
        request = Request(
            expected_head=head,
            base_snapshot_id=head,
            path=path,
            file_size=finished.length,
            footer_size=finished.footer_size,
            summary=_summary(table, self.live, self.run_id, changed, layers),
            blob_metadata=listed_blobs(finished.metadata.blobs),
            mode="tag" if tag else "statistics",
            tag=tag,
            run_prefix=f"{self.names.folder}/{self.names.kind}-{self.names.run}-",
            carried=carried,
            needs=layers.files,
            properties=properties,
        )
        try:
            published = commit_index_file(table, request)
        except UnclearCommitError:
            raise
        except Exception:
            _discard(table, path)
            raise
        copied = _copied(blobs, changed.before if changed else "")
        _log(path, published.snapshot_id, finished, self.live)
        return Republished(path, published.snapshot_id, copied)


def _require_head(inventory: Inventory) -> int:
    if inventory.head is None:
        raise ConflictError(f"{name_of(inventory.table)} has no snapshot any more to publish under")
    return inventory.head


def _written(
    blobs: Iterable[Blob],
    object_plan: ObjectPlan,
    changed: Changed | None,
    layers: Layers,
    run_id: str,
) -> FinishedFile:
    """Write blobs one after another, those of shards first."""
    with PuffinWriter(object_plan) as writer:
        for reader, blob in sorted(blobs, key=lambda listed: not _is_shard(listed[1])):
            if changed is not None and blob.properties.get("index") == changed.before:
                changed.put(writer, reader, blob, layers)
            else:
                writer.copy(reader, blob)
        return writer.finish({"created-by": CREATED_BY, "run-id": f"{NAME}-{run_id}"})


def _copied(blobs: Iterable[Blob], renamed: str) -> int:
    """Return the bytes of blobs, but for the routing of an index that gets another one."""
    return sum(
        blob.length
        for _, blob in blobs
        if blob.type != ROUTING or blob.properties.get("index") != renamed
    )


def _as_under_head(
    here: IndexFile | None, live: Mapping[str, IndexFile], *, but: str
) -> dict[str, IndexFile]:
    """Return the files to take indexes from, the one under the head before all others."""
    held = {hold.index for hold in here.holds} - {but} if here and here.is_usable else set()
    return {index: here if here and index in held else file for index, file in live.items()}


def _log(path: str, snapshot_id: int, file: FinishedFile, live: Collection[str]) -> None:
    log.info(
        "published %s again as snapshot %d, file %s of %d bytes",
        ", ".join(sorted(live)),
        snapshot_id,
        path,
        file.length,
    )


def _summary(
    table: Table,
    live: Mapping[str, IndexFile],
    run_id: str,
    changed: Changed | None,
    layers: Layers,
) -> dict[str, str]:
    summary = {f"ann.{NAME}.run-id": run_id}
    for index, file in live.items():
        for held in file.holds:
            if held.index == index:
                name = changed.after if changed and changed.before == index else index
                summary[f"ann.{name}.base-snapshot-id"] = str(held.base_snapshot_id)
                summary[f"ann.{name}.version"] = held.version
                summary[f"ann.{name}.{NEEDS}"] = needs_text(table, name, layers.files)
    return summary


def _is_shard(blob: BlobMetadata) -> bool:
    return "shard" in blob.properties


def _discard(table: Table, path: str) -> None:
    try:
        delete_object(table.io, path)
    except EnvironmentProblemError as error:  # the refusal itself is what has to be told
        log.warning("guard: %s is left behind: %s", path, error)
