"""Find statistics of others whose place a publication of ours took when it landed late.

A publication whose answer was lost may land after another writer has filled the statistics entry,
and takes its place: a catalog can assert the head, which has not moved, but not an entry. `doctor`
reports it, and the other writer makes the statistics again; the guard then carries them over.
"""

from pyiceberg.table import Table
from pyiceberg.table.statistics import BlobMetadata

from puffin_ann.lake.commit.overwritten_statistics import THETA, Displaced, find_overwritten
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lifecycle.versions.inventory import Inventory, is_index_name


def find_displaced(table: Table) -> list[Displaced]:
    """Return statistics of others that files of ours replaced without listing the same."""
    return find_overwritten(table, is_index_name)


def is_missed(inventory: Inventory, lost: Displaced) -> bool:
    """Tell whether readers of the head would use such statistics, and have no others instead."""
    head = inventory.table.current_snapshot()
    if head is None:
        return False
    here = inventory.ours_in(head.snapshot_id)
    adds_no_rows = here is not None and head.snapshot_id in here.named_by
    same_rows = {head.snapshot_id, head.parent_snapshot_id if adds_no_rows else None}
    entry = slots(inventory.table).get(head.snapshot_id)
    listed = _columns(entry.blob_metadata) if entry else set()
    return lost.snapshot_id in same_rows and not _columns(lost.entry.blob_metadata) <= listed


def _columns(blobs: list[BlobMetadata]) -> set[tuple[int, ...]]:
    """Return the columns, by field id, whose distinct values are counted."""
    return {tuple(blob.fields) for blob in blobs if blob.type == THETA}
