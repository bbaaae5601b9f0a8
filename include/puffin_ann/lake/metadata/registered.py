"""Which Puffin files a table's metadata names: the only ones that orphan removal spares."""

import re
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.table import Table

from puffin_ann.errors import StagingError
from puffin_ann.lake.store.listing import list_objects
from puffin_ann.lake.store.locations import metadata_folder

NAMED_BY = "statistics-file"
"""Key of our snapshots' summaries that names their file."""

_NUMBER = re.compile(r"/ann-[^/]*-n(\d{1,9})-[0-9a-f]+\.puffin$")


def publication_number(path: str) -> int:
    """Return the number of the publication by which the newest content of a file of ours came.

    Its place cannot tell: after a rollback, what is registered without a snapshot of its own stands
    under an older one than what was published before. 0 of files of other names.
    """
    found = _NUMBER.search(path)
    return int(found[1]) if found else 0


def next_number(table: Table) -> int:
    """Return the number of a new publication, above that of each one that can be found.

    Args:
        table: as it is published into; its folder is only listed where its metadata names none.

    Raises:
        StoreUnavailableError: the store does not answer, or refuses access.
    """
    paths = [entry.statistics_path for entry in table.metadata.statistics]
    summaries = (snapshot.summary for snapshot in table.snapshots() if snapshot.summary)
    paths += [summary.additional_properties.get(NAMED_BY, "") for summary in summaries]
    newest = max(map(publication_number, paths), default=0)
    if not newest:
        # Registrations may have been lost, which the guard puts back.
        with suppress(StagingError):  # where nothing can be listed, it finds none either
            files = list_objects(table.io, metadata_folder(table))
            newest = max((publication_number(file.uri) for file in files), default=0)
    return newest + 1


@dataclass(frozen=True)
class Registered:
    """A Puffin file in the table's `statistics`.

    Attributes:
        snapshot_id: newest snapshot it is registered under.
        path: location of the file.
        file_size: bytes of the file, as registered.
        footer_size: bytes of its footer, as registered.
        snapshot_ids: every snapshot it is registered under, newest first.
        listed: types of the blobs that the table's metadata lists of it.
    """

    snapshot_id: int
    path: str
    file_size: int
    footer_size: int
    snapshot_ids: tuple[int, ...] = ()
    listed: frozenset[str] = frozenset()


def find_registered(table: Table) -> list[Registered]:
    """Return the registered Puffin files of the table as it was loaded, newest first, each once.

    New is by the number of the publication, then by the sequence number of the snapshot. Of equals,
    entries of snapshots that are gone come last: nothing keeps an engine from leaving them behind,
    and their files may still be whole.
    """
    order = {
        snapshot.snapshot_id: (snapshot.sequence_number or 0, snapshot.timestamp_ms)
        for snapshot in table.snapshots()
    }
    entries = sorted(
        table.metadata.statistics,
        key=lambda entry: (
            publication_number(entry.statistics_path),
            order.get(entry.snapshot_id, (-1, 0)),
            entry.statistics_path,
        ),
        reverse=True,
    )
    ids: dict[str, list[int]] = {}
    for entry in entries:
        ids.setdefault(entry.statistics_path, []).append(entry.snapshot_id)
    newest = {entry.statistics_path: entry for entry in reversed(entries)}
    return [
        Registered(
            snapshot_id=under[0],
            path=path,
            file_size=newest[path].file_size_in_bytes,
            footer_size=newest[path].file_footer_size_in_bytes,
            snapshot_ids=tuple(under),
            listed=frozenset(blob.type for blob in newest[path].blob_metadata),
        )
        for path, under in ids.items()
    ]
