"""Metadata files beside a table's own that are not of its history, and what they name.

A table may be registered a second time: by a copy of the catalog, a migration, or a catalog that
was restored from a backup. Its location may also hold another table, or be another table's. What
such a registration needs, this catalog entry does not tell. So before anything is deleted, each
metadata file in reach is found to be of this entry's history, older than what is known, or foreign.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pyiceberg.table import Table

from puffin_ann.errors import StagingError
from puffin_ann.lake.catalog.tables import name_of, reload_table
from puffin_ann.lake.metadata.files import (
    Head,
    MetadataReader,
    Unread,
    Version,
    folder_of,
    is_metadata_name,
    location_problem,
    metadata_folders,
)
from puffin_ann.lake.metadata.forgotten import forgotten
from puffin_ann.lake.store.listing import StoredObject, canonical, list_objects

_log = logging.getLogger("puffin_ann")

STEPS = 100
"""Most metadata files read to follow the table's history back beyond its log, each of which names
as many as the log holds."""

FEW = 32
"""Of so many unknown metadata files each is looked into before the history is followed back."""

MOST_READ = 2000
"""Most foreign metadata files that are read whole: of more it is not known what they name."""

SKEW_MS = 3_600_000
"""So far the clocks of a table's writers may be apart: whatever is not this much younger than the
history known so far may be of it."""

ELSEWHERE = 200
"""Most metadata files read in other folders, which the logs of foreign ones name."""

Kind = Literal["other table", "other history", "single commit", "damaged", "unreadable"]


@dataclass(frozen=True)
class Foreign:
    """A metadata file that is not of this catalog entry's history.

    Attributes:
        location: of the file.
        kind: `other table`: it has another table-uuid; `other history`: one of several commits of
            a second registration, or of what came after the backup a catalog was restored from;
            `single commit`: the same, or of a commit that lost a race; `damaged`, `unreadable`.
        table_uuid: of its table.
        updated_ms: when it was made, milliseconds since 1970; when it was stored, if it is damaged.
        names: what it names, canonically.
        earlier: the metadata files that its log names, canonically.
        problem: why it was not read.
    """

    location: str
    kind: Kind
    table_uuid: str = ""
    updated_ms: int = 0
    names: frozenset[str] = frozenset()
    earlier: frozenset[str] = frozenset()
    problem: str = ""


@dataclass(frozen=True)
class Reach:
    """The metadata files in reach of a table at one moment.

    Attributes:
        table: as loaded after its folders were listed: what was committed in between is then
            not taken for foreign.
        elsewhere: why the table's location may be another's; empty if its metadata is there.
        stored: the metadata files, by canonical location; empty where `elsewhere` says something.
        older: those that are older than what is known of the table's history, or stray and older
            than its log: what they name, this table named, or never came to be.
        foreign: those that are neither, but for the forgotten ones.
        forgotten: those that are ignored, by the table's property or as asked for.
        uncounted: number of foreign ones beyond those that were read.
    """

    table: Table
    elsewhere: str = ""
    stored: Mapping[str, StoredObject] = field(default_factory=dict)
    older: tuple[str, ...] = ()
    foreign: tuple[Foreign, ...] = ()
    forgotten: tuple[str, ...] = ()
    uncounted: int = 0


def find_metadata_in_reach(
    table: Table,
    *,
    since_ms: int,
    forget: Iterable[str] = (),
    reader: MetadataReader | None = None,
) -> Reach:
    """Find the metadata files in reach of a table, and tell its own from foreign ones.

    Where there are only those of the table's log, nothing is read but their names.

    Args:
        table: is loaded again.
        since_ms: a stray file made later is foreign, however short the log is: milliseconds since
            1970.
        forget: metadata files that are ignored, besides those that the table's property names.
        reader: knows the files that it read before.

    Raises:
        StagingError: a folder cannot be listed.
    """
    fresh, stored = _listed(table)
    if problem := location_problem(fresh):
        return Reach(fresh, elsewhere=problem)
    reader = reader or MetadataReader()
    line = _KnownHistory(fresh, reader)
    unknown = {key: file.uri for key, file in stored.items()}
    while len(line.beyond(unknown)) > FEW and line.step():
        pass
    heads = reader.heads(fresh.io, list(line.beyond(unknown).values()))
    while line.may_hold(heads) and line.step():
        pass
    left = {key: uri for key, uri in line.beyond(unknown).items() if uri in heads}
    sorter = _Sorter(fresh, stored, line, reader, since_ms)
    foreign, older = sorter.sorted_out({uri: heads[uri] for uri in left.values()})
    if line.unread is not None:
        foreign.append(line.unread)
    foreign += _named_elsewhere(fresh, stored, foreign, reader)
    gone = forgotten(fresh) | {canonical(location) for location in forget}
    return Reach(
        fresh,
        stored=stored,
        older=tuple(older),
        foreign=tuple(file for file in foreign if canonical(file.location) not in gone),
        forgotten=tuple(file.location for file in foreign if canonical(file.location) in gone),
        uncounted=sorter.uncounted,
    )


def _listed(table: Table) -> tuple[Table, dict[str, StoredObject]]:
    """Return the table, loaded after its folders of metadata were listed, and what is there."""
    done: set[str] = set()
    stored: dict[str, StoredObject] = {}
    for _ in range(3):
        missing = {key: uri for key, uri in metadata_folders(table).items() if key not in done}
        if done and not missing:
            return table, stored
        for key, folder in missing.items():
            found = list_objects(table.io, folder)
            stored |= {canonical(file.uri): file for file in found if is_metadata_name(file.uri)}
            done.add(key)
        table = reload_table(table)
    raise StagingError(f"the location of {name_of(table)} changes too fast to be looked at")


class _KnownHistory:
    """The history of a catalog entry: its current metadata, its log, and what that leads back to.

    Attributes:
        horizon_ms: versions made before it are older than what is known of the history.
        unread: a version of the history that the store does not give now; nothing is known then.
    """

    def __init__(self, table: Table, reader: MetadataReader) -> None:
        log = table.metadata.metadata_log
        self._table, self._reader, self._steps = table, reader, 0
        self._known = {canonical(entry.metadata_file) for entry in log}
        self._known.add(canonical(table.metadata_location))
        self._oldest = canonical(log[0].metadata_file) if log else ""
        self.horizon_ms = log[0].timestamp_ms if log else table.metadata.last_updated_ms
        self.unread: Foreign | None = None

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def beyond(self, unknown: Mapping[str, str]) -> dict[str, str]:
        """Return those of the files that are not known to be of the history."""
        return {key: uri for key, uri in unknown.items() if key not in self._known}

    def may_hold(self, heads: Mapping[str, Head | Unread]) -> bool:
        """Tell whether files of the table are as old as the end of the history known so far."""
        mine = str(self._table.metadata.table_uuid)
        return any(
            isinstance(head, Head)
            and head.table_uuid == mine
            and head.updated_ms < self.horizon_ms + SKEW_MS
            and canonical(uri) not in self._known
            for uri, head in heads.items()
        )

    def step(self) -> bool:
        """Follow the history back by the log of the oldest version known; False at its end."""
        self._steps += 1
        if not self._oldest or self._steps > STEPS:
            return False
        found = self._reader.whole(self._table.io, [self._oldest]).get(self._oldest)
        if isinstance(found, Unread) and not found.is_damaged:
            self.unread = Foreign(self._oldest, "unreadable", problem=found.problem)
        if not isinstance(found, Version) or not found.earlier:
            return False
        self.horizon_ms = min(self.horizon_ms, found.earlier[0][0])
        self._oldest = found.earlier[0][1]
        is_new = self._oldest not in self._known
        self._known.update(name for _, name in found.earlier)
        return is_new


class _Sorter:
    """Tells foreign metadata files from those that are merely old.

    Attributes:
        uncounted: number of foreign files that are too many to be read.
    """

    def __init__(
        self,
        table: Table,
        stored: Mapping[str, StoredObject],
        line: _KnownHistory,
        reader: MetadataReader,
        since_ms: int,
    ) -> None:
        log = table.metadata.metadata_log
        log_ms = log[0].timestamp_ms if log else table.metadata.last_updated_ms
        self._table, self._stored, self._line, self._reader = table, stored, line, reader
        self._mine = str(table.metadata.table_uuid)
        self._young_ms = min(log_ms, since_ms)
        self.uncounted = 0

    def sorted_out(self, heads: Mapping[str, Head | Unread]) -> tuple[list[Foreign], list[str]]:
        """Return the foreign files, and the old ones, of those not in the table's history."""
        foreign: list[Foreign] = []
        read: dict[str, Head] = {}
        older: list[str] = []
        for uri, head in heads.items():
            if isinstance(head, Unread):
                foreign.append(self._unread(uri, head))
            elif head.table_uuid == self._mine and self._is_old(head):
                older.append(uri)
            else:
                read[uri] = head
        newest = sorted(read, key=lambda uri: read[uri].updated_ms, reverse=True)
        wanted, rest = newest[:MOST_READ], newest[MOST_READ:]
        versions = self._reader.whole(self._table.io, wanted)
        parts = self._parts_of_histories(versions)
        for uri, version in versions.items():
            if isinstance(version, Unread):
                foreign.append(self._unread(uri, version))
            elif self._is_foreign(read[uri]) or uri in parts:
                foreign.append(self._foreign(uri, version, is_part=uri in parts))
            else:
                older.append(uri)
        beyond = [uri for uri in rest if self._is_foreign(read[uri])]
        self.uncounted = len(beyond)
        older += [uri for uri in rest if not self._is_foreign(read[uri])]
        return foreign, older

    def _is_old(self, head: Head) -> bool:
        """Tell whether a version of this table is older than all that is known of its history."""
        return head.updated_ms < min(self._line.horizon_ms, self._young_ms)

    def _is_foreign(self, head: Head) -> bool:
        """Tell whether a version counts though it may be of one commit that lost a race."""
        return head.table_uuid != self._mine or head.updated_ms >= self._young_ms

    def _parts_of_histories(self, versions: Mapping[str, Version | Unread]) -> set[str]:
        """Return the versions that are some of several in a row: no commit that lost a race is."""
        by_name = {uri.rpartition("/")[2]: uri for uri in versions}  # however the folder is written
        parts: set[str] = set()
        for uri, version in versions.items():
            if isinstance(version, Version) and version.head.table_uuid == self._mine:
                before = {
                    name
                    for made_ms, name in version.earlier
                    if made_ms >= self._line.horizon_ms and name not in self._line
                }
                if before:
                    names = {name.rpartition("/")[2] for name in before}
                    parts |= {uri, *(by_name[name] for name in names if name in by_name)}
        return parts

    def _foreign(self, uri: str, version: Version, *, is_part: bool) -> Foreign:
        head = version.head
        if head.table_uuid != self._mine:
            kind: Kind = "other table"
        else:
            kind = "other history" if is_part else "single commit"
        return Foreign(
            uri,
            kind,
            table_uuid=head.table_uuid,
            updated_ms=head.updated_ms,
            names=version.names,
            earlier=frozenset(name for _, name in version.earlier if name not in self._line),
        )

    def _unread(self, uri: str, found: Unread) -> Foreign:
        return Foreign(
            uri,
            "damaged" if found.is_damaged else "unreadable",
            updated_ms=self._stored[canonical(uri)].modified_ms,
            problem=found.problem,
        )


def _named_elsewhere(
    table: Table,
    stored: Collection[str],
    foreign: Iterable[Foreign],
    reader: MetadataReader,
) -> list[Foreign]:
    """Read what the logs of foreign files name in other folders of the same store, if it is there.

    A file of a folder that was listed is known, or gone.
    """
    folders = set(metadata_folders(table))
    place = _store_of(canonical(table.location()))
    wanted = {
        name
        for file in foreign
        for name in file.earlier
        if name not in stored and folder_of(name) not in folders and _store_of(name) == place
    }
    found = reader.whole(table.io, sorted(wanted)[:ELSEWHERE])
    for version in found.values():
        if isinstance(version, Unread):
            _log.warning("foreign metadata: %s", version.problem)
    by_uuid = {file.table_uuid: file for file in foreign if file.table_uuid}
    return [
        replace(
            by_uuid[version.head.table_uuid],
            location=uri,
            updated_ms=version.head.updated_ms,
            names=version.names,
            earlier=frozenset(),
        )
        for uri, version in found.items()
        if isinstance(version, Version) and version.head.table_uuid in by_uuid
    ]


def _store_of(location: str) -> str:
    """Return scheme and bucket of a location in canonical spelling."""
    scheme, _, rest = location.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"
