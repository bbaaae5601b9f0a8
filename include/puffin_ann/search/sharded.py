"""The shards and deltas of an index version, searched for one snapshot: route, probe, mask."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray
from pyiceberg.io import FileIO

from puffin_ann.ann import blas
from puffin_ann.ann.metrics import METRICS
from puffin_ann.blobs.routing import Routing, ShardEntry
from puffin_ann.declaration import EXACT
from puffin_ann.search import ties
from puffin_ann.search.cache import LocalCache
from puffin_ann.search.coverage import View
from puffin_ann.search.locators import MaskedRows
from puffin_ann.search.probe import Source, route
from puffin_ann.search.shards import LoadedShard, load_shard
from puffin_ann.search.versions import IndexVersion
from puffin_ann.search.within import Part, shard_parts, shards_within
from puffin_ann.settings import settings

OTHERS_SHARE = 0.5
"""Share of the search width for shards beyond the one of a query's nearest partition. Those hold
few of its neighbours: on 100,000 GloVe vectors in four shards, three quarters stand in the first.
At equal recall this is about a seventh faster than one width for all."""


@dataclass(frozen=True, eq=False)
class _Asked:
    """A shard, the numbers of the queries it is searched for, (m,) int64, and the width."""

    shard: LoadedShard
    queries: NDArray[np.int64]
    width: int


class ShardTier:
    """Shards, loaded when first probed and then kept.

    Args:
        io: reads the files.
        version: an index version that has shards.
        view: the version against the snapshot.
        cache: local disk.
    """

    def __init__(self, io: FileIO, version: IndexVersion, view: View, cache: LocalCache) -> None:
        self._io, self._version, self._view, self._cache = io, version, view, cache
        self._routing = version.routing
        self._metric = METRICS[version.routing.metric]
        self._owners = _owners(version.routing)
        self._is_delta = np.array([one.kind == "delta" for one in version.routing.shards], np.bool_)
        self._graphs = np.flatnonzero(~self._is_delta)
        ranks = view.rank_of_file_id
        self._ranks_in_order = bool((np.diff(ranks[ranks >= 0]) > 0).all())
        self._loaded: dict[int, LoadedShard] = {}
        self._dead: dict[int, NDArray[np.bool_] | None] = {}
        self._threads = settings().thread_count

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        width: int | None = None,
        probe_partitions: int | None = None,
    ) -> tuple[list[Source], int]:
        """Return near rows of each query from the shards probed, and how many those were.

        Each query finds k rows where as many are live, in whatever shards they stand.

        Args:
            queries: (q, d) float32.
            k: neighbours.
            width: search width in the shard of a query's nearest partition; default: as built.
            probe_partitions: nearest partitions whose shards are probed; default: as built.
        """
        wide = max(width or self._routing.search_width, k)
        home, probed = self._route(queries, probe_partitions or self._routing.probe_partitions)
        narrow = max(k, round(wide * OTHERS_SHARE))
        sources = self._probe(queries, k, [(home, wide), (probed & ~home, narrow)])
        found = np.zeros(len(queries), dtype=np.int64)
        for source in sources:
            found += np.count_nonzero(source.ids >= 0, axis=1)
        touched = probed.any(axis=0)
        if found.min(initial=k) < k:
            # Fewer than k live rows stood in the probed shards: the rest of them must answer too.
            rest = ~probed & (found < k)[:, None]
            sources += self._probe(queries, k, [(rest, wide)])
            touched |= rest.any(axis=0)
        return sources, int(np.count_nonzero(touched))

    def exhaustive(self, queries: NDArray[np.float32], k: int) -> tuple[list[Source], int]:
        """Return the nearest rows of each query from every shard, by comparing all."""
        sources = []
        for entry in self._routing.shards:
            shard = self._shard(entry)
            answers = self._nearest(shard, queries, k, self._threads)
            sources.append(Source(*answers, self._keys(shard)))
        return sources, len(sources)

    def parts_within(self, queries: NDArray[np.float32], distance: float) -> Iterator[Part]:
        """Give the rows of every shard that may hold one nearer to a query than `distance`."""
        for number, asking in shards_within(self._routing, queries, distance):
            shard = self._shard(self._routing.shards[number])
            dead = self._dead[shard.entry.shard_id]
            yield from shard_parts(shard, dead, self._view.rank_of_file_id, asking)

    def _shard(self, entry: ShardEntry) -> LoadedShard:
        shard = self._loaded.get(entry.shard_id)
        if shard is None:
            shard = load_shard(self._io, self._version, entry, self._cache)
            self._dead[entry.shard_id] = shard.dead(self._masked)
            self._loaded[entry.shard_id] = shard
        return shard

    def _route(
        self, queries: NDArray[np.float32], probe_partitions: int
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return (q, shards) bool twice: the shard of the nearest partition, and all to probe.

        Deltas have rows of any partition, few of a query's neighbours: they are always probed.
        """
        shape = (len(queries), len(self._is_delta))
        home, probed = np.zeros(shape, np.bool_), np.ones(shape, np.bool_)
        if len(self._graphs) == 1 or not len(self._owners):
            home[:, self._graphs] = True
            return home, probed
        # BLAS's own threads would go on spinning for a tenth of a second, on the cores of ours.
        with blas.single_thread():
            near, asked = route(
                self._metric.queries_to_search_space(queries),
                self._routing.centroids,
                self._owners,
                probe_partitions,
            )
        probed[:] = self._is_delta
        home[:, : near.shape[1]] = near
        probed[:, : asked.shape[1]] |= asked
        return home, probed

    def _probe(
        self, queries: NDArray[np.float32], k: int, rounds: list[tuple[NDArray[np.bool_], int]]
    ) -> list[Source]:
        """Search shards, each for the queries marked and at their width."""
        asked = [
            _Asked(self._shard(entry), np.flatnonzero(marked[:, number]), width)
            for marked, width in rounds
            for number, entry in enumerate(self._routing.shards)
            if marked[:, number].any()
        ]
        # A thread to each shard asked, where that occupies all: it costs less than parting each.
        apart = self._threads > 1 and len(asked) >= 2 * self._threads and len(queries) > 1
        threads = 1 if apart else self._threads

        if apart:  # the longest first, so that the threads end together
            asked.sort(key=lambda one: -one.width * len(one.queries))

        def answer(one: _Asked) -> Source:
            return self._answer(queries, k, one, threads)

        return list(blas.parallel(answer, asked, self._threads) if apart else map(answer, asked))

    def _answer(
        self, queries: NDArray[np.float32], k: int, asked: "_Asked", threads: int
    ) -> Source:
        shard, keys = asked.shard, self._keys(asked.shard)
        everyone = len(asked.queries) == len(queries)
        some = queries if everyone else queries[asked.queries]
        if self._routing.algorithm == EXACT:
            answers = self._nearest(shard, some, k, threads)
        else:
            dead = self._dead[shard.entry.shard_id]
            answers = shard.engine.search(some, k, width=asked.width, dead=dead, threads=threads)
            if not self._is_in_order(shard):
                answers = ties.by_locator(answers, keys)
        if not everyone:
            answers = _spread(*answers, asked.queries, len(queries))
        return Source(*answers, keys)

    def _nearest(
        self, shard: LoadedShard, queries: NDArray[np.float32], k: int, threads: int
    ) -> ties.Answers:
        """Return the k nearest live rows of a shard by distance and locator, by comparing all."""
        ask = partial(
            shard.engine.exhaustive, dead=self._dead[shard.entry.shard_id], threads=threads
        )
        if self._is_in_order(shard):
            return ask(queries, k)
        return ties.nearest(ask, queries, k, self._keys(shard))

    def _is_in_order(self, shard: LoadedShard) -> bool:
        """Tell whether equal distances ordered by ordinal are ordered by locator."""
        return self._ranks_in_order and shard.locators.in_order

    def _keys(self, shard: LoadedShard) -> ties.Keys:
        return partial(shard.locators.keys, self._view.rank_of_file_id)

    @cached_property
    def _masked(self) -> MaskedRows:
        return MaskedRows.of(self._view.masked, self._view.row_group_starts)


def _owners(routing: Routing) -> NDArray[np.uint32]:
    """Return (partitions,) uint32, the place in `routing.shards` of the shard each lies in."""
    places = {entry.shard_id: place for place, entry in enumerate(routing.shards)}
    return np.array([places[one] for one in routing.partition_shards.tolist()], np.uint32)


def _spread(
    ids: NDArray[np.int64], distances: NDArray[np.float32], rows: NDArray[np.int64], total: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Lay the answers of some queries out over the whole batch, the others unanswered."""
    all_ids = np.full((total, ids.shape[1]), -1, dtype=np.int64)
    all_distances = np.full((total, ids.shape[1]), np.inf, dtype=np.float32)
    all_ids[rows], all_distances[rows] = ids, distances
    return all_ids, all_distances
