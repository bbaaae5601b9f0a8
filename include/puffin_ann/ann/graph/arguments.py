"""What graph kernels are given, in groups; see `core.types.Fields`."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.primitives import Whole
from puffin_ann.numba_kernels import inlined


class Space(NamedTuple):
    """Rows as distances are measured, see `space`.

    Attributes:
        rows: flat `(n · dim,) float32`.
        dim: numbers in a row, w in shapes; a multiple of 16.
    """

    rows: NDArray[np.float32]
    dim: Whole


class Adjacency(NamedTuple):
    """A graph without its vectors.

    Attributes:
        neighbours: `(n, R) uint32`, 0 beyond the degree.
        degrees: `(n,) uint16`.
        entry: row that searches begin at.
    """

    neighbours: NDArray[np.uint32]
    degrees: NDArray[np.uint16]
    entry: int


class FlatAdjacency(NamedTuple):
    """A graph as `kernels_beam` follows it.

    Attributes:
        neighbours: flat `(n · stride,) uint32`.
        stride: places in a neighbour list.
        degrees: `(n,) uint16`.
        entry: row that searches begin at.
    """

    neighbours: NDArray[np.uint32]
    stride: Whole
    degrees: NDArray[np.uint16]
    entry: Whole


class Pools(NamedTuple):
    """Where a search keeps its candidates, see `kernels_frontier`.

    Attributes:
        live: `(keep + 1,) uint64`, written: candidates that are live rows, ascending.
        keep: ef of HNSW, L of DiskANN: how many of them are kept.
        passed: uint64, its length less 1 is the most deleted rows it holds; written: those passed
            through.
        deleted: `(n,) uint8`, non-zero for deleted rows, or empty if all rows are live.
    """

    live: NDArray[np.uint64]
    keep: Whole
    passed: NDArray[np.uint64]
    deleted: NDArray[np.uint8]


class Visited(NamedTuple):
    """Which rows a search has seen.

    Attributes:
        stamps: `(n,) uint8`; rows that carry `stamp` count as seen.
        stamp: of this search, carried by no row yet.
        unseen: `(stride + 1,) uint32`, scratch for the neighbours of a node.
    """

    stamps: NDArray[np.uint8]
    stamp: np.uint8
    unseen: NDArray[np.uint32]


class QueryBatch(NamedTuple):
    """Queries that one thread answers in one call.

    Attributes:
        metric: code.
        vectors: `(n, d) float32`, as stored.
        queries: `(q, d) float32`.
        widths: `(q,) int64`, candidates wanted; see `kernels_answer.candidates_kept`.
        live: how many rows are.
        spare: candidates beyond k whose exact distance is taken.
        deleted: `(n,) uint8`, or empty if all rows are live.
        stamps: `(n,) uint8` scratch of the thread, kept from call to call, all 0 at first.
        ids: `(q, k) int64`, to be written.
        distances: `(q, k) float32`, to be written.
        counts: `(q,) int64`, to be written: how many answers there are.
    """

    metric: int
    vectors: NDArray[np.float32]
    queries: NDArray[np.float32]
    widths: NDArray[np.int64]
    live: int
    spare: int
    deleted: NDArray[np.uint8]
    stamps: NDArray[np.uint8]
    ids: NDArray[np.int64]
    distances: NDArray[np.float32]
    counts: NDArray[np.int64]


@inlined
def flat_adjacency(graph: Any) -> FlatAdjacency:
    """Return a graph as `kernels_beam` follows it; the arrays are shared."""
    neighbours = graph.neighbours
    return FlatAdjacency(neighbours.reshape(-1), neighbours.shape[1], graph.degrees, graph.entry)
