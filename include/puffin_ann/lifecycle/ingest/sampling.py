"""Sample rows of a table: random row groups of chosen files, staged and joined."""

from dataclasses import dataclass

import numpy as np

from puffin_ann.lifecycle.documents.run import StagedFile
from puffin_ann.lifecycle.ingest.row_groups import open_row_groups
from puffin_ann.lifecycle.ingest.segments import VectorRows, concatenate
from puffin_ann.lifecycle.runtime.workspace import Workspace, arrays_from_bytes, arrays_to_bytes


@dataclass(frozen=True)
class SampleTask:
    """Rows to sample from one file."""

    file: int
    rows: int


def sample(workspace: Workspace, task: SampleTask) -> StagedFile:
    """Read random row groups of one file until enough usable rows are found, and stage them."""
    plan = workspace.build_plan
    generator = np.random.default_rng([plan.declaration.seed, task.file])
    part = open_row_groups(workspace, plan.files[task.file], 0, 1)
    found: list[VectorRows] = []
    rows = 0
    for row_group in generator.permutation(part.row_groups):
        if rows >= task.rows:
            break
        read = part.read(int(row_group), identities=False)
        found.append(read.rows)
        rows += len(read.rows.vectors)
    joined = concatenate(found, plan.dimension)
    if rows > task.rows:
        joined = joined.take(np.sort(generator.choice(rows, task.rows, replace=False)))
    return workspace.stage_bytes(f"sample-{task.file}.arrays", arrays_to_bytes(joined))


def read_samples(workspace: Workspace, samples: list[StagedFile]) -> VectorRows:
    """Return the staged samples as one."""
    return concatenate(
        [arrays_from_bytes(VectorRows, workspace.fetch_bytes(sample)) for sample in samples],
        workspace.build_plan.dimension,
    )
