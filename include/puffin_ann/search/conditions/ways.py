"""Choose how queries are answered under a condition, by what each way was measured to cost.

Rows that may be answered are compared alone; or the engine is searched with the others masked; or
it is searched as without a condition, for more rows than are wanted, and the others are sifted out.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.kernels_merge import leave_out
from puffin_ann.ann.core.types import HORIZON, SEEN, THROUGH, Answers
from puffin_ann.ann.exact.compared_rows import Coding
from puffin_ann.ann.exact.kernels_products import HAS_DOTS
from puffin_ann.search.conditions.paces import LEAST_QUERIES, Work, pace


class Way(StrEnum):
    """How queries are answered."""

    COMPARE = "compare"
    MASK = "mask"
    SIFT = "sift"


@dataclass(frozen=True)
class Cost:
    """Seconds that something takes for a query in a batch, and for one in a call of its own."""

    batch: float
    single: float

    def of(self, queries: int) -> float:
        """Return the seconds of each of so many queries: what they share is parted among them."""
        return self.batch + (self.single - self.batch) / max(1, queries)


NARROW, WIDE = 100, 384
"""Dimensions at which it was measured what searches cost."""


@dataclass(frozen=True)
class Growing:
    """A cost that grows with the dimension: as measured at `NARROW` and at `WIDE`."""

    narrow: Cost
    wide: Cost

    def of(self, dimension: int, queries: int) -> float:
        """Return the seconds of each of so many queries at a dimension."""
        part = max(0.0, (dimension - NARROW) / (WIDE - NARROW))
        return (1 - part) * self.narrow.of(queries) + part * self.wide.of(queries)


COMPARED = Cost(4.9e-11, 1.0e-10)
"""Of a number of a vector that is read as it is. This and what follows is printed by
`python -m benchmarks ways`, of the sample data and of synthetic rows, on one thread of an EPYC; one
figure alone is their mean."""

COMPARED_BY_BYTES = Growing(Cost(8.3e-12, 2.6e-11), Cost(5.8e-12, 3.6e-11))
"""The same by a byte a number, where the machine multiplies bytes."""

BY_SIGNS = Growing(Cost(0.9e-9, 0.9e-9), Cost(2.8e-9, 2.8e-9))
"""Of a row that is compared by a bit or two of its numbers: a third and a fifth of what one query
takes by a byte a number, as it was found to be on an Intel, of 50,000 rows and more."""

CODED = 6.0e-10
"""Seconds to turn a number of a vector that was just copied into a byte, where that is not done at
once."""

CODED_IN_PLACE = 1.0e-9
"""The same of a vector that no cache holds: of 50,000 × 100. `python -m benchmarks ways` does not
print it."""

GATHERED = 1.2e-9 if HAS_DOTS else 1.75e-9
"""Seconds to gather a number of a vector, before the first comparison, out of four shards of
1,000,000 mixed rows: to turn it into a byte where the machine multiplies bytes, else to copy it
beside others. The former is half of what it took to copy and then to code on an EPYC, as it was
found to be on an Intel."""

SIGNED = 1.6
"""Times that, to rotate rows and to note a bit or two of their numbers."""

ORDERED = 9e-8
"""Seconds to gather a row whose signs are known: to find it, and to put it in its place."""

CALLED = 100e-6
"""Seconds that a call takes for each shard beside, however many queries it has: of four shards of
25,000 rows × 100, a tenth of them allowed, what one query a call took more than its share of a
batch. `python -m benchmarks ways` does not print it."""

CALLED_TO_COMPARE = 45e-6
"""The same where rows are compared where they lie; it is not printed, either."""

CALLED_TO_SIFT = 20e-6
"""Seconds that a call takes for its queries that are sifted, more than one that compares gathered
rows. Of four shards of 29,000 rows × 384 it was 43 us more on an Intel than to compare a tenth of
the rows, and 65 us less than half of them, which leave caches to nothing else. It is not printed,
either."""

WIDTH = {
    "vamana": Growing(Cost(0.39e-6, 0.45e-6), Cost(0.69e-6, 0.82e-6)),
    "hnsw": Growing(Cost(0.42e-6, 0.60e-6), Cost(2.41e-6, 2.64e-6)),
    "ivf_pq": Growing(Cost(0.23e-6, 0.33e-6), Cost(0.46e-6, 0.64e-6)),
}
"""Of a unit of the search width, by engine."""

LISTED = {
    "vamana": Growing(Cost(0.06e-6, 0.10e-6), Cost(0.20e-6, 0.29e-6)),
    "hnsw": Growing(Cost(0.04e-6, 0.04e-6), Cost(0.04e-6, 0.07e-6)),
    "ivf_pq": Growing(Cost(0.20e-6, 0.21e-6), Cost(0.42e-6, 0.42e-6)),
}
"""Of a further answer of a search that is as wide, by engine."""

MASKED = {"vamana": 1.7, "hnsw": 1.0, "ivf_pq": 1.55}
"""What a search costs with half of the rows masked, if it costs 1 with none."""

APART = 0.4
"""Power of that at least, by how many times fewer of the rows near a query may be answered than of
all: masked rows that lie together near it are few to go through, and the others are hardly met. So
half of the rows masked, all of them near, costs a vamana search of the sample 1.15, of synthetic
rows 1.7."""

PASSING = 12.0
"""How wide to search past masked rows at least, by the share that may be answered. A graph goes
through masked rows only if they are nearer than a third of what it keeps, and lists are left out of
which none is near. By a width of 10, enough without a mask, a quarter of the answers are missed if
a tenth of 150,000 mixed rows may be answered."""

FARTHER, MOST_FARTHER = 1.0, 6.0
"""Power of how many times fewer of the rows near a query may be answered than of all, by which it
is searched more widely, and by how much at most. By a power of 0.75, and 4 at most, 0.93 and 0.94
of the answers are found where the half of 1,000,000 mixed rows may be answered that lies far from
the queries, asked one a call."""

SPREAD = 2.0
"""Standard deviations of how many of the rows found may be answered, if a condition does not depend
on the vectors: so many more rows are wanted that one query in forty is left short."""

SOME_SPREAD = 0.5
"""The same of how widely is searched for them. By the width for their mean, a thousandth fewer of
the answers would be found than without a condition (words, half of the rows allowed)."""

TRIED = 32
"""Queries of a batch that are sifted first: they tell whether rows near them may be answered. Where
to sift does not pay but could, one of so many queries is sifted all the same, and later of more:
others may ask by now."""

TRIED_OF_FEW = 8
"""Of a small batch, no more than one of so many queries are sifted first, but so many at least."""

TRIED_SHARE = 0.5
"""Share of the rows near them that is expected of these, or more: few rows tell as much as many."""

EVEN = 0.5
"""Of the rows seen near a query, at least this share of what may be answered of all must be allowed
for it to be sifted. Where fewer are, those lie apart from the others near it, which a walk towards
the query seldom comes by: of the answers to queries far from the half that is allowed, 0.8 and 0.9
were found where less than that was, no matter how many were allowed, else as many as without a
condition (packages and 40,000 glosses, 384 dimensions)."""

DISTRUSTED = 4.0
"""So many times what a search with a mask takes may be spent on comparing rows, which misses none,
where they lie apart as `EVEN` has it: walks end among rows that may not be answered. Of 20,000 rows
in clusters far from each other, of which the nearest are masked, every other answer was missed; by
twice and three times as much, one of ten, and fewer."""


def compared(
    rows: int,
    dimension: int,
    queries: int,
    sharing: float,
    known: float = 0.0,
    *,
    by_signs: bool,
) -> float:
    """Return the seconds a query to compare so many rows.

    Args:
        rows: that may be answered.
        dimension: of their vectors.
        queries: asked at once.
        sharing: queries that share the time to gather the rows; infinity if they are gathered.
            With those that were answered otherwise so far among them, rows are gathered once that
            would have taken about as much as what was lost by not having gathered them.
        known: see `of_gathering`.
        by_signs: whether rows are compared so.
    """
    once = of_gathering(rows, dimension, known, by_signs=by_signs) / max(1.0, sharing)
    if by_signs:
        return of_signs(rows, dimension) + once
    return of_a_number(dimension, queries) * rows * dimension + once


def of_signs(rows: int, dimension: int) -> float:
    """Return the seconds a query to compare so many rows by the signs of their numbers."""
    return pace(Work.COMPARE_BY_SIGNS) * BY_SIGNS.of(dimension, 1) * rows


def of_gathering(rows: int, dimension: int, known: float = 0.0, *, by_signs: bool) -> float:
    """Return the seconds to bring rows into the form that queries are compared with.

    Args:
        rows: as many.
        dimension: of their vectors.
        known: share of all rows whose signs are known already.
        by_signs: whether they are compared so.
    """
    each = pace(Work.GATHER) * GATHERED * dimension
    if by_signs:
        each = known * pace(Work.ORDER) * ORDERED + (1.0 - known) * SIGNED * each
    return each * rows


def compared_in_place(
    rows: float, all_rows: int, dimension: int, queries: int, coding: Coding, sharing: float
) -> float:
    """Return the seconds a query to compare rows where they lie, with those between them.

    Args:
        rows: that are compared.
        all_rows: of their shards, which are coded once for all conditions.
        dimension: of their vectors.
        queries: asked at once.
        coding: whether they are compared by a byte a number.
        sharing: queries that share the time to code the rows.
    """
    if coding is Coding.NEVER or not HAS_DOTS:
        return of_a_number(dimension, queries, by_codes=False) * rows * dimension
    coded = CODED_IN_PLACE * all_rows / max(1.0, sharing) if coding is Coding.LATER else 0.0
    return (of_a_number(dimension, queries) * rows + coded) * dimension


def of_a_number(dimension: int, queries: int, *, by_codes: bool = True) -> float:
    """Return the seconds a query to compare a number of a vector.

    Args:
        dimension: of the vector.
        queries: asked at once.
        by_codes: whether rows are coded; it costs less only if the machine multiplies bytes.
    """
    by_bytes = by_codes and HAS_DOTS
    # It was not measured at more: what it grows or shrinks by does not go on.
    by_bytes_cost = COMPARED_BY_BYTES.of(min(dimension, WIDE), queries)
    cost = by_bytes_cost if by_bytes else COMPARED.of(queries)
    return pace(Work.COMPARE) * cost


def passing(share: float, near: float, of_shard: float = 1.0) -> int:
    """Return how wide to search at least with rows masked.

    Args:
        share: of all rows that may be answered.
        near: the same of those near queries.
        of_shard: the same of the rows of the shard that is searched, if it is one of several. Where
            few near queries may be answered, a shard with many that may is no easier to search: it
            has the answers.
    """
    share = max(share, 1e-9)
    farther: float = max(1.0, share / max(near, 1e-9)) ** FARTHER
    widest = max(min(MOST_FARTHER, farther) / share, 1.0 / max(of_shard, 1e-9))
    return math.ceil(PASSING * widest)


def walked(algorithm: str, dimension: int, width: float, queries: int) -> float:
    """Return the seconds a query of a search of some width, or of several together."""
    return _pace_of_walks(algorithm, queries) * WIDTH[algorithm].of(dimension, queries) * width


def _pace_of_walks(algorithm: str, queries: int) -> float:
    return pace(Work.WALK if queries >= LEAST_QUERIES else Work.WALK_ALONE, algorithm)


def sifted(algorithm: str, dimension: int, width: float, rows: float, queries: int) -> float:
    """Return the seconds a query of searches of some width together, that give so many rows."""
    listed = _pace_of_walks(algorithm, queries) * LISTED[algorithm].of(dimension, queries) * rows
    return walked(algorithm, dimension, width, queries) + listed


def tried(queries: int) -> int:
    """Return how many queries of a batch are sifted first."""
    return min(TRIED, max(TRIED_OF_FEW, queries // TRIED_OF_FEW))


def masked(
    algorithm: str, dimension: int, width: float, share: float, near: float, queries: int
) -> float:
    """Return the seconds a query of a search with all but a share of the rows masked.

    It grows as a power of the share: by as much for each halving.

    Args:
        algorithm: of the engine.
        dimension: of the vectors.
        width: of the search, or of several together.
        share: of the rows that may be answered.
        near: the same of those near queries.
        queries: asked at once.
    """
    share = max(share, near, 1e-9)
    apart = min(1.0, max(APART, near / share))
    growth: float = MASKED[algorithm] ** (apart * math.log2(1.0 / share))
    return walked(algorithm, dimension, width, queries) * growth


def wanted(k: int, share: float) -> int:
    """Return among how many of the nearest rows k are almost always that may be answered."""
    return math.ceil((k + SPREAD * math.sqrt(k * (1.0 - share))) / share)


def expected(k: int, share: float) -> int:
    """Return among how many of the nearest rows k lie that may be answered, for most queries."""
    return math.ceil((k + SOME_SPREAD * math.sqrt(k * (1.0 - share))) / share)


def sift(
    found: Answers, excluded: NDArray[np.bool_], many: int, k: int
) -> tuple[Answers, NDArray[np.float32]]:
    """Leave the excluded rows out of the nearest ones of each query.

    Args:
        found: (q, w) of each, ascending; -1 and infinity behind the last.
        excluded: (n,) bool, by ordinal.
        many: rows that were asked for; fewer are all there are.
        k: answers to keep.

    Returns:
        The k nearest others, and (q, 3) float32, see `Sight`.
    """
    ids, distances = found
    sights = np.zeros((len(ids), 3), np.float32)
    sights[:, HORIZON] = np.inf
    if not len(excluded) or not ids.shape[1]:
        return found, sights
    is_all = (ids[:, -1] < 0) | (ids.shape[1] < many)
    np.copyto(sights[:, HORIZON], distances[:, -1], where=~is_all)
    kept_ids = np.empty((len(ids), min(k, ids.shape[1])), np.int64)
    kept = np.empty(kept_ids.shape, np.float32)
    ids, distances = np.ascontiguousarray(ids), np.ascontiguousarray(distances)
    leave_out(ids, distances, excluded, kept_ids, kept, sights)
    return (kept_ids, kept), sights


def worth_of_mask(share: float, near: float) -> float:
    """Return how many times what a search with a mask takes is worth spending to miss no row.

    Args:
        share: of the rows that may be answered.
        near: the same of those near queries.
    """
    return DISTRUSTED if near < EVEN * share else 1.0


def are_even(sights: NDArray[np.float32], share: float) -> NDArray[np.bool_]:
    """Tell of each query whether the rows allowed lie among those near it, (q,) bool; see `EVEN`.

    Args:
        sights: (q, 3) float32, see `Sight`.
        share: of all rows that may be answered.
    """
    even: NDArray[np.bool_] = sights[:, THROUGH] >= EVEN * share * sights[:, SEEN]
    return even


def is_enough(
    distances: NDArray[np.float32], horizon: NDArray[np.float32], k: int
) -> NDArray[np.bool_]:
    """Tell of each query whether no row beyond what is known can be among its k nearest, (q,) bool.

    Args:
        distances: (q, m) float32, of the rows found in all shards, ascending.
        horizon: (q,) float32, up to which distance the rows of all shards are known.
        k: answers wanted.
    """
    if distances.shape[1] < k:
        return np.zeros(len(distances), np.bool_)
    found: NDArray[np.bool_] = distances[:, k - 1] < horizon
    return found
