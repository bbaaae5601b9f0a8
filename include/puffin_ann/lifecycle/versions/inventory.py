"""Every index file of a table: registered, named by snapshots, or merely there."""

import logging
import re
from collections.abc import Collection, Iterable, Mapping, Set
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from puffin_ann.blobs.version import routing as routing_blob
from puffin_ann.declaration.fields.names import is_name
from puffin_ann.errors import FormatError
from puffin_ann.lake.catalog.tables import reload_table
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lake.metadata.dropped import Dropped, find_dropped, is_dropped
from puffin_ann.lake.metadata.log import FormerEntry, former_entries
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lake.metadata.registered import NAMED_BY, publication_number
from puffin_ann.lake.store.listing import StoredObject, canonical, list_objects
from puffin_ann.lake.store.locations import metadata_folder
from puffin_ann.lake.store.objects import FOLDER, object_length
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.moments import now_ms
from puffin_ann.puffin.reader import PuffinReader
from puffin_ann.search.version.index_files import directory_in, files_named, open_puffin
from puffin_ann.search.version.index_version import read_confirmed, version_id

log = logging.getLogger("puffin_ann")

OUR_NAME = re.compile(r"/metadata/ann-[^/]+\.puffin$")


@dataclass(frozen=True)
class Holding:
    """A version of an index, held by a file; carried along, it is in several files.

    Attributes:
        index: name of the index.
        version: what tells this version from others of the index: the run that built it.
        base_snapshot_id: snapshot whose rows it covers.
        declaration: the declaration it was built by, as JSON.
        dropped_ms: when it was dropped, milliseconds since 1970; 0 if it was not.
    """

    index: str
    version: str
    base_snapshot_id: int
    declaration: str = field(default="", compare=False)
    dropped_ms: int = field(default=0, compare=False)


@dataclass(frozen=True)
class IndexFile:
    """A Puffin file of ours.

    Attributes:
        path: location, as first seen.
        bytes: its length; None if it is not there.
        modified_ms: when it was written, milliseconds since 1970; 0 if that is not known.
        footer_size: bytes of its footer; 0 if that cannot be read.
        entries: its registrations, by snapshot id.
        named_by: snapshots of the table whose summary names it: its index snapshots, or its tagged
            one.
        former: its registration in earlier metadata, if the table's own does not name it.
        number: of the publication, see `registered.publication_number`.
        order: of its places: newer snapshots have higher numbers.
        published_ms: when it was published, as far as that can be known.
        holds: what it holds; empty if it cannot be read.
        problem: why it cannot be read; empty if it can.
        dropped: what it holds besides, and what was dropped.
        needs: canonical locations of the files that what it holds names, dropped or not.
    """

    path: str
    bytes: int | None
    modified_ms: int
    footer_size: int
    entries: Mapping[int, StatisticsFile]
    named_by: tuple[int, ...]
    former: FormerEntry | None
    number: int
    order: int
    published_ms: int
    holds: tuple[Holding, ...]
    problem: str
    dropped: tuple[Holding, ...] = ()
    needs: frozenset[str] = frozenset()

    @property
    def is_published(self) -> bool:
        """Tell whether it is, or was, a part of the table."""
        return bool(self.entries or self.named_by or self.former)

    @property
    def is_usable(self) -> bool:
        """Tell whether an index can be read from it."""
        return self.bytes is not None and bool(self.holds) and not self.problem


