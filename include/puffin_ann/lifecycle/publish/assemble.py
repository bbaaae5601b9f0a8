"""Assemble a Puffin file and publish it: of one index under a tag, else of all of the table."""

import hashlib
import logging
import re
import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from pyiceberg.table import Table

from puffin_ann.blobs.changes import tombstone_changes as tombstone_changes_blob
from puffin_ann.blobs.shards import columns as columns_blob
from puffin_ann.blobs.shards import identities as identities_blob
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.version import centroid as centroid_blob
from puffin_ann.blobs.version import coverage as coverage_blob
from puffin_ann.blobs.version import partitions as partitions_blob
from puffin_ann.blobs.version.routing import Apart, Routing
from puffin_ann.declaration import CENTROID
from puffin_ann.engines import engine
from puffin_ann.errors import (
    ConflictError,
    StagingError,
    SupersededError,
    UnclearCommitError,
)
from puffin_ann.lake.catalog.tables import reload_table
from puffin_ann.lake.commit.attempt import Published, Request
from puffin_ann.lake.commit.commit_index_file import commit_index_file
from puffin_ann.lake.commit.publish_mode import ASK_AGAIN_MS, ModeChoice, PublishMode
from puffin_ann.lake.metadata.dropped import find_dropped, is_dropped
from puffin_ann.lake.metadata.own_tags import held_files, tag_name
from puffin_ann.lake.metadata.registered import find_registered, next_number
from puffin_ann.lake.store.assemble.compose import Assembly, Names
from puffin_ann.lake.store.locations import metadata_folder
from puffin_ann.lifecycle.build import staged_index
from puffin_ann.lifecycle.build.gate import require_passed
from puffin_ann.lifecycle.build.shard import CREATED_BY
from puffin_ann.lifecycle.documents.refresh import RefreshPlan
from puffin_ann.lifecycle.documents.run import (
    GATE,
    PUBLISH,
    Gated,
    PublishedVersion,
    RunPlan,
    done,
    load,
    store,
)
from puffin_ann.lifecycle.publish.carried_blobs import CarriedBlobs, listed_blobs
from puffin_ann.lifecycle.publish.discard import discard_refused
from puffin_ann.lifecycle.publish.layers import layers_of
from puffin_ann.lifecycle.publish.make_file import make_file
from puffin_ann.lifecycle.publish.run_records import recorded, undone_by
from puffin_ann.lifecycle.publish.summary import summary_of
from puffin_ann.lifecycle.refresh.new_version import VersionContent, make_new_version
from puffin_ann.lifecycle.retention.tags import superseded_tags
from puffin_ann.lifecycle.runtime.workspace import Workspace
from puffin_ann.moments import now_ms
from puffin_ann.puffin.writer import FinishedFile, PuffinWriter
from puffin_ann.search.version.index_files import BlobPlace, VersionFiles
from puffin_ann.search.version.index_version import IndexVersion, load_version
from puffin_ann.search.version.versions import find_versions
from puffin_ann.settings import settings

log = logging.getLogger("puffin_ann")

ATTEMPTS = 5


@dataclass(frozen=True)
class Assembled:
    """A finished file, not yet named by the table's metadata.

    Attributes:
        path: its location.
        file: what its writer says of it.
        bytes_copied: bytes of blobs carried along.
        run_prefix: what the locations of the run's files begin with.
        carried: registered files of which nothing is lost if this one takes their place.
        named: files of earlier versions that have the rest of the index.
    """

    path: str
    file: FinishedFile
    bytes_copied: int
    run_prefix: str
    carried: frozenset[str]
    named: frozenset[str]


