"""The shards of a version that are open: brought to local disk once, and masked for a snapshot."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray
from pyiceberg.io import FileIO

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.exact.compared_rows import Coding
from puffin_ann.ann.signs.row_codes import RowCodes
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.errors import FormatError, PuffinAnnError
from puffin_ann.lake.read.data.row_vectors import RowVectorReader
from puffin_ann.lake.read.diff.coverage_diff import ALL
from puffin_ann.lake.store.ranges import is_local
from puffin_ann.puffin.reader import BlobReader
from puffin_ann.search.cache.local_cache import LocalCache
from puffin_ann.search.cache.places import is_in_cache
from puffin_ann.search.conditions.allowed_rows import AllowedRows
from puffin_ann.search.conditions.live_places import LivePlaces, ShardLocators
from puffin_ann.search.shards.opening.load import load_shard
from puffin_ann.search.shards.opening.snapshot_shard import SnapshotShard
from puffin_ann.search.shards.opening.table_rows import TableRows
from puffin_ann.search.shards.opening.together import read_together
from puffin_ann.search.version.index_files import NOTHING_READ
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.row_locators import Locators, MaskedRows
from puffin_ann.search.version.snapshot_view import SnapshotView

log = logging.getLogger("puffin_ann")

MOST_FOOTERS = 32
"""Data files whose footers are read before it is known which of them have rows that are near."""

PLACES_WANTED = 2
"""The condition from which on it is known where each row is, counted from 1: to note it takes as
long as to mark the rows of a few conditions."""


class OpenedShards:
    """Opens shards when they are first asked for, and keeps them.

    Attributes:
        kept: those that are open, by id.
        damaged: ids of those that could not be read.
        row_codes: signs of their rows, as far as conditions had rows compared by these.

    Args:
        io: reads the files.
        version: an index version that has shards.
        view: the version against the snapshot.
        cache: local disk.
        scope: names the table for the cache, see `scope_of`.
        reader: of the table's vectors, made when a shard has not its own as they are.
    """

    def __init__(
        self,
        io: FileIO,
        version: IndexVersion,
        view: SnapshotView,
        cache: LocalCache,
        scope: str,
        reader: Callable[[], RowVectorReader] | None = None,
    ) -> None:
        self._io, self._version, self._view = io, version, view
        self._cache, self._scope = cache, scope
        self._make_reader = reader
        self._ranks_in_order = view.rank_of_file_id.in_order
        self._asked_footers = False
        self._coming: set[int] = set()
        self._wanted_places: set[str] = set()
        self._live_places: LivePlaces | None = None
        self.kept: dict[int, SnapshotShard] = {}
        self.damaged: set[int] = set()
        self.row_codes = RowCodes(METRICS[version.routing.metric], self._vectors)

    def open(
        self, entry: ShardEntry, read: Mapping[str, BlobReader] = NOTHING_READ
    ) -> SnapshotShard:
        """Return a shard, brought to local disk if it is not there.

        Args:
            entry: of the shard.
            read: files by their location of which blobs were read.
        """
        shard = self.kept.get(entry.shard_id)
        if shard is None:
            try:
                loaded = load_shard(
                    self._io,
                    self._version,
                    entry,
                    self._cache,
                    self._scope,
                    self.read_table,
                    read,
                )
            except FormatError:
                self.damaged.add(entry.shard_id)
                raise
            opened = SnapshotShard(
                loaded,
                self._version.routing,
                self.masked,
                self._view.rank_of_file_id,
                ranks_in_order=self._ranks_in_order,
                row_codes=self.row_codes,
            )
            # Another thread may have opened it meanwhile: of all the first is kept.
            shard = self.kept.setdefault(entry.shard_id, opened)
        return shard

    def open_together(self, entries: Sequence[ShardEntry]) -> list[SnapshotShard]:
        """Return shards; what is small of those that are nowhere on local disk is read at once."""
        missing = [entry for entry in entries if entry.shard_id not in self.kept]
        is_there = partial(is_in_cache, self._cache, self._scope)
        read = read_together(self._io, self._version, missing, is_there)
        return [self.open(entry, read) for entry in entries]

    def open_all(self) -> list[SnapshotShard]:
        """Return all shards, in the version's order."""
        entries = self._version.routing.shards
        if self.are_all_open:
            return [self.kept[entry.shard_id] for entry in entries]
        return self.open_together(entries)

    @property
    def are_all_open(self) -> bool:
        """Tell whether all shards of the version are open."""
        return len(self.kept) == len(self._version.routing.shards)

    @property
    def coding(self) -> Coding:
        """Tell whether all rows are compared where they lie by a byte a number."""
        found = {shard.loaded.engine.coding_after(0) for shard in list(self.kept.values())}
        if Coding.NEVER in found:
            return Coding.NEVER
        return Coding.DONE if self.are_all_open and Coding.LATER not in found else Coding.LATER

    def _vectors(self) -> list[NDArray[np.float32]]:
        """Return those of the shards that are open, (n, d) float32 each."""
        none = np.empty(0, np.int64)
        return [shard.loaded.engine.find_vectors(none)[0] for shard in list(self.kept.values())]

    def place(self, allowed: AllowedRows) -> None:
        """Have the rows that may be answered found in all shards, where that takes less time.

        All shards are opened. It does nothing yet under the first condition.
        """
        if not allowed.are_to_place:
            return
        if self._live_places is None:
            self._wanted_places.add(allowed.condition.key)
            if len(self._wanted_places) < PLACES_WANTED:
                return
        allowed.place(self.find_places())

    def find_places(self) -> LivePlaces:
        """Return where live rows are in all shards, which are opened."""
        if self._live_places is None:
            shards = [
                ShardLocators(shard.entry.shard_id, shard.loaded.locators, shard.deleted)
                for shard in self.open_all()
            ]
            self._live_places = LivePlaces(self._version.covered, shards)
        return self._live_places

    def bring(self, entry: ShardEntry) -> None:
        """Begin to bring a shard in the background, unless that was begun before."""
        if entry.shard_id not in self._coming:
            self._coming.add(entry.shard_id)
            threading.Thread(
                target=self._bring, args=(entry,), name="bring a shard", daemon=True
            ).start()

    def _bring(self, entry: ShardEntry) -> None:
        """What is wrong with the shard, the searches tell."""
        try:
            self.open(entry)
        except PuffinAnnError as error:
            log.warning("shard %d cannot be brought to local disk: %s", entry.shard_id, error)

    @cached_property
    def masked(self) -> MaskedRows:
        """Rows of covered files that are not live."""
        return MaskedRows.of(self._view.masked, self._view.row_group_starts)

    def footers_to_read(self) -> Callable[[], object] | None:
        """Return what reads the footers of the table's files, if rows are measured by those.

        It does so once, and where the files are few: of many a search needs some. Those that were
        replaced since may be gone.
        """
        version, view = self._version, self._view
        if self._asked_footers or version.routing.vectors == "float32" or is_local(version.path):
            return None
        self._asked_footers = True
        ranks = view.rank_of_file_id
        is_live = [view.masked.get(file_id) is not ALL for file_id in ranks.file_ids.tolist()]
        live = ranks.ranks[np.array(is_live, np.bool_)].tolist()
        return partial(self._reader.read_footers, live) if len(live) <= MOST_FOOTERS else None

    def read_table(self, locators: Locators) -> TableRows:
        """Return the vectors of rows, to be read of the table."""
        return TableRows(self._reader, self._view.rank_of_file_id, locators)

    @property
    def table_bytes_read(self) -> int:
        """Bytes of vectors that were read of the table so far, as they are stored there."""
        reader = self.__dict__.get("_reader")
        return reader.bytes_read if reader else 0

    @cached_property
    def _reader(self) -> RowVectorReader:
        if self._make_reader is None:
            raise FormatError(f"index {self._version.index}: its vectors are in the table alone")
        return self._make_reader()
