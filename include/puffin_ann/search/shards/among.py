"""Queries under a condition: near rows are sifted where that costs least, else searched for."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.types import HORIZON, SEEN, THROUGH
from puffin_ann.search.conditions import ways
from puffin_ann.search.conditions.allowed_rows import AllowedRows
from puffin_ann.search.conditions.decisions import size_of
from puffin_ann.search.explain.explanation import Way
from puffin_ann.search.explain.recorder import current, enter
from puffin_ann.search.merge import Source
from puffin_ann.search.shards.costs import Costs
from puffin_ann.search.shards.opening.snapshot_shard import UNASKED
from puffin_ann.search.shards.reach import Reach
from puffin_ann.search.shards.routes import Routes
from puffin_ann.search.shards.several.few import Few
from puffin_ann.search.shards.sifting import sift_first
from puffin_ann.search.version.index_version import IndexVersion

Vectors = NDArray[np.float32]


class Wanted(NamedTuple):
    """What is wanted of a search; see `ShardTier.search`."""

    k: int
    width: int | None
    probe_partitions: int | None


class Probe(Protocol):
    """Searches shards; see `ShardTier._probe`."""

    def __call__(
        self,
        queries: Vectors,
        k: int,
        widths: NDArray[np.number[Any]],
        allowed: AllowedRows | None,
        sifting: tuple[int, Vectors] | None = None,
    ) -> list[Source]:
        """Return what they answer."""


class Among:
    """Searches the shards of a version under conditions.

    Args:
        version: of the index.
        routes: to its shards.
        costs: of each way.
        reach: how far searches go.
        probe: searches shards.
        ask_few: has shards sift near rows together, see `ShardTier._ask_few`.
        search: answers without sifting, see `ShardTier._search`.
    """

    def __init__(
        self,
        version: IndexVersion,
        routes: Routes,
        costs: Costs,
        reach: Reach,
        probe: Probe,
        ask_few: Callable[[Vectors, int, int, int, AllowedRows | None], Few | None],
        search: Callable[
            [Vectors, int, int | None, int | None, AllowedRows | None],
            tuple[list[Source], int],
        ],
    ) -> None:
        self._shards = len(version.routing.shards)
        # Packed nodes are sifted while they are walked: only what may be answered is listed.
        self._lists_all = version.routing.algorithm != "vamana"
        self._routes, self._costs = routes, costs
        # Asked again by each query, mostly for as many rows.
        self._wider, self._cells = lru_cache(reach.wider), lru_cache(reach.cells)
        self._width = lru_cache(reach.width)
        self._probe, self._ask_few, self._search = probe, ask_few, search

    def answer(
        self, queries: Vectors, wanted: Wanted, allowed: AllowedRows, *, is_told: bool
    ) -> tuple[list[Source], int]:
        """Answer as `ShardTier.search` does.

        Args:
            queries: (q, d) float32, at least one.
            wanted: of the search.
            allowed: the only rows that may be answered.
            is_told: to sift, whatever it costs.
        """
        share = allowed.share
        asked = _Asked(self, queries, wanted, allowed, share)
        recorder = current()
        if recorder is not None and share and not is_told:
            enter("weigh the ways")
            recorder.ways_expected = asked.ways_expected()
            recorder.queries_sharing = round(allowed.sharing)
            enter("search the index")
        if not share or not (is_told or asked.is_to_try()):
            return self._search(queries, *wanted, allowed)
        pays = (lambda _: True) if is_told else asked.pays
        sources = sift_first(queries, asked.sift, pays, asked.search, allowed.sifted, share)
        return sources, asked.shards


class _Asked:
    """Some queries under a condition.

    Attributes:
        shards: most shards that were searched so far, over all queries.
    """

    def __init__(
        self, among: Among, queries: Vectors, wanted: Wanted, allowed: AllowedRows, share: float
    ) -> None:
        self._among, self._queries = among, queries
        self._wanted, self._allowed, self._share = wanted, allowed, share
        self._wide = among._width(wanted.k, wanted.width)
        self._key = wanted, size_of(len(queries)), allowed.gathered is None
        self._sifting = "sift", self._key
        self.shards = 0
        self._shares: dict[int, Vectors] = {}

    def is_to_try(self) -> bool:
        """Tell whether to sift may pay, or what lies near the queries is to be known by that."""
        allowed = self._allowed
        last = allowed.decisions.last(self._sifting)
        if last is not None and last[0]:  # it paid: whether it does still is found out at once
            return True
        is_seen = allowed.sifted.seen > 0 or allowed.share == 1.0
        return allowed.decisions.of(
            ("try", self._key, is_seen),
            allowed.asked,
            lambda: self.may_pay() or not (is_seen or self._is_compared()),
        )

    def may_pay(self) -> bool:
        """Tell whether to sift could be cheapest, were all rows near the queries to be answered."""
        costs, queries = self._among._costs, len(self._queries)
        return costs.sifting_may_pay(self._wide, self._share, self._allowed, queries)

    def _is_compared(self) -> bool:
        """Tell whether rows would be compared: else others are masked.

        Walks with a mask are to be trusted only where it is known if those lie near the queries.
        """
        allowed, queries = self._allowed, self._queries
        return self._among._costs.comparing_pays(
            allowed, len(queries), fits=allowed.can_be_gathered(queries.shape[1]), is_told=False
        )

    def pays(self, are_short: bool = False) -> bool:
        """Tell whether to sift is expected to cost least: anew, if queries before are short."""
        if are_short:
            self._allowed.decisions.doubt(self._sifting)
        return self._weighed()[0]

    def _weighed(self) -> tuple[bool, float]:
        """Tell whether to sift is expected to cost least; and see `Costs.gain_of_gathering`."""
        return self._allowed.decisions.of(self._sifting, self._allowed.asked, self._weigh)

    def _weigh(self) -> tuple[bool, float]:
        if not self._is_cheapest():
            return False, 1.0
        allowed = self._allowed
        effort = self._effort(allowed.sifted.near(self._share))
        return True, self._among._costs.gain_of_gathering(effort, allowed, len(self._queries))

    def _is_cheapest(self) -> bool:
        allowed, queries = self._allowed, len(self._queries)
        share = allowed.sifted.near(self._share)

        def efforts() -> Iterator[tuple[float, float]]:
            listed, wide, shards = self._listed(share), self._width(share), self._among._shards
            yield wide, listed
            yield shards * wide, shards * listed
            yield self._effort(share)

        pays = self._among._costs.sifting_pays(efforts(), share, allowed, queries)
        # Of the nearest shard alone it may be too much, and of all of them little enough: then it
        # is not worth to find routes.
        return next(pays) and (next(pays) or next(pays))

    def ways_expected(self) -> dict[Way, float]:
        """Return the seconds that each way is expected to take, for whoever is told."""
        among, allowed, queries = self._among, self._allowed, self._queries
        effort = self._effort(allowed.sifted.near(self._share))
        expected = among._costs.of_ways(*effort, allowed, len(queries))
        if not allowed.can_be_gathered(queries.shape[1]):
            del expected["gathered rows"]
        return expected

    def _effort(self, share: float) -> tuple[float, float]:
        """Return the width of a query's searches that are sifted, together, and rows they list."""
        widths = self._widths(share)
        rows = self._listed(share) * np.count_nonzero(widths) / len(widths)
        return float(widths.sum(axis=1).mean()), float(rows)

    def sift(
        self, asked: NDArray[np.bool_], share: float
    ) -> tuple[list[Source], NDArray[np.bool_]]:
        """Sift the rows near some queries; see `sifting.Sift`."""
        found = self._sift_together(share) if asked.all() else None
        sources, sights = self._sift_apart(asked, share) if found is None else found
        if found is not None and len(asked) == 1:
            return sources, self._tell_of_one(sources[0].distances, sights[0])
        distances = sources[0].distances
        if len(sources) > 1:
            distances = np.concatenate([source.distances for source in sources], axis=1)
            distances.sort(axis=1)
        enough = ways.is_enough(distances, sights[:, HORIZON], self._wanted.k)
        enough &= ways.are_even(sights, self._share)
        sifted, done = self._allowed.sifted, enough & asked
        sifted.add_rows(*_seen(sights))
        if (done != asked).any():
            sifted.add_short(*_seen(sights[asked & ~enough]))
        left_alone = 1.0 - self._weighed()[1]
        self._allowed.settled += left_alone * int(np.count_nonzero(done))
        return sources, enough

    def _tell_of_one(self, distances: Vectors, sight: Vectors) -> NDArray[np.bool_]:
        """Tell whether a query alone has enough, (1,) bool, and note it: `sift` in fewer steps.

        Args:
            distances: (1, m), of what was found, ascending.
            sight: (3,), see `Sight`.
        """
        allowed, k = self._allowed, self._wanted.k
        horizon, seen, through = float(sight[HORIZON]), int(sight[SEEN]), int(sight[THROUGH])
        is_enough = distances.shape[1] >= k and float(distances[0, k - 1]) < horizon
        is_enough = is_enough and through >= ways.EVEN * self._share * seen
        allowed.sifted.add_rows(seen, through)
        if is_enough:
            allowed.settled += 1.0 - self._weighed()[1]
        else:
            allowed.sifted.add_short(seen, through)
        return np.array([is_enough])

    def search(self, left: Vectors) -> list[Source]:
        """Answer queries otherwise."""
        sources, shards = self._among._search(left, *self._wanted, self._allowed)
        self.shards = max(self.shards, shards)
        return sources

    def _sift_together(self, share: float) -> tuple[list[Source], Vectors] | None:
        """Return what shards sift together, and (q, 3) sights; None if they cannot."""
        among = self._among
        if among._lists_all:
            return None
        wide, cells = self._width(share), self._cells(share)
        few = among._ask_few(self._queries, self._wanted.k, wide, cells, self._allowed)
        if few is None:
            return None
        among._costs.note_walk_of_few(few.widths, self._wanted.k, few.seconds)
        self.shards = max(self.shards, few.touched)
        return [few.source], few.sights

    def _sift_apart(self, asked: NDArray[np.bool_], share: float) -> tuple[list[Source], Vectors]:
        """Return what each shard sifts, and (q, 3) sights."""
        among, widths = self._among, self._widths(share)
        if not asked.all():
            widths = np.where(asked[:, None], widths, 0)
        self.shards = max(self.shards, int(np.count_nonzero(widths.any(axis=0))))
        sights = np.tile(UNASKED, (among._shards, len(asked), 1))
        many = ways.wanted(self._wanted.k, share)
        sources = among._probe(self._queries, self._wanted.k, widths, self._allowed, (many, sights))
        together = sights.sum(axis=0)
        together[:, HORIZON] = sights[:, :, HORIZON].min(axis=0)
        return sources, together

    def _widths(self, share: float) -> NDArray[np.number[Any]]:
        """Return (q, shards), how widely to search each shard."""
        shares = self._nearest(self._cells(share))
        widths = np.rint(shares * self._width(share))
        return np.where(shares > 0.0, np.maximum(self._listed(share), widths), 0)

    def _nearest(self, cells: int) -> Vectors:
        """Return the ways to shards by so many cells; kept, since they are asked for again."""
        if cells not in self._shares:
            self._shares[cells] = self._among._routes.nearest(self._queries, cells)
        return self._shares[cells]

    def _cells(self, share: float) -> int:
        near = ways.expected(self._wanted.k, share)
        return self._among._cells(near, self._wanted.probe_partitions)

    def _width(self, share: float) -> int:
        k = self._wanted.k
        return self._among._wider(ways.expected(k, share), self._wide, k)

    def _listed(self, share: float) -> int:
        """Return how many rows each search lists."""
        k = self._wanted.k
        return ways.wanted(k, share) if self._among._lists_all else k


def _seen(sights: Vectors) -> tuple[int, int]:
    """Return how many rows near queries were seen, and may be answered, by (q, 3) sights."""
    totals = sights.sum(axis=0)
    return int(totals[SEEN]), int(totals[THROUGH])