def publish_run(workspace: Workspace) -> PublishedVersion:
    """Publish a run that passed its gate; at most once, however often it is called.

    Under a tag, commits of others do not matter; where `auto` finds that the catalog does not keep
    it, the version is published by `statistics` at once, and refreshes of the next days go by that.
    There the commit asserts main's head. If that moved since by data alone, the file is committed
    on top of it as it is: to copy a large index again might take longer than the next commit lets
    one. If others published, it is assembled again, so that theirs is carried along. The base
    snapshot stays the one that was indexed, and search covers the difference.

    Raises:
        ConflictError: the head moved during every attempt; nothing was published.
        SupersededError: another run published the index since this refresh was planned; as above.
        UnclearCommitError: the catalog's answer was lost; nothing was deleted.
    """
    finished = done(workspace.staging, PUBLISH, PublishedVersion)
    if finished:
        return finished
    began = time.monotonic()
    plan = workspace.plan
    content = make_new_version(workspace) if isinstance(plan, RefreshPlan) else _built(workspace)
    version = content.version
    earlier: Assembled | None = None
    rested_on: object = None
    declared = plan.declaration.publishes_by
    choice = ModeChoice(declared, ASK_AGAIN_MS if isinstance(plan, RefreshPlan) else 0)
    for attempt in range(1, ATTEMPTS + 1):
        table = reload_table(workspace.table)
        if isinstance(plan, RefreshPlan):
            _require_unchanged(table, plan)
        mode, reason = choice.of(table)
        entries = find_registered(table)
        alone = mode == "tag"
        rests_on = mode if alone else (mode, entries, find_dropped(table))
        # A file of which nothing is carried could not be read then, and may be readable by now.
        is_whole = earlier is not None and (
            earlier.named <= held_files(table)
            if alone
            else {entry.path for entry in entries} <= earlier.carried
        )
        if earlier is not None and is_whole and rests_on == rested_on:
            assembled = earlier
        else:
            assembled = assemble(table, plan, content, alone=alone)
            if earlier is not None and earlier.path != assembled.path:
                _discard(table, earlier)
        try:
            log.info("publish: by %s, since %s", mode, reason)
            published = _commit(table, plan, version, assembled, mode, choice.properties)
        except UnclearCommitError:
            raise
        except Exception as error:
            next_choice = choice.after(error)
            if next_choice is None or attempt == ATTEMPTS:
                _discard(table, assembled)
                raise
            choice, earlier, rested_on = next_choice, assembled, rests_on
            log.warning("publish: %s; trying to commit again (attempt %d)", error, attempt)
            continue
        break
    path = assembled.path
    if published.already:
        path = _path_of(reload_table(workspace.table), published, assembled)
    document = PublishedVersion(
        snapshot_id=published.snapshot_id,
        path=path,
        bytes_written=assembled.file.length - assembled.bytes_copied,
        bytes_copied=assembled.bytes_copied,
        rows_added=content.rows_added,
        rows_gone=content.rows_gone,
        seconds=time.monotonic() - began,
        undone=undone_by(plan, version).told(version.index),
    )
    return store(workspace.staging, PUBLISH, document)


def _built(workspace: Workspace) -> VersionContent:
    """Return what a build made, if it is good enough."""
    plan = workspace.build_plan
    gated = load(workspace.staging, GATE, Gated)
    require_passed(gated, plan.declaration.name)
    version = load_version(workspace.table.io, gated.staged_index.uri, plan.declaration.name)
    if version is None:
        raise StagingError(
            f"{gated.staged_index.uri} does not hold index {plan.declaration.name!r}"
        )
    blobs = {
        shard.shard_id: dict.fromkeys(
            (
                engine(version.routing.algorithm).blob_type,
                *rows_blob.TYPES,
                identities_blob.TYPE,
                columns_blob.TYPE,
            ),
            version.file_of(shard),
        )
        for shard in version.routing.shards
    }
    return VersionContent(version, blobs, rows_added=version.vectors)


def _require_unchanged(table: Table, plan: RefreshPlan) -> None:
    """Refuse to publish a refresh if another run published or dropped the index since its plan.

    What a file holds is looked at only if it was not there then. Others carry the version that is
    refreshed along into theirs.

    Raises:
        SupersededError: so it is.
    """
    index = plan.declaration.name
    before = set(plan.registered)
    runs = {plan.run_id, plan.base_run_id}  # of the former the answer was lost, then
    is_lost = is_dropped(find_dropped(table), index, plan.base_run_id)
    if any(entry.path not in before for entry in find_registered(table)):
        versions = find_versions(table, index).versions
        is_lost |= any(
            version.path not in before and version.run_id not in runs for version in versions
        )
    if is_lost:
        raise SupersededError(
            f"index {index!r} of {plan.table} was published again, or dropped, since this refresh "
            "was planned; nothing was published, plan the run again"
        )


def _discard(table: Table, assembled: Assembled) -> None:
    """Delete a file that the catalog definitely refused to register.

    On S3 another attempt of the run makes the same file under the same name, and may have had
    better luck with it.
    """
    try:
        if all(entry.path != assembled.path for entry in find_registered(table.refresh())):
            discard_refused(table, assembled.path)
    except Exception as error:  # the refusal itself is what has to be told
        log.warning("publish: %s is left behind: %s", assembled.path, error)


def _path_of(table: Table, published: Published, assembled: Assembled) -> str:
    """Return the file of a run published by an earlier attempt, and drop this attempt's own."""
    for entry in find_registered(table):
        if published.snapshot_id in entry.snapshot_ids:
            if entry.path != assembled.path:
                _discard(table, assembled)
            return entry.path
    return assembled.path


def _commit(
    table: Table,
    plan: RunPlan,
    version: IndexVersion,
    assembled: Assembled,
    mode: PublishMode,
    properties: Mapping[str, str],
) -> Published:
    head = table.current_snapshot()
    if head is None:
        raise ConflictError(f"table {plan.table} has no snapshot any more; nothing was published")
    index, retention = plan.declaration.name, plan.declaration.retention
    tag, superseded = "", frozenset[int]()
    if mode == "tag":
        tag = tag_name(index, plan.run_id)
        superseded = superseded_tags(table, index, retention, assembled.named, now_ms())
    request = Request(
        expected_head=head.snapshot_id,
        base_snapshot_id=plan.base_snapshot_id,
        path=assembled.path,
        file_size=assembled.file.length,
        footer_size=assembled.file.footer_size,
        summary=summary_of(table, plan, version, assembled.named),
        blob_metadata=listed_blobs(assembled.file.metadata.blobs),
        mode=mode,
        tag=tag,
        run_prefix=assembled.run_prefix,
        carried=assembled.carried,
        needs=assembled.named,
        supersedes=superseded,
        properties=properties,
    )
    return commit_index_file(table, request)


