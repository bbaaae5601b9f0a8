"""Tags of ours: each holds one index file, under a snapshot without parent and without rows.

A tag is ours if the snapshot's summary says so by the tag's very name: users may give their tags
any name, and set them on any snapshot.

The file is that snapshot's statistics. As long as the tag is there, no expiry removes the snapshot
and no orphan removal the file; without it, both go. Nothing of it is on a branch.
"""

import hashlib
from collections.abc import Mapping

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType

from puffin_ann.lake.catalog.index_snapshots import tag_of

PREFIX = "puffin_ann_"
"""What their names begin with; such a name needs no quotes in SQL."""


def tag_name(index: str, run_id: str) -> str:
    """Return the name of the tag under which a run publishes an index."""
    return f"{PREFIX}{index}_{hashlib.sha256(run_id.encode()).hexdigest()[:12]}"


def index_of(tag: str) -> str:
    """Return the index that a tag of ours was made for, by its name."""
    return tag.removeprefix(PREFIX).rpartition("_")[0]


def own_tags(table: Table) -> Mapping[int, str]:
    """Return the names of our tags by the snapshot that each holds."""
    return {
        ref.snapshot_id: name
        for name, ref in table.metadata.refs.items()
        if ref.snapshot_ref_type == SnapshotRefType.TAG
        and tag_of(table.snapshot_by_id(ref.snapshot_id)) == name
    }


def held_files(table: Table) -> frozenset[str]:
    """Return the locations of the files that our tags hold."""
    tags = own_tags(table)
    return frozenset(
        entry.statistics_path for entry in table.metadata.statistics if entry.snapshot_id in tags
    )
