"""The loop of adding edges by inner product."""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.simd.kernels_distance import dot
from puffin_ann.numba_kernels import kernel


@kernel()
def add_products(
    space: NDArray[np.float32],
    asked: NDArray[np.uint32],
    near: NDArray[np.int64],
    distances: NDArray[np.float32],
    targets: NDArray[np.uint32],
    vectors: NDArray[np.float32],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.uint16],
) -> None:
    """Add edges in order of the product, unless a neighbour has the larger one with the target.

    Args:
        space: `(n, w) float32`.
        asked: `(a,) uint32`, rows that get edges.
        near: `(a, c) int64`, places among the targets, by falling product; −1 for none.
        distances: `(a, c) float32`, products of those, negated.
        targets: `(t,) uint32`.
        vectors: `(t, w) float32`, the same in the space, but 0 where that makes all equally long.
        neighbours: `(n, R) uint32`, changed.
        degrees: `(n,) uint16`, changed.
    """
    most = neighbours.shape[1]
    for i in range(len(asked)):
        node = asked[i]
        degree = np.int64(degrees[node])
        for j in range(near.shape[1]):
            place = near[i, j]
            if place < 0 or degree == most:
                break
            target = targets[place]
            is_needed = target != node
            for z in range(degree):
                other = neighbours[node, z]
                if other == target or dot(space, other, vectors, place) > -distances[i, j]:
                    is_needed = False
                    break
            if is_needed:
                neighbours[node, degree] = target
                degree += 1
        degrees[node] = degree
