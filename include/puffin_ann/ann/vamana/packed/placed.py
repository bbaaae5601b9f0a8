"""Graphs of packed nodes by where they lie in memory, which is all that a kernel has to be told."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.vamana.packed.kernels_tables import PLACED, PackedGraph


def placed(
    graph: PackedGraph,
    vectors: NDArray[np.float32],
    deleted: NDArray[np.uint8] | None,
    live: int,
) -> NDArray[np.void]:
    """Return where a graph lies, `(1,) PLACED`; the caller holds it, its rows and the mask.

    Args:
        graph: whose arrays are contiguous.
        vectors: `(n, d) float32`, contiguous, rows as stored.
        deleted: `(n,) uint8`, non-zero for deleted rows; None if all live.
        live: how many do.
    """
    found = np.zeros(1, PLACED)
    of_nodes = graph.bytes, vectors, deleted, graph.origin, graph.across, graph.within
    found[0] = (
        *addresses(of_nodes).tolist(), len(vectors), live, len(graph.origin), graph.stride,
        graph.bits, graph.row_bytes, graph.code_bytes, graph.most, graph.entry, graph.scale,
        graph.length,
    )  # fmt: skip
    return found


def addresses(arrays: Sequence[NDArray[np.generic] | None]) -> NDArray[np.uint64]:
    """Return where arrays begin, `(arrays,) uint64`; 0 for none."""
    return np.array([0 if array is None else array.ctypes.data for array in arrays], np.uint64)
