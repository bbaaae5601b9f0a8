"""Decide which locations may be read because an index file names them; name the table's folders.

Otherwise, anyone who can write an index file could have any file read with the rights of everyone
who searches: of another table, of another bucket, of the machine's own disk. So a location that an
index file names is trusted only where the table's own metadata names it, too, or where it is in a
folder of the table. Locations are compared as text, in one spelling; one that might lead out of its
folder, by `..` or by an encoded character, counts as in no folder.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

import numpy as np
from pyiceberg.table import Table

from puffin_ann.errors import PuffinFormatError
from puffin_ann.lake.store.listing import canonical

DATA_PATHS = ("write.data.path", "write.object-storage.path")
METADATA_PATH = "write.metadata.path"
"""Properties of a table that name the folders its writers use besides its location."""

STAGING_FOLDER = "_ann-staging"
"""Where all of ours lies that no metadata of the table names. Its `_` hides it, and all in it, from
Iceberg's removal of orphan files."""

FORMER_STAGING_FOLDER = "ann-staging"
"""What it was called before: what is there is read and cleared away."""

_JOINED_BY = "|"
_DELETE = 0x7F
_ODD = ("%2e", "%2E", "%25", ":/", f"{_JOINED_BY}file:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class TableFolders:
    """The folders in which a table's writers put what they write.

    Attributes:
        location: of the table; relative paths of data files start there.
        data: folders of data files, the location first.
        metadata: folders of manifests, in the same way.
    """

    location: str
    data: tuple[str, ...]
    metadata: tuple[str, ...]

    @classmethod
    def of(cls, table: Table) -> "TableFolders":
        """Return those that a table's metadata names."""
        location = table.location()

        def named(keys: Iterable[str]) -> tuple[str, ...]:
            found = (table.properties.get(key) for key in keys)
            return (location, *(str(folder) for folder in found if folder))

        return cls(location, named(DATA_PATHS), named((METADATA_PATH,)))

    def hold_data_files(self, paths: Sequence[str]) -> bool:
        """Tell whether data files, by paths as index files have them, are all in the folders."""
        return _are_plainly_relative(paths) or all(
            any(is_within(folder, absolute_path(self.location, path)) for folder in self.data)
            for path in paths
        )

    def hold_manifests(self, paths: Iterable[str]) -> bool:
        """Tell whether all manifests are in the folders."""
        return all(any(is_within(folder, path) for folder in self.metadata) for path in paths)


def metadata_folder(table: Table) -> str:
    """Return the folder in which index files are made."""
    return f"{table.location().rstrip('/')}/metadata"


def staging_folder(table: Table) -> str:
    """Return the folder of runs' staging, leases and evaluations of a table.

    It is beside the table's metadata files, where the table says that these belong.
    """
    declared = str(table.properties.get(METADATA_PATH) or "").rstrip("/")
    return f"{declared or metadata_folder(table)}/{STAGING_FOLDER}"


def staging_folders(table: Table) -> list[str]:
    """Return that folder, and after it those that it may have been before."""
    usual = metadata_folder(table)
    folders = (f"{usual}/{STAGING_FOLDER}", f"{usual}/{FORMER_STAGING_FOLDER}")
    return list(dict.fromkeys((staging_folder(table), *folders)))


def is_staging_folder(name: str) -> bool:
    """Tell whether a folder of this name may hold what runs staged."""
    return name in (STAGING_FOLDER, FORMER_STAGING_FOLDER)


def absolute_path(location: str, path: str) -> str:
    """Resolve a covered file's path: relative paths lie inside the table's location."""
    if "://" in path or path.startswith(("/", "file:")):
        return path
    return f"{location.rstrip('/')}/{path}"


def relative_path(location: str, path: str) -> str:
    """Shorten a data file's path to the part below the table's location, if it is there."""
    prefix = location.rstrip("/") + "/"
    return path[len(prefix) :] if path.startswith(prefix) else path


def is_within(folder: str, path: str) -> bool:
    """Tell whether an absolute location is in a folder, however each of them is written."""
    root, place = _spelt_folder(folder), _spelt(path)
    return bool(root and place and place.startswith(root))


def require_beside(path: str, named: str) -> None:
    """Let an index file name others only in its own folder, or below.

    Raises:
        PuffinFormatError: it lies elsewhere; names both.
    """
    folder = path.rpartition("/")[0]
    if not is_within(folder, named):
        raise PuffinFormatError(
            f"{path} names {named!r}, which is not in the folder of the table's index files"
        )


@lru_cache(maxsize=64)
def _spelt_folder(uri: str) -> str | None:
    place = _spelt(uri)
    return place and place.rstrip("/") + "/"


def _spelt(uri: str) -> str | None:
    """Return a location in the one spelling; None if it may lead elsewhere than it says."""
    if _CONTROL.search(uri) or _climbs(uri):
        return None
    scheme, _, rest = uri.partition("://")
    if scheme == "file" and not rest.startswith("/"):
        return None  # some take the first name for a host's, some for a folder
    return canonical(uri)


def _climbs(uri: str) -> bool:
    """Tell whether a location has a part `..`, as written or decoded any number of times."""
    decoded = unquote(uri) if "%" in uri else uri
    while decoded != uri and ".." not in uri:
        uri, decoded = decoded, unquote(decoded)
    return ".." in uri and ".." in uri.replace("\\", "/").split("/")


def _are_plainly_relative(paths: Sequence[str]) -> bool:
    """Tell quickly that all paths are in the table's location; a table may have 100,000."""
    text = _JOINED_BY + _JOINED_BY.join(paths)
    letters = np.frombuffer(text.encode(), np.uint8)
    is_dot = letters == ord(".")
    starts_at_root = (letters[:-1] == ord(_JOINED_BY)) & (letters[1:] == ord("/"))
    return not (
        (is_dot[1:] & is_dot[:-1]).any()
        or starts_at_root.any()
        or letters.min() < ord(" ")
        or (letters == _DELETE).any()
        or any(part[0] in text and part in text for part in _ODD)  # one letter is soon found
    )
