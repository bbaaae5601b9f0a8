"""Bring queries to where cells lie: one way for whatever compares them with those."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.blobs.version.routing import Routing


def placed(queries: NDArray[np.float32], routing: Routing) -> NDArray[np.float32]:
    """Return queries as cells are compared with them, (q, dc) float32.

    By inner product the length of a query changes none of its answers, but squared distances of
    cells: each is made as long as the longest row, which all rows are where cells are compared. Of
    queries shorter than that, the nearest cells are those in the middle, whatever they ask.

    Args:
        queries: (q, d) float32.
        routing: of the version whose cells they are.
    """
    metric = METRICS[routing.metric]
    if metric.name == "ip":
        queries = _of_length(queries, routing.norm_bound)
    return metric.queries_to_search_space(queries)


def _of_length(queries: NDArray[np.float32], length: float) -> NDArray[np.float32]:
    """Return queries of a length; those without a direction stay as they are."""
    lengths = np.sqrt(np.einsum("ij,ij->i", queries, queries, dtype=np.float64))
    lengths[lengths == 0.0] = np.inf
    scaled: NDArray[np.float32] = (queries * (length / lengths)[:, None]).astype(np.float32)
    return scaled
