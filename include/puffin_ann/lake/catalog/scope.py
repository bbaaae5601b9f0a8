"""Name a table for what is kept of it: shards on local disk, columns in memory."""

import hashlib
import json
import posixpath

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.table import Table

_CATALOG = ("type", "uri", "warehouse", "prefix")
"""Properties that tell catalogs of one name apart."""


def scope_of(table: Table) -> str:
    """Return what names a table in a cache, as hexadecimal digits: no other table has the same.

    Another table can claim everything that a table says of itself: its id, its location and, by
    the properties of its store, even which bytes a path means. So a table is named by its entry in
    this user's catalog, and a table without a catalog by the folder its metadata was read from. Its
    id is added, as an entry may be dropped and made again by another user.
    """
    catalog = table.catalog
    entry = list(table.name())
    if isinstance(catalog, NoopCatalog):
        entry = [posixpath.dirname(table.metadata_location)]
    named = [catalog.name, *(catalog.properties.get(key) for key in _CATALOG)]
    told = json.dumps([named, entry, str(table.metadata.table_uuid)], default=str)
    return hashlib.sha256(told.encode()).hexdigest()
