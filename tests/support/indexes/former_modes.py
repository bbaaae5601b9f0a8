"""Publish as `publish: snapshot` did: by a `replace` snapshot on main, with all of the table.

Nothing does so any more; versions that were published so are to be read, guarded and cleaned.
"""

import os
import uuid

import pytest
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AssertTableUUID, SetStatisticsUpdate
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.typedef import EMPTY_DICT

from puffin_ann.lake.catalog.tables import commit, reload_table
from puffin_ann.lake.commit.attempt import Published, Request
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lake.commit.tagged_snapshot import OURS
from puffin_ann.lake.metadata.registered import NAMED_BY
from puffin_ann.lake.read.files.manifests import read_whole_manifest_list


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
        assert parent is not None
        return parent


def commit_index_snapshot(
    table: Table, summary: dict[str, str], request: Request | None = None
) -> Snapshot:
    """Add an index snapshot to main, with a file that it and a free base snapshot register."""
    snapshot = IndexSnapshot(
        Operation.REPLACE,
        table.transaction(),
        table.io,
        commit_uuid=uuid.UUID(bytes=OURS + os.urandom(16 - len(OURS))),
        snapshot_properties=summary,
    )
    updates, requirements = snapshot._commit()
    under = [] if request is None else [snapshot.snapshot_id]
    if request is not None and request.base_snapshot_id not in slots(table):
        under.append(request.base_snapshot_id)
    commit(
        table,
        (*updates, *(SetStatisticsUpdate(statistics=request.statistics(slot)) for slot in under)),
        (*requirements, AssertTableUUID(uuid=table.metadata.table_uuid)),
    )
    return reload_table(table).snapshot_by_id(snapshot.snapshot_id)


def publish_on_main(table: Table, request: Request) -> Published:
    """Publish a file of all of the table's indexes, in place of `commit_index_file`."""
    fresh = reload_table(table)
    summary = {**request.summary, NAMED_BY: request.path}
    made = commit_index_snapshot(fresh, summary, request)
    return Published(made.snapshot_id, made.sequence_number, already=False)


def published_on_main(patch: pytest.MonkeyPatch) -> None:
    """Have runs publish so from now on."""
    where = "puffin_ann.lifecycle.publish.assemble."
    patch.setattr(f"{where}ModeChoice.of", lambda *_: ("statistics", "it was so once"))
    patch.setattr(f"{where}commit_index_file", publish_on_main)
