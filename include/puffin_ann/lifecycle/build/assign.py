"""Read the table once; give each row its cell, and stage it grouped by shard."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from puffin_ann.ann.clustering import kmeans
from puffin_ann.ann.clustering.centroids import of_rows, radii
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.declaration import CENTROID, CentroidParameters
from puffin_ann.errors import BadVectorsError, StagingError
from puffin_ann.lifecycle.build.train import TrainResult
from puffin_ann.lifecycle.documents.run import (
    Assigned,
    AssignOutcome,
    AssignTask,
    BuildPlan,
    RunPlan,
    StagedFile,
)
from puffin_ann.lifecycle.evaluate import ground_truth
from puffin_ann.lifecycle.evaluate.ground_truth import Truth
from puffin_ann.lifecycle.evaluate.more_rows import depth
from puffin_ann.lifecycle.ingest.parts import Parts, read_parts
from puffin_ann.lifecycle.ingest.segments import VectorRows, write_segment
from puffin_ann.lifecycle.runtime.workspace import (
    Workspace,
    arrays_from_bytes,
    arrays_to_bytes,
    attempt_unique,
)


@dataclass(frozen=True)
class AssignSummary:
    """Figures of one assign task, or of several: for the builds, the gate and the coverage blob.

    Attributes:
        counts: (tasks, shards) uint32, rows of each block of each task's segment.
        checksums: (tasks, shards) uint32, CRC-32 of each block.
        partition_rows: (k,) uint64.
        partition_radii: (k,) float32, largest distance to the centroid in the search space.
        row_groups: (m, 3) int64: file id, row group, its rows.
        deleted: (m, 2) int64: file id, position in the file.
        skipped: (m, 2) int64: file id, position in the file.
        file_centroids: (c, d) float32, centroids of data files, if the algorithm is `centroid`.
        file_radii: (c,) float32, largest distance of a row each stands for, rounded up.
        file_ids: (c,) uint32, the file of each.
        distance_sum: (1,) float64, of rows to their centroids, in the search space.
        largest_norm: (1,) float64, of the rows.
        truth_distances, truth_duplicates, truth_counts, truth_cells: see `ground_truth.Truth`.
    """

    counts: NDArray[np.uint32]
    checksums: NDArray[np.uint32]
    partition_rows: NDArray[np.uint64]
    partition_radii: NDArray[np.float32]
    row_groups: NDArray[np.int64]
    deleted: NDArray[np.int64]
    skipped: NDArray[np.int64]
    file_centroids: NDArray[np.float32]
    file_radii: NDArray[np.float32]
    file_ids: NDArray[np.uint32]
    distance_sum: NDArray[np.float64]
    largest_norm: NDArray[np.float64]
    truth_distances: NDArray[np.float32]
    truth_duplicates: NDArray[np.int64]
    truth_counts: NDArray[np.int64]
    truth_cells: NDArray[np.int32]

    def without_truth(self) -> "AssignSummary":
        """Return the figures without the exact answers, which take the most memory."""
        nothing = ground_truth.empty(0, 1)
        return replace(
            self,
            truth_distances=nothing.distances,
            truth_duplicates=nothing.duplicates,
            truth_counts=nothing.duplicate_counts,
            truth_cells=nothing.cells,
        )

    @property
    def truth(self) -> Truth:
        """The exact answers among the rows seen."""
        return Truth(
            self.truth_distances, self.truth_duplicates, self.truth_counts, self.truth_cells
        )


def run_task(
    workspace: Workspace, number: int, task: AssignTask, trained: TrainResult, *, threads: int
) -> AssignOutcome:
    """Read one task's parts of the table and stage their rows grouped by shard."""
    plan = workspace.build_plan
    parts = read_parts(workspace, plan.files, task, threads=threads)
    rows = parts.rows(plan.dimension)
    placed = place(rows, plan.declaration.metric, trained, threads=threads)
    staged, shards = rows, trained.partition_shards[placed.cells]
    if plan.declaration.algorithm == CENTROID:  # no shard takes a row: they stay in the table
        staged, shards = rows.take(np.zeros(0, dtype=np.int64)), shards[:0]
    name = attempt_unique(f"segment-{number:05d}")
    with workspace.staging.create(name) as out:
        counts, checksums = write_segment(out, staged, shards, plan.shard_count)
    answers = ground_truth.of_rows(
        trained.queries,
        rows,
        depth(plan.declaration.gate.k),
        plan.declaration.metric,
        threads=threads,
        cells=placed.cells,
    )
    summary = summary_of(
        plan, number, parts, rows, placed, counts, checksums, answers, threads=threads
    )
    return AssignOutcome(
        task=number,
        segment=StagedFile.of(out.staged),
        summary=workspace.stage_bytes(f"summary-{number:05d}.arrays", arrays_to_bytes(summary)),
        rows=len(rows.vectors),
        deleted=sum(len(read.deleted) for read in parts.reads),
        skipped=parts.reasons,
        vector_bytes_read=sum(read.vector_bytes for read in parts.reads),
    )


