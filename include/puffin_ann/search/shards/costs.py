"""What answers of all shards under a condition are expected to cost, by each way; see `ways`."""

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.exact.compared_rows import Coding
from puffin_ann.ann.exact.kernels_coding import BLOCK
from puffin_ann.ann.exact.nearest_in import ROWS_WORTH_A_THREAD
from puffin_ann.ann.signs.row_codes import RowCodes
from puffin_ann.ann.signs.sign_rows import are_soonest_to_begin, threads_of
from puffin_ann.search.conditions import ways
from puffin_ann.search.conditions.allowed_rows import AllowedRows
from puffin_ann.search.conditions.expected import ASKED, CALLED_FOR_GATHERED, SEARCHED
from puffin_ann.search.conditions.paces import LEAST_QUERIES, STEP_ALONE, Work, learn, note, pace
from puffin_ann.search.explain.explanation import Among, Way, way_of
from puffin_ann.search.version.index_version import IndexVersion

ROWS_THAT_TELL = 16384
"""To compare fewer takes less than what is done for each query beside, which no figure counts."""

SECONDS_THAT_TELL = 40e-6
"""Of work that was measured to take less elsewhere, most is the way there and back. What it is
expected to take here does not count: once that is too little, nothing more would be learned."""


class Costs:
    """Compares the ways to answer queries from the shards of a version.

    Args:
        version: that answers.
        coding: tells whether all its rows are compared where they lie by a byte a number.
        signs: of its rows, which conditions share; None: none.
    """

    def __init__(
        self,
        version: IndexVersion,
        coding: Callable[[], Coding],
        signs: RowCodes | None = None,
    ) -> None:
        self._routing, self._rows = version.routing, version.vectors
        self._coding, self._signs = coding, signs

    def sifting_may_pay(self, wide: int, share: float, allowed: AllowedRows, queries: int) -> bool:
        """Tell whether to sift could be cheapest, were all rows near the queries to be answered.

        Args:
            wide: width of a search.
            share: of the rows near a query to expect that may be answered.
            allowed: the rows that may be answered.
            queries: asked at once.
        """
        routing = self._routing
        walked = ways.walked(routing.algorithm, routing.dimension, wide, queries)
        sifted = walked + ways.CALLED_TO_SIFT / max(1, queries)
        return self._is_cheapest(sifted, self._others(share, allowed, queries), allowed, queries)

    def sifting_pays(
        self,
        efforts: Iterable[tuple[float, float]],
        share: float,
        allowed: AllowedRows,
        queries: int,
    ) -> Iterator[bool]:
        """Tell for each effort if to sift is cheapest, with what becomes of queries left short.

        Args:
            efforts: (width of the searches of a query that are sifted, together; rows they give).
            share: as for `sifting_may_pay`, as are those below.
            allowed: see above.
            queries: see above.
        """
        others = self._others(share, allowed, queries)
        for width, rows in efforts:
            sifted = self._sifted(width, rows, allowed, queries, min(others))
            yield self._is_cheapest(sifted, others, allowed, queries)

    def gain_of_gathering(
        self, effort: tuple[float, float], allowed: AllowedRows, queries: int
    ) -> float:
        """Return what queries that are sifted would gain by rows being gathered, as a share.

        It is 1 for what those gain that are answered in the cheapest of the other ways, 0 where to
        sift takes no more than to compare gathered rows.

        Args:
            effort: see `sifting_pays`, as for those below.
            allowed: see above.
            queries: see above.
        """
        gathered = self._compared(allowed, queries, math.inf)
        sifted = self._listed(*effort, queries)
        others = min(self._others(self._near(allowed), allowed, queries)[1:])
        return min(1.0, max(0.0, sifted - gathered) / max(others - gathered, 1e-9))

    def comparing_pays(
        self, allowed: AllowedRows, queries: int, *, fits: bool, is_told: bool
    ) -> bool:
        """Tell whether to compare the rows of all shards in one go costs least.

        Args:
            allowed: the rows.
            queries: asked at once.
            fits: whether rows of all shards may be gathered; each may gather its own.
            is_told: whether they are compared, whatever it costs.
        """
        together, in_place, masked = self._others(self._near(allowed), allowed, queries)
        by_shard = together if is_told else min(together, masked * allowed.worth_of_mask)
        return min(together if fits else math.inf, in_place) <= by_shard

    def gathering_pays(self, allowed: AllowedRows, queries: int) -> bool:
        """Tell whether to gather and compare rows costs less than to do it where they lie."""
        together, in_place, _ = self._others(self._near(allowed), allowed, queries)
        return together < in_place

    def of_comparisons(self, allowed: AllowedRows, queries: int) -> dict[Way, float]:
        """Return the seconds to compare the rows of all shards in one go; see `comparing_pays`."""
        together, in_place, _ = self._others(self._near(allowed), allowed, queries)
        called = CALLED_FOR_GATHERED + queries * ASKED
        return {"gathered rows": called + queries * together, "allowed rows": queries * in_place}

    def of_ways(
        self, width: float, rows: float, allowed: AllowedRows, queries: int
    ) -> dict[Way, float]:
        """Return the seconds that each way through all shards takes; see `sifting_pays`.

        What is done beside the work that the ways are chosen by is added, to be told.
        """
        others = self._others(self._near(allowed), allowed, queries)
        masked = min(others[2], self._all_compared(allowed, queries))
        sifted = self._sifted(width, rows, allowed, queries, min(others))
        searched: dict[Among, float] = {"masked": masked, "sifted": sifted}
        seconds = self.of_comparisons(allowed, queries)
        called = SEARCHED * len(self._routing.shards)
        for among, cost in searched.items():
            way = way_of(self._routing.algorithm, "graph", among)
            if way is not None:
                seconds[way] = queries * cost + (called if among == "sifted" else 0.0)
        return seconds

    def note_walk(self, widths: NDArray[np.int64], k: int, seconds: float, threads: int) -> None:
        """Learn from a search of shards that took so long, unless the table was read for it.

        Of few queries nothing is learnt; see `paces`.

        Args:
            widths: (shards, q) int64, how widely each was searched.
            k: rows that each gave.
            seconds: that it took.
            threads: that it could take.
        """
        algorithm, queries = self._routing.algorithm, widths.shape[1]
        is_whole = self._routing.vectors == "float32"
        if queries < LEAST_QUERIES or algorithm not in ways.WIDTH or not is_whole:
            return
        width, rows = widths.sum() / queries, k * np.count_nonzero(widths) / queries
        cost = ways.sifted(algorithm, self._routing.dimension, float(width), float(rows), queries)
        note(Work.WALK, algorithm, queries * cost, threads * seconds, queries)

    def note_walk_of_few(self, widths: NDArray[np.int64], k: int, seconds: float) -> None:
        """Learn from graphs that few queries were answered by together; see `note_walk`.

        Args:
            widths: (shards, q) int64, how widely each was searched.
            k: rows that each gave.
            seconds: that it took.
        """
        algorithm, queries = self._routing.algorithm, widths.shape[1]
        wide = [width for width in widths.ravel().tolist() if width]  # few: NumPy takes longer
        width, rows = sum(wide) / queries, k * len(wide) / queries
        cost = queries * ways.sifted(algorithm, self._routing.dimension, width, rows, queries)
        if queries < LEAST_QUERIES and cost >= SECONDS_THAT_TELL * pace(Work.WALK_ALONE, algorithm):
            learn(Work.WALK_ALONE, algorithm, cost, seconds, STEP_ALONE)

    def note_comparison(
        self, rows: int, queries: int, seconds: float, threads: int, *, by_signs: bool
    ) -> None:
        """Learn from a comparison of rows that were gathered before; see `note_walk`.

        By signs single queries are compared, too, so one tells if it takes long enough.
        """
        if rows < ROWS_THAT_TELL:
            return
        dimension = self._routing.dimension
        each = ways.compared(rows, dimension, queries, math.inf, by_signs=by_signs)
        cost = queries * each
        if not by_signs:
            used = max(1, min(threads, rows // ROWS_WORTH_A_THREAD))
            note(Work.COMPARE, "", cost, used * seconds, queries)
        elif cost >= SECONDS_THAT_TELL * pace(Work.COMPARE_BY_SIGNS):
            used = threads_of(rows, queries, threads)
            learn(Work.COMPARE_BY_SIGNS, "", cost, used * seconds, STEP_ALONE)

    def _all_compared(self, allowed: AllowedRows, queries: int) -> float:
        """Return the seconds of a query for which graphs compare all rows that may be answered.

        They do where those are so few that a walk past the others would take longer.
        """
        rows, dimension = allowed.rows_answered, self._routing.dimension
        called = ways.CALLED * len(self._routing.graph_ids) / max(1, queries)
        return called + ways.compared_in_place(
            rows, self._rows, dimension, queries, Coding.NEVER, math.inf
        )

    def _compared(self, allowed: AllowedRows, queries: int, sharing: float) -> float:
        """Return the seconds of a query compared with rows of all shards, see `ways.compared`."""
        gathered, signs = allowed.gathered, self._signs
        rows, dimension = allowed.rows_answered, self._routing.dimension
        if gathered is not None:
            by_signs = gathered.rows.codings(queries)[1] is Coding.SIGNS
        else:
            by_signs = are_soonest_to_begin(rows, dimension, queries, signs)
        known = 0.0 if signs is None else signs.share
        return ways.compared(rows, dimension, queries, sharing, known, by_signs=by_signs)

    def _near(self, allowed: AllowedRows) -> float:
        """Return the share of the rows near a query to expect that may be answered."""
        return allowed.sifted.near(allowed.share)

    def _sifted(
        self, width: float, rows: float, allowed: AllowedRows, queries: int, other: float
    ) -> float:
        """Return the seconds of a query that is sifted, and if it is left short takes others."""
        return self._listed(width, rows, queries) + allowed.sifted.short_share * other

    def _listed(self, width: float, rows: float, queries: int) -> float:
        """Return the seconds of a query that is sifted, whatever is found."""
        routing = self._routing
        sifted = ways.sifted(routing.algorithm, routing.dimension, width, rows, queries)
        return sifted + ways.CALLED_TO_SIFT / max(1, queries)

    def _is_cheapest(
        self, sifted: float, others: tuple[float, float, float], allowed: AllowedRows, queries: int
    ) -> bool:
        """Tell whether to sift costs less than other ways.

        To gather rows is paid once queries would have gained together what it takes. Those before
        count for what they would have gained, and so do these, by what to sift them takes.

        Args:
            sifted: seconds of a query that is sifted.
            others: what `_others` returns.
            allowed: see `sifting_may_pay`.
            queries: see `sifting_may_pay`.
        """
        _, in_place, masked = others
        gathered = self._compared(allowed, queries, math.inf)
        rest = min(in_place, masked)
        fits = allowed.can_be_gathered(self._routing.dimension)
        if sifted >= rest or sifted <= gathered or not fits:
            return sifted < rest
        if allowed.gathered is not None:
            return False
        once = self._compared(allowed, queries, 1.0) - gathered
        before = max(0.0, allowed.sharing - 2 * queries)
        return before * (rest - gathered) + 2 * queries * (sifted - gathered) < once

    def _others(
        self, share: float, allowed: AllowedRows, queries: int
    ) -> tuple[float, float, float]:
        """Return the seconds of a query: rows compared together, in place, or others masked."""
        near = max(share, allowed.share), allowed.sifted.near_short(allowed.share)
        is_gathered = allowed.gathered is not None
        return allowed.decisions.latest(
            (*near, queries, allowed.sharing, is_gathered),
            lambda: self._weighed(*near, allowed, queries),
        )

    def _weighed(
        self, share: float, near: float, allowed: AllowedRows, queries: int
    ) -> tuple[float, float, float]:
        """Return what `_others` does, by the shares near all queries and near those left short."""
        routing, of_all = self._routing, allowed.share
        least = ways.passing(of_all, near)
        shards = len(routing.graph_ids)
        wide = max(routing.search_width, least) * shards
        sharing = allowed.sharing if allowed.gathered is None else math.inf
        dimension = routing.dimension
        masked = ways.masked(routing.algorithm, dimension, wide, share, near, queries)
        each = shards / max(1, queries)
        beside = self._rows * (1.0 - (1.0 - of_all) ** BLOCK)
        return (
            self._compared(allowed, queries, sharing),
            ways.compared_in_place(
                beside, self._rows, dimension, queries, self._coding(), allowed.sharing
            )
            + ways.CALLED_TO_COMPARE * each,
            masked + ways.CALLED * each,
        )
