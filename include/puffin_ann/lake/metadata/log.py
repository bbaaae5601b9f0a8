"""What earlier metadata files of a table named, as far as the table keeps them."""

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from puffin_ann.errors import FormatError
from puffin_ann.lake.metadata.files import read_metadata
from puffin_ann.lake.store.listing import canonical

_log = logging.getLogger("puffin_ann")


@dataclass(frozen=True)
class FormerEntry:
    """A registration that only earlier metadata has.

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
        snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in document["snapshots"]}
        here: dict[str, FormerEntry] = {}
        for entry in document["statistics"]:
            path = wanted.get(canonical(entry["statistics-path"]))
            under = snapshots.get(entry["snapshot-id"], {})
            if path is not None:
                former = FormerEntry(
                    path, under.get("sequence-number", 0), under.get("timestamp-ms", 0)
                )
                here[path] = max(
                    here.get(path, former), former, key=lambda each: each.sequence_number
                )
        found |= here
        wanted = {key: path for key, path in wanted.items() if path not in here}
    return found


def manifest_lists_of(table: Table) -> frozenset[str]:
    """Return the manifest lists that the table's earlier metadata name.

    Raises:
        FormatError: one of them is damaged, so that it is not known what it names.
        StoreUnavailableError: the store does not give a metadata file now.
    """
    found: set[str] = set()
    for log in table.metadata.metadata_log:
        document = read_metadata(table.io, log.metadata_file)
        snapshots = document["snapshots"] if document is not None else []
        found |= {entry["manifest-list"] for entry in snapshots if "manifest-list" in entry}
    return frozenset(found)


def statistics_of(document: Mapping[str, Any]) -> Iterator[StatisticsFile]:
    """Yield the statistics that a metadata file registers, as far as PyIceberg knows them."""
    for entry in document["statistics"]:
        try:
            yield StatisticsFile.model_validate(entry)
        except ValidationError as error:  # of a blob type that PyIceberg does not know
            _log.warning("an earlier statistics entry cannot be read: %s", error)


def metadata_document(io: FileIO, location: str) -> dict[str, Any] | None:
    """Read a metadata file as `read_metadata` does; None if it is gone, or no such file.

    Raises:
        StoreUnavailableError: the store does not give it now.
    """
    try:
        return read_metadata(io, location)
    except FormatError as error:  # damage, or no location that a store has
        _log.warning("earlier metadata: %s", error)
        return None
