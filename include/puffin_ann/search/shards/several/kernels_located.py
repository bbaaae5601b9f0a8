"""Looking up where answers of several shards are."""

import numpy as np
from numba import types
from numpy.typing import NDArray

from puffin_ann.ann.simd.intrinsics import numbers_at
from puffin_ann.numba_kernels import kernel

LOCATED = np.dtype(
    [
        ("ranks", np.uint64),
        ("places", np.uint64),
        ("row_groups", np.uint64),
        ("offsets", np.uint64),
        ("rows", np.int64),
        ("files", np.int64),
    ]
)
"""Locators of a shard by where they lie: ranks is the address of `(files,) int64`, the others of
`(rows,) uint32` each; see `Locators`."""

_ranks, _numbers = numbers_at(types.int64), numbers_at(types.uint32)


@kernel()
def write_keys(
    where: NDArray[np.void],
    shards: NDArray[np.int64],
    ordinals: NDArray[np.int64],
    keys: NDArray[np.int64],
) -> None:
    """Write the locators of answers.

    Args:
        where: `(shards,) LOCATED`.
        shards: `(n,) int64`, place of the shard of each answer; -1 where there is none.
        ordinals: `(n,) int64`, in the shard, below its rows.
        keys: `(3, n) int64`, written: file rank, row group and row offset; 0 where there is none.
    """
    for at in range(len(shards)):
        if shards[at] < 0:
            keys[:, at] = 0
            continue
        shard, row = where[shards[at]], ordinals[at]
        place = _numbers(shard.places, shard.rows)[row]
        keys[0, at] = _ranks(shard.ranks, shard.files)[place]
        keys[1, at] = _numbers(shard.row_groups, shard.rows)[row]
        keys[2, at] = _numbers(shard.offsets, shard.rows)[row]
