"""The tagged snapshot: no parent and no rows, under a tag of ours, so that a file has its place.

It is on no branch, so that it changes nothing for readers and streams, and the place of the file is
nobody else's. It takes no sequence number of its own: it has the last one that the table assigned.
Were it to take the next one, a commit of data that was prepared before would be refused, which only
newer catalogs tell a writer to try again. But adding it sets the table's last number to its own, so
that it must not be added to a table that has assigned more since: two commits with one number would
have deletes miss rows, and Java's code reads no table whose last number is behind. So a publication
asserts that no branch has moved. Branches that were not there, and snapshots on none, no
requirement of the REST protocol asserts: catalogs in Java refuse the outcome themselves, PyIceberg
is given a requirement of its own where it writes the metadata, and elsewhere it is looked at
afterwards.
"""

import logging
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.manifest import write_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    ValidatableTableRequirement,
)

from puffin_ann.errors import UnclearCommitError
from puffin_ann.lake.catalog.index_snapshots import UNDER_TAG, tag_of
from puffin_ann.lake.catalog.tables import commit, name_of, reload_table
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lake.store.listing import delete_object
from puffin_ann.lake.store.locations import metadata_folder
from puffin_ann.lake.store.outages import is_of_a_store
from puffin_ann.lake.store.staging import naming
from puffin_ann.moments import now_ms

ATTEMPTS = 4
FOR_EVER_MS = 2**62
"""Age of a tag; one without its own has the table's `history.expire.max-ref-age-ms`."""

_MANIFESTS_VERSION: Literal[2] = 2
"""Format version of the manifest list, which lists nothing."""

OURS = b"puffin"
"""First bytes of the UUIDs in our files' names. A commit whose outcome is not known leaves its
manifest list; nothing else would tell it from one that another writer is about to commit."""

_OURS_IN_NAMES = str(uuid.UUID(bytes=OURS.ljust(16, b"\0")))[:13]

_NO_ROWS = {"total-records": "0", "total-data-files": "0", "total-delete-files": "0"}

_log = logging.getLogger("puffin_ann")


@dataclass(frozen=True)
class TaggedSnapshot:
    """A snapshot to be committed under a tag; its manifest list is written.

    Attributes:
        io: of the table.
        tag: name.
        snapshot: what is committed.
    """

    io: FileIO
    tag: str
    snapshot: Snapshot

    @classmethod
    def write(cls, table: Table, tag: str, summary: Mapping[str, str]) -> "TaggedSnapshot":
        """Make one for the table as it is now, and write its manifest list.

        Args:
            table: as it was loaded.
            tag: name.
            summary: of the snapshot.
        """
        metadata = table.metadata
        snapshot_id = uuid.uuid4().int >> 65
        number = highest_number(table)
        path = f"{metadata_folder(table)}/snap-{snapshot_id}-0-{_own_uuid()}.avro"
        with (
            naming(f"the manifest list {path}"),
            write_manifest_list(
                _MANIFESTS_VERSION, table.io.new_output(path), snapshot_id, None, number, "deflate"
            ) as writer,
        ):
            writer.add_manifests([])
        rows = {}
        if isinstance(metadata, TableMetadataV3):
            rows = {"first-row-id": metadata.next_row_id, "added-rows": 0}
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": snapshot_id,
                "sequence-number": number,
                "timestamp-ms": now_ms(),
                "manifest-list": path,
                "summary": Summary(
                    operation=Operation.APPEND, **{**_NO_ROWS, **summary, UNDER_TAG: tag}
                ),
                "schema-id": metadata.current_schema_id,
                **rows,
            }
        )
        return cls(table.io, tag, snapshot)

    @property
    def updates(self) -> tuple[TableUpdate, ...]:
        """What adds the snapshot, under its tag."""
        return self.addition, tag_on(self.snapshot.snapshot_id, self.tag)

    @property
    def addition(self) -> AddSnapshotUpdate:
        """What adds the snapshot, under no name."""
        return AddSnapshotUpdate(snapshot=self.snapshot)

    def is_behind(self, table: Table) -> bool:
        """Tell whether a table has assigned numbers since this was made for it."""
        return (self.snapshot.sequence_number or 0) < highest_number(table)

    def remove_manifest_list(self) -> None:
        """Delete the manifest list, the only file written here, after a definite refusal."""
        try:
            delete_object(self.io, self.snapshot.manifest_list)
        except Exception as error:  # the refusal is what has to be told; clean-up finds the list
            if not is_of_a_store(error):
                raise
            _log.warning("a manifest list is left behind: %s", error)