@dataclass(frozen=True)
class Inventory:
    """The index files of a table at one moment.

    Attributes:
        table: as it was loaded for this.
        files: the newest publication first.
        now_ms: that moment, milliseconds since 1970.
    """

    table: Table
    files: tuple[IndexFile, ...]
    now_ms: int

    @property
    def head(self) -> int | None:
        """The current snapshot's id."""
        return self.table.metadata.current_snapshot_id

    @property
    def published(self) -> tuple[IndexFile, ...]:
        """Usable files that are or were a part of the table, the newest first."""
        return tuple(file for file in self.files if file.is_usable and file.is_published)

    @property
    def needed(self) -> frozenset[str]:
        """Canonical locations of the files that published ones name."""
        return needs_of(self.published)

    def with_needed(self, versions: Collection[IndexFile]) -> tuple[IndexFile, ...]:
        """Return files with versions, and those that these name, the newest first.

        What else is in the latter counts for nothing: it was dropped, lost its registration, or
        cannot be read as a whole.
        """
        chosen = {file.path for file in versions}
        needed = needs_of(versions)
        return tuple(
            file if file.path in chosen else replace(file, holds=())
            for file in self.files
            if file.path in chosen or is_among(file, needed)
        )

    def is_tagged(self, file: IndexFile) -> bool:
        """Tell whether a tag of ours holds a file: then no expiry takes its registration away."""
        return bool(file.entries.keys() & own_tags(self.table).keys())

    def tags_of(self, file: IndexFile) -> list[str]:
        """Return the names of the tags of ours that hold a file."""
        ours = own_tags(self.table)
        return sorted(ours[slot] for slot in file.entries.keys() & ours.keys())

    def untagged(self, live: Mapping[str, IndexFile]) -> dict[str, IndexFile]:
        """Return, by index, the files that no tag of ours holds."""
        return {index: file for index, file in live.items() if not self.is_tagged(file)}

    def ours_in(self, slot: int) -> IndexFile | None:
        """Return the index file registered under a snapshot."""
        return next((file for file in self.files if slot in file.entries), None)

    def is_free(self, slot: int) -> bool:
        """Tell whether a snapshot exists and has no statistics."""
        return self.table.snapshot_by_id(slot) is not None and slot not in slots(self.table)


def needs_of(files: Iterable[IndexFile]) -> frozenset[str]:
    """Return canonical locations of the files that others name."""
    return frozenset(path for file in files for path in file.needs)


def is_among(file: IndexFile, locations: Set[str]) -> bool:
    """Tell whether a file is there, at one of these canonical locations."""
    return file.bytes is not None and canonical(file.path) in locations


def live_files(published: Iterable[IndexFile]) -> dict[str, IndexFile]:
    """Return by index the newest file that holds it; `published` has the newest first."""
    live: dict[str, IndexFile] = {}
    for file in published:
        for held in file.holds:
            live.setdefault(held.index, file)
    return live


def is_index_name(path: str) -> bool:
    """Tell whether a location is one that index files have."""
    return OUR_NAME.search(path) is not None


def take_inventory(table: Table, *, at_ms: int | None = None) -> Inventory:
    """Look for index files in the table's metadata and in its store.

    Args:
        table: is loaded again.
        at_ms: what counts as now.

    Raises:
        StagingError: the store gives no way to list it.
        StoreUnavailableError: the store does not answer, or refuses access.
    """
    # The listing comes first: whatever is published after it is not in it, so not taken for lost.
    stored = {
        canonical(stored.uri): stored
        for stored in list_objects(table.io, metadata_folder(table))
        if is_index_name(stored.uri)
    }
    table = reload_table(table)
    entries, named = _entries(table), _named(table)
    spelt = {
        **{key: one.uri for key, one in stored.items()},
        **{key: path for key, (path, _) in named.items()},
        **{key: next(iter(found.values())).statistics_path for key, found in entries.items()},
    }
    lost = [path for key, path in spelt.items() if key in stored and not entries.get(key)]
    former = {canonical(path): entry for path, entry in former_entries(table, lost).items()}
    files = [
        _file(
            table,
            path,
            stored.get(key),
            entries.get(key, {}),
            named[key][1] if key in named else (),
            former.get(key),
        )
        for key, path in spelt.items()
    ]
    ours = [file for file in files if file is not None]
    # Some stores tell seconds only: of what was written within one, the registered file is later.
    ours.sort(
        key=lambda file: (
            file.number,
            file.order,
            file.published_ms,
            bool(file.entries),
            file.path,
        ),
        reverse=True,
    )
    return Inventory(table, tuple(ours), at_ms if at_ms is not None else now_ms())


def _entries(table: Table) -> dict[str, dict[int, StatisticsFile]]:
    found: dict[str, dict[int, StatisticsFile]] = {}
    for slot, entry in slots(table).items():
        found.setdefault(canonical(entry.statistics_path), {})[slot] = entry
    return found


