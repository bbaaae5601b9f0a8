"""Contenders searched in turn, in one process, over the same queries: curves and their ratios."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import NEIGHBOURS, DataSet

Search = Callable[[NDArray[np.float32], int], NDArray[np.integer]]
"""(queries `(q, d)`, effort) -> ids `(q, 10)`."""

RECALLS = (0.90, 0.95, 0.99)
"""At which contenders are compared."""
ROUNDS = 3
GROWTH = 1.35
MOST_POINTS = 20


@dataclass(frozen=True)
class Contender:
    """Something that is searched.

    Attributes:
        name: for tables and pictures.
        search: answers a batch at an effort, by one thread.
        least: smallest effort worth trying.
        most: largest one.
    """

    name: str
    search: Search
    least: int = NEIGHBOURS
    most: int = 4000


@dataclass
class Point:
    """One effort: recall@10, and queries per second of each round."""

    effort: int
    recall: float
    rates: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Median of the rounds."""
        return median(self.rates)


Curve = list[Point]


def race(
    contenders: Sequence[Contender],
    data: DataSet,
    *,
    batch: bool = True,
    rounds: int = ROUNDS,
    enough: float = 0.992,
) -> dict[str, Curve]:
    """Search with every contender at rising efforts, and time them in turn.

    Args:
        contenders: of different names.
        data: what to search.
        batch: all queries in one call, or one query a call.
        rounds: times that every point is timed; the contenders alternate within a round.
        enough: recall at which the efforts end.
    """
    curves = {contender.name: _efforts(contender, data, enough) for contender in contenders}
    queries = data.queries if batch else data.queries[:500]
    for _ in range(rounds):
        for place in range(max(len(curve) for curve in curves.values())):
            for contender in contenders:
                if place < len(curves[contender.name]):
                    point = curves[contender.name][place]
                    point.rates.append(_rate(contender, queries, point.effort, batch))
    return curves


def _efforts(one: Contender, data: DataSet, enough: float) -> Curve:
    """Find the efforts worth timing: from the least on, until the recall is enough."""
    curve: Curve = []
    effort = one.least
    while len(curve) < MOST_POINTS and effort <= one.most:
        curve.append(Point(effort, data.recall(one.search(data.queries, effort))))
        if curve[-1].recall >= enough:
            break
        effort = max(effort + 1, round(effort * GROWTH))
    return curve


def _rate(one: Contender, queries: NDArray[np.float32], effort: int, batch: bool) -> float:
    one.search(queries[:32], effort)
    began = time.perf_counter()
    if batch:
        one.search(queries, effort)
    else:
        for at in range(len(queries)):
            one.search(queries[at : at + 1], effort)
    return len(queries) / (time.perf_counter() - began)


def rate_at(curve: Curve, recall: float) -> float | None:
    """Return queries per second at a recall, between points by the logarithm of the rate.

    A curve that begins above the recall gives the rate of its first point, since less effort than
    the least cannot be asked for; one that does not reach it gives None.
    """
    points = sorted(curve, key=lambda point: (point.recall, -point.rate))
    if not points or points[-1].recall < recall:
        return None
    if points[0].recall >= recall:
        return points[0].rate
    for left, right in pairwise(points):
        if left.recall <= recall <= right.recall and right.recall > left.recall:
            share = (recall - left.recall) / (right.recall - left.recall)
            return float(np.exp((1 - share) * np.log(left.rate) + share * np.log(right.rate)))
    return None


def effort_at(curve: Curve, recall: float) -> int | None:
    """Return the least effort timed that reaches a recall."""
    return min((point.effort for point in curve if point.recall >= recall), default=None)


def rate_text(rate: float | None) -> str:
    """Return queries per second for people; None is a recall that was not reached."""
    return "not reached" if rate is None else f"{rate:,.0f}/s"
