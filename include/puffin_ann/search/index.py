"""Search an index at a snapshot: route, probe, mask, scan, merge, fetch."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import pyarrow as pa
from numpy.typing import ArrayLike
from pyiceberg.expressions import BooleanExpression

from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.read.conditions.text import nested_too_deep
from puffin_ann.search.bound_version import BoundVersion
from puffin_ann.search.cache.local_cache import CacheStatistics
from puffin_ann.search.conditions.allowed_rows import AllowedRows
from puffin_ann.search.conditions.kept import KeptConditions
from puffin_ann.search.explain.recorder import Recorder, enter, recording
from puffin_ann.search.explained import explained
from puffin_ann.search.failover import Serving
from puffin_ann.search.included.lookups import LOOKUPS
from puffin_ann.search.merge import farthest_of, merge
from puffin_ann.search.questions.checks import (
    Freshness,
    checked_distance,
    checked_probe,
    checked_width,
    require_no_effort,
    require_products,
)
from puffin_ann.search.questions.question import Question
from puffin_ann.search.range_search import pairs_within, scan_parts
from puffin_ann.settings import StalePolicy

Where = str | BooleanExpression | None


@dataclass
class Index(BoundVersion):
    """An index, bound to one snapshot of its table.

    Made by `open_index`. Answers are those of the rows live in that snapshot, whichever version of
    the index serves them. Shards are loaded when first probed and stay mapped.

    Attributes are those of `BoundVersion`.
    """

    _serving: Serving["Index"] = field(default_factory=Serving, init=False, repr=False)

    @property
    def coverage(self) -> float:
        """Share of the snapshot's live rows that the index version covers."""
        return self._serving.now(self).view.coverage

    def search(
        self,
        queries: ArrayLike,
        k: int,
        *,
        columns: Iterable[str] = (),
        exhaustive: bool = False,
        freshness: Freshness = "exact",
        width: int | None = None,
        probe_partitions: int | None = None,
        allow_fewer: bool = False,
        where: Where = None,
        stale_policy: StalePolicy | None = None,
        explain: bool = False,
    ) -> pa.Table:
        """Return the k nearest live rows of each query.

        Args:
            queries: (q, dimension) or (dimension,), finite numbers; taken as float32. An array,
                lists, or a column of Arrow's whose rows are lists of numbers, without null. By
                `l2` no longer than rows may be, 2⁶².
            k: neighbours per query.
            columns: columns to fetch for the rows found, by their names in the snapshot; those of a
                set come sorted.
            exhaustive: compare every live row; equals brute force. Not with `width` or
                `probe_partitions`.
            freshness: `exact` also compares live rows that the index does not cover yet;
                `indexed` leaves them out.
            width: search width in the shard of a query's nearest cell, and the more
                below it in another, the farther that is, up to 1,048,576; default: what the build
                measured.
            probe_partitions: nearest cells whose shards are probed, all if there are fewer;
                default: as above. Of an index of centroids: nearest data files compared; default:
                all that can matter.
            allow_fewer: answer with fewer than k rows where fewer are live, instead of an error.
            where: a condition that every row answered satisfies: text, such as `price < 20 and
                category in ('tea', 'coffee')`, or an expression of PyIceberg's.
            stale_policy: of a search that would compare rows outside the index, as `freshness` says
                and as far as they satisfy the condition: `scan`, it does; `warn`, it does and logs
                it as a warning; `fail`, it raises; default: that of `open_index`.
            explain: tell in the report how the search was answered; see `explanation_of`.

        Returns:
            One row per answer, by query and rank: `query` int32, `rank` int32 from 1, `distance`
            float32, the columns asked for, `locator` struct(file, row_group, row_offset). The
            schema's metadata holds a `SearchReport` as JSON under `puffin_ann`.

        Raises:
            QueryError: a wrong `k`, width, value or shape, options that contradict each other, a
                column given twice, fewer than k rows that could be answered, or a condition that
                cannot be read.
            ColumnNotFoundError: a column the snapshot does not have.
            StaleIndexError: rows are not in the index, and `stale_policy` is `fail`.
        """
        if exhaustive:
            require_no_effort(width, probe_partitions)
        recorder = Recorder() if explain else None
        question = self._question(queries, columns, freshness, stale_policy, allow_fewer)
        width, probe_partitions = checked_width(width), checked_probe(probe_partitions)

        def answer(index: Index) -> pa.Table:
            allowed = index._allowed(where)
            question.heed(index.view, allowed, index.name, name_of(index.table))
            enter("search the index")
            count = partial(index._count_scanned, allowed)
            wanted = question.checked_k(k, index.view, allowed, count)
            found = index._nearest(question, wanted, exhaustive, width, probe_partitions, allowed)
            enter("make the answer")
            question.check_found(k, wanted, len(found), index.view, allowed)
            if index.metric == "ip":
                require_products(found)
            return found

        if recorder is None:
            return self._serving.by(self, answer)
        return self._explained(answer, recorder, question)

    def _question(
        self,
        queries: ArrayLike,
        columns: Iterable[str],
        freshness: Freshness,
        stale_policy: StalePolicy | None,
        allow_fewer: bool = False,
    ) -> Question:
        return Question.checked(
            queries,
            self.dimension,
            self.metric,
            self.name,
            columns=columns,
            freshness=freshness,
            policy=self.stale_policy if stale_policy is None else stale_policy,
            allow_fewer=allow_fewer,
        )

    def _allowed(self, where: Where) -> AllowedRows | None:
        """Return the rows that a condition lets be answered; None if it is none, or true of all."""
        if where is None:
            return None
        enter("find the rows of the condition")
        try:
            found = self._conditions.rows(self.table, self.version, self.view, where, self._kept)
        except RecursionError:  # statistics are asked from farther down the stack than it was read
            raise nested_too_deep() from None
        return None if found.condition.is_always_true else found

    def _count_scanned(self, allowed: AllowedRows | None) -> int:
        """Return how many rows outside the index hold vectors, by reading them."""
        only = None if allowed is None else allowed.scanned
        return sum(len(batch.vectors) for batch in self._scan.batches(self.dimension, only))

    def _nearest(
        self,
        question: Question,
        k: int,
        exhaustive: bool,
        width: int | None,
        probe_partitions: int | None,
        allowed: AllowedRows | None,
    ) -> pa.Table:
        batch = question.batch
        before, table_before = self._ranges_read, self._table_read
        if self._files is not None:
            source, probed = self._files.search(
                batch, k, most=probe_partitions, exhaustive=exhaustive, allowed=allowed
            )
            sources = [source]
        elif exhaustive:
            sources, probed = self._shards.exhaustive(batch, k, allowed)
        else:
            sources, probed = self._shards.search(
                batch, k, width=width, probe_partitions=probe_partitions, allowed=allowed
            )
        by_ranges = self._ranges_read - before
        scanned = question.rows_to_scan(self.view, allowed)
        if scanned:
            enter("scan rows outside the index")
            only = None if allowed is None else allowed.scanned
            near = farthest_of(sources, len(batch), k)
            sources.append(self._scan.search(batch, k, near, only))
        enter("merge answers")
        table_bytes = self._table_read - table_before
        report = self._report(question.zeros, probed, scanned, by_ranges, table_bytes, allowed)
        return self._answers.of_nearest(merge(sources, k), sources, question.columns, report)

    def within(
        self,
        queries: ArrayLike,
        distance: float,
        *,
        columns: Iterable[str] = (),
        freshness: Freshness = "exact",
        where: Where = None,
        stale_policy: StalePolicy | None = None,
        explain: bool = False,
    ) -> pa.Table:
        """Return every live row nearer to a query than a distance; equals brute force.

        Files, or shards, are left out where their centroids and radii prove that they hold none.

        Args:
            queries: as for `search`.
            distance: rows at less than it are answered, in the unit of the metric.
            columns: columns to fetch for the rows found, by their names in the snapshot; those of a
                set come sorted.
            freshness: as for `search`.
            where: as for `search`.
            stale_policy: as for `search`.
            explain: as for `search`.

        Returns:
            As `search` does: by query, then distance, then locator.

        Raises:
            QueryError: a wrong value or shape, a column given twice, or a condition that cannot be
                read.
            ColumnNotFoundError: a column the snapshot does not have.
            StaleIndexError: rows are not in the index, and `stale_policy` is `fail`.
        """
        recorder = Recorder() if explain else None
        question = self._question(queries, columns, freshness, stale_policy)
        limit = checked_distance(distance)

        def answer(index: Index) -> pa.Table:
            allowed = index._allowed(where)
            question.heed(index.view, allowed, index.name, name_of(index.table))
            enter("compare rows")
            found = index._within(question, limit, allowed)
            if index.metric == "ip":
                require_products(found)
            return found

        if recorder is None:
            return self._serving.by(self, answer)
        return self._explained(answer, recorder, question)

    def _explained(
        self,
        answer: Callable[["Index"], pa.Table],
        recorder: Recorder,
        question: Question,
    ) -> pa.Table:
        """Return answers whose report tells how they were found."""

        def noted(index: Index) -> pa.Table:
            recorder.begin_again()
            return answer(index)

        first = self._serving.now(self)
        brought, included = self.cache.statistics.read_bytes, first._kept.bytes_read
        with recording(recorder):
            answers = self._serving.by(self, noted)
        serving, opening = self._serving.now(self), self.opening
        if serving is not self:
            opening = replace(opening, why="it takes the place of one that is damaged")
        return explained(
            answers,
            recorder,
            serving.version,
            serving.view,
            opening,
            columns=question.columns,
            rows_left_out=serving.view.rows_to_scan if question.freshness == "indexed" else 0,
            bytes_brought=self.cache.statistics.read_bytes - brought,
            bytes_included=serving._kept.bytes_read - (included if serving is first else 0),
        )

    def _within(self, question: Question, limit: float, allowed: AllowedRows | None) -> pa.Table:
        batch = question.batch
        tier = self._shards if self._files is None else self._files
        before = self._table_read
        parts = tier.parts_within(batch, limit, allowed)
        scanned = question.rows_to_scan(self.view, allowed)
        if scanned:
            only = None if allowed is None else allowed.scanned
            batches = self._scan.batches(self.dimension, only)
            parts = chain(parts, scan_parts(batches, len(batch)))
        pairs = pairs_within(batch, limit, self.metric, parts)
        enter("make the answer")
        table_bytes = self._table_read - before
        report = self._report(
            question.zeros, pairs.units, scanned, table_bytes=table_bytes, allowed=allowed
        )
        return self._answers.of_pairs(pairs, question.columns, report)

    def warm(self, *, lookups: bool = True) -> None:
        """Bring every shard of the version that answers to local disk, if it is not there.

        Args:
            lookups: have the rows of all values of included columns at hand in this process, too,
                for conditions, as far as they fit; and the kernels that searches call, where shards
                have their vectors as they are.

        Raises:
            DamagedIndexError: one cannot be read, and no other version can answer.
            EnvironmentProblemError: no local disk can be written.
            StoreUnavailableError: a file's store does not say.
        """

        def bring(index: Index) -> None:
            if index._files is None:
                index._shards.warm(for_searches=lookups)
                if lookups:
                    index._conditions.warm(index.table, index.version, index.view, index._kept)

        self._serving.by(self, bring)

    @property
    def cache_statistics(self) -> CacheStatistics:
        """What this process had of the local disk cache, read without it, and has in memory."""
        return replace(
            self.cache.statistics, read_by_ranges=self._ranges_read, lookup_bytes=LOOKUPS.bytes
        )

    def renew(self) -> None:
        """Drop shards whose files in the cache were found corrupt since, and what is kept of them.

        Masks and vectors side by side, which conditions keep, were copied from those files.
        """
        if self.cache.take_corrupted():
            # Whoever has the new conditions has the new shards, too: they are asked for later.
            self.__dict__.pop("_shards", None)
            self._conditions = KeptConditions()
