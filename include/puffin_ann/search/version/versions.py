"""Published versions of an index: found by what Puffin footers say, not by where they are named.

Entries of `statistics` may have been copied to another snapshot by anyone, so the footer of each
registered file decides whether it holds the index and which snapshot it was computed from.
"""

import re
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from pyiceberg.io import FileIO
from pyiceberg.table import Table

from puffin_ann.blobs.version import routing as routing_blob
from puffin_ann.declaration.fields.names import is_name
from puffin_ann.errors import (
    DamagedIndexError,
    FormatError,
    IndexNotFoundError,
)
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.metadata.dropped import Dropped, find_dropped, is_dropped, names_index
from puffin_ann.lake.metadata.own_tags import index_of, own_tags
from puffin_ann.lake.metadata.registered import Registered, find_registered
from puffin_ann.puffin.reader import PuffinReader
from puffin_ann.search.version.index_files import directory_in, files_named, open_puffin
from puffin_ann.search.version.index_version import (
    IndexVersion,
    load_version,
    read_confirmed,
    version_id,
    version_in,
)
from puffin_ann.wording import meant

RETAINED_LIMIT = 16
"""Most files of an index whose versions are read, and of files that no tag of ours holds."""

OUR_NAME = "/ann-"
"""What the names of our files begin with. Nothing but the footer says that a file holds an index;
but one of another name that lists others' blobs is theirs, and there may be hundreds of those."""


@dataclass(frozen=True)
class Found:
    """What the registered files of a table hold.

    Attributes:
        versions: readable versions of the index asked for, the newest first.
        others: names of other indexes seen.
        problems: one sentence for each registered file that could not be read.
        is_damaged: whether one of those holds the index asked for, by its footer, or by what the
            table's metadata says of it.
    """

    versions: tuple[IndexVersion, ...]
    others: tuple[str, ...]
    problems: tuple[str, ...]
    is_damaged: bool = False


def _never(_: IndexVersion) -> bool:
    """Look at every file."""
    return False


def find_versions(
    table: Table, index: str, enough: Callable[[IndexVersion], bool] = _never
) -> Found:
    """Look for an index in every registered Puffin file of a table, but for what was dropped.

    Args:
        table: as it was loaded.
        index: name of the index.
        enough: tells of the newest readable version that no older one need be looked for.

    Raises:
        StoreUnavailableError: of a file its store does not say what it is.
    """
    marks = find_dropped(table)
    registered = {entry.path for entry in find_registered(table)}
    versions: list[IndexVersion] = []
    others: set[str] = set()
    problems: list[str] = []
    is_damaged = False
    read = 0
    names = _names_by_tag(table, marks)
    for entry in _candidates(table):
        name = next((names[slot] for slot in entry.snapshot_ids if slot in names), None)
        if name not in (None, index) and (index or name in others):
            others.add(str(name))  # what a tag holds is of one index
            continue
        if read == RETAINED_LIMIT:
            continue
        held: set[str] = set()
        try:
            version = read_confirmed(partial(_look, table.io, entry, index, marks, held))
        except (FormatError, FileNotFoundError) as error:
            others |= held
            read += name in (None, index)
            if versions and _is_of_parts(table.io, entry, index, registered):
                continue
            said = str(error)
            problems.append(said if said.startswith(entry.path) else f"{entry.path}: {said}")
            is_damaged |= index in held or _says(table, index, entry, marks)
            continue
        others |= held
        read += bool(held) and name in (None, index)
        if version is None or is_dropped(marks, index, version.run_id):
            continue
        # One that is only kept since newer ones name its file may have lost its own parts.
        if not versions or version.needs <= registered:
            versions.append(version)
        if len(versions) == 1 and enough(version):
            break
    return Found(tuple(versions), tuple(sorted(others - {index})), tuple(problems), is_damaged)


def _is_of_parts(io: FileIO, entry: Registered, index: str, registered: Set[str]) -> bool:
    """Tell whether a file is only kept for newer versions: of what its own names, some is gone."""
    try:
        with open_puffin(io, entry.path, entry.file_size) as reader:
            return not files_named(entry.path, directory_in(reader, index)) <= registered
    except (FormatError, FileNotFoundError):
        return False


def _says(table: Table, index: str, entry: Registered, marks: Mapping[str, Dropped]) -> bool:
    """Tell whether, by the table's metadata alone, an index was published in a file, and stays."""
    snapshots = filter(None, map(table.snapshot_by_id, entry.snapshot_ids))
    if any(names_index(snapshot, index, marks) for snapshot in snapshots):
        return True
    return index not in marks and index_in_name(entry.path) == index


