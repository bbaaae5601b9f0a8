"""Let foreign metadata files be ignored: one commit sets a property of the table."""

import json
from collections.abc import Collection, Iterable

from pyiceberg.table import Table

from puffin_ann.lake.commit.statistics_slots import SlotChange, change_slots
from puffin_ann.lake.metadata.forgotten import PROPERTY, forgotten
from puffin_ann.lake.store.listing import canonical


def forget(table: Table, locations: Iterable[str], *, stored: Collection[str]) -> None:
    """Let metadata files be ignored from now on.

    Args:
        table: as loaded; one commit sets a property of it.
        locations: of the files.
        stored: the metadata files that are there, canonically: others need not be remembered.

    Raises:
        ConflictError: the table was changed meanwhile; nothing was changed.
        UnclearCommitError: the catalog's answer was lost.
        CatalogUnavailableError: the catalog refuses, or does not answer.
    """
    wanted = {canonical(location) for location in locations}
    kept = sorted((forgotten(table) & set(stored)) | wanted)
    change = SlotChange(seen={}, properties={PROPERTY: json.dumps(kept)})
    change_slots(table, change, expected_head=table.metadata.current_snapshot_id)
