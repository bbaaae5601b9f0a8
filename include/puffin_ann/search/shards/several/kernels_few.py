"""Answering a few queries from shards that are graphs of packed nodes: routed, searched, merged.

A query alone spends more time on the way between these steps than in any but the search.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.clustering.kernels_routing import share_widths_of_few
from puffin_ann.ann.core.kernels_merge import merge_ascending
from puffin_ann.ann.core.types import HORIZON, SEEN, THROUGH, Fields
from puffin_ann.ann.vamana.packed.kernels_search import search_several
from puffin_ann.numba_kernels import inlined, kernel
from puffin_ann.search.shards.several.kernels_located import write_keys


@inlined
def _write_widths(routed, queries, cells, wide, k, widths):  # type: ignore[no-untyped-def]
    """Write how wide each shard is searched for each query; see `answer_few`."""
    doubled, squares, begins, owners, steps_a_unit, steps, always = routed
    shares = np.empty((len(queries), len(always)), np.float32)
    for q in range(len(queries)):
        shares[q] = always
    if len(squares):
        share_widths_of_few(
            queries, doubled, squares, min(cells, len(squares)), begins, owners, steps_a_unit,
            steps, shares,
        )  # fmt: skip
    for q in range(len(queries)):
        for shard in range(len(always)):
            width = int(np.rint(shares[q, shard] * np.float32(wide)))
            widths[shard, q] = max(k, width) if shares[q, shard] > 0 else 0


@inlined
def _are_compared(widths, live, widest, least):  # type: ignore[no-untyped-def]
    """Tell whether all rows of any graph asked are to be compared; widths are `(graphs, q)`."""
    for g in range(len(widths)):
        asked = widths[g].max()
        if asked > 0 and (live[g] <= least or asked >= widest[g]):
            return True
    return False


@inlined
def _found_fewer(widths, counts, k):  # type: ignore[no-untyped-def]
    """Tell whether any graph found fewer than k rows for a query that it is asked."""
    for g in range(len(widths)):
        for q in range(widths.shape[1]):
            if widths[g, q] > 0 and counts[g, q] < k:
                return True
    return False


@kernel(allocates=True)
def answer_few(
    routed: Fields,
    graphs: NDArray[np.void],
    asked: NDArray[np.int64],
    live: NDArray[np.int64],
    widest: NDArray[np.int64],
    located: NDArray[np.void],
    stamps: NDArray[np.uint64],
    sieves: NDArray[np.uint64],
    queries: NDArray[np.float32],
    placed: NDArray[np.float32],
    widths: NDArray[np.int64],
    answers: Fields,
    keys: NDArray[np.int64],
    sights: NDArray[np.float32],
) -> bool:
    """Answer a few queries from several graphs.

    Args:
        routed: twice the centroids, `(d, c)`; `(c,)` squares; begins, owners, steps a unit and
            shares as `share_widths_of_few` takes them; and `(shards,) float32`, the share of
            shards that it does not tell of, 0 of the others. No squares: all shares are these.
        graphs: `(graphs,) PLACED`.
        asked: `(6 + graphs,) int64`: the code of the metric, cells to probe, the width of a search,
            spare candidates as of `QueryBatch`, live rows up to which all are compared, the last
            stamp used, which is written; then the shard that each graph is of.
        live: `(graphs,) int64`, live rows of each.
        widest: `(graphs,) int64`, the width from which on all rows of it are compared.
        located: `(graphs,) LOCATED`.
        stamps: `(graphs,) uint64`, as of `search_several`.
        sieves: `(graphs,) uint64`, as of `search_several`.
        queries: `(q, d) float32`.
        placed: `(q, dc) float32`, the same in the search space of the metric.
        widths: `(shards, q) int64`, written: how wide each shard is to be searched.
        answers: written, `(q, k)` each: graph, ordinal and distance; -1, -1 and infinity behind.
        keys: `(3, q · k) int64`, written: where those rows are, as of `write_keys`.
        sights: `(q, 3) float32`, written if there are sieves: `Sight` of all graphs.

    Returns:
        Whether the graphs answer. Else rows have to be compared, or answers are equally far, whose
        order is not known here; the widths are written all the same.
    """
    metric, cells, wide, spare, least = asked[0], asked[1], asked[2], asked[3], asked[4]
    many, few, k = len(graphs), len(queries), answers[0].shape[1]
    _write_widths(routed, placed, cells, wide, k, widths)
    wanted = np.empty((many, few), np.int64)
    for g in range(many):
        wanted[g] = widths[asked[6 + g]]
    if _are_compared(wanted, live, widest, max(k, least)):
        return False
    counts = np.empty((many, few), np.int64)
    ids = np.empty((many, few, k), np.int64)
    distances = np.empty((many, few, k), np.float32)
    seen = np.empty((many, few, 3), np.float32)
    asked[5] = search_several(
        graphs, metric, queries, wanted, spare, stamps, asked[5], ids, distances, counts, sieves,
        seen,
    )  # fmt: skip
    if len(sieves) == 0 and _found_fewer(wanted, counts, k):
        return False
    lines = np.empty((few, many * k), np.float32)
    rows = np.empty((few, many * k), np.int64)
    for q in range(few):
        for g in range(many):
            lines[q, g * k : g * k + k] = distances[g, q]
            rows[q, g * k : g * k + k] = ids[g, q]
    begins = np.arange(many + 1) * k
    tied = np.empty(few, np.bool_)
    if merge_ascending(lines, rows, begins, np.empty(many, np.int64), answers, tied):
        return False
    write_keys(located, answers[0].reshape(-1), answers[1].reshape(-1), keys)
    if len(sieves):
        for q in range(few):
            sights[q, HORIZON], sights[q, SEEN], sights[q, THROUGH] = np.inf, 0, 0
            for g in range(many):
                sights[q, HORIZON] = min(sights[q, HORIZON], seen[g, q, HORIZON])
                sights[q, SEEN] += seen[g, q, SEEN]
                sights[q, THROUGH] += seen[g, q, THROUGH]
    return True
