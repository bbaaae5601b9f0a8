"""Iceberg's metadata files as they are in a table's store: where, of which table, what they name.

They are read as plain JSON, not by PyIceberg's models, which refuse blob types they do not know;
and within bounds, since anybody may have put them there.
"""

import re
import sys
import threading
import uuid
import zlib
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from pyiceberg.io import FileIO
from pyiceberg.table import Table

from puffin_ann.errors import DataFileError, EnvironmentProblemError, FormatError
from puffin_ann.foreign_json import first_value, long_of, parse, show, text_of
from puffin_ann.lake.metadata.fields import check_fields, find_locations
from puffin_ann.lake.store.listing import canonical
from puffin_ann.lake.store.locations import METADATA_PATH, metadata_folder
from puffin_ann.lake.store.objects import open_object

HEAD_BYTES = 16 << 10
"""Bytes from the start of a metadata file that tell its table and its time, as all writers we know
of order the fields; of others the whole file is read."""

MOST_BYTES = 512 << 20
"""A metadata file of more, packed or not, counts as damaged."""

MOST_OF_SMALL_BYTES = 16 << 20
MOST_RATIO = 16
"""A packed file counts as damaged that unpacks to more than the first and so many times its own
size. Snapshots are packed to a sixth. Only the schemas of a table that often changes its few
columns are packed more, to a 150th, and of those the first bound holds thousands.
Parsed, the worst of texts takes thirty times its bytes."""

LARGE_BYTES = 2 << 20
"""Of files of more, packed or not, one is in memory at a time."""

_large_turn = threading.Lock()

READERS = 16

_WHOLE_READERS = 4
"""Whole files may be large: so many are in memory at once."""

_SPACE = re.compile(r"\s*")

T = TypeVar("T")


@dataclass(frozen=True)
class Head:
    """What tells of which table a metadata file is, and of when.

    Attributes:
        table_uuid: in lower case; empty if it names none, as files of format version 1 may.
        updated_ms: when it was made, milliseconds since 1970, by the clock of its writer.
    """

    table_uuid: str
    updated_ms: int


@dataclass(frozen=True)
class Version:
    """A version of a table's metadata, whole; all locations are in canonical spelling.

    Attributes:
        head: of which table it is.
        earlier: its log: time and location of the versions before it, the oldest first.
        names: statistics, partition statistics, manifest lists, and what summaries of index
            snapshots name.
    """

    head: Head
    earlier: tuple[tuple[int, str], ...]
    names: frozenset[str]


@dataclass(frozen=True)
class Unread:
    """Why a metadata file was not read.

    Attributes:
        problem: in a sentence.
        is_damaged: its bytes are wrong; else the store did not give them.
    """

    problem: str
    is_damaged: bool


def is_metadata_name(location: str) -> bool:
    """Tell whether a location is one that metadata files have, packed or not."""
    return location.endswith((".metadata.json", ".metadata.json.gz"))


def folder_of(location: str) -> str:
    """Return the folder that an object is in."""
    return location.rpartition("/")[0].rstrip("/")


def metadata_folders(table: Table) -> dict[str, str]:
    """Return the folders in which metadata of a table may lie, by their canonical spelling."""
    folders = [metadata_folder(table)]
    if table.metadata_location:
        folders.append(folder_of(table.metadata_location))
    if declared := table.properties.get(METADATA_PATH):
        folders.append(declared.rstrip("/"))
    return {canonical(folder): folder for folder in reversed(folders)}


def location_problem(table: Table) -> str:
    """Say that a table's location is not where its metadata lies; empty if it is.

    It may then be another table's, even if this one's metadata names it.
    """
    if not table.metadata_location:
        return f"the catalog does not tell where the metadata of {table.location()} lies"
    home = canonical(folder_of(table.metadata_location))
    usual = metadata_folder(table)
    declared = table.properties.get(METADATA_PATH, "").rstrip("/")
    if home == canonical(usual) or (declared and home == canonical(declared)):
        return ""
    return (
        f"the table's location is {table.location()}, but its metadata, {table.metadata_location},"
        f" lies neither in {usual} nor in the folder of a property '{METADATA_PATH}'"
    )


class MetadataReader:
    """Reads metadata files, each once: no writer changes one that it has finished."""

    def __init__(self) -> None:
        self._heads: dict[str, Head] = {}
        self._whole: dict[str, Version] = {}

    def heads(self, io: FileIO, locations: Collection[str]) -> dict[str, Head | Unread]:
        """Return by location what tells of which table files are; without those that are gone."""
        return _all(locations, READERS, lambda location: self._head(io, location))

    def whole(self, io: FileIO, locations: Collection[str]) -> dict[str, Version | Unread]:
        """Return by location what files name; without those that are gone."""
        return _all(locations, _WHOLE_READERS, lambda location: self._version(io, location))

    def _head(self, io: FileIO, location: str) -> Head | None:
        key = canonical(location)
        if key in self._whole:
            return self._whole[key].head
        if key not in self._heads:
            data = _bytes(io, location, HEAD_BYTES)
            if data is None:
                return None
            found = _quick_head(location, data)
            if found is None:
                version = self._version(io, location)
                return version.head if version else None
            self._heads[key] = found
        return self._heads[key]

    def _version(self, io: FileIO, location: str) -> Version | None:
        key = canonical(location)
        if key not in self._whole:
            version = _made_of(io, location, lambda document: _version_of(location, document))
            if version is None:
                return None
            self._whole[key] = version
        return self._whole[key]


