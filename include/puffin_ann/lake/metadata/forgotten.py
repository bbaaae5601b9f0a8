"""Which foreign metadata files somebody said are of no account: a property of the table tells."""

import json
from collections.abc import Collection, Iterable

from pyiceberg.table import Table

from puffin_ann.foreign_json import parsed
from puffin_ann.lake.commit.statistics_slots import SlotChange, change_slots
from puffin_ann.lake.store.listing import canonical

PROPERTY = "puffin-ann.forgotten-metadata"
"""A JSON list of locations; the nightly clean-up knows by it what was told to one of by hand."""


def forgotten(table: Table) -> frozenset[str]:
    """Return the metadata files of no account, canonically; a property that is not ours is none."""
    try:
        found = parsed(table.properties.get(PROPERTY, "[]"))
    except ValueError:
        return frozenset()
    if not isinstance(found, list):
        return frozenset()
    return frozenset(canonical(location) for location in found if isinstance(location, str))


def forget(table: Table, locations: Iterable[str], *, stored: Collection[str]) -> None:
    """Let metadata files be of no account from now on.

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
