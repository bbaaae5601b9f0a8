"""Index snapshots: `replace` snapshots without data change, by which versions were once published.

None is made any more. Those that are on a branch are passed by where data is looked for.
"""

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot


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