def index_in_name(path: str) -> str | None:
    """Return the index that a file was published for, by its name; it may hold others besides."""
    found = re.search(r"/ann-([^/-]+)-\d+-[^/]*$", path)
    return found[1] if found and is_name(found[1]) else None


def _look(
    io: FileIO, entry: Registered, index: str, marks: Mapping[str, Dropped], held: set[str]
) -> IndexVersion | None:
    """Return a file's version of an index; notes the indexes it holds, as far as it is read."""
    with open_puffin(io, entry.path, entry.file_size, small_blobs=True) as reader:
        if index not in marks and reader.find(routing_blob.TYPE, index=index):
            held.add(index)
        held |= index_names(reader, marks)
        return version_in(io, reader, index, entry.snapshot_id)


def _names_by_tag(table: Table, marks: Mapping[str, Dropped]) -> dict[int, str]:
    """Return the indexes that were never dropped, by the snapshots that tags of ours hold."""
    found = {slot: index_of(tag) for slot, tag in own_tags(table).items()}
    return {slot: name for slot, name in found.items() if is_name(name) and name not in marks}


def _candidates(table: Table) -> list[Registered]:
    """Return the registered files that may hold an index, the newest first."""
    return [entry for entry in find_registered(table) if OUR_NAME in entry.path or not entry.listed]


def newest_version(table: Table, index: str) -> IndexVersion | None:
    """Return the newest readable version of an index; what is older is not read.

    Raises:
        StoreUnavailableError: of a file its store does not say what it is.
    """
    marks = find_dropped(table)
    for entry in _candidates(table):
        with suppress(FormatError, FileNotFoundError):
            version = load_version(
                table.io, entry.path, index, snapshot_id=entry.snapshot_id, length=entry.file_size
            )
            if version is not None and not is_dropped(marks, index, version.run_id):
                return version
    return None


def index_names(reader: PuffinReader, marks: Mapping[str, Dropped]) -> set[str]:
    """Return the names of the indexes that a file holds and that were not dropped.

    What calls itself by a name that no index can have is none.
    """
    names = set()
    for blob in reader.find(routing_blob.TYPE):
        name = blob.properties.get("index", "")
        if not is_name(name):
            continue
        # Only of an index that was dropped once it has to be read which version this is.
        if name in marks:
            version = version_id(routing_blob.decode(reader.read(blob)), blob.snapshot_id)
            if is_dropped(marks, name, version):
                continue
        names.add(name)
    return names


def require_versions(table: Table, index: str) -> tuple[IndexVersion, ...]:
    """Return the readable versions of an index, the newest first; see `require_found`."""
    return require_found(table, index).versions


def require_found(
    table: Table, index: str, enough: Callable[[IndexVersion], bool] = _never
) -> Found:
    """Look for an index in the registered Puffin files of a table, as `find_versions` does.

    Raises:
        IndexNotFoundError: there is none; says what the table does hold and what is broken.
        DamagedIndexError: there are some, and none of them can be read.
        StoreUnavailableError: of a file its store does not say what it is.
    """
    found = find_versions(table, index, enough)
    if found.versions:
        return found
    if found.is_damaged:
        raise DamagedIndexError(
            f"index {index!r} of {name_of(table)} is damaged, and no version of it is readable: "
            + "; ".join(found.problems)
            + f"; 'puffin-ann doctor {name_of(table)}' shows what is wrong; "
            + how_to_build_again(index)
        )
    message = f"table {name_of(table)} has no readable version of an index named {index!r}"
    if found.others:
        message += f"{meant(index, found.others)}; it has: {', '.join(found.others)}"
    else:
        message += "; build it with 'puffin-ann build' or by its build DAG"
    if found.problems:
        message += "; unreadable: " + "; ".join(found.problems)
    raise IndexNotFoundError(message)


def how_to_build_again(index: str) -> str:
    """Say what to do about an index of which no readable file is left; the same words anywhere."""
    return (
        f"build it again: 'puffin-ann refresh {index}' does here, 'puffin-ann build {index} "
        "--force' or its build DAG with force on Spark"
    )


def require_no_damage(table: Table) -> None:
    """Refuse to take a table for one without indexes where none of its index files can be read.

    Raises:
        DamagedIndexError: names the files.
    """
    problems = find_versions(table, "").problems
    if problems:
        raise DamagedIndexError(
            f"table {name_of(table)} has index files that cannot be read: {'; '.join(problems)}; "
            f"'puffin-ann doctor {name_of(table)}' shows what repairs them"
        )


def all_index_names(table: Table) -> list[str]:
    """Return the names of all indexes in the registered files of a table, sorted."""
    return list(find_versions(table, "").others)
