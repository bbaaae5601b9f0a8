"""List and remove what is in a folder of the table's store, which FileIO cannot."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.errors import StagingError
from puffin_ann.lake.store.assemble.multipart import Upload, abort_upload, uploads
from puffin_ann.lake.store.objects import (
    FOLDER,
    is_special,
    object_exists,
    object_length,
    open_object,
)
from puffin_ann.lake.store.outages import patiently, telling
from puffin_ann.lake.store.s3 import S3, Location, answers, s3_of
from puffin_ann.lake.store.staging import local_path
from puffin_ann.redaction import shown_cause

_SAME_STORE = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasbs": "wasb", "gcs": "gs"}
_USUAL_PORT = re.compile(r"^(hdfs://[^/]*):8020/")


@dataclass(frozen=True)
class StoredObject:
    """An object of the store.

    Attributes:
        uri: location, written as the folder that was listed.
        bytes: length.
        modified_ms: milliseconds since 1970 when it was last written.
    """

    uri: str
    bytes: int
    modified_ms: int


def list_objects(io: FileIO, folder: str, *, recursive: bool = False) -> list[StoredObject]:
    """Return the objects in a folder, sorted by location; none if there is no such folder.

    Raises:
        StagingError: its FileIO gives no way to list.
        StoreUnavailableError: the store does not answer, or refuses access.
    """
    root = folder.rstrip("/")
    try:
        found = patiently(root, lambda: list(_objects(io, root, recursive)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StagingError(f"{root} cannot be listed: {error.strerror}") from shown_cause(error)
    return sorted(found, key=lambda stored: stored.uri)


def is_folder(io: FileIO, uri: str) -> bool:
    """Tell whether there is a folder, or a link to itself, where an object should be."""
    try:
        open_object(io, uri).close()
    except IsADirectoryError:
        return True
    except FileNotFoundError:  # as some stores say of folders, too
        return object_length(io, uri) == FOLDER
    return False


def delete_object(io: FileIO, uri: str) -> bool:
    """Remove an object; False if it was gone already.

    Raises:
        StagingError: it cannot be deleted.
        StoreUnavailableError: the store refuses access, or does not answer.
    """
    try:
        if not object_exists(io, uri):
            return False
        with telling(uri):
            io.delete(uri)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StagingError(f"{uri} cannot be deleted: {error}") from shown_cause(error)
    return True


def unfinished_uploads(io: FileIO, prefix: str) -> list[tuple[str, Upload]]:
    """Return the multipart uploads under a prefix, by location; none where there are no such."""
    store = s3_of(io, prefix)
    if store is None:
        return []
    place = Location.require(prefix)
    scheme = prefix.partition("://")[0]
    return [
        (f"{scheme}://{place.bucket}/{upload.key}", upload)
        for upload in uploads(store, place.bucket, place.key)
    ]


def abort(io: FileIO, uri: str, upload: Upload) -> None:
    """Abort a multipart upload, and so free the parts it holds; a missing one is not an error."""
    store = s3_of(io, uri)
    if store is not None:
        abort_upload(store, Location.require(uri).bucket, upload)


def canonical(uri: str) -> str:
    """Return a location in one spelling: engines write `s3a://` and `file:/` for the same place."""
    scheme, colon, rest = uri.partition(":")
    if not colon or "/" in scheme:
        return f"file://{_plain(uri)}"
    if scheme == "file":
        return f"file://{_plain('/' + rest.lstrip('/'))}"
    if scheme == "hdfs":
        return _USUAL_PORT.sub(r"\1/", uri)
    return f"{_SAME_STORE[scheme]}:{rest}" if scheme in _SAME_STORE else uri


def _plain(path: str) -> str:
    """Return a local path without the parts that lead nowhere; in a store, they are of the key."""
    if not path.startswith("/") or ("//" not in path and "/." not in path):
        return path
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return "/".join(["", *parts, *([""] if path.endswith("/") else [])])


def _objects(io: FileIO, root: str, recursive: bool) -> Iterator[StoredObject]:
    path = local_path(root)
    if path is not None:
        return _local(path, root, recursive)
    store = s3_of(io, root)
    if store is not None:
        return _on_s3(store, root, recursive)
    if isinstance(io, PyArrowFileIO):
        return _by_arrow(io, root, recursive)
    get_fs = getattr(io, "get_fs", None)
    if get_fs is None:
        raise StagingError(f"{type(io).__name__} cannot list {root}")
    return _by_fsspec(get_fs(root.partition(":")[0]), root, recursive)


def _local(folder: Path, root: str, recursive: bool) -> Iterator[StoredObject]:
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        if not _is_text(entry.name):
            continue
        uri = f"{root}/{entry.name}"
        try:
            if not entry.is_dir(follow_symlinks=False):
                told = _told(entry)
                if is_special(told.st_mode):
                    continue  # a folder is not an object
                yield StoredObject(uri, told.st_size, int(told.st_mtime * 1000))
            elif recursive:
                yield from _local(folder / entry.name, uri, recursive)
        except FileNotFoundError:  # somebody else cleans up, too
            continue


def _is_text(name: str) -> bool:
    """Tell whether a name can be part of a location; no file of a table has another."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _told(entry: os.DirEntry[str]) -> os.stat_result:
    try:
        return entry.stat()
    except FileNotFoundError:
        raise
    except OSError:  # a link that leads to itself: there, and nobody can read it
        return entry.stat(follow_symlinks=False)


def _on_s3(store: S3, root: str, recursive: bool) -> Iterator[StoredObject]:
    place = Location.require(f"{root}/")
    request: dict[str, Any] = {"Bucket": place.bucket, "Prefix": place.key}
    if not recursive:
        request["Delimiter"] = "/"
    with answers(root):
        for page in store.client.get_paginator("list_objects_v2").paginate(**request):
            for item in page.get("Contents", ()):
                name = item["Key"][len(place.key) :]
                if name and not name.endswith("/"):
                    yield StoredObject(f"{root}/{name}", item["Size"], _ms(item["LastModified"]))


def _by_arrow(io: PyArrowFileIO, root: str, recursive: bool) -> Iterator[StoredObject]:
    from pyarrow.fs import FileSelector, FileType

    scheme, netloc, path = PyArrowFileIO.parse_location(root)
    selector = FileSelector(path, allow_not_found=True, recursive=recursive)
    found = io.fs_by_scheme(scheme, netloc).get_file_info(selector)
    for stored in found:
        if stored.type == FileType.File:
            name = stored.path[len(path.rstrip("/")) + 1 :]
            yield StoredObject(f"{root}/{name}", stored.size, stored.mtime_ns // 1_000_000)


def _by_fsspec(filesystem: Any, root: str, recursive: bool) -> Iterator[StoredObject]:
    base = filesystem._strip_protocol(root)
    found = filesystem.find(root, maxdepth=None if recursive else 1, detail=True)
    for path, told in found.items():
        modified = told.get("LastModified") or told.get("mtime") or filesystem.modified(path)
        uri = f"{root}/{path[len(base) + 1 :]}"
        yield StoredObject(uri, int(told["size"]), _ms(modified))


def _ms(moment: datetime | float) -> int:
    if not isinstance(moment, datetime):
        return int(moment * 1000)
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
