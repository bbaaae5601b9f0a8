"""Measure what a published index finds for a user's own queries, and what it takes to find more.

The gate and evaluations ask with rows of the table. Users' queries may be harder: rows that
are nearly equal find each other even by a narrow search, a vector between such rows does not.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from puffin_ann.declaration import CENTROID, EXACT
from puffin_ann.errors import RecallTooLowError, TooFewRowsError
from puffin_ann.lifecycle.evaluate.measure import Measure, recalls_of
from puffin_ann.search.index import Index
from puffin_ann.search.questions.checks import MOST_WIDTH

if TYPE_CHECKING:
    import pyarrow as pa

STEPS = 6
"""Searches tried at most, each twice as wide as the one before, over twice as many cells."""


@dataclass(frozen=True)
class Tried:
    """A search that was tried, and what it found.

    Attributes:
        width: search width.
        probe_partitions: cells probed.
        measure: recall over the queries.
    """

    width: int
    probe_partitions: int
    measure: Measure


def try_searches(
    index: Index, queries: NDArray[np.float32], k: int, *, target: float
) -> list[Tried]:
    """Search as users do, then ever wider, until the target is reached.

    Every query is compared with every row, in this process.

    Args:
        index: a published index, opened.
        queries: (q, dimension) float32.
        k: neighbours asked for.
        target: mean recall at which no wider search is tried.

    Returns:
        At least the search that users get by default, which is the first.

    Raises:
        QueryError: the queries do not fit the index.
        TooFewRowsError: no row is live.
    """
    _, exact = _answers(index.search(queries, k, exhaustive=True, allow_fewer=True))
    exact = exact.reshape(len(queries), -1)
    if not exact.size:
        raise TooFewRowsError(f"index {index.name!r}: no row is live, so none can be found")
    routing = index.version.routing
    most = max(1, routing.cells.count)
    width, probe = max(routing.search_width, k), min(routing.probe_partitions or most, most)
    tried: list[Tried] = []
    for _ in range(1 if routing.algorithm in (EXACT, CENTROID) else STEPS):
        found = index.search(
            queries,
            k,
            width=width if tried else None,
            probe_partitions=probe if tried else None,
            allow_fewer=True,
        )
        # Every distance is exact, whichever search measured it.
        recalls = recalls_of(*_answers(found), exact)
        tried.append(Tried(width, probe, Measure.of(recalls)))
        if tried[-1].measure.recall >= target:
            break
        width, probe = min(2 * width, MOST_WIDTH), min(2 * probe, most)
    return tried


def describe_searches(index: Index, k: int, target: float, tried: list[Tried]) -> str:
    """Return what was found as text.

    Raises:
        RecallTooLowError: the default search is under the target; says which would reach it.
    """
    first, last = tried[0], tried[-1]
    queries = f"{first.measure.queries:,} " + ("query" if first.measure.queries == 1 else "queries")
    text = f"index {index.name!r}: recall@{k} is {_figures(first.measure)} for the {queries} given"
    if first.measure.recall >= target:
        return f"{text}; the target is {target}"
    text = f"{text}, under the declared recall_target of {target}."
    if last.measure.recall < target:
        raise RecallTooLowError(
            f"{text} {_call(last)} finds {_figures(last.measure)}, and no wider one was tried. "
            "Let the algorithm spend more (R and alpha of vamana, M and ef_construction of hnsw)"
        )
    raise RecallTooLowError(
        f"{text} The default was enough for rows of the table when the index was built. "
        f"{_call(last)} finds {_figures(last.measure)}: search so, in Python by width= and "
        "probe_partitions=, where such queries are asked"
    )


def _call(tried: Tried) -> str:
    return f"search --width {tried.width} --probe-partitions {tried.probe_partitions}"


def _figures(measure: Measure) -> str:
    return f"{measure.recall:.4f} (95 % interval {measure.low:.4f} to {measure.high:.4f})"


def _answers(found: "pa.Table") -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return of each answer the number of its query, and its distance."""
    return found.column("query").to_numpy(), found.column("distance").to_numpy()
