"""What lies beside an unpacked `vamana` graph for searches: packed nodes, or rows of the space."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.memmap import Scalar
from puffin_ann.ann.graph import space as spaces
from puffin_ann.ann.vamana.packed.layout import PackedNodes
from puffin_ann.ann.vamana.packed.neighbours import open_neighbours
from puffin_ann.ann.vamana.packed_policy import open_or_make
from puffin_ann.ann.vamana.search import Beam, LinkedInSpace
from puffin_ann.blobs.shards.graph import Graph
from puffin_ann.errors import BlobFormatError, LocalCopyError
from puffin_ann.settings import settings

SPACE = "space.npy"
"""Beside the unpacked blob where the searched rows differ from the stored ones.

It goes when packed nodes are there, which searches read instead: they would hold the vectors a
second time. What needs it then makes it again.
"""
LINKS = ("neighbours", "codes", "codebook", "subspace_offsets")
"""Arrays of the unpacked blob that go with it: packed nodes have the neighbours, too."""


def vectors_of(graph: Graph) -> NDArray[np.float32]:
    """Return (n, d) float32, the vectors of a graph as they are stored.

    Raises:
        BlobFormatError: it has none.
    """
    if graph.vectors is None:
        raise BlobFormatError("graph blob: the shard has no vectors")
    return graph.vectors.view(np.ndarray)


def neighbours_of(graph: Graph, folder: Path) -> NDArray[np.uint32]:
    """Return (n, R) uint32, the neighbours of a graph; out of packed nodes where there are no more.

    Raises:
        LocalCopyError: there are none of a form that this version reads.
    """
    if graph.neighbours is not None:
        return graph.neighbours
    dim, most = spaces.padded_dim(graph.metric, graph.dimension), graph.max_degree
    return _read(lambda: open_neighbours(folder, dim, graph.degrees, most), folder)


def searched_files(
    graph: Graph, folder: Path, beam: Beam
) -> tuple[PackedNodes | None, NDArray[np.float32] | None]:
    """Return what searches read, made if the folder lacks it: packed nodes, or rows of the space.

    A file of those that was there before is left: the folder may be sealed.

    Raises:
        LocalCopyError: the folder does not hold a whole unpacked shard.
    """
    was_there = (folder / SPACE).exists()

    def linked() -> LinkedInSpace:
        neighbours = neighbours_of(graph, folder)  # first: the folder may have no use without them
        vectors, space = vectors_of(graph), None
        if not was_there and graph.metric != "cosine":  # which needs the list that lies beside
            # Packed nodes are all but certain: to wait for the disk would be in vain.
            space = spaces.of_rows_beside(vectors, graph.metric, folder)
        if space is None:
            space = _space(graph, folder)
        return LinkedInSpace(
            graph.metric, vectors, space, neighbours, graph.degrees, graph.max_degree, graph.entry
        )

    if graph.rows and graph.max_degree and beam not in ("full", "pq"):
        dim, threads = spaces.padded_dim(graph.metric, graph.dimension), settings().thread_count
        forced = beam == "edges"
        packed = open_or_make(folder, dim, graph.degrees, linked, threads, forced=forced)
        if packed is not None:
            if not was_there:
                (folder / SPACE).unlink(missing_ok=True)
            return packed, None
    return None, _space(graph, folder)


def rows_of_zeros(graph: Graph, folder: Path) -> NDArray[np.int64] | None:
    """Return (z,) int64, the rows that have no direction; None where directions do not matter.

    Raises:
        LocalCopyError: the folder does not hold a whole unpacked shard.
    """
    if not graph.rows or graph.metric != "cosine":
        return None
    return _read(lambda: spaces.zero_rows(folder / SPACE), folder)


def _space(graph: Graph, folder: Path) -> NDArray[np.float32]:
    """Return the rows as they are searched, `(n, w) float32`; their file is made if it is gone."""
    path, vectors = folder / SPACE, vectors_of(graph)
    if not graph.rows or not spaces.is_needed(graph.metric, graph.dimension):
        return vectors
    if not path.exists():
        return spaces.of_rows(vectors, graph.metric, path)
    space = _read(lambda: spaces.open_space(path), folder)
    wanted = (graph.rows, spaces.padded_dim(graph.metric, graph.dimension))
    if space.shape != wanted:
        raise LocalCopyError(f"{path}: shape {space.shape}, not {wanted}")
    return space


def _read(read: Callable[[], NDArray[Scalar]], folder: Path) -> NDArray[Scalar]:
    """Return what is read of a folder; `LocalCopyError` where that is not there."""
    try:
        return read()
    except (OSError, ValueError) as error:
        raise LocalCopyError(f"{folder} is not a whole unpacked shard: {error}") from None
