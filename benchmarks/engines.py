"""Ours and theirs, behind one way to build and to search."""

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import NEIGHBOURS, DataSet, recall
from benchmarks.race import Contender
from puffin_ann.engines import SearchableShard, engine

BUILD_THREADS = 2
CHECKED = 100
"""Queries whose answers are checked, distance by distance."""


@dataclass(frozen=True)
class Timed:
    """Seconds of a build: on the wall, and of all threads together."""

    wall: float
    processor: float


class Clock:
    """Measures a block; `timed` is there when it ends."""

    timed: Timed

    def __enter__(self) -> "Clock":
        self._began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        wall, processor = self._began
        self.timed = Timed(time.perf_counter() - wall, time.process_time() - processor)


def build_ours(
    algorithm: str,
    vectors: NDArray[np.float32],
    folder: Path,
    parameters: Mapping[str, Any] | None = None,
    metric: str = "l2",
) -> tuple[Timed, Any]:
    """Build a shard; returns how long that took and what was built."""
    one = engine(algorithm)
    checked = one.check(parameters or {}, vectors.shape[1])
    scratch = Path(tempfile.mkdtemp(dir=folder))
    with Clock() as clock:
        built = one.build(
            vectors,
            metric=metric,
            parameters=checked,
            norm_bound=0.0,
            seed=0,
            threads=BUILD_THREADS,
            scratch=scratch,
        )
    return clock.timed, built


def through_blob(
    algorithm: str, built: Any, folder: Path, *, searched: bool = True
) -> tuple[SearchableShard, Path]:
    """Write a shard to its blob, and open it from there, as every search does, or as insertions."""
    one = engine(algorithm)
    blob = folder / f"{algorithm}.blob"
    with blob.open("wb") as out:
        one.encode(built, out)
    unpacked = Path(tempfile.mkdtemp(dir=folder))
    with blob.open("rb") as source:
        one.unpack(source, unpacked, searched=searched)
    return one.open(unpacked), unpacked


def build_searchable(
    algorithm: str, vectors: NDArray[np.float32], folder: Path
) -> tuple[Timed, tuple[SearchableShard, Path]]:
    """Build a shard, write it, open it and ask it once: all that comes before answers is timed."""
    with Clock() as clock:
        built = build_ours(algorithm, vectors, folder)[1]
        shard, unpacked = through_blob(algorithm, built, folder)
        shard.search(vectors[:1], NEIGHBOURS, width=NEIGHBOURS)
    return clock.timed, (shard, unpacked)


def size_of(place: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    if place.is_file():
        return place.stat().st_size
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def ours(algorithm: str, shard: SearchableShard, threads: int = 1) -> Contender:
    """Return a shard of ours as a contender: its width is the effort."""

    def search(queries: NDArray[np.float32], effort: int) -> NDArray[np.int64]:
        return shard.search(queries, NEIGHBOURS, width=effort, threads=threads)[0]

    return Contender(f"puffin-ann {algorithm}", search)


def check_answers(shard: SearchableShard, data: DataSet, width: int = 64) -> None:
    """Hold a shard's answers to the promises that figures rest on, before anything is timed.

    Args:
        shard: by Euclidean distance, or by inner product.
        data: its rows, and what is true of them by the same.
        width: to search by.

    Raises:
        AssertionError: a distance is not the exact one, answers are out of order or doubled, or
            exhaustive search is not the truth.
    """
    queries, truth = data.queries[:CHECKED], data.truth[:CHECKED]
    ids, distances = shard.search(queries, NEIGHBOURS, width=width)
    rows = data.vectors[ids].astype(np.float64)
    if shard.metric == "ip":
        exact = -np.einsum("qkd,qd->qk", rows, queries.astype(np.float64))
    else:
        exact = np.sqrt(((rows - queries[:, None, :]) ** 2).sum(axis=2))
    np.testing.assert_allclose(distances, exact, rtol=1e-4)
    if (np.diff(distances, axis=1) < 0).any():
        raise AssertionError("answers are not in order of their distance")
    if any(len(set(row)) < NEIGHBOURS for row in ids.tolist()):
        raise AssertionError("a row is answered twice")
    if recall(shard.exhaustive(queries, NEIGHBOURS)[0], truth) < 1.0:
        raise AssertionError("exhaustive search does not find what brute force finds")


def build_hnswlib(
    vectors: NDArray[np.float32], connections: int = 16, space: str = "l2"
) -> tuple[Timed, Any]:
    """Build hnswlib's graph with an M, and ef 200, in one of its spaces."""
    import hnswlib

    index = hnswlib.Index(space, vectors.shape[1])
    with Clock() as clock:
        index.init_index(len(vectors), M=connections, ef_construction=200)
        index.set_num_threads(BUILD_THREADS)
        index.add_items(vectors)
    return clock.timed, index


def hnswlib_contender(index: Any, name: str) -> Contender:
    """Return hnswlib as a contender: ef is the effort."""

    def search(queries: NDArray[np.float32], effort: int) -> NDArray[np.integer]:
        index.set_ef(effort)
        found: NDArray[np.integer] = index.knn_query(queries, k=NEIGHBOURS, num_threads=1)[0]
        return found

    return Contender(name, search)


def build_symphony(vectors: NDArray[np.float32], degree: int) -> tuple[Timed, Any]:
    """Build rabitqlib's SymphonyQG."""
    import rabitqlib

    index = rabitqlib.SymqgIndex(vectors.shape[1], degree, "l2")
    with Clock() as clock:
        index.build(vectors, 200, BUILD_THREADS)
    return clock.timed, index


def load_symphony(path: Path) -> Any:
    """Load an index of SymphonyQG from its file."""
    import rabitqlib

    return rabitqlib.SymqgIndex.load(str(path))


def symphony_contender(index: Any, name: str) -> Contender:
    """Return SymphonyQG as a contender: ef is the effort."""

    def search(queries: NDArray[np.float32], effort: int) -> NDArray[np.integer]:
        call = index.search if len(queries) == 1 else index.search_batch
        first = np.asarray(call(queries, NEIGHBOURS, effort, 1)[0])
        return first.reshape(len(queries), NEIGHBOURS).astype(np.int64)

    return Contender(name, search)
