"""Tags of ours: each holds one index file, under a snapshot without parent and without rows.

The file is that snapshot's statistics. As long as the tag is there, no expiry removes the snapshot
and no orphan removal the file; without it, both go. Nothing of it is on a branch.
"""

import hashlib
from collections.abc import Mapping

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from puffin_ann.lake.metadata.registered import NAMED_BY

PREFIX = "puffin_ann_"
"""What their names begin with; such a name needs no quotes in SQL."""


def tag_name(index: str, run_id: str) -> str:
    """Return the name of the tag under which a run publishes an index."""
    return f"{PREFIX}{index}_{hashlib.sha256(run_id.encode()).hexdigest()[:12]}"


def own_tags(table: Table) -> Mapping[int, str]:
    """Return the names of our tags by the snapshot that each holds."""
    return {
        ref.snapshot_id: name
        for name, ref in table.metadata.refs.items()
        if ref.snapshot_ref_type == SnapshotRefType.TAG
        and name.startswith(PREFIX)
        and is_tagged_snapshot(table.snapshot_by_id(ref.snapshot_id))
    }


def is_tagged_snapshot(snapshot: Snapshot | None) -> bool:
    """Tell whether a snapshot was made to hold an index file under a tag."""
    return (
        snapshot is not None
        and snapshot.parent_snapshot_id is None
        and snapshot.summary is not None
        and NAMED_BY in snapshot.summary.additional_properties
    )
