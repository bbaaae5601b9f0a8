"""Ask lookups of columns which rows satisfy a condition, from the part that fewest rows satisfy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from puffin_ann.lake.read.conditions.tree import All, Leaf, Node
from puffin_ann.search.included.column_lookup import FEW_RANGES, ColumnLookup, Ranges

FEW_SHARE = 32
"""Rows are listed if they are no more than one in so many of all, else marked."""

MARKED_AT_ONCE = 64
"""Rows that are marked in the time that one is looked up."""

Rows: TypeAlias = NDArray[np.uint32]
"""(m,) numbers of rows, in any order, and some of them maybe more than once."""


def rows_that_match(tree: Node, lookups: Mapping[int, ColumnLookup], count: int) -> Rows:
    """Return the rows that satisfy a condition.

    Args:
        tree: the condition.
        lookups: of all its columns, by field id.
        count: rows that there are.
    """
    part = _part_of(tree, lookups, count)
    return part.listed() if part.is_few else np.flatnonzero(part.marked()).astype(np.uint32)


@dataclass(frozen=True, eq=False)
class _Asked:
    """A question to one column.

    Attributes:
        all_rows: rows that there are.
        count: rows that satisfy it, at most.
        cost: of asking a row whether it does, in values that are looked at.
    """

    all_rows: int
    lookup: ColumnLookup
    ranges: Ranges
    count: int
    cost: int

    @property
    def is_few(self) -> bool:
        return self.count * FEW_SHARE <= self.all_rows

    def listed(self) -> Rows:
        found = self.lookup.rows_of(self.ranges)
        return found[0] if len(found) == 1 else np.concatenate([np.zeros(0, np.uint32), *found])

    def mark(self, marks: NDArray[np.bool_]) -> None:
        """Mark the rows beside those that are marked, (n,) bool."""
        if self.is_few:
            for rows in self.lookup.rows_of(self.ranges):
                marks[rows] = True
        else:
            marks |= self.lookup.has(self.ranges)

    def marked(self) -> NDArray[np.bool_]:
        return self.lookup.has(self.ranges)

    def has(self, rows: Rows) -> NDArray[np.bool_]:
        """Tell which of some rows satisfy it, (m,) bool."""
        return self.lookup.has(self.ranges, rows)


@dataclass(frozen=True, eq=False)
class _Joined:
    """Questions joined, those first that fewest rows satisfy; else as `_Asked`.

    Attributes:
        by_and: whether all have to hold, else one has to.
        parts: what is joined.
    """

    by_and: bool
    parts: tuple["_Part", ...]
    all_rows: int
    count: int
    cost: int

    @property
    def is_few(self) -> bool:
        return self.count * FEW_SHARE <= self.all_rows

    def listed(self) -> Rows:
        if not self.by_and:
            return np.concatenate([np.zeros(0, np.uint32), *(p.listed() for p in self.parts)])
        if not self.parts:  # nothing is asked of any row
            return np.arange(self.all_rows, dtype=np.uint32)
        rows = self.parts[0].listed()
        for part in self.parts[1:]:
            rows = rows[_have(part, rows)]
        return rows

    def mark(self, marks: NDArray[np.bool_]) -> None:
        if self.by_and:
            marks |= self.marked()
            return
        for part in self.parts:
            part.mark(marks)

    def marked(self) -> NDArray[np.bool_]:
        if not self.by_and:
            marks = np.zeros(self.all_rows, np.bool_)
            self.mark(marks)
            return marks
        marks = np.ones(self.all_rows, np.bool_)
        for part in self.parts:
            marks &= part.marked()
        return marks

    def has(self, rows: Rows) -> NDArray[np.bool_]:
        found = np.full(len(rows), self.by_and, np.bool_)
        for part in self.parts:
            if self.by_and:
                found &= part.has(rows)
            else:
                found |= part.has(rows)
        return found


_Part: TypeAlias = _Asked | _Joined


def _have(part: _Part, rows: Rows) -> NDArray[np.bool_]:
    """Tell which of some rows satisfy a part, (m,) bool, each asked or looked up among its own."""
    listing = part.count + part.all_rows // MARKED_AT_ONCE + len(rows)
    if part.cost * len(rows) <= listing or not part.is_few:
        return part.has(rows)
    marks = np.zeros(part.all_rows, np.bool_)
    part.mark(marks)
    return marks[rows]


def _part_of(node: Node, lookups: Mapping[int, ColumnLookup], all_rows: int) -> _Part:
    if isinstance(node, Leaf):
        lookup = lookups[node.field_id]
        ranges = lookup.ranges(node)
        return _Asked(all_rows, lookup, ranges, lookup.count(ranges), min(len(ranges), FEW_RANGES))
    asked = (_part_of(part, lookups, all_rows) for part in node.parts)
    parts = tuple(sorted(asked, key=lambda part: part.count))
    counts = [part.count for part in parts]
    by_and = isinstance(node, All)
    count = min(counts, default=all_rows) if by_and else min(all_rows, sum(counts))
    return _Joined(by_and, parts, all_rows, count, sum(part.cost for part in parts))
