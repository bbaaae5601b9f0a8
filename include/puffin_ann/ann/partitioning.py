"""Which partitions make up a shard: neighbours in space, and equally many rows in each."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from puffin_ann.errors import BadInputError


def partitions_to_shards(
    centroids: NDArray[np.float32], expected_rows: ArrayLike, shards: int
) -> NDArray[np.uint32]:
    """Put every partition in a shard by bisecting along the main axis, again and again.

    Args:
        centroids: `(k, d) float32`.
        expected_rows: `(k,)`, non-negative.
        shards: 1 … k; each gets at least one partition.

    Returns:
        `(k,) uint32`, the shard of each partition.

    Raises:
        BadInputError: There are fewer partitions than shards.

    """
    if not 1 <= shards <= len(centroids):
        raise BadInputError(f"{len(centroids)} partitions cannot be put in {shards} shards")
    weights = np.asarray(expected_rows, np.float64)
    out = np.zeros(len(centroids), np.uint32)
    waiting = [(np.arange(len(centroids)), 0, shards)]
    while waiting:
        members, first, count = waiting.pop()
        if count == 1:
            out[members] = first
            continue
        left = count // 2
        one, other = _bisected(centroids, weights, members, left, count)
        waiting += [(one, first, left), (other, first + left, count - left)]
    return out


def _bisected(
    centroids: NDArray[np.float32],
    weights: NDArray[np.float64],
    members: NDArray[np.int64],
    left: int,
    count: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut members in two so that the first part has close to left / count of the rows."""
    points = centroids[members].astype(np.float64)
    ordered = members[np.lexsort((members, _along_main_axis(points, weights[members])))]
    sums = np.cumsum(weights[ordered])
    cuts = np.arange(left, len(members) - (count - left) + 1)  # each shard needs a partition
    cut = int(cuts[np.argmin(np.abs(sums[cuts - 1] - sums[-1] * left / count))])
    return ordered[:cut], ordered[cut:]


def _along_main_axis(
    points: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return each point's place along the direction of largest weighted variance."""
    total = weights.sum()
    shares = weights / total if total > 0 else np.full(len(points), 1 / len(points))
    centred = points - shares @ points
    _, _, axes = np.linalg.svd(centred * np.sqrt(shares)[:, None], full_matrices=False)
    axis = axes[0]
    axis = axis * np.sign(axis[np.argmax(np.abs(axis))] or 1.0)  # an axis has no sign of its own
    # rounded, so that the last bits of a linear algebra library decide nothing
    places: NDArray[np.float64] = np.round(centred @ axis, 9)
    return places
