"""Tell which shards are searched by ranges, and which are brought to local disk first."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.version.routing import Routing, ShardEntry

MOST_SHARE = 0.75
"""Share of a shard's rows of which, when a batch of queries wants them, the shard is brought."""

MOST_BYTES = 256 << 20
"""Vectors that one batch of queries reads by ranges, at most."""

BRING_SHARE = 0.1
"""Share of a shard's bytes that were read by ranges, after which it is brought: many queries ask
for it. Until then no more than that was read in vain."""


def may_be_cold(routing: Routing, entry: ShardEntry, least_bytes: int) -> bool:
    """Tell whether a shard that is not on local disk may be searched by ranges.

    Deltas have rows of all cells, and are small. Shards without vectors are searched by their
    lists, others by the cells that a build found to be enough.

    Args:
        routing: of the version.
        entry: of the shard.
        least_bytes: that it has.
    """
    is_known = routing.vectors == "none" or routing.scan_partitions > 0
    return is_known and entry.kind != "delta" and entry.bytes >= least_bytes


def is_too_much(
    wanted_rows: NDArray[np.uint64],
    entries: Sequence[ShardEntry],
    dimension: int,
    most_share: float = MOST_SHARE,
) -> NDArray[np.bool_]:
    """Mark the shards of which a batch of queries wants so much that they are brought.

    Args:
        wanted_rows: (s,) uint64, rows of the cells that any of the queries is compared with.
        entries: of the shards.
        dimension: of the index.
        most_share: of a shard's rows.
    """
    rows = np.array([max(1, entry.rows) for entry in entries], np.uint64)
    found: NDArray[np.bool_] = wanted_rows > most_share * rows
    if are_too_many(int(wanted_rows[~found].sum()), dimension):
        found[:] = True
    return found


def are_too_many(vectors: int, dimension: int) -> bool:
    """Tell whether one batch of queries would read more vectors than are held at once."""
    return 4 * dimension * vectors > MOST_BYTES
