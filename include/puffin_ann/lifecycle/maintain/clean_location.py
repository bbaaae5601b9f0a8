"""Remove the index files and the staging that a dropped table left."""

import re

from pydantic import BaseModel, ConfigDict
from pyiceberg.io import FileIO

from puffin_ann.blobs.describe import OURS
from puffin_ann.declaration import seconds_of
from puffin_ann.errors import BadInputError, FormatError, PuffinAnnError
from puffin_ann.lake.catalog.listing import catalog_names
from puffin_ann.lake.catalog.tables import file_io
from puffin_ann.lake.metadata.abandoned import Former, require_abandoned
from puffin_ann.lake.store.assemble.multipart import Upload
from puffin_ann.lake.store.listing import (
    StoredObject,
    abort,
    delete_object,
    list_objects,
    unfinished_uploads,
)
from puffin_ann.lake.store.locations import is_staging_folder, is_within
from puffin_ann.lifecycle.versions.inventory import is_index_name
from puffin_ann.moments import now_ms
from puffin_ann.search.version.index_files import open_puffin
from puffin_ann.wording import counted

GRACE = "7d"
"""What was written later shows that somebody may be at work there."""

_GRACE = re.compile(r"\d+[smhdw]")


class LocationReport(BaseModel):
    """What was removed under a location, or would be in a dry run.

    Attributes:
        location: where a table was.
        dry_run: whether nothing was removed.
        gone: locations of the objects that went; in a dry run, exactly what would go.
        bytes: of all these.
        uploads: locations of objects of which uploads were begun and never completed, and are
            aborted: a store keeps their parts, and charges for them.
        kept: what has a name of ours and stays, with the reason, one sentence each.
        failed: what could not be removed, one sentence each.
        tables: the tables that were there, by metadata files that are left: one sentence each.
    """

    model_config = ConfigDict(frozen=True)

    location: str
    dry_run: bool
    gone: tuple[str, ...]
    bytes: int
    uploads: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


def clean_location(
    catalog: str,
    location: str,
    *,
    dry_run: bool = False,
    grace: str = GRACE,
    at_ms: int | None = None,
) -> LocationReport:
    """Remove the index files and staging of a table that was dropped without being purged.

    On S3 uploads of such files that nobody will complete are aborted, too. Nothing else there is
    touched: data, manifests and metadata are the table's.

    Args:
        catalog: of PyIceberg's configuration, by whose properties the store is reached.
        location: of the table, as it was.
        dry_run: remove nothing, say what would go.
        grace: nothing goes where something was written in this time, such as `7d`.
        at_ms: what counts as now, milliseconds since 1970.

    Raises:
        BadInputError: a table has or uses the location, something there was written lately or is
            damaged, or the location is none.
        CatalogUnavailableError: a configured catalog does not tell its tables.
        StagingError: the store gives no way to list it.
        StoreUnavailableError: the store does not answer, or refuses access.
    """
    root = location.rstrip("/")
    if not root or not is_within(root, f"{root}/x") or "/" not in root.partition("://")[2]:
        raise BadInputError(
            f"{location!r} is no location of a table; give it as the table had it, such as "
            "s3://bucket/warehouse/demo/words"
        )
    io = file_io(catalog, root)
    idle_ms = 1000 * seconds_of(_checked(grace))
    now = now_ms() if at_ms is None else at_ms
    names = sorted({catalog, *catalog_names()})
    found, kept, former = _look(io, root, names, now - idle_ms)
    gone: list[StoredObject] = found
    begun = _uploads(io, root, now - idle_ms)
    failed: list[str] = []
    if not dry_run and (found or begun):
        # Looked at again: what takes long to read may be used by now.
        found, kept, former = _look(io, root, names, now - idle_ms)
        gone = [file for file in found if _is_removed(io, file.uri, failed)]
        begun = _uploads(io, root, now - idle_ms)
        for uri, upload in begun:
            abort(io, uri, upload)
    return LocationReport(
        location=root,
        dry_run=dry_run,
        gone=tuple(file.uri for file in gone),
        bytes=sum(file.bytes for file in gone),
        uploads=tuple(uri for uri, _ in begun),
        kept=tuple(kept),
        failed=tuple(failed),
        tables=tuple(map(_in_words, former)),
    )


def _checked(grace: str) -> str:
    if not _GRACE.fullmatch(grace):
        raise BadInputError(f"grace is {grace!r}; it must be a number and s, m, h, d or w: 7d")
    return grace


def _look(
    io: FileIO, root: str, catalogs: list[str], before_ms: int
) -> tuple[list[StoredObject], list[str], tuple[Former, ...]]:
    """Return what may go, why the rest of ours stays, and which tables were there."""
    stored = list_objects(io, f"{root}/metadata", recursive=True)
    former = require_abandoned(io, root, stored, catalogs)
    late = max(stored, key=lambda file: file.modified_ms, default=None)
    if late is not None and late.modified_ms > before_ms:
        raise BadInputError(
            f"nothing was removed: {late.uri} was written within the grace period, so that "
            "somebody may be at work there, such as on a table of a catalog that is not configured "
            "here; wait, or give a shorter --grace once you know that nobody is"
        )
    kept: list[str] = []
    return [file for file in stored if _is_ours(io, root, file, kept)], kept, former


def _uploads(io: FileIO, root: str, before_ms: int) -> list[tuple[str, Upload]]:
    """Return the unfinished uploads of what has a name of ours.

    Raises:
        BadInputError: one was begun within the grace period: somebody is at work there.
    """
    found = []
    for uri, upload in unfinished_uploads(io, f"{root}/metadata/"):
        inside = uri[len(root) + 1 :].split("/")
        if is_index_name(uri) or (len(inside) > 2 and is_staging_folder(inside[1])):
            found.append((uri, upload))
    for uri, upload in found:
        if upload.begun.timestamp() * 1000 > before_ms:
            raise BadInputError(
                f"nothing was removed: an upload of {uri} was begun within the grace period, so "
                "that somebody may be at work there; wait, or give a shorter --grace once you know "
                "that nobody is"
            )
    return found


def _is_ours(io: FileIO, root: str, file: StoredObject, kept: list[str]) -> bool:
    """Tell whether an object is one of ours; notes why one that has such a name is not."""
    inside = file.uri[len(root) + 1 :].split("/")
    if len(inside) > 2 and is_staging_folder(inside[1]):
        return True
    if len(inside) != 2 or not is_index_name(file.uri):
        return False
    try:
        with open_puffin(io, file.uri, file.bytes) as reader:
            types = {blob.type for blob in reader.metadata.blobs}
    except FileNotFoundError:
        return False
    except FormatError as error:
        kept.append(f"{file.uri} is damaged, so that it is not known what it holds: {error}")
        return False
    if not types & OURS.keys():
        kept.append(f"{file.uri} holds nothing of ours")
        return False
    return True


def _is_removed(io: FileIO, uri: str, failed: list[str]) -> bool:
    try:
        return delete_object(io, uri)
    except PuffinAnnError as error:
        failed.append(f"{uri}: {error}")
        return False


def _in_words(former: Former) -> str:
    return (
        f"{counted(former.files, 'metadata file')} of the table with uuid "
        f"{former.table_uuid or 'unknown'}, "
        "which no configured catalog has"
    )
