"""Whose shards a folder of the cache holds."""

import hashlib
import json
import posixpath

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.table import Table

_CATALOG = ("type", "uri", "warehouse", "prefix")
"""Properties that tell catalogs of one name apart."""


def scope_of(table: Table) -> str:
    """Return what names a table in the cache, as hexadecimal digits: no other table has the same.

    Everything that stands in a table can be claimed by another one, too: its id, its location, and
    by the properties of its store even whose bytes a path means. So it is named by the entry of
    this user's catalog, and one that no catalog named by the folder its metadata was read from. Its
    id is added, as an entry may be dropped and made again by somebody else.
    """
    catalog = table.catalog
    entry = list(table.name())
    if isinstance(catalog, NoopCatalog):
        entry = [posixpath.dirname(table.metadata_location)]
    named = [catalog.name, *(catalog.properties.get(key) for key in _CATALOG)]
    told = json.dumps([named, entry, str(table.metadata.table_uuid)], default=str)
    return hashlib.sha256(told.encode()).hexdigest()
