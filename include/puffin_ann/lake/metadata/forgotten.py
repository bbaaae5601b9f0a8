"""Which foreign metadata files a user asked to ignore, as a property of the table says."""

from pyiceberg.table import Table

from puffin_ann.foreign_json import parse
from puffin_ann.lake.store.listing import canonical

PROPERTY = "puffin-ann.forgotten-metadata"
"""A JSON list of locations: so the nightly clean-up knows what a manual one was told."""


def forgotten(table: Table) -> frozenset[str]:
    """Return the metadata files that are ignored, canonically; a foreign property names none."""
    try:
        found = parse(table.properties.get(PROPERTY, "[]"))
    except ValueError:
        return frozenset()
    if not isinstance(found, list):
        return frozenset()
    return frozenset(canonical(location) for location in found if isinstance(location, str))
