"""How many candidates codes ask for: measured on the rows, whose codes may tell them apart or not.

A scan keeps the rows whose codes say that they are nearest, and those are compared exactly. How
many have to be kept for the true neighbours to be among them depends on the rows: of words × 100
some twenty are enough, of the principal components of counts of words × 64 and 256 a hundred and
more, since some of those numbers are far from the others, and few words of 4 bits are there. By
a rule that went by the width of codes alone, recall 0.98 was not reached of the latter at all.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.ivf.search import Searcher

FORM = 1
"""To be raised when the measure changes: folders outlive a version of this package."""
CANDIDATES = f"candidates-{FORM}.npy"
"""File of a shard's folder."""
ASKED_ROWS, PROBES = 128, 16
NEAREST = 10
ENOUGH = 0.99
"""Share of the nearest that is to be among the candidates."""
MOST = 1024
"""Candidates among which the true neighbours are looked for."""
LADDER = (
    12, 14, 16, 18, 20, 22, 25, 28, 32, 36, 40, 50, 64, 80, 100, 128, 160, 200, 256, 320, 400, 512,
)  # fmt: skip
"""Numbers that are tried; where none is enough it is `MOST`."""
WIDTH, LEAST = 64.0, 0.5
"""The search width for which as many candidates are kept as were found to be enough: with the root
of it they grow and shrink, but by no less than the least."""


def measure_candidates(searcher: Searcher, metric: str, vectors: NDArray[np.float32]) -> int:
    """Return how many candidates have nearly all of the nearest rows among them, rows as queries.

    Args:
        searcher: of the lists.
        metric: name.
        vectors: `(n, d) float32`, n ≥ 1, as stored; may be memory-mapped, some are read.
    """
    rows = np.linspace(0, len(vectors) - 1, min(len(vectors), ASKED_ROWS)).astype(np.int64)
    queries = np.ascontiguousarray(vectors[rows])
    nearest = _measured(searcher, metric, vectors, rows, queries, MOST)
    wanted = min(NEAREST, nearest.shape[1])
    nearest.sort(axis=1)
    farthest = nearest[:, wanted - 1 : wanted]
    for count in LADDER:
        if count >= len(vectors):
            break
        # One more is the row itself, which is no neighbour.
        found = _measured(searcher, metric, vectors, rows, queries, count + 1)
        near = np.count_nonzero((found <= farthest) & np.isfinite(found), axis=1)
        if np.minimum(near, wanted).mean() >= ENOUGH * wanted:
            return count
    return MOST


def coarseness_of(candidates: int) -> float:
    """Return how much more candidates these codes ask for than those of a number each."""
    return float(max(LEAST, (candidates - 1.5 * NEAREST) / WIDTH**0.5))


def _measured(
    searcher: Searcher,
    metric: str,
    vectors: NDArray[np.float32],
    rows: NDArray[np.int64],
    queries: NDArray[np.float32],
    wanted: int,
) -> NDArray[np.float32]:
    """Return the distances of candidates, `(q, wanted)`; infinite of none, and of rows asked."""
    wanted = min(wanted, len(vectors))
    probes = min(PROBES, searcher.lists)
    found = searcher.candidates(queries, probes=probes, wanted=wanted)
    found[found == rows[:, None]] = -1
    return METRICS[metric].pair_distances(queries, vectors, found)
