"""Published versions of an index: found by what Puffin footers say, not by where they are named.

Entries of `statistics` may have been copied to another snapshot by anyone, so the footer of each
registered file decides whether it holds the index and which snapshot it was computed from.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from io import BytesIO
from typing import TypeVar

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyroaring import BitMap

from puffin_ann.blobs import coverage as coverage_blob
from puffin_ann.blobs import coverage_changes as coverage_changes_blob
from puffin_ann.blobs import directory as directory_blob
from puffin_ann.blobs import partitions as partitions_blob
from puffin_ann.blobs import routing as routing_blob
from puffin_ann.blobs import tombstone_changes as tombstone_changes_blob
from puffin_ann.blobs.coverage import Coverage
from puffin_ann.blobs.directory import Directory
from puffin_ann.blobs.encoding.container import fingerprint
from puffin_ann.blobs.routing import Routing, ShardEntry
from puffin_ann.blobs.tombstone_changes import AddedTombstones
from puffin_ann.declaration.names import is_name
from puffin_ann.errors import (
    BlobFormatError,
    ChecksumError,
    DamagedIndexError,
    FormatError,
    IndexNotFoundError,
    PuffinFormatError,
)
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.metadata.dropped import Dropped, find_dropped, is_dropped, names_index
from puffin_ann.lake.metadata.own_tags import index_of, own_tags
from puffin_ann.lake.metadata.registered import Registered, find_registered
from puffin_ann.lake.store.locations import require_beside
from puffin_ann.puffin.reader import PuffinReader
from puffin_ann.search.consistency import CoveredRows, check_version
from puffin_ann.search.index_files import VersionFiles, files_named, open_puffin

RETAINED_LIMIT = 16
"""Most files of an index whose versions are read, and of files that no tag of ours holds."""

OUR_NAME = "/ann-"
"""What the names of our files begin with. Nothing but the footer says that a file holds an index;
but one of another name that lists others' blobs is theirs, and there may be hundreds of those."""


R = TypeVar("R")


@dataclass(frozen=True)
class CoveredBefore:
    """A whole coverage blob that a version has or names.

    Attributes:
        coverage: what it says.
        digest: its fingerprint, hexadecimal.
        length: its bytes, not compressed.
        written: bytes of changes that were written since it was.
    """

    coverage: Coverage
    digest: str
    length: int
    written: int


@dataclass(frozen=True)
class IndexVersion:
    """One published (or staged) state of an index.

    Attributes:
        index: name of the index.
        path: the Puffin file that holds its routing, partitions and coverage blobs.
        snapshot_id: snapshot the file is registered under; None while it is not published.
        length: bytes of the file.
        field_id: field id of the indexed column, by which it is found when it was renamed.
        directory: the blobs that it has in other files; None if it has all in its own.
        added_tombstones: by shard id, deleted rows that the shard's tombstones blob does not name.
        covered_before: what its coverage blob says, which later changes are told against.
    """

    index: str
    path: str
    snapshot_id: int | None
    length: int
    field_id: int
    routing: Routing
    coverage: Coverage
    directory: Directory | None = None
    added_tombstones: Mapping[int, AddedTombstones] = field(default_factory=dict)
    covered_before: CoveredBefore | None = None

    @property
    def vectors(self) -> int:
        """Number of rows indexed, without tombstones; of centroids alone, no shard has them."""
        if self.routing.shards:
            return sum(shard.rows - shard.tombstones for shard in self.routing.shards)
        return self.coverage.columns.indexed_rows

    @property
    def tombstone_ratio(self) -> float:
        """Highest share of a shard's or delta's rows that are tombstones."""
        filled = [shard for shard in self.routing.shards if shard.rows]
        return max((shard.tombstones / shard.rows for shard in filled), default=0.0)

    @cached_property
    def covered(self) -> CoveredRows:
        """The rows it covers, as locators of shards are looked up in them."""
        return CoveredRows.of(self.coverage.columns)

    @property
    def run_id(self) -> str:
        """The run that published it, which tells it from other versions of the index."""
        return version_id(self.routing, self.coverage.base_snapshot_id)

    def file_of(self, shard: ShardEntry) -> str:
        """Return the Puffin file that holds the blobs of one shard that the directory has not."""
        return shard.file or self.path

    def added_to(self, shard: ShardEntry) -> BitMap:
        """Return the deleted rows of a shard that its tombstones blob does not name.

        Raises:
            BlobFormatError: they are more than the shard has.
        """
        added = self.added_tombstones.get(shard.shard_id)
        if added is None:
            return BitMap()
        if len(added.ordinals) > shard.tombstones or added.ordinals.max() >= shard.rows:
            raise BlobFormatError(
                f"{self.path}: shard {shard.shard_id} has {shard.tombstones} of {shard.rows} rows "
                f"deleted by the routing blob; {len(added.ordinals)}, up to row "
                f"{added.ordinals.max()}, by the tombstone changes blob"
            )
        return BitMap(added.ordinals)

    @property
    def staged(self) -> frozenset[str]:
        """Files of shards of a version that is not published."""
        return frozenset(shard.file for shard in self.routing.shards if shard.file)

    @property
    def needs(self) -> frozenset[str]:
        """The other Puffin files without which it is not whole."""
        return files_named(self.path, self.directory) | self.staged

    def files(self, io: FileIO) -> VersionFiles:
        """Return its files, to be opened."""
        return VersionFiles(
            io, self.path, self.index, self.directory, self.field_id, length=self.length
        )


