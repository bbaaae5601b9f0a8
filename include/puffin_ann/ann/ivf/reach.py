"""How far a search looks: fewer lists where the next ones are far from the query, more where near.

Let d₁ ≤ d₂ ≤ … be the squared distances of a query and the centroids. The r-th list is looked
through as long as √r · (dᵣ / d₁ − 1) is at most what it is for half of the rows at the number of
lists that the search's width asks for: its reach. That many lists are looked through on average,
about, and a quarter fewer rows scanned at the same recall (words of 100 dimensions, sentences of
384, pairs of those of 768) than if each query had as many.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import blas
from puffin_ann.ann.ivf.lists import Trained

FORM = 1
"""To be raised when the measure changes: folders outlive a version of this package."""
REACH = f"reach-{FORM}.npy"
"""File of a shard's folder."""
ASKED_ROWS = 256
_LEAST = 1e-6
"""Of the mean squared distance: centroids that are rows are that near to them."""


def measure_reach(trained: Trained, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the reach of each number of lists, `(lists,) float32`, ascending, by rows as queries.

    Args:
        trained: the lists.
        vectors: `(n, d) float32`, n ≥ 1, as stored; may be memory-mapped, a few are read.
    """
    chosen = np.linspace(0, len(vectors) - 1, min(len(vectors), ASKED_ROWS)).astype(np.int64)
    asked = np.asarray(vectors[chosen], np.float64)
    if trained.metric == "l2":
        asked -= trained.origin
    else:
        lengths = np.linalg.norm(asked, axis=1, keepdims=True)
        asked /= np.where(lengths > 0, lengths, 1)
    centroids = trained.centroids.astype(np.float64)
    squares = np.einsum("ij,ij->i", centroids, centroids)
    with blas.single_thread(), np.errstate(over="ignore", invalid="ignore"):
        apart = squares - 2 * (asked @ centroids[:, : trained.dimension].T)
        apart += np.einsum("ij,ij->i", asked, asked)[:, None]
        apart.sort(axis=1)
        first = np.maximum(apart[:, :1], _LEAST * apart.mean(axis=1, keepdims=True))
        ranks = np.sqrt(np.arange(1, len(centroids) + 1))
        reach = np.median(ranks * np.maximum(apart / first - 1, 0), axis=0)
    # Where numbers leave what floats hold, every query has as many lists.
    return np.where(np.isnan(reach), np.inf, np.maximum.accumulate(reach)).astype(np.float32)
