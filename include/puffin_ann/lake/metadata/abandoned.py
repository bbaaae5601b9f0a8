"""Prove that no table of any configured catalog has a location, as far as that can be known.

`DROP TABLE` leaves what lies there, and no catalog tells where a table was. What is proven is that
no table of the catalogs has the location, a folder above or below it, a file in it, or the
table-uuid of a metadata file that is there. Of a table in a catalog that is not configured here
nothing is known, but that its commits leave files: where one is recent, nothing is proven.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.table import Table

from puffin_ann.errors import BadInputError, StoreUnavailableError, TableNotFoundError
from puffin_ann.lake.catalog.listing import table_names
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lake.metadata.files import MetadataReader, Unread, is_metadata_name
from puffin_ann.lake.store.listing import StoredObject
from puffin_ann.lake.store.locations import TableFolders, is_within


@dataclass(frozen=True)
class Former:
    """A table that was at a location, by the metadata files that are left of it.

    Attributes:
        table_uuid: its own.
        files: how many metadata files there are.
        updated_ms: when the newest was made, milliseconds since 1970, by the clock of its writer.
    """

    table_uuid: str
    files: int
    updated_ms: int


def require_abandoned(
    io: FileIO, location: str, stored: Iterable[StoredObject], catalogs: Iterable[str]
) -> tuple[Former, ...]:
    """Return the tables that were at a location.

    Args:
        io: reads the metadata files.
        location: of a table.
        stored: what is there.
        catalogs: names of all that are configured.

    Raises:
        BadInputError: a table has or uses the location, or a metadata file there is damaged, so
            that it is not known whose it is.
        CatalogUnavailableError: a catalog does not tell its tables, or not all of each.
        StoreUnavailableError: the store does not give a metadata file now.
    """
    former = _former(io, [file.uri for file in stored if is_metadata_name(file.uri)])
    for catalog in catalogs:
        for name in table_names(catalog):
            try:
                table = load_table(name)
            except TableNotFoundError:
                continue  # dropped meanwhile
            if why := _why_used(table, location, former):
                raise BadInputError(f"nothing was removed: table {name} {why}")
    return tuple(former[key] for key in sorted(former))


def _former(io: FileIO, locations: list[str]) -> Mapping[str, Former]:
    """Return by table-uuid the tables that metadata files are of."""
    found: dict[str, Former] = {}
    for location, head in MetadataReader().heads(io, locations).items():
        if isinstance(head, Unread):
            if not head.is_damaged:
                raise StoreUnavailableError(f"{location}: {head.problem}; nothing was removed")
            raise BadInputError(
                f"nothing was removed: metadata file {location} is damaged, so that it is not "
                f"known which table it is of: {head.problem}; remove it by hand once you know"
            )
        before = found.get(head.table_uuid, Former(head.table_uuid, 0, 0))
        newest = max(before.updated_ms, head.updated_ms)
        found[head.table_uuid] = Former(head.table_uuid, before.files + 1, newest)
    return found


def _why_used(table: Table, location: str, former: Mapping[str, Former]) -> str:
    """Say what a table has to do with a location; empty if nothing."""
    folders = TableFolders.of(table)
    for folder in (*folders.data, *folders.metadata):
        if is_within(location, f"{folder}/x"):
            return f"keeps its files in {folder}, which is in {location}"
        if is_within(folder, f"{location}/x"):
            return f"keeps its files in {folder}, which has {location} in it"
    if str(table.metadata.table_uuid).lower() in former:
        return "is the one that metadata files there are of, by their table-uuid"
    named = [table.metadata_location or "", *_named_by(table)]
    used = next((path for path in named if path and is_within(location, path)), None)
    return f"names {used}" if used else ""


def _named_by(table: Table) -> Iterable[str]:
    metadata = table.metadata
    for entry in metadata.statistics:
        yield entry.statistics_path
    for version in metadata.metadata_log:
        yield version.metadata_file
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
