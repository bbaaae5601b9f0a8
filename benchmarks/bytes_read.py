"""What a query asks memory for: counted of ours, computed of SymphonyQG."""

from typing import Any

import numpy as np

from benchmarks.data import NEIGHBOURS, DataSet
from benchmarks.race import Curve, effort_at
from benchmarks.results import Row
from puffin_ann.ann.core.types import SEEN
from puffin_ann.engines import SearchableShard

RECALL = 0.95
KB = 1000


def compare(
    name: str, data: DataSet, shard: SearchableShard, symphony: int, curves: list[Curve]
) -> list[Row]:
    """Return the line of a set: at equal recall, which decides where memory answers late.

    Ours expands rows, which are counted, and reads the node of each; then the rows that it answers,
    as they are stored. SymphonyQG is taken to expand as many rows as its ef says, fewer than it
    does, and to read what its file has of each.

    Args:
        name: of the set.
        data: the set.
        shard: of packed nodes, which hold rows by their codes.
        symphony: bytes of SymphonyQG's file.
        curves: of ours and of SymphonyQG, by their efforts.
    """
    ours, theirs = (effort_at(curve, RECALL) for curve in curves)
    searcher: Any = getattr(shard, "packed_searcher", None)
    if ours is None or theirs is None or searcher is None:
        return []
    rows, dimension = data.vectors.shape
    widths = np.full(len(data.queries), ours, np.int64)
    nobody = np.zeros(rows, np.uint8)
    _, sights = searcher.sift(data.queries, NEIGHBOURS, widths=widths, sieve=nobody)
    expanded = float(sights[:, SEEN].mean())
    mine = expanded * searcher.packed_graph.stride + NEIGHBOURS * 4 * dimension
    each = symphony / rows
    return [
        Row(
            key=f"bytes-{name}",
            what="bytes of nodes and rows that a query of `vamana` reads ÷ SymphonyQG's file for "
            f"each candidate, {data.title}, recall@10 {RECALL}",
            ours=f"{mine / KB:.0f} kB",
            theirs=f"{theirs * each / KB:.0f} kB",
            measured=mine / (theirs * each),
            least=1.1,
            aim=0.8,
            below=True,
            note=f"{expanded:.1f} nodes of {searcher.packed_graph.stride} B at width {ours}, and "
            f"{NEIGHBOURS} rows; {theirs} of {each:.0f} B at ef {theirs}",
        )
    ]
