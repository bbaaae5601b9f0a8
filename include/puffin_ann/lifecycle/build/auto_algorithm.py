"""`algorithm: auto`: build a sample with each engine, and take the one that searches fastest.

Which engine that is depends on the data and its dimension, so it is measured on the table's own
rows. Timings differ from run to run: the caller records the choice, and keeps to it.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.exact import brute_force
from puffin_ann.declaration import AUTO, EXACT, PARAMETERS
from puffin_ann.engines import SearchableShard, engine
from puffin_ann.imports.extras import is_installed
from puffin_ann.lifecycle.documents.run import BuildPlan, Choice, Trial
from puffin_ann.lifecycle.evaluate.measure import recalls_of
from puffin_ann.lifecycle.runtime.scratch import scratch_folder

CANDIDATES = ("vamana", "ivf_pq", "hnsw")
FEWEST_ROWS = 4000
"""Tables of fewer rows are compared whole: no engine is much faster there."""
TRIAL_ROWS = 20_000
TRIAL_QUERIES = 200
WIDEST = 2048
ROUNDS = 7


def choose(
    plan: BuildPlan,
    vectors: NDArray[np.float32],
    left_out: NDArray[np.int64],
    *,
    norm_bound: float,
    threads: int,
) -> Choice:
    """Return the algorithm of a run: the declared one, or the fastest at the declared recall.

    Args:
        plan: the run's plan.
        vectors: `(n, d) float32`, sampled rows.
        left_out: which of them not to use: the gate asks for them.
        norm_bound: largest norm in the sample.
        threads: threads to build with; searches are timed on one.
    """
    declaration = plan.declaration
    if declaration.algorithm != AUTO:
        return Choice(algorithm=declaration.algorithm)
    free = np.setdiff1d(np.arange(len(vectors)), left_out)
    if plan.expected_rows < FEWEST_ROWS or len(free) < FEWEST_ROWS // 2:
        return Choice(algorithm=EXACT)
    order = np.random.default_rng([declaration.seed, 2]).permutation(free)
    queries = vectors[order[:TRIAL_QUERIES]]
    rows = vectors[np.sort(order[TRIAL_QUERIES : TRIAL_QUERIES + TRIAL_ROWS])]
    with scratch_folder("trial") as folder:
        opened = {
            name: _built(plan, name, rows, norm_bound, threads, folder / name)
            for name in CANDIDATES
            if name != "hnsw" or is_installed("hnswlib")
        }
        return _fastest(plan, opened, queries, rows, threads)


def _built(
    plan: BuildPlan,
    name: str,
    rows: NDArray[np.float32],
    norm_bound: float,
    threads: int,
    folder: Path,
) -> tuple[SearchableShard, float]:
    """Build, store and open a shard as a run does; returns it, and the seconds of its build."""
    tried, unpacked = engine(name), folder / "unpacked"
    unpacked.mkdir(parents=True)
    began = time.perf_counter()
    built = tried.build(
        rows,
        metric=plan.declaration.metric,
        parameters=PARAMETERS[name](),
        norm_bound=norm_bound,
        seed=plan.declaration.seed,
        threads=threads,
        scratch=folder,
    )
    seconds = time.perf_counter() - began
    with (folder / "blob").open("w+b") as blob:
        tried.encode(built, blob)
        blob.seek(0)
        tried.unpack(blob, unpacked)
    return tried.open(unpacked), seconds


def _fastest(
    plan: BuildPlan,
    opened: dict[str, tuple[SearchableShard, float]],
    queries: NDArray[np.float32],
    rows: NDArray[np.float32],
    threads: int,
) -> Choice:
    declaration = plan.declaration
    k = min(declaration.gate.k, len(rows))
    metric = METRICS[declaration.metric]
    _, truth = brute_force.search(queries, rows, k, metric, threads=threads)
    asked = np.repeat(np.arange(len(queries)), k)

    def recall(name: str, width: int) -> float:
        _, distances = opened[name][0].search(queries, k, width=width)
        return float(recalls_of(asked, distances.ravel(), truth).mean())

    found = {
        name: smallest_width(partial(recall, name), declaration.recall_target) for name in opened
    }
    seconds: dict[str, list[float]] = {name: [] for name in opened}
    for _ in range(ROUNDS):  # alternating, so that a busy moment hits all alike
        for name, (width, _) in found.items():
            began = time.perf_counter()
            opened[name][0].search(queries, k, width=width)
            seconds[name].append(time.perf_counter() - began)
    trials = tuple(
        Trial(
            algorithm=name,
            rows=len(rows),
            search_width=found[name][0],
            recall=found[name][1],
            queries_per_second=len(queries) / float(np.median(seconds[name])),
            build_seconds=opened[name][1],
        )
        for name in opened
    )
    enough = [trial for trial in trials if trial.recall >= declaration.recall_target]
    best = max(enough, key=lambda trial: trial.queries_per_second, default=None)
    return Choice(algorithm=best.algorithm if best else EXACT, trials=trials)


def smallest_width(recall: Callable[[int], float], target: float) -> tuple[int, float]:
    """Return about the smallest width that reaches a recall, and the recall there.

    Doubles until the target is reached, then bisects to an eighth; `WIDEST` if nothing reaches it.
    """
    low, high = 0, 8
    reached = recall(high)
    while reached < target and high < WIDEST:
        low, high = high, 2 * high
        reached = recall(high)
    while reached >= target and low and high - low > max(1, high // 8):
        middle = (low + high) // 2
        there = recall(middle)
        if there >= target:
            high, reached = middle, there
        else:
            low = middle
    return high, reached
