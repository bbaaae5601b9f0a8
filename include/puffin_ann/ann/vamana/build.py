"""Build a Vamana graph: the stages, in order."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.clustering import kmeans
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.exact import brute_force
from puffin_ann.ann.graph import kernels_connectivity
from puffin_ann.ann.graph.arguments import Adjacency, Space
from puffin_ann.ann.graph.kernels_connectivity import NONE_DELETED
from puffin_ann.ann.graph.primitives import MAX_ROWS
from puffin_ann.ann.vamana.bulk import bulk_build
from puffin_ann.ann.vamana.incremental import incremental_build
from puffin_ann.ann.vamana.incremental.insert import first_equal
from puffin_ann.errors import BadInputError

INSERTED_ROWS = 4096
"""Up to so many different rows, the graph is built by insertion."""
SAMPLE_SHARE = 0.02
SAMPLE_LEAST = 512
SAMPLE_KEEP = 64
REPAIR_KEEP = 32
SAMPLED_PER_LANDMARK = 64
ARITY = 4

Progress = Callable[[str, float], None]


def build(
    space: NDArray[np.float32],
    *,
    most: int,
    keep: int,
    alpha: float,
    seed: int,
    threads: int,
    deleted: NDArray[np.uint8] | None = None,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Adjacency:
    """Return a graph from whose entry every row can be reached.

    Equal rows are represented by one of them while the graph is built: among thousands of
    neighbours at distance 0 pruning would find nothing else worth an edge.

    Args:
        space: `(n, w) float32`, read-only, as `space.of_rows` gives it.
        most: R, neighbours of a row at most.
        keep: L, candidates kept by insertion.
        alpha: slack of pruning.
        seed: the same gives the same graph, whatever the number of threads.
        threads: threads to use.
        deleted: `(m,) uint8`, m ≤ n, non-zero for those of the first m rows that get no neighbours,
            and no edges but one that makes them reachable; None if all live.
        folder: for files that end with the build; None keeps in memory what they would hold.
        progress: told the stage and the share of it that is done.

    Raises:
        BadInputError: There are 2³¹ rows or more.
    """
    tell = progress or (lambda stage, share: None)
    rows = len(space)
    if rows >= MAX_ROWS:
        raise BadInputError(f"a shard of {rows} rows is too large for a graph; use more shards")
    if not rows:
        return Adjacency(np.zeros((0, most), np.uint32), np.zeros(0, np.uint16), 0)
    live = np.ones(rows, np.bool_)
    if deleted is not None and not (len(deleted) == rows and deleted.all()):
        live[: len(deleted)] = deleted == 0
    first = first_equal(space, threads, live)
    different = np.flatnonzero(live & (first == np.arange(rows, dtype=np.uint32))).astype(np.uint32)
    if len(different) <= INSERTED_ROWS:
        graph = _inserted(space, different, most, keep, alpha, seed, threads)
    else:
        graph = _bulk(space, different, most, alpha, seed, threads, folder, tell)
    _hang_equal(graph, first)
    _add_landmarks(space, different, graph, seed, threads)
    tell("repair", 0.0)
    kernels_connectivity.make_reachable(
        Space(space.reshape(-1), space.shape[1]), graph, REPAIR_KEEP, NONE_DELETED
    )
    tell("repair", 1.0)
    return graph


def _inserted(
    space: NDArray[np.float32],
    different: NDArray[np.uint32],
    most: int,
    keep: int,
    alpha: float,
    seed: int,
    threads: int,
) -> Adjacency:
    part = incremental_build.build(
        space[different], most=most, keep=keep, alpha=alpha, seed=[seed], threads=threads
    )
    if len(different) == len(space):
        return part
    neighbours = np.zeros((len(space), most), np.uint32)
    degrees = np.zeros(len(space), np.uint16)
    neighbours[different] = different[part.neighbours]
    degrees[different] = part.degrees
    return Adjacency(neighbours, degrees, int(different[part.entry]))


def _bulk(
    space: NDArray[np.float32],
    different: NDArray[np.uint32],
    most: int,
    alpha: float,
    seed: int,
    threads: int,
    folder: Path | None,
    tell: Progress,
) -> Adjacency:
    neighbours, degrees = bulk_build.build(
        space,
        different,
        most=most,
        alpha=alpha,
        plan=bulk_build.Plan.of_dim(space.shape[1]),
        seed=[seed, 1],
        threads=threads,
        folder=folder,
        progress=lambda share: tell("leaves", share),
    )
    size = max(SAMPLE_LEAST, int(len(different) * SAMPLE_SHARE))
    chosen = np.random.default_rng([seed, 2]).choice(len(different), size, replace=False)
    sample = different[np.sort(chosen)]
    tell("sample", 0.0)
    long = incremental_build.build(
        space[sample],
        most=max(1, most // 2),
        keep=SAMPLE_KEEP,
        alpha=alpha,
        seed=[seed, 3],
        threads=threads,
    )
    kernels_connectivity.add_long_edges(sample, long.neighbours, long.degrees, neighbours, degrees)
    tell("sample", 1.0)
    return Adjacency(neighbours, degrees, int(sample[long.entry]))


def _add_landmarks(
    space: NDArray[np.float32],
    different: NDArray[np.uint32],
    graph: Adjacency,
    seed: int,
    threads: int,
) -> None:
    """Let half of the entry's edges lead to rows spread over all clusters.

    Between tight clusters pruning leaves few edges, and a search that begins in the wrong one may
    never leave it.
    """
    wanted = graph.neighbours.shape[1] // 2
    generator = np.random.default_rng([seed, 5])
    size = min(len(different), SAMPLED_PER_LANDMARK * wanted)
    sample = different[np.sort(generator.choice(len(different), size, replace=False))]
    rows = space[sample]
    centroids = kmeans.train(rows, min(wanted, size), seed=seed, threads=threads)
    nearest, _ = brute_force.search(centroids, rows, 1, METRICS["l2"], threads=threads)
    landmarks = np.setdiff1d(sample[nearest[:, 0]], [graph.entry]).astype(np.uint32)
    edges = np.arange(1, len(landmarks) + 1, dtype=np.uint32)[None, :]
    kernels_connectivity.add_long_edges(
        np.append(np.uint32(graph.entry), landmarks),
        edges,
        np.array([len(landmarks)], np.uint16),
        graph.neighbours,
        graph.degrees,
    )


def _hang_equal(graph: Adjacency, first: NDArray[np.uint32]) -> None:
    sizes = np.bincount(first, minlength=len(first))
    order = np.argsort(first, kind="stable").astype(np.uint32)
    ends = np.cumsum(sizes)
    most = graph.neighbours.shape[1]
    arity = max(1, min(ARITY, most // 2 - 1))
    for top in np.flatnonzero(sizes > 1):
        members = order[ends[top] - sizes[top] : ends[top]]
        kernels_connectivity.hang_equal(members, arity, graph.neighbours, graph.degrees)
