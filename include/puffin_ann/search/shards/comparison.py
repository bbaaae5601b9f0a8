"""Answers under a condition by comparing every row that it allows, of all shards together."""

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.exact.compared_rows import Coding
from puffin_ann.ann.exact.kernels_products import HAS_DOTS
from puffin_ann.declaration import EXACT
from puffin_ann.search.conditions import ways
from puffin_ann.search.conditions.allowed_rows import AllowedRows
from puffin_ann.search.conditions.decisions import size_of
from puffin_ann.search.conditions.expected import Expected, note_gathering, of_gathered
from puffin_ann.search.conditions.gathered import GATHERED_BYTES, Gathered
from puffin_ann.search.explain.explanation import ShardWay, Way
from puffin_ann.search.explain.recorder import current, enter
from puffin_ann.search.merge import Source
from puffin_ann.search.shards.costs import Costs
from puffin_ann.search.shards.opening.opened import OpenedShards
from puffin_ann.search.version.index_version import IndexVersion

Answer = tuple[list[Source], int]


class Comparison:
    """Compares the rows of all shards that may be answered, gathered or where they lie.

    Args:
        version: that answers.
        opened: its shards.
        costs: of the ways to answer.
        in_place: (queries, k, allowed) -> the answers, rows compared where they lie.
        threads: to use.
    """

    def __init__(
        self,
        version: IndexVersion,
        opened: OpenedShards,
        costs: Costs,
        in_place: Callable[[NDArray[np.float32], int, AllowedRows], Answer],
        threads: int,
    ) -> None:
        self._routing = version.routing
        self._opened, self._costs, self._threads = opened, costs, threads
        self._in_place = in_place

    def answer(
        self, queries: NDArray[np.float32], k: int, allowed: AllowedRows, way: ways.Way | None
    ) -> Answer | None:
        """Return the nearest rows and how many shards were asked; None where other ways cost less.

        Args:
            queries: (q, d) float32.
            k: neighbours.
            allowed: the only rows that may be answered.
            way: to answer, whatever it costs; None: the cheapest.
        """
        if not self._pays(allowed, queries, way):
            return None
        enter("open shards")
        self._opened.open_all()
        self._opened.place(allowed)
        is_gathered, recorder = self._gathers(allowed, queries), current()
        # Beforehand: what is gathered or coded now costs less later.
        told: ShardWay | None = None
        if recorder is not None:
            recorder.begin_turn()
            told = self._told(allowed, queries, is_gathered=is_gathered)
        began = perf_counter()
        compare = self._of_gathered if is_gathered else self._in_place
        answers = compare(queries, k, allowed)
        if recorder is not None and told is not None:
            recorder.add_shard(replace(told, seconds=perf_counter() - began))
        return answers

    def _of_gathered(self, queries: NDArray[np.float32], k: int, allowed: AllowedRows) -> Answer:
        """Return the answers of rows that are gathered, unless they were before."""
        gathered = allowed.gathered
        if gathered is None:
            enter("gather rows")
            shards, codes = self._opened.open_all(), self._opened.row_codes
            began, known = perf_counter(), codes.share
            gathered = Gathered.of([shard.part(allowed) for shard in shards], codes)
            gathered.rows.prepare(len(queries), k)
            if gathered.size <= GATHERED_BYTES:
                allowed.gathered = gathered
            else:  # they could not be coded
                allowed.may_be_gathered = False
                allowed.decisions.clear()
            seconds = perf_counter() - began
            by_signs = gathered.rows.codings(len(queries), k)[0] is Coding.SIGNS
            note_gathering(
                len(gathered.rows), self._routing.dimension, len(shards), seconds, known,
                by_signs=by_signs,
            )  # fmt: skip
        enter("search shards")
        began, (coding, _) = perf_counter(), gathered.rows.codings(len(queries), k)
        found = gathered.nearest(queries, k, self._threads)
        seconds = perf_counter() - began
        by_signs, is_known = coding is Coding.SIGNS, coding is Coding.DONE or not HAS_DOTS
        is_same = coding is gathered.rows.codings(len(queries), k)[0]
        if is_same and (by_signs or is_known):  # else it is not what comparisons are taken for
            self._costs.note_comparison(
                allowed.rows_answered, len(queries), seconds, self._threads, by_signs=by_signs
            )
        return [found], gathered.shard_count

    def _pays(
        self, allowed: AllowedRows, queries: NDArray[np.float32], way: ways.Way | None
    ) -> bool:
        """Tell whether the rows of all shards that may be answered are compared in one go.

        Else each shard tells what costs it less.
        """
        has_vectors = self._routing.vectors == "float32" and self._routing.algorithm != EXACT
        if not allowed.rows_answered or not has_vectors:
            return False
        if way not in (None, ways.Way.COMPARE):
            return False
        return allowed.decisions.of(
            ("compare", way, size_of(len(queries)), allowed.gathered is None),
            allowed.asked,
            lambda: self._costs.comparing_pays(
                allowed,
                len(queries),
                fits=allowed.can_be_gathered(queries.shape[1]),
                is_told=way is not None,
            ),
        )

    def _gathers(self, allowed: AllowedRows, queries: NDArray[np.float32]) -> bool:
        """Tell whether the rows are gathered."""
        if allowed.gathered is not None:
            return True
        return allowed.can_be_gathered(queries.shape[1]) and allowed.decisions.of(
            ("gather", size_of(len(queries))),
            allowed.asked,
            lambda: self._costs.gathering_pays(allowed, len(queries)),
        )

    def _told(
        self, allowed: AllowedRows, queries: NDArray[np.float32], *, is_gathered: bool
    ) -> ShardWay:
        """Tell how the rows of all shards will be compared."""
        way: Way = "gathered rows" if is_gathered else "allowed rows"
        told = ShardWay.of_all(self._routing, way, len(queries), allowed.rows_answered)
        shards = self._opened.open_all()
        if is_gathered:
            expected = self._of_gathered_expected(allowed, len(queries))
        else:
            parts = [shard.expected_in_place(len(queries), allowed) for shard in shards]
            expected = Expected(*map(sum, zip(*parts, strict=True)))
        is_first = any(shard.is_untouched for shard in shards)
        return told.expecting(*expected, is_first=is_first)

    def _of_gathered_expected(self, allowed: AllowedRows, queries: int) -> Expected:
        """Return what `_of_gathered` is expected to take."""
        gathered = allowed.gathered
        coding = None if gathered is None else gathered.rows.codings(queries)
        dimension, shards = self._routing.dimension, len(self._routing.shards)
        return of_gathered(
            allowed.rows_answered, dimension, queries, shards, coding, self._opened.row_codes
        )
