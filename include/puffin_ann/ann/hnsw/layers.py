"""The layers of an HNSW graph as arrays, and what must hold of them before a kernel may trust them.

hnswlib follows every number it is given without a look, and so do our kernels: arrays come from
hnswlib itself, or from a blob through `problem`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Layers:
    """An HNSW graph; arrays may be memory-mapped.

    Attributes:
        neighbours: `(n, 2M) uint32`, lists of layer 0, 0 beyond the degree.
        degrees: `(n,) uint16`.
        levels: `(n,) uint8`, the highest layer each row is in.
        upper_neighbours: `(u, M) uint32`: for each row, in order, its lists of layers 1 to its
            level; 0 beyond the degree.
        upper_degrees: `(u,) uint16`.
        entry: a row of the highest level; 0 if there are no rows.
    """

    neighbours: NDArray[np.uint32]
    degrees: NDArray[np.uint16]
    levels: NDArray[np.uint8]
    upper_neighbours: NDArray[np.uint32]
    upper_degrees: NDArray[np.uint16]
    entry: int

    @property
    def links(self) -> int:
        """M."""
        return int(self.upper_neighbours.shape[1])

    @property
    def top(self) -> int:
        """The highest layer."""
        return int(self.levels[self.entry]) if len(self.levels) else 0


def first_lists(levels: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return `(n,) uint32`, where in `upper_neighbours` each row's lists begin."""
    ends = np.cumsum(levels, dtype=np.int64)
    return (ends - levels).astype(np.uint32)


def list_layers(levels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return `(u,) uint8`, the layer of each upper list."""
    tall = levels[levels > 0].astype(np.int64)
    starts = np.repeat(np.cumsum(tall) - tall, tall)
    return (np.arange(len(starts)) - starts + 1).astype(np.uint8)


def empty(links: int) -> Layers:
    """Return the layers of no rows."""
    return Layers(
        np.zeros((0, 2 * links), np.uint32),
        np.zeros(0, np.uint16),
        np.zeros(0, np.uint8),
        np.zeros((0, links), np.uint32),
        np.zeros(0, np.uint16),
        0,
    )
