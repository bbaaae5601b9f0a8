"""A shard as a snapshot sees it: which of its rows are live, and its answers among those."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.types import Answers
from puffin_ann.ann.signs.row_codes import RowCodes
from puffin_ann.ann.signs.sign_rows import are_soonest_to_begin
from puffin_ann.blobs.version.routing import Routing
from puffin_ann.declaration import EXACT
from puffin_ann.engines import SearchableShard
from puffin_ann.engines.reranked import Reranked
from puffin_ann.search.conditions import ways
from puffin_ann.search.conditions.allowed_rows import AllowedRows
from puffin_ann.search.conditions.decisions import size_of
from puffin_ann.search.conditions.expected import (
    ASKED,
    CALLED_FOR_GATHERED,
    SEARCHED,
    Expected,
    in_place,
)
from puffin_ann.search.conditions.gathered import Part, fits
from puffin_ann.search.conditions.shard_rows import ShardRows
from puffin_ann.search.explain.explanation import ShardWay, Way, way_of
from puffin_ann.search.shards.opening import tie_breaks
from puffin_ann.search.shards.opening.load import LoadedShard
from puffin_ann.search.version.row_locators import FileRanks, MaskedRows

if TYPE_CHECKING:
    from puffin_ann.ann.vamana.search import Searcher

UNASKED = np.array([np.inf, 0, 0], np.float32)
"""The `Sight` of a query that a shard is not asked: all that is wanted of it is known."""


class SnapshotShard:
    """A loaded shard, its rows masked for one snapshot.

    Attributes:
        loaded: the shard.
        entry: what the routing blob says of it.
        keys: (ordinals) -> file rank, row group and row offset.
        is_in_order: whether equal distances ordered by ordinal are ordered by locator.
        is_untouched: whether nothing was asked of it yet: its pages are read when they first are.

    Args:
        loaded: the shard.
        routing: of its version.
        masked: rows of covered files that are not live.
        ranks: places of covered files among the snapshot's.
        ranks_in_order: `ranks.in_order`.
        row_codes: signs of rows of the version's shards.

    Raises:
        BlobFormatError: the shard names a row group that its file has not.
    """

    def __init__(
        self,
        loaded: LoadedShard,
        routing: Routing,
        masked: MaskedRows,
        ranks: FileRanks,
        *,
        ranks_in_order: bool,
        row_codes: RowCodes,
    ) -> None:
        self._row_codes = row_codes
        self.loaded, self.entry = loaded, loaded.entry
        self.keys: tie_breaks.Keys = partial(loaded.locators.keys, ranks)
        self.is_in_order = ranks_in_order and loaded.locators.in_order
        self._deleted, self._ranks = loaded.deleted(masked), ranks
        self._algorithm, self._dimension = routing.algorithm, routing.dimension
        self.is_untouched = True

    @property
    def file_ranks(self) -> NDArray[np.int64]:
        """(files,) int64, ranks of the files that rows are of; any of a file without live rows."""
        ids = self._ranks.file_ids
        if not len(ids):
            return np.zeros(len(self.loaded.locators.files), np.int64)
        at = ids.searchsorted(self.loaded.locators.files)
        found: NDArray[np.int64] = self._ranks.ranks[at.clip(max=len(ids) - 1)]
        return found

    @property
    def deleted(self) -> NDArray[np.bool_] | None:
        """(n,) bool, rows that are not live; None if all are. Not to be changed."""
        return self._deleted

    def allowed(self, allowed: AllowedRows) -> ShardRows:
        """Return the rows that may be answered under a condition."""
        return allowed.of_shard(self.entry.shard_id, self.loaded.locators, self._deleted)

    def part(self, allowed: AllowedRows) -> Part:
        """Return the rows that may be answered under a condition, to be gathered."""
        self.is_untouched = False
        ordinals = self.allowed(allowed).ordinals
        engine = self.loaded.engine
        vectors = engine.find_vectors(ordinals)
        return Part(self.entry.shard_id, engine.metric, ordinals, vectors, self.keys)

    def excluded(self, allowed: AllowedRows | None) -> NDArray[np.bool_] | None:
        """Mark the rows that must not be answered, (n,) bool; None if all may."""
        return self._deleted if allowed is None else self.allowed(allowed).excluded

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        widths: NDArray[np.int64],
        threads: int,
        allowed: AllowedRows | None = None,
        way: ways.Way | None = None,
    ) -> Answers:
        """Return answers to the queries that have a width, nothing to the others.

        Args:
            queries: (q, d) float32.
            k: neighbours.
            widths: (q,) int64, of the search for each query; 0 for none.
            threads: to use.
            allowed: the only rows that may be answered; None: all that are live.
            way: to answer under a condition; None: the one that is expected to cost least.
        """
        self.is_untouched = False
        ask = partial(self._ask, k=k, threads=threads, allowed=allowed, way=way)
        return _of_those_asking(ask, queries, widths)

    def _ask(
        self,
        queries: NDArray[np.float32],
        widths: NDArray[np.int64],
        *,
        k: int,
        threads: int,
        allowed: AllowedRows | None,
        way: ways.Way | None,
    ) -> Answers:
        """Return answers to queries that all have a width; see `search`."""
        if self._algorithm == EXACT:
            return self.nearest(queries, k, threads, allowed)
        if allowed is not None and self._compares(allowed, widths, way):
            rows = self.allowed(allowed)
            if self._in_place(allowed, len(queries)):
                return self.nearest(queries, k, threads, allowed)
            return rows.nearest(self.loaded.engine, queries, k, threads, self._row_codes)
        if allowed is not None:
            widths = np.maximum(widths, self._passing(allowed))
        excluded = self.excluded(allowed)
        return self.loaded.engine.search(
            queries, k, width=widths, deleted=excluded, threads=threads
        )

    def sift(
        self,
        queries: NDArray[np.float32],
        k: int,
        widths: NDArray[np.int64],
        threads: int,
        allowed: AllowedRows,
        many: int,
    ) -> tuple[Answers, NDArray[np.float32]]:
        """Return those of the rows near the queries that may be answered, and what is known so.

        Args:
            queries: (q, d) float32, contiguous.
            k: neighbours.
            widths: (q,) int64, of the search for each query; 0 for none.
            threads: to use.
            allowed: the only rows that may be answered.
            many: near rows to ask an engine for that does not sift them itself.

        Returns:
            Answers, and (q, 3) float32, see `Sight`.
        """
        self.is_untouched = False
        asking = widths.nonzero()[0]
        if len(asking) < len(queries):
            some = self.sift(queries[asking], k, widths[asking], threads, allowed, many)
            ids, distances = _nothing(len(queries), some[0][0].shape[1])
            sights = np.tile(UNASKED, (len(queries), 1))
            (ids[asking], distances[asking]), sights[asking] = some
            return (ids, distances), sights
        engine, excluded = self.loaded.engine, self.allowed(allowed).excluded
        searcher, found = packed_searcher_of(engine), None
        dead = None if self._deleted is None else self._deleted.view(np.uint8)
        if searcher is not None:
            sieve = excluded.view(np.uint8)
            found = searcher.sift(
                queries, k, widths=widths, sieve=sieve, deleted=dead, threads=threads
            )
        if found is None:
            near = engine.search(queries, many, width=widths, deleted=dead, threads=threads)
            found = ways.sift(near, excluded, many, k)
        return found

    def nearest(
        self,
        queries: NDArray[np.float32],
        k: int,
        threads: int,
        allowed: AllowedRows | None = None,
        within: NDArray[np.float32] | None = None,
    ) -> Answers:
        """Return the k nearest rows by distance and locator, by comparing all.

        Rows farther than `within`, (q,) float32, may be left out.
        """
        self.is_untouched = False
        if allowed is not None and not self.allowed(allowed).count:
            return _nothing(len(queries), k)
        excluded = self.excluded(allowed)
        ask = partial(self.loaded.engine.exhaustive, deleted=excluded, threads=threads)
        if self.is_in_order:
            return ask(queries, k, within=within)
        return tie_breaks.nearest(ask, queries, k, self.keys, within)

    def told(
        self,
        widths: NDArray[np.int64],
        listed: int,
        allowed: AllowedRows | None,
        way: ways.Way | None,
        *,
        is_sifted: bool,
    ) -> ShardWay:
        """Tell how `search`, or `sift`, will answer the queries that have a width, (q,) int64.

        Args:
            widths: as for `search`.
            listed: rows that each search gives.
            allowed: as for `search`.
            way: as for `search`.
            is_sifted: whether `sift` answers.
        """
        asking = widths[widths > 0]
        if self._algorithm == EXACT:
            return self.told_comparison(len(asking), allowed)
        if allowed is not None and not is_sifted:
            return self._told_choice(asking, allowed, way)
        count = None if allowed is None else self.allowed(allowed).count
        searched = way_of(self._algorithm, self.entry.kind, "sifted" if is_sifted else "all")
        if searched is None:  # a delta: all its rows are compared, whichever may be answered
            return replace(self.told_comparison(len(asking), None), rows_allowed=count)
        told = ShardWay.of(self.entry, searched, len(asking), count)
        told = replace(told, width=int(asking.max()))
        if isinstance(self.loaded.engine, Reranked):  # what is read of the table is not known
            return told
        mean = float(asking.mean())
        cost = ways.sifted(self._algorithm, self._dimension, mean, listed, len(widths))
        return told.expecting(SEARCHED + cost * len(asking), 0.0, is_first=self.is_untouched)

    def _told_choice(
        self, asking: NDArray[np.int64], allowed: AllowedRows, way: ways.Way | None
    ) -> ShardWay:
        """Tell which way `search` will choose for queries of some widths, (m,) int64."""
        queries, engine = len(asking), self.loaded.engine
        if not self.allowed(allowed).count:  # there is nothing to choose a way to
            return self.told_rows(queries, allowed)
        copied, as_it_lies = self._compared(allowed, queries)
        seconds: dict[Way, float] = {"allowed rows": ways.CALLED_TO_COMPARE + as_it_lies * queries}
        if not isinstance(engine, Reranked):
            seconds["gathered rows"] = CALLED_FOR_GATHERED + (ASKED + copied) * queries
        searched = way_of(self._algorithm, self.entry.kind, "masked")
        if searched is not None:  # else a delta: its rows are compared
            seconds[searched] = ways.CALLED + self._costs(allowed, asking)[1] * queries
        chosen: Way = searched or "allowed rows"
        if self._compares(allowed, asking, way):
            chosen = "allowed rows" if self._in_place(allowed, queries) else "gathered rows"
        expected, width = Expected(seconds.pop(chosen), 0.0), None
        if chosen == searched:
            width = max(int(asking.max()), self._passing(allowed))
        elif chosen == "gathered rows":
            known = self._row_codes
            expected = self.allowed(allowed).expected(self._dimension, queries, known)
        else:
            expected = self.expected_in_place(queries, allowed)
        told = ShardWay.of(self.entry, chosen, queries, self.allowed(allowed).count)
        told = told.expecting(*expected, is_first=self.is_untouched)
        return replace(told, width=width, instead=seconds)

    def told_comparison(self, queries: int, allowed: AllowedRows | None) -> ShardWay:
        """Tell how `nearest` will compare the rows that may be answered with queries."""
        told = self.told_rows(queries, allowed)
        if isinstance(self.loaded.engine, Reranked):  # what is read of the table is not known
            return told
        expected = self.expected_in_place(queries, allowed)
        return told.expecting(*expected, is_first=self.is_untouched)

    def expected_in_place(self, queries: int, allowed: AllowedRows | None) -> Expected:
        """Return what `nearest` is expected to take."""
        rows, engine = len(self.loaded.locators), self.loaded.engine
        return in_place(
            rows if allowed is None else self.allowed(allowed).rows_beside,
            rows,
            self._dimension,
            queries,
            (engine.coding_after(0), engine.coding_after(queries)),
            has_others=allowed is not None,
        )

    def told_rows(self, queries: int, allowed: AllowedRows | None) -> ShardWay:
        """Tell that the rows that may be answered are compared with queries."""
        if allowed is None:
            return ShardWay.of(self.entry, "all rows", queries)
        return ShardWay.of(self.entry, "allowed rows", queries, self.allowed(allowed).count)

    def _compares(
        self, allowed: AllowedRows, widths: NDArray[np.int64], way: ways.Way | None
    ) -> bool:
        """Tell whether to compare the rows that may be answered costs less than a mask."""
        if way is not None and way is not ways.Way.SIFT:
            return way is ways.Way.COMPARE

        def costs_less() -> bool:
            compared, masked = self._costs(allowed, widths)
            return compared <= masked * allowed.worth_of_mask

        rows = self.allowed(allowed)
        question = size_of(len(widths)), int(widths.max()), rows.is_gathered
        return rows.decisions.of(question, allowed.asked, costs_less)

    def _costs(self, allowed: AllowedRows, widths: NDArray[np.int64]) -> tuple[float, float]:
        """Return the seconds of a query, rows that may be answered compared or others masked."""
        queries, of_all = len(widths), self._share(allowed)
        share, near = max(of_all, allowed.sifted.near(of_all)), allowed.sifted.near_short(of_all)
        compared = min(self._compared(allowed, queries))
        wide = np.maximum(widths, self._passing(allowed))
        mean = float(wide.mean())
        masked = ways.masked(self._algorithm, self._dimension, mean, share, near, queries)
        return compared, masked

    def _compared(self, allowed: AllowedRows, queries: int) -> tuple[float, float]:
        """Return the seconds of a query, rows that may be answered gathered, or where they lie."""
        rows = self.allowed(allowed)
        sharing = math.inf if rows.is_gathered else allowed.sharing
        if not (rows.may_be_kept and fits(rows.count, self._dimension)):  # gathered each time
            sharing = queries
        signs, dimension = self._row_codes, self._dimension
        by_signs = are_soonest_to_begin(rows.count, dimension, queries, signs)
        return (
            ways.compared(rows.count, dimension, queries, sharing, signs.share, by_signs=by_signs),
            ways.compared_in_place(
                rows.rows_beside,
                len(self.loaded.locators),
                dimension,
                queries,
                self.loaded.engine.coding_after(0),
                allowed.sharing,
            ),
        )

    def _in_place(self, allowed: AllowedRows, queries: int) -> bool:
        """Tell whether rows are compared where they lie: to gather them may cost more."""
        if isinstance(self.loaded.engine, Reranked):  # a copy would be read of the table
            return True
        gathered, as_it_lies = self._compared(allowed, queries)
        return as_it_lies < gathered

    def _passing(self, allowed: AllowedRows) -> int:
        """Return how wide a search with the other rows masked is at least."""
        share = allowed.share
        return ways.passing(share, allowed.sifted.near_short(share), self._share(allowed))

    def _share(self, allowed: AllowedRows) -> float:
        """Return the share of the shard's rows that may be answered."""
        return self.allowed(allowed).count / max(1, len(self.loaded.locators))


def _of_those_asking(
    ask: Callable[[NDArray[np.float32], NDArray[np.int64]], Answers],
    queries: NDArray[np.float32],
    widths: NDArray[np.int64],
) -> Answers:
    """Return the answers of the queries that have a width, (q,) int64; nothing to the others."""
    asking = widths.nonzero()[0]
    if len(asking) == len(queries):
        return ask(queries, widths)
    some = ask(queries[asking], widths[asking])
    ids, distances = _nothing(len(queries), some[0].shape[1])
    ids[asking], distances[asking] = some
    return ids, distances


def packed_searcher_of(engine: SearchableShard) -> "Searcher | None":
    """Return what searches a shard by packed nodes alone; None if nothing does."""
    # Only engines of graphs have one, which others' searches would import in vain.
    found: Searcher | None = getattr(engine, "packed_searcher", None)
    return found


def _nothing(queries: int, k: int) -> Answers:
    return np.full((queries, k), -1, np.int64), np.full((queries, k), np.inf, np.float32)