class AssertNoNewerNumber(ValidatableTableRequirement):
    """Asserts that a table has assigned no sequence number above one; PyIceberg alone checks it."""

    type: Literal["assert-no-newer-sequence-number"] = "assert-no-newer-sequence-number"
    number: int

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """Compare with the metadata that the commit will change.

        Raises:
            CommitFailedException: it has.
        """
        if base_metadata is not None and _highest_number(base_metadata) > self.number:
            raise CommitFailedException(f"sequence number {self.number} is not the last any more")


def numbers_as_seen(table: Table) -> tuple[TableRequirement, ...]:
    """Return what asserts that no branch of a table has moved since it was loaded, and no number.

    The latter only where PyIceberg writes the metadata: no other catalog knows the requirement.
    """
    branches = tuple(
        AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id)
        for name, ref in sorted(table.refs().items())
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH
    )
    if not isinstance(table.catalog, MetastoreCatalog):
        return branches
    own = AssertNoNewerNumber(number=highest_number(table))
    return *branches, cast(TableRequirement, own)


def highest_number(table: Table) -> int:
    """Return the highest sequence number that a table has assigned; 0 of format version 1."""
    return _highest_number(table.metadata)


def _highest_number(metadata: TableMetadata) -> int:
    numbers = (snapshot.sequence_number or 0 for snapshot in metadata.snapshots)
    return max(metadata.next_sequence_number() - 1, *numbers, 0)


def restore_number(table: Table) -> None:
    """Set a table's last sequence number to the highest one that it has assigned, if it is lower.

    That is so where a snapshot came on a new branch, or on none, right before one of ours.

    Raises:
        UnclearCommitError: it was not done; whoever runs the task again does it.
    """
    for _ in range(ATTEMPTS):
        is_numbered = table.metadata.format_version > 1
        if not is_numbered or table.metadata.next_sequence_number() > highest_number(table):
            return
        _log.warning("the last sequence number of %s is behind its snapshots", name_of(table))
        added = TaggedSnapshot.write(table, "", {})
        same_table = AssertTableUUID(uuid=table.metadata.table_uuid)
        try:
            commit(table, (added.addition,), (same_table, *numbers_as_seen(table)))
        except CommitFailedException:
            added.remove_manifest_list()  # somebody committed, and may have set it right thereby
        except Exception as error:
            _log.warning("no answer to setting the last sequence number: %s", error)
        table = reload_table(table)
    raise UnclearCommitError(
        f"an index of {name_of(table)} was published and the table's last sequence number is "
        "behind its snapshots; run the task again, which sets it right"
    )


def tag_on(snapshot_id: int, name: str) -> SetSnapshotRefUpdate:
    """Return what sets a tag of ours on a snapshot."""
    tag = {
        "ref-name": name,
        "type": SnapshotRefType.TAG,
        "snapshot-id": snapshot_id,
        "max-ref-age-ms": FOR_EVER_MS,
    }
    return SetSnapshotRefUpdate.model_validate(tag)


def removal_of(table: Table, snapshot_ids: frozenset[int]) -> tuple[TableUpdate, ...]:
    """Return what removes our tags from some snapshots, and those that no other name holds.

    A snapshot whose tag is gone already, or was never kept, goes as well.
    """
    gone = {key: tag for key, tag in own_tags(table).items() if key in snapshot_ids}
    held = {ref.snapshot_id for name, ref in table.refs().items() if name not in gone.values()}
    made = (table.snapshot_by_id(key) for key in snapshot_ids)
    free = sorted({each.snapshot_id for each in made if each and tag_of(each)} - held)
    tags = [RemoveSnapshotRefUpdate.model_validate({"ref-name": gone[key]}) for key in sorted(gone)]
    if not free:
        return tuple(tags)
    return *tags, RemoveSnapshotsUpdate.model_validate({"snapshot-ids": free})


def is_own_manifest_list(name: str) -> bool:
    """Tell whether a file name is that of a manifest list of ours."""
    return name.startswith("snap-") and f"-{_OURS_IN_NAMES}" in name and name.endswith(".avro")


def _own_uuid() -> uuid.UUID:
    return uuid.UUID(bytes=OURS + os.urandom(16 - len(OURS)))
