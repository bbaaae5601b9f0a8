"""Several graphs of packed nodes, asked as searches ask them."""

import numpy as np

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.graph.searcher import EXHAUSTIVE_ROWS, SPARE
from puffin_ann.ann.vamana.packed.kernels_search import NO_SIEVES, NO_SIGHTS, search_several


def ask_together(several, metric, queries, k, widths, sieves=None):
    """Return (graphs, q, k) rows and distances, and (graphs, q, 3) sights.

    None where rows of a graph are to be compared.
    """
    asked = widths.max(axis=1)
    few = several.live <= max(k, EXHAUSTIVE_ROWS)
    if ((asked > 0) & (few | (asked >= several.widest))).any():
        return None
    ids = np.empty((*widths.shape, k), np.int64)
    distances, sights = np.empty(ids.shape, np.float32), NO_SIGHTS
    where, counts = NO_SIEVES, np.empty(widths.shape, np.int64)
    if sieves is not None:
        where = np.array([sieve.ctypes.data for sieve in sieves], np.uint64)
        sights = np.empty((*widths.shape, 3), np.float32)
    stamps = several.take()
    stamps.last = search_several(
        several.where(len(queries)), METRICS[metric].code, queries, widths, SPARE,
        stamps.addresses, stamps.last, ids, distances, counts, where, sights,
    )  # fmt: skip
    several.give_back(stamps)
    if sieves is None and ((counts < k) & (widths > 0)).any():
        return None
    return ids, distances, sights
