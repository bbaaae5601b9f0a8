"""Stage 2: assemble one Puffin file of all live indexes of the table, and publish it."""

import logging
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyiceberg.table import Table
from pyiceberg.table.statistics import BlobMetadata as ListedBlob

from puffin_ann.blobs import graph as graph_blob
from puffin_ann.blobs import rows as rows_blob
from puffin_ann.blobs.routing import TYPE as ROUTING
from puffin_ann.blobs.routing import Routing
from puffin_ann.errors import ConflictError, FormatError, StagingError, UnclearCommitError
from puffin_ann.lake.catalog import load_table
from puffin_ann.lake.publish import Published
from puffin_ann.lake.publish import publish as commit
from puffin_ann.lake.registration import registered
from puffin_ann.lifecycle import candidate
from puffin_ann.lifecycle.build import CREATED_BY
from puffin_ann.lifecycle.documents import (
    GATE,
    PUBLISH,
    BuildPlan,
    Gated,
    PublishedVersion,
    done,
    load,
    store,
)
from puffin_ann.lifecycle.gate import require_passed
from puffin_ann.lifecycle.workspace import Workspace
from puffin_ann.puffin.metadata import BlobMetadata
from puffin_ann.puffin.reader import PuffinReader
from puffin_ann.puffin.writer import FinishedFile, PuffinWriter
from puffin_ann.search.versions import IndexVersion, load_version, open_puffin

log = logging.getLogger("puffin_ann")

ATTEMPTS = 5
OUR_PREFIX = "puffin-ann-"

LISTED_TYPES = frozenset({"apache-datasketches-theta-v1"})
"""Blob types listed in the table's metadata. PyIceberg cannot load a table whose metadata lists a
type it does not know, so our own stand in the file's footer only."""


@dataclass(frozen=True)
class Assembled:
    """A finished file, not yet named by the table's metadata."""

    path: str
    file: FinishedFile
    bytes_copied: int


def publish_run(workspace: Workspace) -> PublishedVersion:
    """Publish a run that passed its gate; at most once, however often it is called.

    The commit asserts the branch head. If the head moved since, the file is assembled again on top
    of the new head, so that what others published meanwhile is carried along; the base snapshot
    stays the one that was indexed, and search covers the difference.

    Raises:
        ConflictError: the head moved during every attempt; nothing was published.
        UnclearCommitError: the catalog's answer was lost; nothing was deleted.
    """
    finished = done(workspace.staging, PUBLISH, PublishedVersion)
    if finished:
        return finished
    began = time.monotonic()
    plan = workspace.plan
    gated = load(workspace.staging, GATE, Gated)
    require_passed(gated, plan.declaration.name)
    version = load_version(workspace.table.io, gated.candidate.uri, plan.declaration.name)
    if version is None:
        raise StagingError(f"{gated.candidate.uri} does not hold index {plan.declaration.name!r}")
    for attempt in range(1, ATTEMPTS + 1):
        table = load_table(plan.table)
        assembled = assemble(table, plan, version)
        try:
            published = _commit(table, plan, version, assembled)
        except UnclearCommitError:
            raise
        except Exception as error:
            # A definite refusal: nobody can refer to this file, under a name of its own.
            table.io.delete(assembled.path)
            if not isinstance(error, ConflictError) or attempt == ATTEMPTS:
                raise
            log.warning("publish: %s; planning the publication anew (%d)", error, attempt)
            continue
        break
    path = assembled.path
    if published.already:
        path = _path_of(load_table(plan.table), published, assembled)
    document = PublishedVersion(
        snapshot_id=published.snapshot_id,
        path=path,
        bytes_written=assembled.file.length - assembled.bytes_copied,
        bytes_copied=assembled.bytes_copied,
        seconds=time.monotonic() - began,
    )
    return store(workspace.staging, PUBLISH, document)


def _path_of(table: Table, published: Published, assembled: Assembled) -> str:
    """Return the file of a run published by an earlier attempt, and drop this attempt's own."""
    for entry in registered(table):
        if published.snapshot_id in entry.snapshot_ids:
            if entry.path != assembled.path:
                table.io.delete(assembled.path)
            return entry.path
    return assembled.path


