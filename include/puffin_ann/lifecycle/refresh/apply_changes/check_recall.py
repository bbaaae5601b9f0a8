"""Measure the recall of a shard that was changed, by some of its own rows."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.engines import SearchableShard
from puffin_ann.lifecycle.evaluate.measure import Measure, recalls_of

CHECKED_ROWS = 100
"""Rows of a shard that it is searched for after rows were inserted."""


def recall_of(
    shard: SearchableShard,
    deleted: NDArray[np.bool_],
    *,
    k: int,
    width: int,
    seed: int,
    threads: int,
) -> Measure | None:
    """Search a shard for the neighbours of some of its live rows, themselves left out.

    Returns:
        The recall; None where no row has a neighbour.
    """
    live = np.flatnonzero(~deleted)
    if len(live) < 2:
        return None
    generator = np.random.default_rng(seed)
    chosen = np.sort(generator.choice(live, min(CHECKED_ROWS, len(live)), replace=False))
    queries = np.ascontiguousarray(shard.vectors(chosen))
    wanted = min(k + 1, len(live))
    mask = deleted if deleted.any() else None
    widest = max(width, wanted)
    ids, near = shard.search(queries, wanted, width=widest, deleted=mask, threads=threads)
    true_ids, true = shard.exhaustive(queries, wanted, deleted=mask, threads=threads)
    is_other = ids != chosen[:, None]
    exact = np.sort(np.where(true_ids == chosen[:, None], np.inf, true), axis=1)[:, : wanted - 1]
    return Measure.of(recalls_of(np.nonzero(is_other)[0], near[is_other], exact))
