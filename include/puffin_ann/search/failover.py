"""Which version of an index serves a snapshot, and what takes over where that one is damaged.

That is another version, or the same one without the shards that cannot be read, whose rows are
compared in the table: whichever leaves fewer rows to mask and scan.

Shards are only looked at when they are first probed: damage shows in the middle of a search. The
search is then made again, from its beginning, by another version, so that no answer is of two.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import Field, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pyiceberg.table import Table

from puffin_ann.errors import DamagedIndexError, DataFileError, FormatError
from puffin_ann.lake.catalog.tables import name_of, reload_table
from puffin_ann.search.shards.opening.rows import without_shards
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.snapshot_view import LiveState, SnapshotView, view_of
from puffin_ann.search.version.versions import find_versions, how_to_build_again

log = logging.getLogger("puffin_ann")


class BoundIndex(Protocol):
    """An index bound to a version and a snapshot: a data class, so that it can be bound to another.

    Attributes:
        damage: what could not be read of the index, one sentence each.
        falls_back: whether another published version takes over where this one is damaged.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    table: Table
    version: IndexVersion
    view: SnapshotView
    damage: tuple[str, ...]
    falls_back: bool

    @property
    def damaged_shards(self) -> frozenset[int]:
        """Ids of the shards that could not be read."""

    def renew(self) -> None:
        """Drop what was found corrupt since it was opened."""


R = TypeVar("R")
Bound = TypeVar("Bound", bound=BoundIndex)


def cheapest(
    table: Table, versions: Sequence[IndexVersion], live: LiveState
) -> tuple[IndexVersion, SnapshotView]:
    """Return the version that leaves the fewest rows to mask and scan, the first of equals.

    Args:
        table: as it was loaded.
        versions: at least one, the newest first; see `may_answer` for those that are passed over.
        live: of the snapshot.
    """
    chosen, view = versions[0], view_of(table, versions[0], live)
    for version in versions[1:]:
        if not may_answer(version, versions[0]) or _least_cost(version, view) >= view.cost:
            continue
        other = view_of(table, version, live)
        if other.cost < view.cost:
            chosen, view = version, other
    return chosen, view


def _least_cost(version: IndexVersion, view: SnapshotView) -> int:
    """Return how many rows a version leaves to mask and scan at least, by its numbers alone.

    A view reads manifests, and most versions of a table that only grows or shrinks need none.

    Args:
        version: of the index.
        view: of another version, of the same snapshot.
    """
    files = version.coverage.columns
    skipped = sum(map(len, files.skipped.values()))
    missing = view.live_rows - files.indexed_rows
    return max(missing - skipped, -missing)


def may_answer(version: IndexVersion, newest: IndexVersion) -> bool:
    """Tell whether a version gives the distances that the newest gives.

    An index that was built again with another metric must not answer with the former one wherever
    an old version has fewer rows to scan. One of another width, or of the column that had the name
    before, has other vectors: it answers for snapshots that had those.
    """
    return version.routing.metric == newest.routing.metric or not _is_of(version, newest)


class Serving(Generic[Bound]):
    """Who answers for an index: the index itself, or what took its place."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._instead: Bound | None = None
        self._broken: set[str] = set()
        self._is_reduced = False

    def now(self, index: Bound) -> Bound:
        """Return who answers now."""
        return self._instead or index

    def by(self, index: Bound, work: Callable[[Bound], R]) -> R:
        """Have work done by an index that can be read.

        Raises:
            DamagedIndexError: no version of it can be.
            DataFileError: a data file of the table cannot be.
        """
        serving = self.now(index)
        while True:
            try:
                serving.renew()
                return work(serving)
            except DataFileError:  # of the table's own, which no version makes up for
                raise
            except FormatError as error:
                if not index.falls_back:
                    raise
                serving = self._next(index, serving, error)

    def _next(self, index: Bound, failed: Bound, error: FormatError) -> Bound:
        with self._lock:
            serving = self.now(index)
            if serving is not failed:  # another thread met the damage first
                return serving
            self._broken.add(failed.version.path)
            log.error("index %s is damaged: %s", failed.version.index, error)
            self._instead = self._substitute(index, failed, error)
            return self._instead

    def _substitute(self, index: Bound, failed: Bound, error: FormatError) -> Bound:
        """Open the best of the other versions, as the table names them now.

        Where none is as good, the version that was best goes on without what it lost.
        """
        table, version = failed.table, failed.version
        try:
            fresh = reload_table(table)
        except Exception as problem:  # the damage is what has to be told
            log.warning("%s cannot be loaded again: %s", name_of(table), problem)
            fresh = table
        others = [
            other
            for other in find_versions(fresh, version.index).versions
            if other.path not in self._broken and _is_like(other, version)
        ]
        best = failed if self._is_reduced else index
        reduced = _without_damaged(best) if best.damaged_shards else None
        if others:
            chosen, view = cheapest(table, others, failed.view.live(table))
            if reduced is None or view.cost <= reduced.view.cost:
                log.warning("%s answers instead, %.1f %% covered", chosen.path, 100 * view.coverage)
                told = f"{error}; {chosen.path} answers instead"
                return replace(failed, version=chosen, view=view, damage=(*failed.damage, told))
        if reduced is None:
            raise DamagedIndexError(
                f"index {version.index!r} of {name_of(table)} is damaged, and no other version of "
                f"it can answer: {error}; 'puffin-ann doctor {name_of(table)}' shows what is "
                f"wrong; {how_to_build_again(version.index)}"
            ) from error
        self._is_reduced = True
        instead = _scanned_instead(best, reduced)
        log.warning("index %s: %s", version.index, instead)
        return replace(reduced, damage=(*failed.damage, f"{error}; {instead}"))


def _without_damaged(best: Bound) -> Bound:
    """Leave shards out that cannot be read: their rows are scanned in the table."""
    table = best.table
    version = without_shards(table.io, best.version, best.damaged_shards)
    view = view_of(table, version, best.view.live(table))
    return replace(best, version=version, view=view)


def _scanned_instead(best: BoundIndex, reduced: BoundIndex) -> str:
    """Tell how many more rows are scanned without the shards that cannot be read."""
    more = reduced.view.rows_to_scan - best.view.rows_to_scan
    return (
        f"{more} rows are compared in the table instead, until 'puffin-ann doctor "
        f"{name_of(best.table)} --fix' or a refresh has made the shard of them again"
    )


def tell_lost_cells(table: Table, problem: str) -> tuple[str, ...]:
    """Return what to tell of a search that asked every shard.

    No other version takes over: all that were made since the build have the same cells.

    Args:
        table: that is indexed.
        problem: why the cells could not be read; empty if they could.
    """
    instead = (
        f"every shard is searched instead, until 'puffin-ann doctor {name_of(table)} --fix' or a "
        "refresh has made the cells again"
    )
    return (f"{problem}; {instead}",) if problem else ()


def _is_like(one: IndexVersion, other: IndexVersion) -> bool:
    """Tell whether two versions are of the same column, with the same distances."""
    return _is_of(one, other) and one.routing.metric == other.routing.metric


def _is_of(one: IndexVersion, other: IndexVersion) -> bool:
    return one.field_id == other.field_id and one.routing.dimension == other.routing.dimension
