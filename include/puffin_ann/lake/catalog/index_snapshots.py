"""Snapshots that were made to hold an index file, told from those of a table's rows."""

from pyiceberg.table.snapshots import Snapshot

UNDER_TAG = "puffin-ann.tag"
"""Key of a tagged snapshot's summary: the name of its tag."""


def tag_of(snapshot: Snapshot | None) -> str | None:
    """Return the name of the tag that a snapshot was made for; None if it is no tagged one."""
    if snapshot is None or snapshot.summary is None:
        return None
    return snapshot.summary.additional_properties.get(UNDER_TAG)
