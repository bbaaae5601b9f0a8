"""Load kernels beforehand that searches call, so that the first of them do not wait for it.

Each is read from disk when it is first called, which takes 5 to 20 ms. Of 200 new conditions on a
million rows three took 25 to 60 ms longer for that.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import Metric
from puffin_ann.ann.exact import brute_force
from puffin_ann.ann.exact.byte_rows import ByteRows
from puffin_ann.ann.exact.kernels_products import HAS_DOTS
from puffin_ann.ann.exact.row_addresses import RowAddresses
from puffin_ann.ann.signs.row_codes import RowCodes
from puffin_ann.ann.signs.sign_rows import SignRows
from puffin_ann.search.shards.opening.snapshot_shard import SnapshotShard
from puffin_ann.search.shards.several.few import FEW

BATCH = FEW + 1
"""Queries that are answered as a batch."""


def load_kernels(
    shards: Sequence[SnapshotShard],
    metric: Metric,
    search: Callable[[NDArray[np.float32]], object],
) -> None:
    """Search for a few rows, one a call and as a batch, and compare them as conditions have it.

    Args:
        shards: that are searched, which have their vectors as they are.
        metric: of their rows.
        search: is given (q, d) float32.
    """
    counts = [min(BATCH, len(shard.loaded.locators)) for shard in shards]
    there = [(shard, count) for shard, count in zip(shards, counts, strict=True) if count]
    if not there:
        return
    some = [shard.loaded.engine.find_vectors(np.arange(count)) for shard, count in there]
    vectors = RowAddresses.of_some(some).copied()
    for queries in (vectors[:1], np.resize(vectors, (BATCH, vectors.shape[1]))):
        search(queries)
        brute_force.search(queries, vectors, 1, metric)
    rows, query = RowAddresses.of(vectors), vectors[:1]
    records = RowCodes(metric).records_of(rows)
    by_signs = SignRows.of(rows, metric, records)
    if by_signs is not None:
        by_signs.nearest(query, 1)
    by_bytes = ByteRows.of(rows, metric) if HAS_DOTS else None
    if by_bytes is not None:
        by_bytes.nearest(query, 1)
