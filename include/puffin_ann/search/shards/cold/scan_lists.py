"""Look for candidates in the lists nearest to queries, read by ranges, and measure those exactly.

It answers as from shards on local disk, of which all codes are there: where lists are read, where
their best rows are, and the vectors of those in the table, each at once for all shards.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.ivf.lists import Lists
from puffin_ann.engines.reranked import nearest_of
from puffin_ann.lake.store.ranges import Range
from puffin_ann.search.merge import Source, known_places
from puffin_ann.search.shards.cold.decide import are_too_many
from puffin_ann.search.shards.cold.listed import ListedShard, Spans
from puffin_ann.search.shards.cold.parts import SomeRows
from puffin_ann.search.shards.cold.scan import ColdShards, telling
from puffin_ann.search.shards.opening import tie_breaks
from puffin_ann.search.version.row_locators import Locators


class ListSearch:
    """What is asked of one shard, and what is known of the answer so far.

    Attributes:
        shard: that is asked.
        lines: (m,) int64, numbers of the queries that ask it.
        found: (m, c) int64, ordinals of live candidates; -1 for none.
        rows: where those are that were looked up, by ascending ordinal; None: none was.
        gave_up: it would take too much to find enough live rows.

    Args:
        shard: that is asked.
        queries: (q, d) float32.
        k: neighbours.
        widths: (q,) int64, of the search of each; 0 asks nothing.
    """

    def __init__(
        self,
        shard: ListedShard,
        queries: NDArray[np.float32],
        k: int,
        widths: NDArray[np.int64],
    ) -> None:
        self.shard = shard
        self.lines = np.flatnonzero(widths)
        self._queries = np.ascontiguousarray(queries[self.lines])
        self._probes, self._least = shard.lists.effort(k, int(widths.max()), shard.live)
        self._wanted = self._least
        # What cannot be enough is not read by itself: that would take another round trip.
        while self._probes < shard.lists.count and self._has_too_few_rows():
            self._double()
        self._near = shard.lists.near(self._queries, self._probes)
        self._read: NDArray[np.int64] = np.zeros(0, np.int64)
        self._lists: Lists | None = None
        self._locators: tuple[Range, memoryview] | None = None
        self.found: NDArray[np.int64] = np.zeros((len(self.lines), 0), np.int64)
        self.rows: SomeRows | None = None
        self.gave_up = False

    @property
    def wanted_rows(self) -> int:
        """Rows of the lists to read."""
        return int(np.diff(self.shard.lists.starts)[self._near].sum())

    @property
    def wanted_vectors(self) -> int:
        """Candidates to measure, at most."""
        return len(self.lines) * self._wanted

    def spans_to_read(self) -> Spans:
        """Return the rows of the lists that are wanted; none if they were read."""
        is_read = np.array_equal(self._near, self._read)
        return [] if is_read else self.shard.spans(self._near)

    def take_lists(self, spans: Spans, data: Sequence[memoryview]) -> None:
        """Take what was read of the lists that are wanted; errors as of `read_lists`."""
        self._lists = self.shard.read_lists(self._near, spans, data)
        self._read = self._near

    @property
    def locators_to_read(self) -> list[Range]:
        """What says where all rows of the shard are, if that is short and was not read."""
        whole = None if self._locators else self.shard.locators_range
        return [whole] if whole else []

    def take_locators(self, whole: Range, data: memoryview) -> None:
        """Take what says where all rows are."""
        self._locators = whole, data

    def locators_of(self, ranges: Sequence[Range]) -> list[memoryview] | None:
        """Return what was read of ranges that say where rows are; None if nothing was."""
        if self._locators is None:
            return None
        whole, data = self._locators
        return [data[part.start - whole.start : part.stop - whole.start] for part in ranges]

    def look(self) -> NDArray[np.int64]:
        """Find candidates; return the ordinals of all, ascending."""
        if self._lists is None:
            self.found = np.full((len(self.lines), 0), -1, np.int64)
            return np.zeros(0, np.int64)
        excluded = self.shard.has_tombstone(self._lists.ordinals)
        effort = self._probes, self._wanted
        places = self.shard.lists.candidates(
            self._queries, self._read, self._lists, effort, excluded
        )
        ordinals = np.append(self._lists.ordinals.astype(np.int64), -1)
        self.found = ordinals[places]
        return np.unique(self.found[self.found >= 0])

    def take_rows(self, rows: SomeRows, is_live: NDArray[np.bool_]) -> None:
        """Take where candidates are, and leave those out that are not live."""
        at = np.searchsorted(rows.ordinals, self.found).clip(max=len(rows.ordinals) - 1)
        self.found = np.where((self.found >= 0) & is_live[at], self.found, -1)
        self.rows = rows

    def is_done(self) -> bool:
        """Tell whether each query has candidates enough, or all there are; else ask for more.

        So it is if it gave up.
        """
        live = (self.found >= 0).sum(axis=1)
        if live.min(initial=self._least) >= self._least:
            return True
        is_all = len(self._read) == self.shard.lists.count
        if is_all and self._wanted >= self.shard.entry.rows:
            return True
        self._double()
        self._near = self.shard.lists.near(self._queries, self._probes)
        self.gave_up = are_too_many(self.wanted_vectors, self._queries.shape[1])
        return self.gave_up

    def _has_too_few_rows(self) -> bool:
        rows = self.shard.lists.rows_near(self._queries, self._probes)
        return bool(rows.min(initial=self._least) < self._least)

    def _double(self) -> None:
        """Want twice as much."""
        self._probes = min(2 * self._probes, self.shard.lists.count)
        self._wanted = min(2 * self._wanted, self.shard.entry.rows)


def search_lists(
    shards: ColdShards, queries: NDArray[np.float32], k: int, searches: Sequence[ListSearch]
) -> list[Source]:
    """Return near live rows of each query among the candidates of its shards.

    Args:
        shards: of the version.
        queries: (q, d) float32.
        k: neighbours.
        searches: of the shards; those that gave up are to be answered otherwise.

    Raises:
        DamagedShardError: one cannot be read.
        StoreUnavailableError: a store does not say.
    """
    pending = list(searches)
    while pending:
        _read_lists(shards, pending)
        _find_rows(shards, pending)
        pending = [search for search in pending if not search.is_done()]
    found = [one for one in searches if not one.gave_up and (one.found >= 0).any()]
    return [_measured(shards, queries, k, found)] if found else []


def _read_lists(shards: ColdShards, searches: Sequence[ListSearch]) -> None:
    """Read the lists that are wanted, and along with them where rows are, if that is short."""
    wanted = [(search, spans) for search in searches if (spans := search.spans_to_read())]
    ranges: list[list[Range]] = []
    along: list[list[Range]] = []
    for search, spans in wanted:
        with telling(search.shard.entry):
            ranges.append(search.shard.list_ranges(spans))
            along.append(search.locators_to_read)
    both = [[*parts, *more] for parts, more in zip(ranges, along, strict=True)]
    read = _read(shards, [search for search, _ in wanted], both)
    for (search, spans), more, data in zip(wanted, along, read, strict=True):
        count = len(data) - len(more)
        with telling(search.shard.entry):
            search.take_lists(spans, data[:count])
        for whole, content in zip(more, data[count:], strict=True):
            search.take_locators(whole, content)


def _find_rows(shards: ColdShards, searches: Sequence[ListSearch]) -> None:
    wanted = [(search, ordinals) for search in searches if len(ordinals := search.look())]
    runs = [search.shard.runs_of(ordinals) for search, ordinals in wanted]
    ranges: list[list[Range]] = []
    for (search, _), some in zip(wanted, runs, strict=True):
        with telling(search.shard.entry):
            ranges.append(search.shard.ranges(some))
    read = _locators(shards, [search for search, _ in wanted], ranges)
    for (search, ordinals), some, data in zip(wanted, runs, read, strict=True):
        with telling(search.shard.entry):
            rows = search.shard.rows(some, data)
            rows = rows.take(np.searchsorted(rows.ordinals, ordinals))
            masked = rows.locators.masked(shards.masked)
        search.take_rows(rows, ~rows.deleted if masked is None else ~(rows.deleted | masked))


def _locators(
    shards: ColdShards, searches: Sequence[ListSearch], ranges: Sequence[Sequence[Range]]
) -> Iterator[list[memoryview]]:
    """Give what says where rows of each shard are, read of all at once where it was not before."""
    known = [search.locators_of(parts) for search, parts in zip(searches, ranges, strict=True)]
    unknown = [at for at, data in enumerate(known) if data is None]
    read = _read(shards, [searches[at] for at in unknown], [ranges[at] for at in unknown])
    yield from (next(read) if data is None else data for data in known)


def _read(
    shards: ColdShards, searches: Sequence[ListSearch], ranges: Sequence[Sequence[Range]]
) -> Iterator[list[memoryview]]:
    """Give what is read for each shard, of all at once."""
    read = iter(shards.read([part for parts in ranges for part in parts]))
    for search, parts in zip(searches, ranges, strict=True):
        for part in parts:
            shards.count(search.shard.entry, part)
        yield [next(read) for _ in parts]


def _measured(
    shards: ColdShards, queries: NDArray[np.float32], k: int, searches: Sequence[ListSearch]
) -> Source:
    """Measure the candidates of all shards by the table's vectors."""
    rows, owners, ordinals = [], [], []
    places = np.full((len(queries), sum(one.found.shape[1] for one in searches)), -1, np.int64)
    begin = column = 0
    for search in searches:
        if search.rows is None:
            continue
        live = np.unique(search.found[search.found >= 0])
        rows.append(search.rows.locators.take(np.searchsorted(search.rows.ordinals, live)))
        ordinals.append(live)
        owners.append(np.full(len(live), search.shard.entry.shard_id))
        at = np.where(search.found >= 0, np.searchsorted(live, search.found) + begin, -1)
        places[search.lines, column : column + at.shape[1]] = at
        begin, column = begin + len(live), column + at.shape[1]
    locators = Locators.joined(rows)
    vectors = shards.read_table(locators).read(np.arange(begin))
    metric = METRICS[shards.version.routing.metric]
    near = metric.pair_distances(queries, vectors, places)
    keys = partial(locators.keys, shards.ranks)
    answers = tie_breaks.by_locator(nearest_of(places, near, k), keys)
    in_shards = known_places(np.concatenate(owners), np.concatenate(ordinals))
    return Source(*answers, keys, in_shards=in_shards)