def load_version(
    io: FileIO, path: str, index: str, *, snapshot_id: int | None = None, length: int | None = None
) -> IndexVersion | None:
    """Read one version's small blobs, at once; None if the file does not hold the index.

    Raises:
        FormatError: the file is not a sound Puffin file, or the blobs are not ours.
        FileNotFoundError, StoreUnavailableError: as `open_puffin`.
    """

    def read() -> IndexVersion | None:
        with open_puffin(io, path, length) as reader:
            return _version_in(io, reader, index, snapshot_id)

    return read_confirmed(read)


def read_confirmed(read: Callable[[], R]) -> R:
    """Return what is read of a file; broken twice, it is: what a network garbled is whole."""
    try:
        return read()
    except FormatError:
        return read()


SMALL_BLOBS = (
    coverage_blob.TYPE,
    coverage_changes_blob.TYPE,
    directory_blob.TYPE,
    partitions_blob.TYPE,
    tombstone_changes_blob.TYPE,
)
"""Blobs that a version has one of, at most, beside its routing; all but the directory may be in
another file."""


def _version_in(
    io: FileIO, reader: PuffinReader, index: str, snapshot_id: int | None
) -> IndexVersion | None:
    path = reader.name
    if not reader.find(routing_blob.TYPE, index=index):
        return None
    stored = reader.only(routing_blob.TYPE, index=index)
    if len(stored.fields) != 1:
        raise PuffinFormatError(f"{path}: the routing blob of index {index!r} names no field")
    own = [reader.only(kind, index=index) for kind in SMALL_BLOBS if reader.find(kind, index=index)]
    first, *rest = reader.read_all([stored, *own])
    small = {blob.type: data for blob, data in zip(own, rest, strict=True)}
    routing = routing_blob.decode(first)
    directory = None
    if directory_blob.TYPE in small:
        directory = directory_blob.decode(small[directory_blob.TYPE])
    with VersionFiles(io, path, index, directory, stored.fields[0], own=reader) as files:

        def read(kind: str, *, needed: bool = True) -> bytes:
            if kind in small:
                return small[kind]
            return files.only(kind).read() if needed or files.find(kind) else b""

        if routing.apart is not None:
            routing = routing_blob.with_partitions(routing, read(partitions_blob.TYPE))
        covered_before, coverage = _coverage(
            path, read(coverage_blob.TYPE), small.get(coverage_changes_blob.TYPE)
        )
        tombstones = read(tombstone_changes_blob.TYPE, needed=False)
    for shard in routing.shards:
        if shard.file:
            require_beside(path, shard.file)
    check_version(routing, coverage)
    return IndexVersion(
        index=index,
        field_id=stored.fields[0],
        path=path,
        snapshot_id=snapshot_id,
        length=reader.length,
        routing=routing,
        coverage=coverage,
        directory=directory,
        added_tombstones=tombstone_changes_blob.decode(tombstones) if tombstones else {},
        covered_before=covered_before,
    )


def _coverage(path: str, data: bytes, changes: bytes | None) -> tuple[CoveredBefore, Coverage]:
    """Return what a coverage blob says, and what is covered by that and by changes of it.

    Raises:
        ChecksumError: the changes are of another blob.
    """
    before = coverage_blob.decode(data)
    digest = fingerprint(BytesIO(data))
    if changes is None:
        return CoveredBefore(before, digest, len(data), 0), before
    found = coverage_changes_blob.decode(changes)
    if found.digest != digest:
        raise ChecksumError(
            f"{path}: the coverage changes blob is of another coverage blob than the index names"
        )
    return CoveredBefore(before, digest, len(data), found.written), found.applied_to(before)


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
            said = str(error)
            problems.append(said if said.startswith(entry.path) else f"{entry.path}: {said}")
            is_damaged |= index in held or _says(table, index, entry, marks)
            others |= held
            read += name in (None, index)
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


def _says(table: Table, index: str, entry: Registered, marks: Mapping[str, Dropped]) -> bool:
    """Tell whether, by the table's metadata alone, an index was published in a file, and stays."""
    snapshots = filter(None, map(table.snapshot_by_id, entry.snapshot_ids))
    if any(names_index(snapshot, index, marks) for snapshot in snapshots):
        return True
    return (
        index not in marks and re.search(rf"/ann-{re.escape(index)}-\d+-", entry.path) is not None
    )


def _look(
    io: FileIO, entry: Registered, index: str, marks: Mapping[str, Dropped], held: set[str]
) -> IndexVersion | None:
    """Return a file's version of an index; notes the indexes it holds, as far as it is read."""
    with open_puffin(io, entry.path, entry.file_size) as reader:
        if index not in marks and reader.find(routing_blob.TYPE, index=index):
            held.add(index)
        held |= index_names(reader, marks)
        return _version_in(io, reader, index, entry.snapshot_id)


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


def version_id(routing: Routing, base_snapshot_id: int) -> str:
    """Return what tells a version from others of its index: the run that published it."""
    return routing.run_id or str(base_snapshot_id)


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
            + f"; 'puffin-ann doctor {name_of(table)}' shows what is wrong, 'puffin-ann build "
            f"{index} --force' builds it again"
        )
    message = f"table {name_of(table)} has no readable version of an index named {index!r}"
    if found.others:
        message += f"; it has: {', '.join(found.others)}"
    else:
        message += "; build it with 'puffin-ann build' or by its build DAG"
    if found.problems:
        message += "; unreadable: " + "; ".join(found.problems)
    raise IndexNotFoundError(message)


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
