"""What the ways to answer under a condition cost, by which searches choose between them."""

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import engines
from benchmarks.data import NEIGHBOURS, SAMPLE, matrix
from puffin_ann.ann.core.metrics import METRICS, Metric
from puffin_ann.ann.exact import brute_force
from puffin_ann.ann.exact.byte_rows import ByteRows
from puffin_ann.ann.exact.row_addresses import RowAddresses
from puffin_ann.ann.signs.row_codes import RowCodes
from puffin_ann.ann.signs.sign_rows import SignRows
from puffin_ann.search.conditions.gathered import Gathered, Part
from puffin_ann.search.merge import LocatorKeys

ALGORITHMS = ("vamana", "hnsw", "ivf_pq")
SHARE = 0.5
WIDTH = 64
QUERIES = 200
SHARDS = 4
DIMENSION, RANK = 384, 32
"""Of the synthetic rows, and of the space that they lie in but for noise."""
ROUNDS = 3


def measure() -> Iterator[str]:
    """Time shards of the sample and of synthetic rows; give a line for each, one thread.

    The sample is the first fifth of GloVe's rows that families score, and none of the others is
    measured here.
    """
    sample = matrix(SAMPLE)
    for name, rows in (("sample", sample), ("synthetic", _synthetic(len(sample)))):
        vectors, queries = rows[QUERIES:], rows[:QUERIES]
        dimension = vectors.shape[1]
        allowed = np.random.default_rng(1).random(len(vectors)) < SHARE
        excluded = (~allowed).view(np.uint8)
        gathered = np.ascontiguousarray(vectors[allowed])
        far, asking = _far_half(vectors, queries)
        squares = brute_force.unknown_squares(len(gathered))
        compared = partial(
            brute_force.search, vectors=gathered, k=NEIGHBOURS, metric="l2", squares=squares
        )
        values = gathered.size
        compare = _seconds(compared, queries)
        coding, by_bytes = _by_bytes(gathered, compared, queries)
        yield (
            f"{name} × {dimension}: compare, ns a value: "
            + _both([1e9 * one / values for one in compare])
            + "; by a byte a number: "
            + _both([1e9 * one / values for one in by_bytes])
            + f"; code, ns a value: {1e9 * coding / values:.3g}"
            + f"; gather, ns a value: {1e9 * _gathering(vectors, allowed) / values:.3g}"
        )
        yield f"{name} × {dimension}: " + _by_signs(vectors, queries)
        with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
            for algorithm in ALGORITHMS:
                _, built = engines.build_ours(algorithm, vectors, Path(temporary))
                shard, _ = engines.through_blob(algorithm, built, Path(temporary))
                plain, masked, listed = (
                    _seconds(partial(shard.search, k=k, width=WIDTH, deleted=mask), queries)
                    for k, mask in ((NEIGHBOURS, None), (NEIGHBOURS, excluded), (WIDTH, None))
                )
                unasked, passing = (
                    _seconds(partial(shard.search, k=NEIGHBOURS, width=WIDTH, deleted=mask), asking)
                    for mask in (None, far)
                )
                yield (
                    f"{name} × {dimension}: {algorithm}, us a unit of width: "
                    + _both([1e6 * one / WIDTH for one in plain])
                    + f"; masked at {SHARE:.0%} ÷ without: "
                    + _both(_ratios(masked, plain))
                    + "; with all near rows masked: "
                    + _both(_ratios(passing, unasked))
                    + "; us a further answer: "
                    + _both(
                        [
                            1e6 * (one - other) / (WIDTH - NEIGHBOURS)
                            for one, other in zip(listed, plain, strict=True)
                        ]
                    )
                )


def _by_bytes(
    vectors: NDArray[np.float32],
    compared: Callable[..., object],
    queries: NDArray[np.float32],
) -> tuple[float, list[float]]:
    """Return the seconds to code rows, and those of a query that is compared with the codes."""
    rows, taken = RowAddresses.of(vectors), []
    for _ in range(ROUNDS):
        began = time.process_time()
        coded = ByteRows.of(rows, METRICS["l2"])
        taken.append(time.process_time() - began)
    return min(taken), _seconds(partial(compared, coded=coded), queries)