@dataclass(frozen=True)
class Placed:
    """Where rows lie among the centroids.

    Attributes:
        cells: (n,) uint32.
        rows: (k,) uint64, by cell.
        radii: (k,) float32, what each cell needs to hold its rows, rounded up.
        distance_sum: of the rows to their centroids.
        largest_norm: of the rows, as they are stored.
    """

    cells: NDArray[np.uint32]
    rows: NDArray[np.uint64]
    radii: NDArray[np.float32]
    distance_sum: float
    largest_norm: float


def place(rows: VectorRows, metric: str, trained: TrainResult, *, threads: int) -> Placed:
    """Find each row's cell; without centroids all are in cell 0 of none."""
    count = len(trained.centroids)
    largest = float(np.sqrt(np.einsum("ij,ij->i", rows.vectors, rows.vectors).max(initial=0.0)))
    if not count:
        nowhere = np.zeros(len(rows.vectors), np.uint32)
        return Placed(nowhere, np.zeros(0, np.uint64), np.zeros(0, np.float32), 0.0, largest)
    space = METRICS[metric].to_search_space(rows.vectors, float(trained.norm_bound[0]))
    cells, squared = kmeans.assign(space, trained.centroids, threads=threads)
    return Placed(
        cells,
        np.bincount(cells, minlength=count).astype(np.uint64),
        radii(space, trained.centroids, cells, metric),
        float(np.sqrt(np.maximum(squared, 0)).sum(dtype=np.float64)),
        largest,
    )


def summary_of(
    plan: RunPlan,
    task: int,
    parts: Parts,
    rows: VectorRows,
    placed: Placed,
    counts: NDArray[np.uint32],
    checksums: NDArray[np.uint32],
    answers: Truth,
    *,
    threads: int,
) -> AssignSummary:
    """Return the figures of a task."""
    made, made_radii, made_ids = _file_centroids(rows, plan, task, threads=threads)
    file_of = [read.file_id for read in parts.reads]
    return AssignSummary(
        counts=counts[None],
        checksums=checksums[None],
        partition_rows=placed.rows,
        partition_radii=placed.radii,
        row_groups=np.array(parts.row_groups, dtype=np.int64).reshape(-1, 3),
        deleted=_positions(file_of, [read.deleted for read in parts.reads]),
        skipped=_positions(file_of, [read.skipped for read in parts.reads]),
        file_centroids=made,
        file_radii=made_radii,
        file_ids=made_ids,
        distance_sum=np.array([placed.distance_sum]),
        largest_norm=np.array([placed.largest_norm]),
        truth_distances=answers.distances,
        truth_duplicates=answers.duplicates,
        truth_counts=answers.duplicate_counts,
        truth_cells=answers.cells,
    )


