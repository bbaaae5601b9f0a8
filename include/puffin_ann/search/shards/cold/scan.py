"""Compare queries with the rows of their nearest cells, read by ranges, several shards at once."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray
from pyiceberg.io import FileIO

from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.blobs.version.routing import Routing, ShardEntry
from puffin_ann.engines.base import SearchableShard
from puffin_ann.engines.exact import ExactShard
from puffin_ann.engines.reranked import RoundedReranked, RowVectors
from puffin_ann.errors import FormatError
from puffin_ann.lake.store.ranges import Range, read_ranges
from puffin_ann.search.merge import Source, known_places
from puffin_ann.search.shards.cold.parts import (
    LEADING_BYTES,
    OpenShard,
    ShardParts,
    SomeRows,
    WholeShardError,
)
from puffin_ann.search.shards.opening import tie_breaks
from puffin_ann.search.version.index_files import BlobPlace
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.row_locators import FileRanks, Locators, MaskedRows

MOST_OPEN = 1024
"""Shards of which it is kept where their rows are: some 100 kB each."""


class DamagedShardError(Exception):
    """A shard cannot be read.

    Attributes:
        shard_id: of it.
        error: says why.
    """

    def __init__(self, shard_id: int, error: FormatError) -> None:
        super().__init__(shard_id)
        self.shard_id, self.error = shard_id, error


@dataclass
class ColdShards:
    """The shards of a version, as far as they are searched by ranges; for one snapshot.

    Attributes:
        io: reads the files.
        version: of the index.
        cells: of the version.
        masked: rows of covered files that are not live.
        ranks: places of covered files among the view's.
        read_table: gives the table's vectors of rows, where shards have rounded ones.
        bytes_read: by shard id, so far.
        whole: ids of shards that can only be searched whole.
    """

    io: FileIO
    version: IndexVersion
    cells: Partitions
    masked: MaskedRows
    ranks: FileRanks
    read_table: Callable[[Locators], RowVectors]
    bytes_read: dict[int, int] = field(default_factory=dict)
    whole: set[int] = field(default_factory=set)
    _opened: dict[int, OpenShard] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self, entries: Sequence[ShardEntry]) -> dict[int, OpenShard]:
        """Return shards by their id, read at once where they were not before.

        One that can only be searched whole is left out, and noted in `whole`.

        Raises:
            DamagedShardError: one cannot be read.
            StoreUnavailableError: a file's store does not say.
        """
        wanted = [entry for entry in entries if entry.shard_id not in self.whole]
        with self._lock:
            found = {
                entry.shard_id: self._opened[entry.shard_id]
                for entry in wanted
                if entry.shard_id in self._opened
            }
        missing = [entry for entry in wanted if entry.shard_id not in found]
        if missing:
            opened = self._open_missing(missing)
            found |= opened
            with self._lock:
                self._opened |= opened
                for shard_id in list(self._opened)[: max(0, len(self._opened) - MOST_OPEN)]:
                    del self._opened[shard_id]
        return found

    def _open_missing(self, missing: Sequence[ShardEntry]) -> dict[int, OpenShard]:
        routing, parts = self.version.routing, list[ShardParts]()
        kind: type[OpenShard] = OpenShard
        leading_of: Callable[[Routing, ShardEntry], int] = _leading
        if routing.vectors == "none":  # whoever searches other shards needs nothing of these
            from puffin_ann.search.shards.cold.listed import ListedShard, leading_bytes

            kind, leading_of = ListedShard, leading_bytes
        wanted: list[list[tuple[BlobPlace, int, Range]]] = []
        with self.version.files(self.io) as files:
            for entry in missing:
                with telling(entry):
                    parts.append(ShardParts.of(files, self.version, entry))
                    leading = leading_of(routing, entry)
                    wanted.append(
                        [
                            (place, start, place.range(start, stop))
                            for place, start, stop in parts[-1].first(self.cells.count, leading)
                        ]
                    )
        read = iter(self.read([part for first in wanted for _, _, part in first]))
        found = {}
        for shard, first in zip(parts, wanted, strict=True):
            by_type: dict[str, list[tuple[int, memoryview]]] = {}
            for place, start, part in first:
                by_type.setdefault(place.metadata.type, []).append((start, next(read)))
                self.count(shard.entry, part)
            number = shard.entry.shard_id
            with telling(shard.entry):
                try:
                    found[number] = kind(self.version, self.cells, shard, by_type, self.read)
                except WholeShardError:
                    self.whole.add(number)
        return found

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        wanted: NDArray[np.bool_],
        shards: Sequence[OpenShard],
    ) -> list[Source]:
        """Return the k nearest live rows of each query among those of its cells.

        Args:
            queries: (q, d) float32.
            k: neighbours.
            wanted: (q, c) bool, the cells whose rows each query is compared with.
            shards: opened ones; cells of others are left out.

        Raises:
            DamagedShardError: one cannot be read.
            StoreUnavailableError: a file's store does not say.
        """
        cells = np.asarray(wanted.any(axis=0))
        asked = [(shard, runs) for shard in shards if (runs := shard.runs(cells))]
        ranges: list[list[Range]] = []
        for shard, runs in asked:
            with telling(shard.entry):
                ranges.append(shard.ranges(runs))
        read = iter(self.read([part for parts in ranges for part in parts]))
        sources = []
        for (shard, runs), parts in zip(asked, ranges, strict=True):
            data = [next(read) for _ in parts]
            for part in parts:
                self.count(shard.entry, part)
            with telling(shard.entry):
                rows = shard.rows(runs, data)
                source = self._nearest(queries, k, wanted, rows)
                ids = np.full(len(rows.ordinals), shard.entry.shard_id, np.int64)
                sources.append(source._replace(in_shards=known_places(ids, rows.ordinals)))
        return sources

    def _nearest(
        self, queries: NDArray[np.float32], k: int, wanted: NDArray[np.bool_], rows: SomeRows
    ) -> Source:
        ids = np.full((len(queries), k), -1, np.int64)
        distances = np.full((len(queries), k), np.inf, np.float32)
        dead = rows.deleted
        masked = rows.locators.masked(self.masked)
        if masked is not None:
            dead = dead | masked
        keys, shard = partial(rows.locators.keys, self.ranks), self._comparing(rows)
        for number in np.flatnonzero(wanted[:, np.unique(rows.cells)].any(axis=1)).tolist():
            excluded = ~wanted[number, rows.cells] | dead
            ask = partial(shard.exhaustive, deleted=excluded)
            found = tie_breaks.nearest(ask, queries[number : number + 1], k, keys)
            ids[number], distances[number] = found[0][0], found[1][0]
        return Source(ids, distances, keys)

    def _comparing(self, rows: SomeRows) -> SearchableShard:
        """Return some rows as a shard that is searched by comparing all, by exact distances."""
        plain = ExactShard(_Vectors(self.version.routing.metric, rows.vectors))
        if rows.errors is None:
            return plain
        return RoundedReranked(plain, rows.errors, self.read_table(rows.locators))

    def read(self, wanted: Sequence[Range]) -> list[memoryview]:
        """Return the bytes of ranges, read at once; errors as of `read_ranges`."""
        return read_ranges(self.io, wanted, few=True)

    def count(self, entry: ShardEntry, part: Range) -> None:
        """Note that a range of a shard was read."""
        read = self.bytes_read.get(entry.shard_id, 0)
        self.bytes_read[entry.shard_id] = read + part.stop - part.start


def _leading(_routing: Routing, _entry: ShardEntry) -> int:
    return LEADING_BYTES


@dataclass(frozen=True, eq=False)
class _Vectors:
    """Vectors of some rows, `(m, d) float32`, and how they are compared."""

    metric: str
    vectors: NDArray[np.float32]


@contextmanager
def telling(entry: ShardEntry) -> Iterator[None]:
    """Tell which shard is damaged."""
    try:
        yield
    except FormatError as error:
        raise DamagedShardError(entry.shard_id, error) from error