def _named(table: Table) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return by canonical location what snapshots' summaries name as their index's file."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for snapshot in table.snapshots():
        properties = snapshot.summary.additional_properties if snapshot.summary else {}
        path = properties.get(NAMED_BY)
        if path and any(key.startswith("ann.") for key in properties):
            key = canonical(path)
            before = found.get(key, (path, ()))
            found[key] = (before[0], (*before[1], snapshot.snapshot_id))
    return found


def _file(
    table: Table,
    path: str,
    stored: StoredObject | None,
    entries: Mapping[int, StatisticsFile],
    named_by: tuple[int, ...],
    former: FormerEntry | None,
) -> IndexFile | None:
    """Describe a file; None if it is another writer's."""
    length, modified = (stored.bytes, stored.modified_ms) if stored else (None, 0)
    if stored is None:  # registered from another folder, or gone
        length = object_length(table.io, path)
        length = 0 if length == FOLDER else length
    held, needs, footer_size, problem = _content(table.io, path, length, find_dropped(table))
    if not held and not named_by and not is_index_name(path):
        return None
    sizes = {entry.file_size_in_bytes for entry in entries.values()}
    if length is not None and not problem and sizes - {length}:
        problem = f"{path} has {length} bytes, registered are {max(sizes - {length})}"
    return IndexFile(
        path=path,
        bytes=length,
        modified_ms=modified,
        footer_size=footer_size,
        entries=entries,
        named_by=named_by,
        former=former,
        number=publication_number(path),
        order=_order(table, (*entries, *named_by), former),
        published_ms=_published_ms(table, named_by, former, modified),
        holds=tuple(hold for hold in held if not hold.dropped_ms),
        problem=problem,
        dropped=tuple(hold for hold in held if hold.dropped_ms),
        needs=needs,
    )


def _content(
    io: FileIO, path: str, length: int | None, marks: Mapping[str, Dropped]
) -> tuple[tuple[Holding, ...], frozenset[str], int, str]:
    """Return what a file holds, what that needs, its footer's size, and why it cannot be read.

    Raises:
        StoreUnavailableError: its store does not say; nothing follows from that.
    """
    if length is None:
        return (), frozenset(), 0, ""

    def read() -> tuple[tuple[Holding, ...], frozenset[str], int]:
        with open_puffin(io, path, length) as reader:
            holds = []
            needs: set[str] = set()
            for blob in reader.find(routing_blob.TYPE):
                routing = routing_blob.decode(reader.read(blob))
                index = blob.properties.get("index", "")
                if not is_name(index):
                    continue
                version = version_id(routing, blob.snapshot_id)
                declaration = IndexProperties(routing.properties).declaration
                gone_ms = marks[index].at_ms if is_dropped(marks, index, version) else 0
                holds.append(Holding(index, version, blob.snapshot_id, declaration, gone_ms))
                with suppress(FormatError) if gone_ms else nullcontext():
                    needs |= _named_in(reader, index)
            return tuple(holds), frozenset(needs), reader.footer_size

    try:
        return (*read_confirmed(read), "")
    except (FormatError, FileNotFoundError) as error:
        said = str(error)
        return (), frozenset(), 0, said if path in said else f"{path}: {said}"


def _named_in(reader: PuffinReader, index: str) -> set[str]:
    """Return canonical locations of the files that a version of an index needs besides its own."""
    return {canonical(path) for path in files_named(reader.name, directory_in(reader, index))}


def _order(table: Table, snapshot_ids: Iterable[int], former: FormerEntry | None) -> int:
    numbers = [former.sequence_number if former else -1]
    for snapshot_id in snapshot_ids:
        snapshot = table.snapshot_by_id(snapshot_id)
        numbers.append((snapshot.sequence_number or 0) if snapshot else -1)
    return max(numbers)


def _published_ms(
    table: Table, named_by: tuple[int, ...], former: FormerEntry | None, modified_ms: int
) -> int:
    """Return the time of the snapshot that names it, else when the file was written."""
    snapshots = (table.snapshot_by_id(name) for name in named_by)
    times = [snapshot.timestamp_ms for snapshot in snapshots if snapshot is not None]
    return min(times) if times else modified_ms or (former.published_ms if former else 0)
