"""Sample row groups at random, train the centroids, hold out the gate's queries."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.clustering import kmeans, shard_assignment
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.declaration import AUTO
from puffin_ann.errors import TooFewRowsError
from puffin_ann.lake.read.data.vectors import LARGEST_NORM
from puffin_ann.lifecycle.build.auto_algorithm import TRIAL_QUERIES, TRIAL_ROWS
from puffin_ann.lifecycle.build.plan import sample_rows
from puffin_ann.lifecycle.documents.run import BuildPlan
from puffin_ann.lifecycle.ingest.sampling import SampleTask
from puffin_ann.lifecycle.ingest.segments import VectorRows
from puffin_ann.settings import settings

MAX_SAMPLED_FILES = 256
DRIVER_FILES = 16
DRIVER_BYTES = 64 << 20
"""Up to so many files with so many bytes of vectors are sampled by the driver itself."""


@dataclass(frozen=True)
class TrainResult:
    """What training found.

    Attributes:
        centroids: (k, dc) float32 in the search space of the metric.
        partition_shards: (k,) uint32, the shard each cell belongs to.
        norm_bound: (1,) float32, largest norm in the sample; 0 for metrics that do not need it.
        queries: (q, d) float32: the first `tuning` ones are for tuning, the rest for the gate.
        tuning: (1,) int64.
    """

    centroids: NDArray[np.float32]
    partition_shards: NDArray[np.uint32]
    norm_bound: NDArray[np.float32]
    queries: NDArray[np.float32]
    tuning: NDArray[np.int64]


def sample_tasks(plan: BuildPlan) -> list[SampleTask]:
    """Choose the files to sample, and how many rows of each; at random, by the run's seed."""
    wanted = sample_rows(
        plan.expected_rows,
        plan.cell_count,
        row_bytes=4 * plan.dimension,
        sample_bytes=settings().sample_bytes,
    )
    if plan.declaration.algorithm == AUTO:
        trial = TRIAL_ROWS + TRIAL_QUERIES + 2 * plan.declaration.gate.queries
        trial = min(trial, plan.expected_rows, settings().sample_bytes // (4 * plan.dimension))
        wanted = max(wanted, trial)
    generator = np.random.default_rng(plan.declaration.seed)
    chosen = sorted(generator.permutation(len(plan.files))[:MAX_SAMPLED_FILES])
    rows = sum(plan.files[number].rows for number in chosen)
    return [
        SampleTask(int(number), -(-wanted * plan.files[number].rows // rows))
        for number in chosen
        if plan.files[number].rows
    ]


def is_small(plan: BuildPlan, tasks: Sequence[SampleTask]) -> bool:
    """Tell whether the driver samples and trains sooner than Spark's workers would have begun.

    Its memory is bounded by what the sampled files hold in all, since row groups are read whole.
    """
    if plan.declaration.algorithm == AUTO:  # builds samples by every engine
        return False
    rows = sum(plan.files[task.file].rows for task in tasks)
    return len(tasks) <= DRIVER_FILES and 4 * plan.dimension * rows <= DRIVER_BYTES


def held_out(plan: BuildPlan, usable: int) -> NDArray[np.int64]:
    """Return which sampled rows are queries of the gate."""
    generator = np.random.default_rng([plan.declaration.seed, 1])
    return generator.choice(usable, min(2 * plan.declaration.gate.queries, usable), replace=False)


def train(plan: BuildPlan, rows: VectorRows, *, threads: int) -> TrainResult:
    """Train the centroids on the sampled rows.

    Raises:
        TooFewRowsError: the sample has no usable vector.
    """
    declaration = plan.declaration
    usable = len(rows.vectors)
    if not usable:
        raise TooFewRowsError(
            f"table {plan.table}: no sampled row has a usable vector in column "
            f"{declaration.column!r}: each is null, not of dimension {plan.dimension}, not finite "
            f"or longer than {LARGEST_NORM:.2g}; correct the vectors"
        )
    metric = METRICS[declaration.metric]
    norm_bound = float(np.sqrt(np.einsum("ij,ij->i", rows.vectors, rows.vectors).max()))
    space = metric.to_search_space(rows.vectors, norm_bound)
    # With fewer rows than cells some are taken again: the cells of the copies stay empty.
    cells = plan.cell_count
    enough = space[np.arange(max(usable, cells)) % usable]
    centroids = kmeans.train(enough, cells, seed=declaration.seed, threads=threads)
    centroids = centroids[shard_assignment.near_in_order(centroids)]
    nearest, _ = kmeans.assign(space, centroids, threads=threads)
    sizes = np.bincount(nearest, minlength=cells)
    shards = shard_assignment.assign_cells_to_shards(centroids, sizes, plan.shard_count)
    queries = rows.vectors[held_out(plan, usable)]
    return TrainResult(
        centroids=centroids,
        partition_shards=shards.astype(np.uint32),
        norm_bound=np.array([norm_bound], dtype=np.float32),
        queries=queries,
        tuning=np.array([len(queries) // 2], dtype=np.int64),
    )
