"""How widely, and over how many cells, more rows are searched for than the build's gate asked for.

The gate finds the search width and the probed cells that suffice for its `k`, 10 unless declared
otherwise. The hundredth row is farther from the query than the tenth, so that more of the rows
wanted lie in other cells. Of 1,000,000 rows in 128 cells, three of which suffice for 10 rows
(recall 0.967), a search for 160 finds 0.861 of them however wide it is, and 0.964 with 16 cells.
"""

import math
from dataclasses import dataclass

from puffin_ann.blobs.routing import Routing

WIDER, WIDER_EACH = 1.1, 1.5
"""How much wider a search is for more rows: by a factor, and for each further row. A row more each
would do on the sample; of synthetic and mixed rows up to two hundredths more would be missed."""

FARTHER = 0.6
"""Power of the number of rows by which cells grow. Found on the million rows above: 20, 40, 80 and
160 rows take 4, 7, 11 and 16 cells for the recall that 10 have with three."""

GATED = 10
"""Rows that width and cells suffice for where the gate noted nothing: its `k` by default."""

WIDEST = 1 << 31
"""A wider search finds no more: no shard has so many rows."""


def width_for(rows: int, wide: int, enough: int) -> int:
    """Return how wide to search for some rows, if `wide` finds `enough` of them well enough."""
    if rows > enough:
        wide = round(WIDER * wide + WIDER_EACH * (rows - enough))
    return min(WIDEST, max(wide, rows))


def cells_for(rows: int, probed: int, enough: int) -> int:
    """Return how many cells to probe for some rows, if `probed` do for `enough` of them."""
    more: float = max(1.0, rows / enough) ** FARTHER
    return math.ceil(probed * more)


@dataclass(frozen=True)
class Reach:
    """How far searches of a version go, by what its gate found to suffice.

    Args:
        routing: of the version.
    """

    routing: Routing

    @property
    def _enough(self) -> int:
        return self.routing.recall.k if self.routing.recall else GATED

    def width(self, rows: int, asked: int | None) -> int:
        """Return how wide to search for some rows: as asked, if anything was."""
        if asked is not None:
            return min(WIDEST, max(asked, rows))
        return width_for(rows, self.routing.search_width, self._enough)

    def cells(self, rows: int, asked: int | None) -> int:
        """Return how many cells to probe for some rows: as asked, if anything was."""
        return asked or cells_for(rows, max(1, self.routing.probe_partitions), self._enough)