def read_metadata(io: FileIO, location: str) -> dict[str, Any] | None:
    """Read a metadata file as plain JSON, checked by `check_fields`; None if it is gone.

    Raises:
        StoreUnavailableError: the store does not give it now.
        DataFileError: it is not a metadata file.
    """
    return _made_of(io, location, lambda document: document)


def _made_of(io: FileIO, location: str, make: Callable[[dict[str, Any]], T]) -> T | None:
    """Return what is made of a metadata file; None if it is gone."""
    data = _bytes(io, location, LARGE_BYTES + 1)
    if data is None:
        return None
    if not _is_large(location, data):
        return make(_parsed(location, data))
    with _large_turn:
        data = _bytes(io, location, MOST_BYTES + 1)
        return None if data is None else make(_parsed(location, data))


def _is_large(location: str, start: bytes) -> bool:
    if len(start) <= LARGE_BYTES and _is_packed(location):
        start = _unpacked(location, start, LARGE_BYTES + 1)
    return len(start) > LARGE_BYTES


def _all(
    locations: Collection[str], readers: int, read: Callable[[str], T | None]
) -> dict[str, T | Unread]:
    def attempt(location: str) -> T | Unread | None:
        try:
            return read(location)
        except FormatError as error:  # damage, or no location that a store has
            return Unread(str(error), is_damaged=True)
        except EnvironmentProblemError as error:
            return Unread(str(error), is_damaged=False)

    if not locations:
        return {}
    with ThreadPoolExecutor(min(readers, len(locations)), thread_name_prefix="metadata") as pool:
        found = zip(locations, pool.map(attempt, locations), strict=True)
        return {location: what for location, what in found if what is not None}


def _bytes(io: FileIO, location: str, most: int) -> bytes | None:
    try:
        with open_object(io, location) as stream:
            return stream.read(most)
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        raise DataFileError(f"{location} is a folder, not a metadata file") from error


def _is_packed(location: str) -> bool:
    return location.endswith((".gz.metadata.json", ".metadata.json.gz"))


def _parsed(location: str, data: bytes) -> dict[str, Any]:
    most = MOST_BYTES
    if _is_packed(location):
        most = min(most, MOST_OF_SMALL_BYTES + MOST_RATIO * len(data))
        data = _unpacked(location, data, most + 1)
    if len(data) > most:
        raise DataFileError(f"{location} is no metadata file: it has more than {most} bytes")
    try:
        return check_fields(parse(data))
    except ValueError as error:
        raise DataFileError(f"{location} is no metadata file: {error}") from error


def _unpacked(location: str, data: bytes, most: int) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(data, most)
    except zlib.error as error:
        raise DataFileError(f"{location} is no metadata file: {error}") from error


def _quick_head(location: str, data: bytes) -> Head | None:
    """Return what a file begins with; None if that does not tell."""
    if _is_packed(location):
        data = _unpacked(location, data, HEAD_BYTES)
    fields = _first_fields(data.decode(errors="ignore"), {"table-uuid", "last-updated-ms"})
    return None if fields is None else _head_of(location, fields)


def _first_fields(text: str, wanted: set[str]) -> dict[str, Any] | None:
    """Return fields that are among the first of a JSON object; None if the text ends before."""
    found: dict[str, Any] = {}
    mark, at = "{", 0
    while wanted - found.keys():
        try:
            at = _past(text, at, mark)
            key, at = first_value(text, at)
            value, at = first_value(text, _past(text, at, ":"))
        except ValueError:
            return None
        if _past(text, at, "") == len(text):
            return None  # a number that is cut off is another number
        found[key] = value
        mark = ","
    return found


def _past(text: str, at: int, mark: str) -> int:
    """Return the place after spaces, a mark, and spaces."""
    at = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
    if not text.startswith(mark, at):
        raise ValueError(f"no {mark!r} at {at}")
    return _SPACE.match(text, at + len(mark)).end()  # type: ignore[union-attr]


def _head_of(location: str, fields: Mapping[str, Any]) -> Head:
    told, updated = fields.get("table-uuid"), fields.get("last-updated-ms")
    try:
        known = str(uuid.UUID(text_of(told))) if told is not None else ""
    except ValueError:
        problem = f"table-uuid is {show(told)}"
        raise DataFileError(f"{location} is no metadata file: {problem}") from None
    try:
        return Head(known, long_of(updated))
    except ValueError as error:
        problem = f"last-updated-ms: {error}"
        raise DataFileError(f"{location} is no metadata file: {problem}") from None


def _version_of(location: str, document: Mapping[str, Any]) -> Version:
    return Version(
        head=_head_of(location, document),
        earlier=tuple(
            (entry["timestamp-ms"], sys.intern(canonical(entry["metadata-file"])))
            for entry in document["metadata-log"]
        ),
        # Versions name much the same: of thousands, each name is kept once.
        names=frozenset(sys.intern(canonical(name)) for name in find_locations(document)),
    )
