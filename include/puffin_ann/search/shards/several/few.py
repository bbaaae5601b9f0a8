"""A few queries, answered in one call of a kernel: by the shards that are graphs of packed nodes.

Of what a query alone takes, three quarters would else be spent on the way from step to step.
"""

from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.search.conditions.allowed_rows import AllowedRows
from puffin_ann.search.merge import Source
from puffin_ann.search.shards.opening.snapshot_shard import SnapshotShard, packed_searcher_of
from puffin_ann.search.shards.routes import Routes
from puffin_ann.search.shards.several.located import Located

if TYPE_CHECKING:
    from puffin_ann.ann.vamana.several import Several

FEW = 4
"""Queries, at most. More are asked of one shard after the other, whose nodes are then still in the
processor's caches; by several threads, too."""

MOST_SHARDS = 64
"""Of more, a query is asked of few, and each call would look at all."""

REFUSALS_BORNE = 4
"""Equal distances are put in order, and rows compared one by one, by another search: graphs that
leave one of so many calls to it are not asked together until there were more calls."""

_NO_SIEVES, _NO_SIGHTS = np.empty(0, np.uint64), np.empty((0, 3), np.float32)


class Few(NamedTuple):
    """What the graphs answered.

    Attributes:
        source: of all of them.
        widths: (shards, q) int64, how widely each shard is to be searched, 0 for not at all.
        sights: (q, 3) float32, see `Sight`, where rows were sifted.
        is_part: whether there are shards that are no such graphs.
        seconds: that it took, once masks had been made.
    """

    source: Source
    widths: NDArray[np.int64]
    sights: NDArray[np.float32]
    is_part: bool
    seconds: float

    @property
    def touched(self) -> int:
        """Shards that any query is to be searched in."""
        return sum(map(any, self.widths.tolist()))  # few: NumPy takes longer


class FewQueries:
    """Graphs of packed nodes, to be asked a few queries; safe for several threads.

    Attributes:
        numbers: of the shards that are such graphs, by their places in the version.

    Args:
        shards: of the version, all.
        routes: to them.
        metric: of the index.
    """

    def __init__(self, shards: list[SnapshotShard], routes: Routes, metric: str) -> None:
        self._shards, self._routes, self._metric = shards, routes, METRICS[metric]
        searchers = [packed_searcher_of(shard.loaded.engine) for shard in shards]
        there = [(at, one) for at, one in enumerate(searchers) if one is not None]
        self.numbers = [at for at, _ in there]
        self._is_part = len(there) < len(shards)
        self._several: Several | None = None
        self._sieves: _Sieves | None = None
        self._calls = self._refused = 0
        if there and len(shards) <= MOST_SHARDS:
            from puffin_ann.ann.vamana import several  # others' searches have no use of it

            mine = [shards[at] for at in self.numbers]
            masks = [
                None if shard.deleted is None else shard.deleted.view(np.uint8) for shard in mine
            ]
            self._several = several.Several([one for _, one in there], masks)
            self._located = Located.of(mine)

    def ask(
        self,
        queries: NDArray[np.float32],
        k: int,
        wide: int,
        cells: int,
        allowed: AllowedRows | None = None,
    ) -> Few | None:
        """Return near rows of each query; of a condition, those of them that satisfy it.

        Args:
            queries: (q, d) float32, contiguous.
            k: neighbours.
            wide: width of a search.
            cells: to probe.
            allowed: the only rows that may be answered, fewer than k where fewer are near; None
                means all.

        Returns:
            None where they do not answer: each shard is to be asked for itself. So it is under a
            condition where not all shards are such graphs.
        """
        several = self._several
        if several is None or (allowed is not None and self._is_part):
            return None
        self._calls += 1
        if REFUSALS_BORNE * self._refused > self._calls + REFUSALS_BORNE:
            return None
        if not self._routes.are_near(queries):
            return None
        from puffin_ann.ann.graph.searcher import EXHAUSTIVE_ROWS, SPARE
        from puffin_ann.search.shards.several.kernels_few import answer_few

        shape = len(queries), k
        answers = np.empty(shape, np.int64), np.empty(shape, np.int64), np.empty(shape, np.float32)
        keys = np.empty((3, len(queries) * k), np.int64)
        widths = np.empty((len(self._shards), len(queries)), np.int64)
        sieves, sights = _NO_SIEVES, _NO_SIGHTS
        if allowed is not None:
            # Held until the kernel has returned: another thread may ask by another condition.
            held, sights = self._sieves_of(allowed), np.empty((len(queries), 3), np.float32)
            sieves = held.addresses
        stamps = several.take()
        asked = np.array(
            [self._metric.code, cells, wide, SPARE, EXHAUSTIVE_ROWS, stamps.last, *self.numbers],
            np.int64,
        )
        began = perf_counter()
        is_answered = answer_few(
            self._routes.routed, several.where(len(queries)), asked, several.live, several.widest,
            self._located.where, stamps.addresses, sieves, queries, self._routes.placed(queries),
            widths, answers, keys, sights,
        )  # fmt: skip
        seconds = perf_counter() - began
        stamps.last = int(asked[5])
        several.give_back(stamps)
        if not is_answered:
            self._refused += 1
            return None
        if allowed is None and several.are_in_hollows(
            self._metric, queries, answers[2][:, 0], max(wide, k)
        ):
            return None
        return Few(self._located.source(answers, keys), widths, sights, self._is_part, seconds)

    def _sieves_of(self, allowed: AllowedRows) -> "_Sieves":
        """Return the masks of a condition, and where they lie: those of the last one are kept."""
        last = self._sieves
        if last is None or last.allowed is not allowed:
            masks = [self._shards[at].allowed(allowed).excluded for at in self.numbers]
            where = np.array([mask.ctypes.data for mask in masks], np.uint64)
            self._sieves = last = _Sieves(allowed, masks, where)
        return last


class _Sieves(NamedTuple):
    """Masks of the rows that a condition excludes, and where they lie.

    Attributes:
        allowed: the rows of the condition.
        masks: of each graph, (n,) bool, held.
        addresses: (graphs,) uint64.
    """

    allowed: AllowedRows
    masks: list[NDArray[np.bool_]]
    addresses: NDArray[np.uint64]