def _by_signs(vectors: NDArray[np.float32], queries: NDArray[np.float32]) -> str:
    """Tell what rows take by signs, and by a byte a number: of all, since it is for many."""
    rows, made = RowAddresses.of(vectors), []
    forms: list[Callable[[RowAddresses, Metric], Any]] = [ByteRows.of, SignRows.of]
    for form in forms:
        taken = []
        for _ in range(ROUNDS):
            began = time.process_time()
            coded = form(rows, METRICS["l2"])
            taken.append(time.process_time() - began)
        _, single = _seconds(partial(coded.nearest, k=NEIGHBOURS), queries)
        made.append((min(taken) / vectors.size, single / len(vectors)))
    (coding, by_bytes), (signing, by_signs) = made
    known = _gathering(vectors, np.ones(len(vectors), np.bool_), 1, RowCodes(METRICS["l2"]))
    return (
        f"one query a call, ns a row: by signs {1e9 * by_signs:.3g}, by a byte a number "
        f"{1e9 * by_bytes:.3g}; ns a value to code: {1e9 * signing:.3g} and {1e9 * coding:.3g}; "
        f"ns a row to gather it by known signs: {1e9 * known / len(vectors):.3g}"
    )


def _gathering(
    vectors: NDArray[np.float32],
    allowed: NDArray[np.bool_],
    queries: int = QUERIES,
    known: RowCodes | None = None,
) -> float:
    """Return the seconds to gather the rows allowed of shards: the least of rounds.

    Of these the first makes the signs that are not known, if they are asked for.
    """
    parts, found = [], []
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        for number in range(SHARDS):
            rows = np.arange(number, len(vectors), SHARDS)  # as cells of shards mix files
            _, built = engines.build_ours("exact", vectors[rows], Path(temporary))
            shard, _ = engines.through_blob("exact", built, Path(temporary))
            keys = partial(_locators, rows)
            ordinals = np.flatnonzero(allowed[rows])
            parts.append(Part(number, "l2", ordinals, shard.find_vectors(ordinals), keys))
        for _ in range(ROUNDS):
            began = time.process_time()
            Gathered.of(parts, known).rows.prepare(queries, NEIGHBOURS)
            found.append(time.process_time() - began)
    return min(found)


def _locators(rows: NDArray[np.int64], chosen: NDArray[np.int64]) -> LocatorKeys:
    """Return places in files of 4,096 rows, in groups of 1,024."""
    numbers = rows[chosen]
    return numbers >> 12, numbers >> 10 & 3, numbers & 1023


def _far_half(
    vectors: NDArray[np.float32], queries: NDArray[np.float32]
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return a mask of the half at one end of the longest axis, and the queries farthest there."""
    middle = vectors.mean(axis=0)
    axis = np.linalg.svd(vectors[:: len(vectors) // 2000] - middle, full_matrices=False)[2][0]
    along = (vectors - middle) @ axis
    order = ((queries - middle) @ axis).argsort()
    return (along > np.median(along)).view(np.uint8), queries[order[len(order) // 2 :]]


def _ratios(ones: list[float], others: list[float]) -> list[float]:
    return [one / other for one, other in zip(ones, others, strict=True)]


def _seconds(
    search: Callable[[NDArray[np.float32]], object], queries: NDArray[np.float32]
) -> list[float]:
    """Return the seconds of a query in a batch, and in a call of its own: the least of rounds."""
    found = []
    for calls in ([queries], [queries[at : at + 1] for at in range(len(queries))]):
        rounds = []
        for _ in range(ROUNDS):
            began = time.process_time()
            for call in calls:
                search(call)
            rounds.append(time.process_time() - began)
        found.append(min(rounds) / len(queries))
    return found


def _both(figures: list[float]) -> str:
    batch, single = figures
    return f"{batch:.3g} in a batch, {single:.3g} one query a call"


def _synthetic(rows: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(2)
    within = rng.standard_normal((rows, RANK)) @ rng.standard_normal((RANK, DIMENSION))
    return (within + rng.standard_normal((rows, DIMENSION))).astype(np.float32)
