"""Which shard each cell goes to, and their order: near cells together, shards equally large."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from puffin_ann.errors import TooFewRowsError

POWER_ROUNDS = 32
ORDER_ROUNDS = 8
"""For the order of cells the axis need not be exact."""


def assign_cells_to_shards(
    centroids: NDArray[np.float32], expected_rows: ArrayLike, shards: int
) -> NDArray[np.uint32]:
    """Return the shard of each cell, numbered from 0.

    Recursive bisection: the cells are put in order along the axis they spread most on, and
    cut where the expected rows divide as the shards on both sides do. Shards so are slabs of
    space, and a query needs few of them; every shard gets at least one cell.

    Args:
        centroids: `(k, dc) float32`.
        expected_rows: `(k,)`, not negative.
        shards: shards wanted, 1 to k.

    Returns:
        `(k,) uint32`.

    Raises:
        TooFewRowsError: there are more shards than cells.
    """
    cells = len(centroids)
    if not 1 <= shards <= cells:
        raise TooFewRowsError(f"{cells} partitions cannot be spread over {shards} shards")
    weights = np.asarray(expected_rows, dtype=np.float64)
    wide = np.asarray(centroids, dtype=np.float64)
    result = np.zeros(cells, dtype=np.uint32)
    pending = [(np.arange(cells), 0, shards)]
    while pending:
        members, first, count = pending.pop()
        if count == 1:
            result[members] = first
            continue
        left = count // 2
        along = wide[members] @ _main_axis(wide[members], weights[members])
        ordered = members[np.argsort(along, kind="stable")]
        cut = _cut(weights[ordered], left, count)
        pending += [(ordered[:cut], first, left), (ordered[cut:], first + left, count - left)]
    return result


def near_in_order(centroids: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return an order of cells in which many of those near each other are side by side, (k,) int64.

    Rows of a shard stand in the order of cells: so what a query is compared with is in fewer runs,
    to be read by fewer requests. It is halved as for shards, down to pairs.

    Args:
        centroids: `(k, dc) float32`.
    """
    wide = np.asarray(centroids, dtype=np.float64)
    order, pending = [], [np.arange(len(wide))]
    while pending:
        members = pending.pop()
        if len(members) <= 2:
            order.append(members)
            continue
        along = wide[members] @ _main_axis(wide[members], np.ones(len(members)), ORDER_ROUNDS)
        ordered = members[np.argsort(along, kind="stable")]
        half = len(ordered) // 2
        pending += [ordered[half:], ordered[:half]]
    return np.concatenate(order)


def _main_axis(
    points: NDArray[np.float64], weights: NDArray[np.float64], rounds: int = POWER_ROUNDS
) -> NDArray[np.float64]:
    """Return the direction of largest weighted spread, without a d × d matrix."""
    shares = weights + weights.sum() / len(weights) * 1e-3 + 1e-12
    shares /= shares.sum()
    centred = points - shares @ points
    spread = np.einsum("ij,ij->i", centred, centred) * shares
    axis: NDArray[np.float64] = centred[int(spread.argmax())]
    for _ in range(rounds):
        norm = np.linalg.norm(axis)
        if norm == 0.0:
            break
        axis = centred.T @ (shares * (centred @ (axis / norm)))
    return axis


def _cut(weights: NDArray[np.float64], left: int, count: int) -> int:
    """Return how many of the ordered cells go left, leaving each side one per shard."""
    cumulative = np.cumsum(weights)
    lowest, highest = left, len(weights) - (count - left)
    missed = np.abs(cumulative[lowest - 1 : highest] - cumulative[-1] * left / count)
    return lowest + int(missed.argmin())
