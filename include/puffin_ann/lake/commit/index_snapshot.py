"""The index snapshot: a `replace` without data change."""

import logging
import os
import uuid

from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.typedef import EMPTY_DICT

from puffin_ann.errors import ConflictError
from puffin_ann.lake.read.manifests import read_whole_manifest_list
from puffin_ann.lake.store.outages import is_of_a_store

_log = logging.getLogger("puffin_ann")

OURS = b"puffin"
"""First bytes of the UUIDs in our files' names. A commit whose outcome is not known leaves its
manifest list; nothing else would tell it from one that another writer is about to commit."""

_OURS_IN_NAMES = str(uuid.UUID(bytes=OURS.ljust(16, b"\0")))[:13]


class EmptyTransaction(Transaction):
    """A transaction with no updates in it, whose metadata is that of the table as it was loaded.

    PyIceberg's own copies all metadata deeply each time it is asked for any: a dozen times for one
    snapshot, which takes longer than the commit where a table has many snapshots.
    """

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata, to be read only."""
        return self._table.metadata


class IndexSnapshot(_SnapshotProducer["IndexSnapshot"]):
    """A `replace` snapshot that carries every manifest of its parent, data and delete, as it is."""

    def _existing_manifests(self) -> list[ManifestFile]:
        return read_whole_manifest_list(self._io, self._parent().manifest_list)

    def _deleted_entries(self) -> list[ManifestEntry]:
        return []

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        # PyIceberg's own way to carry totals, update_snapshot_summaries(), refuses `replace`.
        summary = self._parent().summary
        totals = {
            key: value
            for key, value in (summary.additional_properties if summary else {}).items()
            if key.startswith("total-")
        }
        return Summary(operation=Operation.REPLACE, **{**totals, **snapshot_properties})

    def _parent(self) -> Snapshot:
        parent = self._transaction.table_metadata.snapshot_by_id(self._parent_snapshot_id or -1)
        if parent is None:
            raise ConflictError("the branch has no snapshot to publish on")
        return parent

    def remove_manifest_list(self) -> None:
        """Delete the manifest list, the only file written here, after a definite refusal."""
        try:
            self._clean_all_uncommitted()
        except Exception as error:  # the refusal is what has to be told; clean-up finds the list
            if not is_of_a_store(error):
                raise
            _log.warning("a manifest list is left behind: %s", error)


def is_index_snapshot(snapshot: Snapshot) -> bool:
    """Tell whether a snapshot publishes indexes and changes no data."""
    summary = snapshot.summary
    return (
        summary is not None
        and summary.operation == Operation.REPLACE
        and any(key.startswith("ann.") for key in summary.additional_properties)
    )


def data_snapshot(table: Table, branch: str = MAIN_BRANCH) -> Snapshot | None:
    """Return the newest snapshot of a branch that is none of ours; None if that is not known.

    An index snapshot changes no data, so this is what tells whether the table changed.
    """
    found = table.metadata.snapshot_by_name(branch)
    while found is not None and is_index_snapshot(found):
        parent = found.parent_snapshot_id
        found = None if parent is None else table.snapshot_by_id(parent)
    return found


def is_published_for(table: Table, index: str, snapshot_id: int) -> bool:
    """Tell by names alone, no file is read, whether a version of an index covers a snapshot."""
    key, file = f"ann.{index}.base-snapshot-id", f"/ann-{index}-{snapshot_id}-"
    return any(file in entry.statistics_path for entry in table.metadata.statistics) or any(
        snapshot.summary is not None
        and snapshot.summary.additional_properties.get(key) == str(snapshot_id)
        for snapshot in table.snapshots()
    )


def own_uuid() -> uuid.UUID:
    """Return a UUID for the names of an index snapshot's files, by which clean-up knows them."""
    return uuid.UUID(bytes=OURS + os.urandom(16 - len(OURS)))


def is_own_manifest_list(name: str) -> bool:
    """Tell whether a file name is that of an index snapshot's manifest list."""
    return name.startswith("snap-") and f"-{_OURS_IN_NAMES}" in name and name.endswith(".avro")
