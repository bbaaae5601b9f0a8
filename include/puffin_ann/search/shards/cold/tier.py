"""Answer from shards that are not on local disk, as far as that takes less than to bring them."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.search.cache.local_cache import LocalCache
from puffin_ann.search.cache.places import is_in_cache
from puffin_ann.search.merge import Source
from puffin_ann.search.shards.cold.decide import (
    BRING_SHARE,
    MOST_SHARE,
    are_too_many,
    is_too_much,
    may_be_cold,
)
from puffin_ann.search.shards.cold.nearest_cells import nearest, scores
from puffin_ann.search.shards.cold.parts import OpenShard
from puffin_ann.search.shards.cold.scan import ColdShards
from puffin_ann.search.shards.emptied import MOSTLY, probe_farther
from puffin_ann.search.shards.opening.blobs import engine_of
from puffin_ann.search.shards.placed import placed
from puffin_ann.search.version.index_files import BlobPlace
from puffin_ann.settings import CacheMode, settings

ROWS_PER_ANSWER = 4
"""Rows that a query is compared with, at least, for each row that it asks for."""


class ColdTier:
    """Decides which shards are searched by ranges, and searches those.

    Args:
        shards: of the version.
        cache: local disk.
        scope: names the table for the cache, see `scope_of`.
        mode: when shards are brought to local disk; where never, most rows may be read by ranges.
    """

    def __init__(self, shards: ColdShards, cache: LocalCache, scope: str, mode: CacheMode) -> None:
        self.shards = shards
        self._cache, self._scope, self._mode = cache, scope, mode
        self._places: dict[int, list[BlobPlace]] = {}
        routing, least = shards.version.routing, settings().ranges_min_bytes
        self._numbers = {
            entry.shard_id: number
            for number, entry in enumerate(routing.shards)
            if may_be_cold(routing, entry, least)
        }
        self._warm: set[int] = set()  # of those; several threads add to it, and none takes away

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        widths: NDArray[np.int64],
        loaded: Mapping[int, object],
    ) -> tuple[list[int], list[Source]]:
        """Return the numbers of the shards that answered, and their answers.

        A query is compared with the rows of its nearest cells, as many as the build measured, and
        of more where the nearest lost most of its rows. What other shards have of those, they are
        to answer. Shards without vectors are searched as widely as on local disk.

        Args:
            queries: (q, d) float32.
            k: neighbours.
            widths: (q, shards) int64, how widely each is to be searched; 0: not at all.
            loaded: shards that are open, by their id.

        Raises:
            DamagedShardError: one cannot be read.
            StoreUnavailableError: a file's store does not say.
        """
        self._warm.update(shard_id for shard_id in list(loaded) if shard_id in self._numbers)
        if len(self._warm) == len(self._numbers):
            return [], []
        if self.shards.version.routing.vectors == "none":
            return self._search_lists(queries, k, widths)
        wanted = self._nearest_cells(queries, k)
        answered, opened = self._open(wanted)
        if opened and self._reach_farther(queries, wanted, opened):
            answered, opened = self._open(wanted)
        return answered, self.shards.search(queries, k, wanted, opened)

    def _open(self, wanted: NDArray[np.bool_]) -> tuple[list[int], list[OpenShard]]:
        """Return the numbers of the shards that answer what is wanted, and those that have some.

        Args:
            wanted: (q, cells) bool, cells that each query is compared with.
        """
        rows = self._rows_wanted(np.asarray(wanted.any(axis=0)))
        self._warm.update(self._on_disk(rows))
        entries = [self._entry(shard_id) for shard_id in rows if shard_id not in self._warm]
        brought = self._too_large(entries, rows)
        opened = self.shards.open([entry for entry in entries if entry.shard_id not in brought])
        whole = {entry.shard_id for entry in entries} & self.shards.whole
        self._warm |= whole
        # Shards without a wanted row have nothing to answer.
        left = {entry.shard_id for entry in entries} - brought - whole
        answered = [
            number
            for shard_id, number in self._numbers.items()
            if shard_id in left or (shard_id not in rows and shard_id not in self._warm)
        ]
        return answered, list(opened.values())

    def _reach_farther(
        self, queries: NDArray[np.float32], wanted: NDArray[np.bool_], opened: Sequence[OpenShard]
    ) -> bool:
        """Mark more cells for queries that lie in emptied ones; tell whether there are such.

        Args:
            queries: (q, d) float32.
            wanted: (q, cells) bool, cells that each query is compared with; written.
            opened: shards that have some of those.
        """
        routing, cells = self.shards.version.routing, self.shards.cells
        left = np.ones(cells.count, np.float32)
        for shard in opened:
            shard.note_left(cells, left)
        if not (left < MOSTLY).any():
            return False
        scored = scores(placed(queries, routing), cells.centroids)
        asked = np.flatnonzero(left[scored.argmin(axis=1)] < MOSTLY)
        farther = probe_farther(scored[asked], left, routing.scan_partitions)
        wanted[asked] = (wanted[asked] | farther) & (left > 0.0)
        return len(asked) > 0

    def _search_lists(
        self, queries: NDArray[np.float32], k: int, widths: NDArray[np.int64]
    ) -> tuple[list[int], list[Source]]:
        # Whoever searches other shards needs nothing of these.
        from puffin_ann.search.shards.cold.listed import ListedShard
        from puffin_ann.search.shards.cold.scan_lists import ListSearch, search_lists

        asked = [shard_id for shard_id, at in self._numbers.items() if widths[:, at].any()]
        self._warm.update(self._on_disk(asked))
        opened = self.shards.open([self._entry(one) for one in asked if one not in self._warm])
        self._warm |= self.shards.whole
        most = MOST_SHARE if self._mode == "lazy" else np.inf
        dimension = self.shards.version.routing.dimension
        searches = [
            ListSearch(shard, queries, k, widths[:, self._numbers[shard_id]])
            for shard_id, shard in opened.items()
            if isinstance(shard, ListedShard)
        ]
        if are_too_many(sum(search.wanted_vectors for search in searches), dimension):
            return [], []
        searches = [
            search for search in searches if search.wanted_rows <= most * search.shard.entry.rows
        ]
        sources = search_lists(self.shards, queries, k, searches)
        answered = [search.shard.entry for search in searches if not search.gave_up]
        return [self._numbers[entry.shard_id] for entry in answered], sources

    def may_search(self, entry: ShardEntry) -> bool:
        """Tell whether a shard may be searched by ranges, if it is not on local disk."""
        return entry.shard_id in self._numbers

    def is_asked_often(self, entry: ShardEntry) -> bool:
        """Tell whether so much of a shard was read by ranges that it is to be brought."""
        return self.shards.bytes_read.get(entry.shard_id, 0) > BRING_SHARE * entry.bytes

    def _entry(self, shard_id: int) -> ShardEntry:
        return self.shards.version.routing.shards[self._numbers[shard_id]]

    def _nearest_cells(self, queries: NDArray[np.float32], k: int) -> NDArray[np.bool_]:
        routing, cells = self.shards.version.routing, self.shards.cells
        return nearest(
            placed(queries, routing),
            cells.centroids,
            cells.rows,
            count=routing.scan_partitions,
            least_rows=ROWS_PER_ANSWER * k,
        )

    def _rows_wanted(self, asked: NDArray[np.bool_]) -> dict[int, int]:
        """Return, by the id of a shard that may be searched by ranges, the rows of cells asked."""
        cells = self.shards.cells
        owners, places = np.unique(cells.shards[asked], return_inverse=True)
        rows = np.bincount(places, weights=cells.rows[asked], minlength=len(owners))
        found = zip(owners.tolist(), rows.tolist(), strict=True)
        # What the cells count is held to the shard: it may be any number, and out of date.
        return {
            shard_id: int(min(count, self._entry(shard_id).rows))
            for shard_id, count in found
            if shard_id in self._numbers
        }

    def _too_large(self, entries: Sequence[ShardEntry], rows: Mapping[int, int]) -> set[int]:
        most = MOST_SHARE if self._mode == "lazy" else np.inf
        wanted = np.array([rows[entry.shard_id] for entry in entries], np.uint64)
        dimension = self.shards.version.routing.dimension
        marked = is_too_much(wanted, entries, dimension, most)
        return {entry.shard_id for entry, is_so in zip(entries, marked, strict=True) if is_so}

    def _on_disk(self, shard_ids: Collection[int]) -> list[int]:
        """Return which of some shards the cache has."""
        version = self.shards.version
        missing = [shard_id for shard_id in shard_ids if shard_id not in self._places]
        if missing:
            with version.files(self.shards.io) as files:
                for shard_id in missing:
                    entry = self._entry(shard_id)
                    kind = engine_of(version, entry).blob_type
                    self._places[shard_id] = files.places(kind, shard_id, entry.file)
        return [
            shard_id
            for shard_id in shard_ids
            for place in self._places[shard_id]
            if is_in_cache(self._cache, self._scope, place)
        ]