def assemble(
    table: Table, plan: RunPlan, content: VersionContent, *, alone: bool = False
) -> Assembled:
    """Make one Puffin file: this index, the table's other indexes, and foreign blobs.

    Shards come first, so that ranges of staged and published files adjoin and a store that copies
    parts by itself need not be sent a byte of them; small blobs come last, beside the footer.

    Args:
        table: as it was loaded.
        plan: of the run.
        content: of the index.
        alone: the file takes nobody's place, and holds this index only.
    """
    names = Names(
        folder=metadata_folder(table),
        kind="ann",
        run=f"{plan.declaration.name}-{plan.base_snapshot_id}-{_short_hash(plan.run_id)}",
        number=next_number(table),
    )
    assembly = Assembly(table.io, names)
    version = content.version
    carried_blobs = CarriedBlobs(table, version.index, plan.base_snapshot_id, assembly.object_plan)
    carried = [] if alone else list(carried_blobs.blobs())
    published = {entry.path for entry in find_registered(table)}
    with (
        VersionFiles(
            table.io,
            version.path,
            version.index,
            version.directory,
            version.field_id,
            length=version.length,
            own=carried_blobs.footers.get(version.path),
            opening=assembly.object_plan.pin,
            gone_is_damage=False,
        ) as files,
        PuffinWriter(assembly.object_plan) as writer,
    ):
        changes = content.coverage_changes if alone else None
        same = content.same | ({coverage_blob.TYPE} if changes else set())
        layers = layers_of(
            _places(files, content, same),
            held_files(table) if alone else frozenset(),
            settings().whole_file_bytes,
        )
        own = [(files.open(place).reader, place.metadata) for place in layers.copied]
        # Where a version names the rest, it has a copy of the cells: that is what it writes.
        copied = sum(
            blob.length
            for reader, blob in [*own, *carried]
            if reader.name in published and not (layers.named and blob.type == partitions_blob.TYPE)
        )
        written = sum(
            blob.length
            for reader, blob in own
            if reader.name not in published and blob.type != partitions_blob.TYPE
        )
        routing = recorded(
            table,
            plan,
            version,
            written=written,
            copied=copied,
            rows_added=content.rows_added,
            rows_gone=content.rows_gone,
        )
        for reader, blob in sorted(
            [*carried, *own], key=lambda listed: "shard" not in listed[1].properties
        ):
            writer.copy(reader, blob)
        if content.centroids is not None:
            staged_index.add_centroids(writer, plan, content.centroids)
        staged_index.add_index_blobs(
            writer, plan, _inline(routing), changes or version.coverage, layers.directory
        )
        if version.added_tombstones and tombstone_changes_blob.TYPE not in content.same:
            staged_index.add_tombstone_changes(writer, plan, version.added_tombstones)
        finished = writer.finish({"created-by": CREATED_BY, "run-id": plan.run_id})
    path = make_file(assembly)
    log.info("publish: assembled %s, %d bytes, %d of them carried", path, finished.length, copied)
    return Assembled(
        path=path,
        file=finished,
        bytes_copied=copied,
        run_prefix=f"{names.folder}/{names.kind}-{names.run}-",
        carried=frozenset(carried_blobs.files),
        named=layers.files,
    )


def was_published(table: Table, index: str, run_id: str) -> bool:
    """Tell whether the table's metadata names a publication of a run of the index."""
    file = re.compile(rf"/ann-{re.escape(index)}-\d+-{_short_hash(run_id)}-[^/]*$")
    if is_dropped(find_dropped(table), index, run_id):
        return True
    return any(file.search(entry.path) for entry in find_registered(table)) or any(
        snapshot.summary is not None
        and snapshot.summary.additional_properties.get(f"ann.{index}.run-id") == run_id
        for snapshot in table.snapshots()
    )


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _inline(routing: Routing) -> Routing:
    """Return the routing for a file that holds all its shards itself."""
    return replace(routing, shards=tuple(replace(shard, file="") for shard in routing.shards))


def _places(
    files: VersionFiles, content: VersionContent, same: AbstractSet[str]
) -> list[BlobPlace]:
    """Return where the blobs are that the new version takes as they are, small ones by type."""
    version = content.version
    found = []
    for shard in version.routing.shards:
        for kind, path in content.blobs[shard.shard_id].items():
            found += files.places(kind, shard.shard_id, path)
    if version.routing.algorithm == CENTROID and content.centroids is None:
        found += files.places(centroid_blob.TYPE)
    if isinstance(version.routing.cells, Apart):
        found += files.places(partitions_blob.TYPE)
    for kind in sorted(same):
        found += files.places(kind)
    return found
