"""How widely, and over how many cells, more rows are searched for than the build's gate asked for.

The gate finds the search width and the probed cells that suffice for its `k`, 10 unless declared
otherwise, and for a few more rows. The hundredth row is farther from the query than the tenth, so
that more of the rows wanted lie in other cells.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import attrgetter

from puffin_ann.blobs.version.gate import Wider
from puffin_ann.blobs.version.routing import Routing

WIDER, WIDER_EACH = 1.1, 1.5
"""How much wider a search is for more rows than were measured: by a factor, and for each further
row. A row more each would do on the sample; of synthetic and mixed rows up to two hundredths more
would be missed."""

FARTHER = 0.6
"""Power of the number of rows by which cells grow beyond what was measured. Of 1,000,000 rows in
128 cells, three of which suffice for 10 rows, 20, 40, 80 and 160 take 4, 7, 11 and 16 cells."""

GATED = 10
"""Rows that width and cells suffice for where the gate noted nothing: its `k` by default."""

WIDEST = 1 << 31
"""A wider search finds no more: no shard has so many rows."""


@dataclass(frozen=True)
class Reach:
    """How far searches of a version go, by what its gate found to suffice.

    Args:
        routing: of the version.
    """

    routing: Routing

    @cached_property
    def _known(self) -> tuple[Wider, ...]:
        """What suffices for some rows and, if that was measured, for ever more of them."""
        routing = self.routing
        rows = max(1, routing.recall.k) if routing.recall else GATED
        width, cells = max(1, routing.search_width), max(1, routing.probe_partitions)
        least = Wider(rows, width, cells)
        return least, *routing.wider

    def width(self, rows: int, asked: int | None) -> int:
        """Return how wide to search for some rows: as asked, if anything was."""
        if asked is not None:
            return min(WIDEST, max(asked, rows))
        return min(WIDEST, max(rows, round(self._suffices(rows))))

    def wider(self, rows: int, wide: int, enough: int) -> int:
        """Return how wide to search for some rows, if `wide` finds `enough` of them well enough."""
        if rows <= enough:
            return min(WIDEST, max(wide, rows))
        # As was measured, in proportion; beyond that by rows, however wide was asked for.
        known = max(enough, min(rows, self._known[-1].rows))
        wider = wide * self._suffices(known) / self._suffices(enough)
        if rows > known:
            wider = WIDER * wider + WIDER_EACH * (rows - known)
        return min(WIDEST, max(round(wider), rows))

    def cells(self, rows: int, asked: int | None) -> int:
        """Return how many cells to probe for some rows: as asked, if anything was."""
        if asked:
            return asked
        last = self._known[-1]
        if rows > last.rows:
            more: float = (rows / last.rows) ** FARTHER
            return math.ceil(last.probe_partitions * more)
        return math.ceil(round(self._between(rows, attrgetter("probe_partitions")), 6))

    def _suffices(self, rows: int) -> float:
        """Return the width that suffices for some rows."""
        last = self._known[-1]
        if rows > last.rows:
            return WIDER * last.search_width + WIDER_EACH * (rows - last.rows)
        return self._between(rows, attrgetter("search_width"))

    def _between(self, rows: int, figure: Callable[[Wider], int]) -> float:
        """Return a figure for no more rows than were measured, in proportion between two."""
        for before, after in pairwise(self._known):
            if before.rows < rows <= after.rows:
                part = (rows - before.rows) / (after.rows - before.rows)
                return (1.0 - part) * figure(before) + part * figure(after)
        return figure(self._known[0])
