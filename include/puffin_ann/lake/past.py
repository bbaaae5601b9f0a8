"""What earlier metadata files of a table named, as far as the table keeps them."""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.table import Table

from puffin_ann.errors import DataFileError
from puffin_ann.lake.listing import canonical
from puffin_ann.lake.metadata_files import read_metadata

_log = logging.getLogger("puffin_ann")


@dataclass(frozen=True)
class FormerEntry:
    """A registration that stands in earlier metadata only.

    Attributes:
        path: the file.
        sequence_number: of the newest snapshot it was registered under.
        published_ms: when that snapshot was made, milliseconds since 1970.
    """

    path: str
    sequence_number: int
    published_ms: int


def former_entries(table: Table, paths: Collection[str]) -> dict[str, FormerEntry]:
    """Look for registrations of files in the earlier metadata that the table still names.

    Newest metadata first, until every path is found: with none to look for, nothing is read.

    Args:
        table: the table, as loaded.
        paths: locations, in any spelling.

    Raises:
        StoreUnavailableError: the store does not give a metadata file now, which is not to be taken
            for one that names nothing.
    """
    wanted = {canonical(path): path for path in paths}
    found: dict[str, FormerEntry] = {}
    for log in reversed(table.metadata.metadata_log):
        if not wanted:
            break
        document = metadata_document(table.io, log.metadata_file)
        if document is None:
            continue
        snapshots = {one["snapshot-id"]: one for one in document.get("snapshots", ())}
        here: dict[str, FormerEntry] = {}
        for entry in document.get("statistics", ()):
            path = wanted.get(canonical(entry["statistics-path"]))
            under = snapshots.get(entry["snapshot-id"], {})
            if path is not None:
                one = FormerEntry(
                    path, under.get("sequence-number", 0), under.get("timestamp-ms", 0)
                )
                here[path] = max(here.get(path, one), one, key=lambda each: each.sequence_number)
        found |= here
        wanted = {key: path for key, path in wanted.items() if path not in here}
    return found


def manifest_lists_of(table: Table) -> frozenset[str]:
    """Return the manifest lists that the table's earlier metadata name.

    Raises:
        StoreUnavailableError: the store does not give a metadata file now.
    """
    found: set[str] = set()
    for log in table.metadata.metadata_log:
        document = metadata_document(table.io, log.metadata_file) or {}
        found |= {one["manifest-list"] for one in document.get("snapshots", ())}
    return frozenset(found)


def metadata_document(io: FileIO, location: str) -> dict[str, Any] | None:
    """Read a metadata file as plain JSON; None if it is gone, or no such file.

    Raises:
        StoreUnavailableError: the store does not give it now.
    """
    try:
        return read_metadata(io, location)
    except DataFileError as error:
        _log.warning("earlier metadata: %s", error)
        return None
