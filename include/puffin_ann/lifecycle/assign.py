"""Stage 1a: read the table once; give each row its partition, and stage it grouped by shard."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter
from pyroaring import BitMap

from puffin_ann.ann import kmeans
from puffin_ann.ann.centroids import of_rows, radii
from puffin_ann.ann.metrics import METRICS
from puffin_ann.declaration import CENTROID, CentroidParameters
from puffin_ann.errors import BadVectorsError
from puffin_ann.lifecycle import truth
from puffin_ann.lifecycle.documents import Assigned, AssignTask, BuildPlan, Document, StagedFile
from puffin_ann.lifecycle.reading import ReadRowGroup, open_part
from puffin_ann.lifecycle.segments import StagedRows, concatenated, write_segment
from puffin_ann.lifecycle.train import TrainResult
from puffin_ann.lifecycle.truth import Truth
from puffin_ann.lifecycle.workspace import (
    Workspace,
    arrays_from_bytes,
    arrays_to_bytes,
    attempt_unique,
)


class AssignOutcome(Document):
    """What one task reports to the driver: pointers and counts."""

    task: int
    segment: StagedFile
    summary: StagedFile
    rows: int
    deleted: int
    skipped: dict[str, int]
    vector_bytes_read: int


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
        truth_distances, truth_duplicates, truth_counts: see `truth.Truth`.
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
    truth_distances: NDArray[np.float32]
    truth_duplicates: NDArray[np.int64]
    truth_counts: NDArray[np.int64]

    @property
    def truth(self) -> Truth:
        """The exact answers among the rows seen."""
        return Truth(self.truth_distances, self.truth_duplicates, self.truth_counts)


def run_task(
    workspace: Workspace, number: int, task: AssignTask, trained: TrainResult, *, threads: int
) -> AssignOutcome:
    """Read one task's parts of the table and stage their rows grouped by shard."""
    plan = workspace.plan
    reads: list[ReadRowGroup] = []
    row_groups: list[tuple[int, int, int]] = []
    for file_number, part_number, parts in task.parts:
        part = open_part(workspace, plan.files[file_number], part_number, parts)
        for row_group, size in zip(part.row_groups, part.row_group_rows, strict=True):
            reads.append(part.read(row_group, identities=True))
            row_groups.append((part.file.file_id, row_group, size))
    rows = concatenated([read.rows for read in reads], plan.dimension)
    partition, partition_radii = _assign(rows, plan, trained, threads=threads)
    shards = trained.partition_shards[partition]
    made, made_radii, made_ids = _file_centroids(rows, plan, number, threads=threads)
    staged = rows
    if plan.declaration.algorithm == CENTROID:  # no shard takes a row: they stay in the table
        staged, shards = rows.take(np.zeros(0, dtype=np.int64)), shards[:0]
    name = attempt_unique(f"segment-{number:05d}")
    with workspace.staging.create(name) as out:
        counts, checksums = write_segment(out, staged, shards, plan.declaration.shards)
    answers = truth.of_rows(
        trained.queries,
        rows,
        plan.declaration.gate.k,
        plan.declaration.metric,
        threads=threads,
    )
    file_of = [file_id for file_id, _, _ in row_groups]
    summary = AssignSummary(
        counts=counts[None],
        checksums=checksums[None],
        partition_rows=np.bincount(partition, minlength=plan.declaration.partitions).astype(
            np.uint64
        ),
        partition_radii=partition_radii,
        row_groups=np.array(row_groups, dtype=np.int64).reshape(-1, 3),
        deleted=_positions(file_of, [read.deleted for read in reads]),
        skipped=_positions(file_of, [read.skipped for read in reads]),
        file_centroids=made,
        file_radii=made_radii,
        file_ids=made_ids,
        truth_distances=answers.distances,
        truth_duplicates=answers.duplicates,
        truth_counts=answers.duplicate_counts,
    )
    reasons: Counter[str] = sum((read.reasons for read in reads), Counter())
    return AssignOutcome(
        task=number,
        segment=StagedFile.of(out.staged),
        summary=workspace.stage_bytes(f"summary-{number:05d}.npz", arrays_to_bytes(summary)),
        rows=len(rows.vectors),
        deleted=sum(len(read.deleted) for read in reads),
        skipped=dict(reasons),
        vector_bytes_read=sum(read.vector_bytes for read in reads),
    )


def _assign(
    rows: StagedRows, plan: BuildPlan, trained: TrainResult, *, threads: int
) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
    """Return each row's partition, and the radius each partition needs to hold its rows."""
    metric = METRICS[plan.declaration.metric]
    space = metric.to_search_space(rows.vectors, float(trained.norm_bound[0]))
    partition, _ = kmeans.assign(space, trained.centroids, threads=threads)
    return partition, radii(space, trained.centroids, partition, metric.name)


def _file_centroids(
    rows: StagedRows, plan: BuildPlan, task: int, *, threads: int
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
    parts = [
        arrays_from_bytes(AssignSummary, workspace.fetch_bytes(outcome.summary))
        for outcome in sorted(outcomes, key=lambda outcome: outcome.task)
    ]
    answers = truth.merged([part.truth for part in parts])
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
        truth_distances=answers.distances,
        truth_duplicates=answers.duplicates,
        truth_counts=answers.duplicate_counts,
    )
    return workspace.stage_bytes("assign-summary.npz", arrays_to_bytes(summary))


def assigned(
    plan: BuildPlan, outcomes: Sequence[AssignOutcome], summary: StagedFile, seconds: float
) -> Assigned:
    """Return the stage's document.

    Raises:
        BadVectorsError: vectors cannot be indexed and the declaration refuses those.
    """
    ordered = sorted(outcomes, key=lambda outcome: outcome.task)
    skipped: Counter[str] = sum((Counter(one.skipped) for one in ordered), Counter())
    if skipped and plan.declaration.bad_vectors == "refuse":
        raise BadVectorsError(
            f"table {plan.table}, column {plan.declaration.column!r}: "
            + ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.items()))
            + f" (width {plan.dimension} expected); mend the rows, or declare bad_vectors: skip"
        )
    return Assigned(
        segments=tuple(one.segment for one in ordered),
        summary=summary,
        rows=sum(one.rows for one in ordered),
        skipped=dict(skipped),
        deleted=sum(one.deleted for one in ordered),
        vector_bytes_read=sum(one.vector_bytes_read for one in ordered),
        seconds=seconds,
    )


OUTCOMES = TypeAdapter(list[AssignOutcome])
"""Reads and writes the outcomes as JSON, on their way to the executor that sums them up."""
