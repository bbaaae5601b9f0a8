"""How sifting went under a condition so far: what its next queries are to be done by."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puffin_ann.search.conditions.ways import TRIED

MOST_APART = 512
"""Of so many queries one is sifted at least, where to sift does not pay but could. Each that was
sifted in vain doubles how many the next is of: one of 32 takes a third of what the others do."""

PRIOR = 64
"""Rows that the share of all rows counts for, beside those that were seen near queries."""

REMEMBERED = 4096
"""Rows seen near queries after which what was seen before counts half: who asks may change."""


@dataclass
class Sifted:
    """How sifting went so far under a condition; threads may add to it at once and lose a count.

    Attributes:
        queries: that were sifted.
        short: those of them near which too few rows may be answered.
        seen: rows near the queries.
        allowed: those of them that may be answered.
        seen_short: rows near the queries left short.
        allowed_short: those of them that may be answered, as far as they were kept.
        unasked: queries since that were not sifted.
        apart: queries of which one is sifted although it does not pay.
    """

    queries: float = 0.0
    short: float = 0.0
    seen: float = 0.0
    allowed: float = 0.0
    seen_short: float = 0.0
    allowed_short: float = 0.0
    unasked: int = 0
    apart: int = TRIED

    @property
    def short_share(self) -> float:
        """Share of the next queries to expect short; little is known from few."""
        return (self.short + 1) / (self.queries + 8)

    def near(self, share: float) -> float:
        """Return the share of the rows near a query to expect, if so large a share is of all."""
        if not self.seen:
            return share
        return min(1.0, (self.allowed + PRIOR * share) / (self.seen + PRIOR))

    def near_short(self, share: float) -> float:
        """Return what `near` does of the queries that sifting leaves short: they are searched."""
        near = self.near(share)
        return min(near, (self.allowed_short + PRIOR * near) / (self.seen_short + PRIOR))

    def add(self, enough: NDArray[np.bool_]) -> None:
        """Count queries, (q,) bool: whether each has enough rows."""
        self.queries += len(enough)
        self.short += len(enough) - int(np.count_nonzero(enough))
        self.unasked = 0
        if self.seen > REMEMBERED:
            self.queries, self.short = self.queries / 2, self.short / 2
            self.seen, self.allowed = self.seen / 2, self.allowed / 2
            self.seen_short, self.allowed_short = self.seen_short / 2, self.allowed_short / 2

    def add_rows(self, seen: int, allowed: int) -> None:
        """Count rows seen near queries, and those that may be answered."""
        self.seen += seen
        self.allowed += allowed

    def add_short(self, seen: int, allowed: int) -> None:
        """Count rows seen near queries that were left short, and those that may be answered."""
        self.seen_short += seen
        self.allowed_short += allowed

    def take_turn(self, queries: int) -> int:
        """Return how many of some queries to sift although it does not pay."""
        if not self.seen:  # who asks first tells something
            return min(1, queries)
        self.unasked += queries
        turns = self.unasked // self.apart
        if turns:
            self.apart = min(MOST_APART, 2 * self.apart)
        return turns

    def pay(self) -> None:
        """Note that to sift pays: where it does not any more, it is tried again soon."""
        self.apart = TRIED
