"""Measure the recall of a shard, changed or published, by some of its own rows."""

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from puffin_ann.engines import SearchableShard, ShardEngine
from puffin_ann.engines.reranked import CodesReranked, RowVectors
from puffin_ann.lifecycle.evaluate.measure import Measure, recalls_of

CHECKED_ROWS = 100
"""Rows of a shard that it is searched for after rows were inserted."""
DOUBTED_ROWS = 600
"""The same where fewer do not reach the target: to build it takes far longer."""


def recall_of_blob(
    made_by: ShardEngine,
    source: BinaryIO,
    deleted: NDArray[np.bool_],
    folder: Path,
    table: RowVectors | None,
    *,
    first: int,
    k: int,
    width: int,
    target: float,
    seed: int,
    threads: int,
) -> Measure | None:
    """Measure a shard by what searches read, as the width was chosen; see `recall_of`.

    Rounded vectors are measured by themselves.

    Args:
        made_by: the shard's engine.
        source: the shard's blob.
        deleted: (n,) bool, rows of it that are.
        folder: to be made, for the unpacked blob.
        table: vectors of the rows from `first` on, by which a shard without vectors is measured, so
            that nothing is read of the table; None: it is not.
        first: an ordinal.
        k: neighbours.
        width: that searches have.
        target: a recall of few rows from which on no more are asked.
        seed: chooses rows.
        threads: threads to use.
    """
    folder.mkdir()
    made_by.unpack(source, folder)
    shard: Any = made_by.open(folder)
    if hasattr(shard, "candidates"):
        if table is None:
            return None
        deleted = deleted | (np.arange(len(deleted)) < first)
        shard = CodesReranked(shard, table)
    return recall_of(shard, deleted, k=k, width=width, target=target, seed=seed, threads=threads)


def recall_of(
    shard: SearchableShard,
    deleted: NDArray[np.bool_],
    *,
    k: int,
    width: int,
    target: float,
    seed: int,
    threads: int,
) -> Measure | None:
    """Search a shard for the neighbours of some of its live rows, themselves left out.

    `CHECKED_ROWS` of them are enough where the target is reached; else it is `DOUBTED_ROWS`.

    Returns:
        The recall; None where no row has a neighbour.
    """
    live = np.flatnonzero(~deleted)
    if len(live) < 2:
        return None
    chosen = np.random.default_rng(seed).permutation(live)
    wanted = min(k + 1, len(live))
    mask = deleted if deleted.any() else None
    widest = max(width, wanted)

    def recalls(rows: NDArray[np.int64]) -> NDArray[np.float64]:
        queries = np.ascontiguousarray(shard.vectors(rows))
        ids, near = shard.search(queries, wanted, width=widest, deleted=mask, threads=threads)
        true_ids, true = shard.exhaustive(queries, wanted, deleted=mask, threads=threads)
        is_other = ids != rows[:, None]
        exact = np.sort(np.where(true_ids == rows[:, None], np.inf, true), axis=1)[:, : wanted - 1]
        return recalls_of(np.nonzero(is_other)[0], near[is_other], exact)

    first = recalls(np.sort(chosen[:CHECKED_ROWS]))
    measured = Measure.of(first)
    if measured.recall >= target or len(live) <= CHECKED_ROWS:
        return measured
    more = recalls(np.sort(chosen[CHECKED_ROWS:DOUBTED_ROWS]))
    return Measure.of(np.concatenate([first, more]))