def _file_centroids(
    rows: VectorRows, plan: RunPlan, task: int, *, threads: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.uint32]]:
    """Return centroids of the task's part of each data file, their radii and file ids."""
    found = [(np.zeros((0, plan.dimension), np.float32), np.zeros(0, np.float32))]
    ids = [np.zeros(0, np.uint32)]
    parameters = plan.declaration.parameters
    if isinstance(parameters, CentroidParameters):
        for file_id in np.unique(rows.locators[:, 0]):
            made = of_rows(
                rows.vectors[rows.locators[:, 0] == file_id],
                plan.declaration.metric,
                parameters.centroids,
                seed=plan.declaration.seed + task,
                threads=threads,
            )
            found.append(made)
            ids.append(np.full(len(made[0]), file_id, dtype=np.uint32))
    centroids, largest = zip(*found, strict=True)
    return np.concatenate(centroids), np.concatenate(largest), np.concatenate(ids)


def _positions(file_of: Sequence[int], bitmaps: Sequence[BitMap]) -> NDArray[np.int64]:
    pairs = [
        (file_id, position)
        for file_id, bitmap in zip(file_of, bitmaps, strict=True)
        for position in bitmap
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def summarise(workspace: Workspace, outcomes: Sequence[AssignOutcome]) -> StagedFile:
    """Merge the figures of all tasks; runs on one executor, so that none pass the driver."""
    parts, answers = [], None
    for outcome in sorted(outcomes, key=lambda outcome: outcome.task):
        part = arrays_from_bytes(AssignSummary, workspace.fetch_bytes(outcome.summary))
        # Of thousands of tasks these would be most of what is held.
        answers = ground_truth.merge([answers, part.truth]) if answers else part.truth
        parts.append(part.without_truth())
    if answers is None:
        raise StagingError("no task has assigned any rows")
    summary = AssignSummary(
        counts=np.concatenate([part.counts for part in parts]),
        checksums=np.concatenate([part.checksums for part in parts]),
        partition_rows=np.sum([part.partition_rows for part in parts], axis=0, dtype=np.uint64),
        partition_radii=np.max([part.partition_radii for part in parts], axis=0),
        row_groups=np.concatenate([part.row_groups for part in parts]),
        deleted=np.concatenate([part.deleted for part in parts]),
        skipped=np.concatenate([part.skipped for part in parts]),
        file_centroids=np.concatenate([part.file_centroids for part in parts]),
        file_radii=np.concatenate([part.file_radii for part in parts]),
        file_ids=np.concatenate([part.file_ids for part in parts]),
        distance_sum=np.sum([part.distance_sum for part in parts], axis=0),
        largest_norm=np.max([part.largest_norm for part in parts], axis=0),
        truth_distances=answers.distances,
        truth_duplicates=answers.duplicates,
        truth_counts=answers.duplicate_counts,
        truth_cells=answers.cells,
    )
    return workspace.stage_bytes("assign-summary.arrays", arrays_to_bytes(summary))


def assigned(
    plan: BuildPlan, outcomes: Sequence[AssignOutcome], summary: StagedFile, seconds: float
) -> Assigned:
    """Return the stage's document.

    Raises:
        BadVectorsError: vectors cannot be indexed and the declaration refuses those.
    """
    ordered = sorted(outcomes, key=lambda outcome: outcome.task)
    skipped: Counter[str] = sum((Counter(outcome.skipped) for outcome in ordered), Counter())
    if skipped and plan.declaration.bad_vectors == "refuse":
        raise BadVectorsError(
            f"table {plan.table}, column {plan.declaration.column!r}: "
            + ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.items()))
            + f" (dimension {plan.dimension} expected); "
            + "correct the rows, or declare bad_vectors: skip"
        )
    return Assigned(
        segments=tuple(outcome.segment for outcome in ordered),
        summary=summary,
        rows=sum(outcome.rows for outcome in ordered),
        skipped=dict(skipped),
        deleted=sum(outcome.deleted for outcome in ordered),
        vector_bytes_read=sum(outcome.vector_bytes_read for outcome in ordered),
        seconds=seconds,
    )
