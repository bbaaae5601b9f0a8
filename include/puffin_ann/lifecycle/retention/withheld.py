"""Why something that no index needs is still not removed: others may need it.

A file stays if any foreign metadata file in reach names it. Nothing is removed at all where the
table's location may be another's, or where what foreign metadata names cannot be read.
"""

import logging
from collections.abc import Iterable, Sequence
from functools import cached_property

from pyiceberg.table import Table

from puffin_ann.declaration import RetentionOptions
from puffin_ann.errors import PuffinAnnError, StoreUnavailableError
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.metadata.files import MetadataReader, Unread
from puffin_ann.lake.metadata.foreign import Foreign, Reach, find_metadata_in_reach
from puffin_ann.lake.store.listing import canonical
from puffin_ann.lake.store.locations import is_within, metadata_folder, staging_folders
from puffin_ann.lifecycle.retention.foreign_history import SHOWN, blocking
from puffin_ann.lifecycle.retention.removable import Removable
from puffin_ann.lifecycle.runtime.object_names import (
    named_locations,
    names_with_folders,
    object_name,
)
from puffin_ann.moments import now_ms

log = logging.getLogger("puffin_ann")

ALL_OVER_MS = 7 * 24 * 3_600_000
"""A run that wrote nothing for so long is over, whichever registration of the table it is of, and
whatever grace is declared there."""

OLDER_READ = 500
"""Most metadata files older than the log that are searched for manifest lists."""


class Protection:
    """What is not to be removed, by the metadata files in reach of a table.

    Args:
        reach: the metadata files, as found just before.
        reader: that read them.
    """

    def __init__(self, reach: Reach, reader: MetadataReader) -> None:
        self.reach, self._reader = reach, reader
        self._named = {
            name: foreign for foreign in reach.foreign for name in names_with_folders(foreign.names)
        }

    @classmethod
    def of(
        cls,
        table: Table,
        *,
        at_ms: int | None = None,
        grace_ms: int | None = None,
        forget: Iterable[str] = (),
        reader: MetadataReader | None = None,
    ) -> "Protection":
        """Look around a table.

        Args:
            table: is loaded again.
            at_ms: what counts as now.
            grace_ms: a stray metadata file counts for so long at least.
            forget: metadata files that are ignored.
            reader: knows what it read before.

        Raises:
            StagingError: a folder cannot be listed.
        """
        reader = reader or MetadataReader()
        grace = RetentionOptions().grace_ms if grace_ms is None else grace_ms
        since = (now_ms() if at_ms is None else at_ms) - grace
        reach = find_metadata_in_reach(table, since_ms=since, forget=forget, reader=reader)
        return cls(reach, reader)

    @cached_property
    def nothing_goes(self) -> str:
        """Why nothing at all may be removed; empty if something may."""
        return "; ".join(note.what for note in blocking(self.reach)[:SHOWN])

    @property
    def unreadable(self) -> tuple[Foreign, ...]:
        """Metadata files that the store does not give now."""
        return tuple(foreign for foreign in self.reach.foreign if foreign.kind == "unreadable")

    def require_readable(self) -> None:
        """Require that the store gives every metadata file that has to be known.

        Raises:
            StoreUnavailableError: it does not.
        """
        for foreign in self.unreadable:
            raise StoreUnavailableError(
                f"{foreign.problem}; nothing is removed while it is not known what it names"
            )

    def why_kept(self, removable: Removable) -> str:
        """Say why something is not to be removed; empty if it may go."""
        if kept := self.why_file_kept(removable.location):
            return kept
        if removable.kind in ("staging", "upload"):
            return self._why_run_kept(removable)
        if removable.kind == "record":
            return self._why_record_kept()
        if removable.kind in ("manifest list", "unpublished file"):
            return self._named_earlier(removable)
        return ""

    def why_file_kept(self, location: str) -> str:
        """Say why a file, or a folder with all in it, is not to be removed; empty if it may go."""
        if self.nothing_goes:
            return self.nothing_goes
        table = self.reach.table
        folders = (metadata_folder(table), *staging_folders(table))
        if not any(is_within(folder, location) for folder in folders):
            return f"it is outside of {metadata_folder(table)}, and who else needs it is not known"
        by = self._named.get(object_name(location))
        return f"{by.location} names it, {_KINDS[by.kind]}" if by else ""

    def _why_run_kept(self, removable: Removable) -> str:
        if removable.idle_seconds * 1000 >= ALL_OVER_MS or not self.reach.foreign:
            return ""
        foreign = self.reach.foreign[0]
        return (
            f"it may be of a run of another registration of the table, which {foreign.location} "
            "shows; after 7 days without a heartbeat it goes"
        )

    def _why_record_kept(self) -> str:
        if not self.reach.foreign:
            return ""
        foreign = self.reach.foreign[0]
        return f"another registration of the table may need it, which {foreign.location} shows"

    def _named_earlier(self, removable: Removable) -> str:
        """Say that earlier metadata of the table names an object, or may do so."""
        name = object_name(removable.location)
        if name in self._current_names:
            return "the table's metadata names it, by another spelling of its location"
        names, problem = self._own_names
        if name in names:
            return "earlier metadata of the table names it"
        if problem or removable.kind == "unpublished file":
            return problem
        names, problem = self._older_lists
        return "an old metadata file names it" if name in names else problem

    @cached_property
    def _current_names(self) -> frozenset[str]:
        return names_with_folders(named_locations(self.reach.table))

    @cached_property
    def _own_names(self) -> tuple[frozenset[str], str]:
        table = self.reach.table
        return self._names_in([entry.metadata_file for entry in table.metadata.metadata_log])

    @cached_property
    def _older_lists(self) -> tuple[frozenset[str], str]:
        """What metadata names that is older than the log: index files too, which it does not keep.

        A manifest list is needed to read the table at all, for a catalog that registered it at one
        of these files; and few are looked for.
        """
        table = self.reach.table
        known = {canonical(entry.metadata_file) for entry in table.metadata.metadata_log}
        known |= {canonical(foreign.location) for foreign in self.reach.foreign}
        known.add(canonical(table.metadata_location))
        older = [file.uri for key, file in self.reach.stored.items() if key not in known]
        if len(older) > OLDER_READ:
            return frozenset(), (
                f"which of {len(older):,} old metadata files name it is not looked up; it goes when"
                f" {OLDER_READ} of them are left, by the property "
                "'write.metadata.delete-after-commit.enabled'"
            )
        return self._names_in(older)

    def _names_in(self, locations: Sequence[str]) -> tuple[frozenset[str], str]:
        found = self._reader.whole(self.reach.table.io, locations)
        unread = [version.problem for version in found.values() if isinstance(version, Unread)]
        named = frozenset[str]().union(
            *(version.names for version in found.values() if not isinstance(version, Unread))
        )
        names = names_with_folders(named)
        return names, f"it is not known what earlier metadata names: {unread[0]}" if unread else ""


_KINDS = {
    "other table": "a metadata file of another table",
    "other history": "a metadata file that is not of this catalog entry's history",
    "single commit": "a metadata file that is not of this catalog entry's history",
    "damaged": "a damaged metadata file",
    "unreadable": "a metadata file that cannot be read now",
}


def is_shared(table: Table) -> bool:
    """Tell whether others may need what is beside a table's index files, or that is not known."""
    try:
        protection = Protection.of(table)
    except PuffinAnnError as error:
        log.warning("it is unknown whether %s is registered twice: %s", name_of(table), error)
        return True
    return bool(protection.nothing_goes or protection.reach.foreign)
