"""A shard of codes alone, of which some lists are read, and then where their best rows are."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.ivf.lists import Lists, default_lists, default_subspaces
from puffin_ann.blobs.shards import ivf_ranges
from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.blobs.version.routing import Routing, ShardEntry
from puffin_ann.engines.ivf_lists import NearestLists
from puffin_ann.errors import BlobFormatError
from puffin_ann.lake.store.ranges import Range
from puffin_ann.search.shards.cold.parts import (
    LEADING_BYTES,
    LOCATORS,
    OpenShard,
    WholeShardError,
)
from puffin_ann.search.version.row_locators import are_among

BESIDE_BYTES = 1024
"""Properties of a blob, and what aligns its sections, about."""

MOST_LOCATORS = 2 << 20
"""Bytes that say where a shard's rows are, some two a row, that are read along with its lists: then
nobody waits to ask for those of the best rows."""

Spans = Sequence[tuple[int, int]]
"""First rows of some lists, in the order of all, and the rows behind their last."""


def leading_bytes(routing: Routing, entry: ShardEntry) -> int:
    """Return how much of a blob has what its lists were trained as, were those as by default."""
    lists, subspaces = default_lists(entry.rows), default_subspaces(routing.dimension)
    trained = ivf_ranges.trained_bytes(routing.metric, routing.dimension, lists, subspaces)
    return LEADING_BYTES + BESIDE_BYTES + trained


class ListedShard(OpenShard):
    """A shard without vectors of which it is known where its lists are.

    Attributes:
        lists: finds those near queries.
    """

    def _find_rows(self, cells: Partitions) -> None:
        reader = self._engine_reader
        extent = None if self._form != "none" else ivf_ranges.trained_extent(reader)
        if extent is None:
            raise WholeShardError(f"{self._where} has vectors, or no lists")
        if not self._engine.has(*extent):  # there are more lists than by default
            self._engine.put(extent[0], self._read([self._parts.engine.range(*extent)])[0])
        trained = ivf_ranges.read_trained(reader)
        self._trained = trained
        self.lists = NearestLists(trained, self.entry.rows)

    @property
    def live(self) -> int:
        """Rows without a tombstone."""
        return self.entry.rows - len(self._deleted)

    def spans(self, lists: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Return the rows that some lists, ascending, have; of neighbours as one."""
        starts = self.lists.starts
        begins, ends = starts[lists].tolist(), starts[lists + 1].tolist()
        spans: list[tuple[int, int]] = []
        for start, stop in zip(begins, ends, strict=True):
            if spans and spans[-1][1] == start:
                spans[-1] = spans[-1][0], stop
            elif start < stop:
                spans.append((start, stop))
        return spans

    def list_ranges(self, spans: Spans) -> list[Range]:
        """Return what has to be read for rows of lists."""
        place, reader = self._parts.engine, self._engine_reader
        with self._naming():
            return [
                place.range(*reader.extent(kind, start * size, stop * size))
                for start, stop in spans
                for kind, size in ivf_ranges.row_bytes(self._trained).items()
            ]

    def read_lists(
        self, lists: NDArray[np.int64], spans: Spans, data: Sequence[memoryview]
    ) -> Lists:
        """Return some lists, one after the other.

        Args:
            lists: their numbers, ascending.
            spans: of their rows, at least one.
            data: of the ranges for those, in that order.

        Raises:
            FormatError: a range is not what was written, or a row is in two lists.
        """
        ranges = self.list_ranges(spans)
        with self._lock, self._naming():
            begins = [part.start - self._parts.engine.metadata.offset for part in ranges]
            for begin, content in zip(begins, data, strict=True):
                self._engine.put(begin, content)
            try:
                parts = [
                    ivf_ranges.read_rows(
                        self._engine_reader, self._trained, self.entry.rows, start, stop
                    )
                    for start, stop in spans
                ]
            finally:
                for begin in begins:
                    self._engine.drop(begin)
            ordinals, codes, biases = map(np.concatenate, zip(*parts, strict=True))
            if len(np.unique(ordinals)) < len(ordinals):
                raise BlobFormatError("a row is in two lists")
        sizes = np.diff(self.lists.starts)[lists]
        return Lists(np.concatenate([[0], np.cumsum(sizes)]), ordinals, codes, biases)

    @property
    def locators_range(self) -> Range | None:
        """What says where all rows are; None if it is long: then a search reads some of it."""
        with self._naming():
            length = self._rows_reader.section_length(LOCATORS)
            if length > MOST_LOCATORS:
                return None
            return self._parts.rows.range(*self._rows_reader.extent(LOCATORS, 0, length))

    def has_tombstone(self, ordinals: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Tell which rows have a tombstone, (n,) bool."""
        return are_among(self._deleted, ordinals.astype(np.int64))

    def runs_of(self, ordinals: NDArray[np.int64]) -> list[tuple[int, int, int]]:
        """Return runs as `rows` takes them that have some rows, ascending: one for each block."""
        blocks = ordinals // self._blocks.block_rows
        firsts = np.flatnonzero(np.diff(blocks, prepend=-1))
        lasts = np.append(firsts[1:], len(ordinals)) - 1
        begins, ends = ordinals[firsts].tolist(), (ordinals[lasts] + 1).tolist()
        return [(-1, start, stop) for start, stop in zip(begins, ends, strict=True)]
