"""The shards and deltas of an index version, searched for one snapshot: route, probe, mask."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyiceberg.io import FileIO

from puffin_ann.ann.core import blas
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.declaration import EXACT
from puffin_ann.lake.read.data.row_vectors import RowVectorReader
from puffin_ann.search.cache.local_cache import LocalCache
from puffin_ann.search.conditions import ways
from puffin_ann.search.conditions.allowed_rows import AllowedRows
from puffin_ann.search.explain.explanation import ShardWay
from puffin_ann.search.explain.recorder import current, enter
from puffin_ann.search.merge import Source, count_found, merge
from puffin_ann.search.range_search import Part
from puffin_ann.search.shards.among import Among, Wanted
from puffin_ann.search.shards.by_ranges import ByRanges
from puffin_ann.search.shards.comparison import Comparison
from puffin_ann.search.shards.costs import Costs
from puffin_ann.search.shards.meanwhile import meanwhile
from puffin_ann.search.shards.opening import tie_breaks
from puffin_ann.search.shards.opening.opened import OpenedShards
from puffin_ann.search.shards.range import shard_parts, shards_within
from puffin_ann.search.shards.reach import Reach
from puffin_ann.search.shards.routes import Routes
from puffin_ann.search.shards.several.few import FEW, Few, FewQueries
from puffin_ann.search.shards.warming import load_kernels
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.snapshot_view import SnapshotView
from puffin_ann.settings import CacheMode, settings

log = logging.getLogger("puffin_ann")

# Made once: functions that are made by each call would make what they are annotated with anew.
Numbers = NDArray[np.floating[Any]]


class ShardTier:
    """Shards, opened when first probed and then kept.

    Attributes:
        routes: which shards a query is searched in.
        way: to answer under conditions, whatever it costs; None: the cheapest.

    Args:
        io: reads the files.
        version: an index version that has shards.
        view: the version against the snapshot.
        cache: local disk.
        scope: names the table for the cache, see `scope_of`.
        mode: when shards are brought to local disk.
        reader: of the table's vectors, made when a shard has not its own as they are.
    """

    def __init__(
        self,
        io: FileIO,
        version: IndexVersion,
        view: SnapshotView,
        cache: LocalCache,
        scope: str,
        mode: CacheMode = "full",
        reader: Callable[[], RowVectorReader] | None = None,
    ) -> None:
        self._version, self._view, self._routing = version, view, version.routing
        self.routes = Routes(io, version)
        self.way: ways.Way | None = None
        self._opened = OpenedShards(io, version, view, cache, scope, reader)
        self._costs = Costs(version, lambda: self._opened.coding, self._opened.row_codes)
        self._reach = Reach(version.routing)
        self._comparison = Comparison(
            version, self._opened, self._costs, self.exhaustive, settings().thread_count
        )
        self._threads = settings().thread_count
        self._mode = mode
        self._ranges = ByRanges(
            io, version, view, self.routes, self._opened, cache=cache, scope=scope, mode=mode
        )

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        width: int | None = None,
        probe_partitions: int | None = None,
        allowed: AllowedRows | None = None,
    ) -> tuple[list[Source], int]:
        """Return near rows of each query from the shards probed, and how many those were.

        Each query finds k rows if as many are live, whichever shards hold them.

        Args:
            queries: (q, d) float32.
            k: neighbours.
            width: search width in the shard of a query's nearest cell; default: as built.
            probe_partitions: nearest cells whose shards are probed; default: as built. Where
                either is given, shards are brought to local disk first.
            allowed: the only rows that may be answered; None means all. With it, too, shards are
                brought first.
        """
        as_built = width is None and probe_partitions is None and allowed is None
        by_ranges = as_built and self._mode != "full" and not self._opened.are_all_open
        if allowed is not None:
            allowed.asked += len(queries)
            if self._opened.are_all_open:
                self._opened.place(allowed)
        if allowed is not None and self._may_sift and len(queries):
            asked = Wanted(k, width, probe_partitions)
            return self._among.answer(queries, asked, allowed, is_told=self.way is not None)
        return self._search(queries, k, width, probe_partitions, allowed, by_ranges=by_ranges)

    def _search(
        self,
        queries: NDArray[np.float32],
        k: int,
        width: int | None,
        probe_partitions: int | None,
        allowed: AllowedRows | None,
        *,
        by_ranges: bool,
    ) -> tuple[list[Source], int]:
        if allowed is not None and probe_partitions is None:
            compared = self._comparison.answer(queries, k, allowed, self.way)
            if compared is not None:
                return compared
        wide = self._reach.width(k, width)
        asked = self._reach.cells(k, probe_partitions)
        self.routes.note(self._opened.kept)
        if allowed is None:
            few = self._ask_few(queries, k, wide, asked)
            with_others = few and self._with_others(queries, k, few)
            if with_others:
                return with_others
        if allowed is None or probe_partitions is not None:
            shares = self.routes.nearest(queries, asked)
        else:
            shares = self._to_allowed(queries, asked, allowed)
        probed = shares > 0.0
        widths = np.where(probed, np.maximum(k, np.rint(shares * wide)), 0)
        cold, sources = list[int](), list[Source]()
        if by_ranges:
            enter("read shards")
            with meanwhile(self._ranges.beside(widths)):
                cold, sources = self._ranges.answer(queries, k, widths)
        widths[:, cold] = 0
        sources += self._probe(queries, k, widths, allowed)
        if self.routes.note(self._opened.kept) and not self.routes.are_near(queries):
            # Some of the shards were opened just now: only then was seen what cells have lost.
            return self._search(queries, k, width, probe_partitions, allowed, by_ranges=by_ranges)
        touched = probed.any(axis=0)
        found = count_found(sources, len(queries), k)
        if cold and found.min(initial=k) < k:
            return self._search(queries, k, width, probe_partitions, allowed, by_ranges=False)
        if found.min(initial=k) < k:
            # The probed shards hold fewer than k live rows: the other shards must answer, too.
            rest = ~probed & (found < k)[:, None]
            sources += self._probe(queries, k, np.where(rest, wide, 0), allowed)
            touched |= rest.any(axis=0)
        return sources, int(np.count_nonzero(touched))

    def _to_allowed(
        self, queries: NDArray[np.float32], cells: int, allowed: AllowedRows
    ) -> NDArray[np.float32]:
        """Return the ways to where rows are that may be answered; see `Routes.to_allowed`."""

        def count(place: int) -> int:
            return self._opened.open(self._routing.shards[place]).allowed(allowed).count

        return self.routes.to_allowed(queries, cells, allowed.rows_answered, count)

    def _with_others(
        self, queries: NDArray[np.float32], k: int, few: Few
    ) -> tuple[list[Source], int] | None:
        """Return what graphs answered together, and the shards that are none; see `search`.

        It is None where too few rows are found so: other shards than those probed must answer, too.
        """
        sources, touched = [few.source], few.touched
        if few.is_part:
            few.widths[self._few.numbers] = 0
            sources += self._probe(queries, k, few.widths.T, None)
            if count_found(sources, len(queries), k).min() < k:
                return None
        return sources, touched

    @property
    def _may_sift(self) -> bool:
        """Tell whether near rows may be sifted: not where the table is read to compare them."""
        is_whole = self._routing.vectors == "float32" and self._routing.algorithm != EXACT
        return is_whole and self.way in (None, ways.Way.SIFT)

    @cached_property
    def _among(self) -> Among:
        """Sifts rows near queries for those that satisfy a condition."""
        return Among(
            self._version, self.routes, self._costs, self._reach, self._probe, self._ask_few,
            partial(self._search, by_ranges=False),
        )  # fmt: skip

    def exhaustive(
        self, queries: NDArray[np.float32], k: int, allowed: AllowedRows | None = None
    ) -> tuple[list[Source], int]:
        """Return the nearest rows of each query from every shard, by comparing all.

        Of a shard only those are wanted that are no farther than the k nearest of others before.
        """
        sources: list[Source] = []
        recorder = current()
        near = np.full((len(queries), k), np.inf, np.float32)
        for entry in self._routing.shards:
            enter("open shards")
            shard = self._opened.open(entry)
            enter("search shards")
            told = None if recorder is None else shard.told_comparison(len(queries), allowed)
            began = perf_counter()
            answers = shard.nearest(queries, k, self._threads, allowed, near[:, -1])
            near = np.sort(np.concatenate([near, answers[1]], axis=1), axis=1)[:, :k]
            sources.append(Source(*answers, shard.keys, entry.shard_id))
            if recorder is not None and told is not None:
                recorder.add_shard(replace(told, seconds=perf_counter() - began))
        return sources, len(sources)

    def parts_within(
        self,
        queries: NDArray[np.float32],
        distance: float,
        allowed: AllowedRows | None = None,
    ) -> Iterator[Part]:
        """Give the rows of every shard that may hold one nearer to a query than `distance`.

        Args:
            queries: (q, d) float32.
            distance: in the unit of the metric.
            allowed: the only rows to give; None means all.
        """
        shards, recorder = self._routing.shards, current()
        for number, asking in shards_within(shards, self.routes.cells, queries, distance):
            enter("open shards")
            shard = self._opened.open(shards[number])
            enter("compare rows")
            began = perf_counter()
            excluded = shard.excluded(allowed)
            ranks = self._view.rank_of_file_id
            yield from shard_parts(shard.loaded, excluded, ranks, asking, (queries, distance))
            if recorder is not None:  # whoever asks for the next shard has compared this one's rows
                told = shard.told_rows(len(asking), allowed)
                recorder.add_shard(replace(told, seconds=perf_counter() - began))

    @property
    def damaged(self) -> set[int]:
        """Ids of the shards that could not be read."""
        return self._opened.damaged

    def warm(self, *, for_searches: bool = False) -> None:
        """Bring every shard to local disk; raises as searches do.

        Args:
            for_searches: load what they call, and note where live rows are, for conditions.
        """
        shards = self._opened.open_all()
        if for_searches:
            self._opened.find_places()
            if self._routing.vectors == "float32":
                load_kernels(shards, METRICS[self._routing.metric], self._search_for_few)

    def _search_for_few(self, queries: NDArray[np.float32]) -> None:
        """Find the nearest row of each query, and ask for routes as conditions do."""
        self.routes.nearest(queries, 1)
        sources, _ = self.search(queries, 1)
        merge(sources, 1)

    @property
    def ranges_read(self) -> int:
        """Bytes that were read by ranges so far."""
        return self._ranges.bytes_read

    @property
    def table_bytes_read(self) -> int:
        """Bytes of vectors that were read of the table so far, as they are stored there."""
        return self._opened.table_bytes_read

    def _probe(
        self,
        queries: NDArray[np.float32],
        k: int,
        widths: NDArray[np.number[Any]],
        allowed: AllowedRows | None,
        sifting: tuple[int, NDArray[np.float32]] | None = None,
    ) -> list[Source]:
        """Search shards, each for the queries that have a width for it, (q, shards), not 0.

        Args:
            queries: (q, d) float32.
            k: neighbours.
            widths: (q, shards).
            allowed: the only rows that may be answered.
            sifting: how many near rows to sift those from, and (shards, q, 3) float32, where the
                `Sight` of each is put; None: they are searched.
        """
        columns = np.array(widths.T, np.int64, order="C")
        asked = np.flatnonzero(columns.any(axis=1)).tolist()
        # A thread to each shard, where that occupies all: it costs less than parting each.
        apart = self._threads > 1 and len(asked) >= 2 * self._threads and len(queries) > 1
        if apart:  # the longest first, so that the threads end together
            asked.sort(key=lambda number: -int(columns[number].sum()))
        threads, at_once = (1, self._threads) if apart else (self._threads, 1)
        enter("open shards")
        entries = [self._routing.shards[number] for number in asked]
        shards = dict(zip(asked, self._opened.open_together(entries), strict=True))
        enter("search shards")
        recorder = current()
        if recorder is not None:
            recorder.begin_turn()
        among = None if sifting is None or allowed is None else allowed
        listed = sifting[0] if sifting and self._routing.algorithm != "vamana" else k

        def answer(number: int) -> Source:
            shard, wide = shards[number], columns[number]
            told: ShardWay | None = None
            if recorder is not None:  # beforehand: what is copied or coded now costs less later
                told = shard.told(wide, listed, allowed, self.way, is_sifted=among is not None)
            began = perf_counter()
            if sifting is None or among is None:
                answers = shard.search(queries, k, wide, threads, allowed, self.way)
            else:
                many, sights = sifting
                answers, sights[number] = shard.sift(queries, k, wide, threads, among, many)
            if len(asked) == 1 and not shard.is_in_order:  # else `merge` orders ties
                answers = tie_breaks.by_locator(answers, shard.keys)
            if recorder is not None and told is not None:
                recorder.add_shard(replace(told, seconds=perf_counter() - began))
            return Source(*answers, shard.keys, shard.entry.shard_id)

        began = perf_counter()
        found = list(blas.parallel(answer, asked, at_once))
        if recorder is None and (allowed is None or sifting is not None):
            self._costs.note_walk(columns, listed, perf_counter() - began, threads * at_once)
        return found

    def _ask_few(
        self,
        queries: NDArray[np.float32],
        k: int,
        wide: int,
        cells: int,
        allowed: AllowedRows | None = None,
    ) -> Few | None:
        """Ask shards together, once all are open; None if they have to be asked one by one.

        Whoever is told how long each took has them asked so.
        """
        if not 0 < len(queries) <= FEW or not self._opened.are_all_open:
            return None
        return None if current() is not None else self._few.ask(queries, k, wide, cells, allowed)

    @cached_property
    def _few(self) -> FewQueries:
        return FewQueries(self._opened.open_all(), self.routes, self._routing.metric)
