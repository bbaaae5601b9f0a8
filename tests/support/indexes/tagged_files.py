"""A file under a tag of its own: a snapshot without parent and rows, whose statistics entry it is.

Nothing stands on a branch, so that no commit of data comes between what was seen and what is
published, and the entry is nobody else's. The snapshot has the last sequence number that the table
had assigned when it was loaded, and asserts nothing of branches.
"""

import io
import uuid

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import write_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
)

from puffin_ann.moments import now_ms
from puffin_ann.puffin import PuffinWriter

FOR_EVER = 2**62
"""Milliseconds; a tag without an age of its own has the table's."""


def tag_of(number: int) -> str:
    return f"puffin_ann_{number}"


def publish(table: Table, number: int, *, length: int = 1000) -> str:
    """Publish a file under the tag of a number; returns its location.

    Raises:
        CommitFailedException: the tag is there already, or the table moved in a way that counts.
    """
    path = f"{table.location()}/metadata/ann-pack-{number}-{uuid.uuid4().hex[:8]}.puffin"
    out = io.BytesIO()
    with PuffinWriter(out) as writer:
        writer.add(
            "puffin-ann-graph-v1", b"x" * length, fields=[], snapshot_id=-1, sequence_number=-1
        )
        finished = writer.finish({})
    with table.io.new_output(path).create() as stream:
        stream.write(out.getvalue())
    snapshot = _empty_snapshot(table)
    statistics = StatisticsFile(
        **{
            "snapshot-id": snapshot.snapshot_id,
            "statistics-path": path,
            "file-size-in-bytes": finished.length,
            "file-footer-size-in-bytes": finished.footer_size,
            "blob-metadata": [],
        }
    )
    tag = SetSnapshotRefUpdate(
        **{
            "ref-name": tag_of(number),
            "type": SnapshotRefType.TAG,
            "snapshot-id": snapshot.snapshot_id,
            "max-ref-age-ms": FOR_EVER,
        }
    )
    table.catalog.commit_table(
        table,
        (
            AssertTableUUID(uuid=table.metadata.table_uuid),
            AssertRefSnapshotId(ref=tag_of(number), snapshot_id=None),
        ),
        (AddSnapshotUpdate(snapshot=snapshot), tag, SetStatisticsUpdate(statistics=statistics)),
    )
    return path


def publish_on_newest(table: Table, number: int) -> str:
    """Publish as often as it takes: what the table has may move while the tag does not."""
    while True:
        try:
            return publish(table.refresh(), number)
        except CommitFailedException:
            if tag_of(number) in table.refresh().metadata.refs:
                raise


def files_of(table: Table) -> set[str]:
    """Locations of the files that the table has under tags of ours."""
    refs = table.refresh().metadata.refs
    tagged = {ref.snapshot_id for name, ref in refs.items() if name.startswith("puffin_ann_")}
    return {
        entry.statistics_path
        for entry in table.metadata.statistics
        if entry.snapshot_id in tagged and table.io.new_input(entry.statistics_path).exists()
    }


def _empty_snapshot(table: Table) -> Snapshot:
    metadata = table.metadata
    snapshot_id = uuid.uuid4().int >> 65
    manifest_list = f"{table.location()}/metadata/snap-{snapshot_id}-0-{uuid.uuid4()}.avro"
    number = metadata.last_sequence_number
    is_v3 = metadata.format_version >= 3
    rows = {"first-row-id": metadata.next_row_id, "added-rows": 0} if is_v3 else {}
    output = table.io.new_output(manifest_list)
    with write_manifest_list(2, output, snapshot_id, None, number, "deflate") as writer:
        writer.add_manifests([])
    return Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=None,
        sequence_number=number,
        timestamp_ms=now_ms(),
        manifest_list=manifest_list,
        summary=Summary(operation=Operation.APPEND),
        schema_id=metadata.current_schema_id,
        **rows,
    )