def _commit(
    table: Table, plan: BuildPlan, version: IndexVersion, assembled: Assembled
) -> Published:
    head = table.current_snapshot()
    if head is None:
        raise ConflictError(f"table {plan.table} has no snapshot any more; nothing was published")
    return commit(
        table,
        expected_head=head.snapshot_id,
        base_snapshot_id=plan.base_snapshot_id,
        statistics_path=assembled.path,
        file_size=assembled.file.length,
        footer_size=assembled.file.footer_size,
        summary=summary_of(plan, version),
        blob_metadata=[
            ListedBlob.model_validate(
                {
                    "type": blob.type,
                    "snapshot-id": blob.snapshot_id,
                    "sequence-number": blob.sequence_number,
                    "fields": list(blob.fields),
                    "properties": dict(blob.properties),
                }
            )
            for blob in assembled.file.metadata.blobs
            if blob.type in LISTED_TYPES and blob.fields
        ],
    )


def summary_of(plan: BuildPlan, version: IndexVersion) -> dict[str, str]:
    """Return the index snapshot's summary: what people look for, at most ten keys an index."""
    routing = version.routing
    figures = {
        "run-id": plan.run_id,
        "base-snapshot-id": str(plan.base_snapshot_id),
        "algorithm": routing.algorithm,
        "metric": routing.metric,
        "vectors": str(sum(shard.rows for shard in routing.shards)),
        "shards": str(len(routing.shards)),
        "max-tombstone-ratio": "0",
    }
    if routing.recall is not None:
        figures["recall"] = f"{routing.recall.recall:.4f}"
    return {f"ann.{plan.declaration.name}.{key}": value for key, value in figures.items()}


def assemble(table: Table, plan: BuildPlan, version: IndexVersion) -> Assembled:
    """Write one Puffin file: this index, the table's other indexes, and foreign blobs.

    Bytes of shards are streamed from where they lie, none is held whole. The file's name is used
    by no other attempt, and a file that could not be finished is deleted.
    """
    location = table.location().rstrip("/")
    name = f"ann-{plan.declaration.name}-{plan.base_snapshot_id}-{uuid.uuid4().hex[:12]}.puffin"
    path = f"{location}/metadata/{name}"
    try:
        with table.io.new_output(path).create(overwrite=False) as out, PuffinWriter(out) as writer:
            routing = _inline(version.routing)
            candidate.add_index_blobs(writer, plan, routing, version.coverage)
            _add_shards(table, writer, version)
            copied = sum(
                writer.copy(reader, blob).length for reader, blob in _carried(table, version.index)
            )
            finished = writer.finish({"created-by": CREATED_BY, "run-id": plan.run_id})
    except BaseException:
        table.io.delete(path)
        raise
    log.info("publish: assembled %s, %d bytes, %d of them carried", name, finished.length, copied)
    return Assembled(path, finished, copied)


def _inline(routing: Routing) -> Routing:
    """Return the routing for a file that holds all its shards itself."""
    return replace(routing, shards=tuple(replace(shard, file="") for shard in routing.shards))


def _add_shards(table: Table, writer: PuffinWriter, version: IndexVersion) -> None:
    for shard in version.routing.shards:
        with open_puffin(table.io, version.file_of(shard)) as reader:
            for kind in (graph_blob.TYPE, rows_blob.TYPE):
                for blob in reader.find(kind, index=version.index, shard=str(shard.shard_id)):
                    writer.copy(reader, blob)


def _carried(table: Table, index: str) -> Iterator[tuple[PuffinReader, BlobMetadata]]:
    """Yield what the table's registered files hold besides this index, each thing once.

    Newest first: of another index its newest version, of foreign blobs those of the newest file
    that has any, so that an index snapshot hides no statistics.
    """
    seen = {index}
    foreign_found = False
    for entry in registered(table):
        try:
            with open_puffin(table.io, entry.path, entry.file_size) as reader:
                here = {blob.properties.get("index", "") for blob in reader.find(ROUTING)} - seen
                seen |= here
                foreign = [b for b in reader.metadata.blobs if not b.type.startswith(OUR_PREFIX)]
                for blob in reader.metadata.blobs:
                    if blob.properties.get("index", "") in here and blob not in foreign:
                        yield reader, blob
                if foreign and not foreign_found:
                    foreign_found = True
                    for blob in foreign:
                        yield reader, blob
        except (OSError, FormatError) as error:
            log.warning("publish: registered file %s cannot be read: %s", entry.path, error)
