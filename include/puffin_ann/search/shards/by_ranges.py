"""Answers by ranges of shards that are not on local disk, beside those of others."""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyiceberg.io import FileIO

from puffin_ann.search.cache.local_cache import LocalCache
from puffin_ann.search.explain.explanation import ShardWay
from puffin_ann.search.explain.recorder import current
from puffin_ann.search.merge import Source
from puffin_ann.search.shards.cold.decide import may_be_cold
from puffin_ann.search.shards.cold.scan import ColdShards, DamagedShardError
from puffin_ann.search.shards.cold.tier import ColdTier
from puffin_ann.search.shards.opening.opened import OpenedShards
from puffin_ann.search.shards.routes import Routes
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.snapshot_view import SnapshotView
from puffin_ann.settings import CacheMode, settings


class ByRanges:
    """Has shards of a version searched by ranges, where they may be.

    Args:
        io: reads the files.
        version: an index version that has shards.
        view: the version against the snapshot.
        routes: which shards a query is searched in.
        opened: the shards that are on local disk, or are brought there.
        cache: local disk.
        scope: names the table for the cache, see `scope_of`.
        mode: when shards are brought to local disk.
    """

    def __init__(
        self,
        io: FileIO,
        version: IndexVersion,
        view: SnapshotView,
        routes: Routes,
        opened: OpenedShards,
        *,
        cache: LocalCache,
        scope: str,
        mode: CacheMode,
    ) -> None:
        self._io, self._version, self._view = io, version, view
        self._routing, self._routes, self._opened = version.routing, routes, opened
        self._cache, self._scope, self._mode = cache, scope, mode

    def beside(self, widths: NDArray[np.number[Any]]) -> list[Callable[[], object]]:
        """Return what else is to be read for an answer: of shards that ranges cannot answer for.

        Args:
            widths: as for `answer`.
        """
        tier = self.tier
        beside = [
            entry
            for entry, widths_of_it in zip(self._routing.shards, widths.T, strict=True)
            if widths_of_it.any()
            and entry.shard_id not in self._opened.kept
            and not (tier and tier.may_search(entry))
        ]
        work: list[Callable[[], object]] = []
        if beside:
            work.append(partial(self._opened.open_together, beside))
        footers = self._opened.footers_to_read()
        return [*work, footers] if footers else work

    def answer(
        self, queries: NDArray[np.float32], k: int, widths: NDArray[np.number[Any]]
    ) -> tuple[list[int], list[Source]]:
        """Have shards answer that are not on local disk; return which did, and their answers.

        Args:
            queries: (q, d) float32.
            k: neighbours.
            widths: (q, shards), how widely each is to be searched, 0 for not at all.
        """
        tier = self.tier
        if tier is None:
            return [], []
        try:
            answered, sources = tier.search(
                queries, k, np.asarray(widths, np.int64), self._opened.kept
            )
        except DamagedShardError as damage:
            self._opened.damaged.add(damage.shard_id)
            raise damage.error from None
        recorder = current()
        if recorder is not None:
            for entry in (self._routing.shards[number] for number in answered):
                if entry.shard_id in tier.shards.bytes_read:  # else it has none of the rows wanted
                    recorder.add_shard(ShardWay.of(entry, "ranges", len(queries)))
        if self._mode == "lazy":
            for entry in (self._routing.shards[number] for number in answered):
                if tier.is_asked_often(entry):
                    self._opened.bring(entry)
        return answered, sources

    @property
    def bytes_read(self) -> int:
        """Bytes that were read by ranges so far."""
        tier = self.__dict__.get("tier")
        return sum(tier.shards.bytes_read.values()) if tier else 0

    @cached_property
    def tier(self) -> ColdTier | None:
        """What searches by ranges; None where no shard is to be, or cells cannot be read."""
        least = settings().ranges_min_bytes
        may_be = any(may_be_cold(self._routing, entry, least) for entry in self._routing.shards)
        if not may_be or self._routes.cells is None:
            return None
        ranks = self._view.rank_of_file_id
        shards = ColdShards(
            self._io,
            self._version,
            self._routes.cells,
            self._opened.masked,
            ranks,
            self._opened.read_table,
        )
        return ColdTier(shards, self._cache, self._scope, self._mode)
