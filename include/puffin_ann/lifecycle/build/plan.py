"""Parts of a plan, pure: whether a build has anything to do, tasks of files, groups of shards.

`build.whole_table` puts the plan of a build together, `refresh.plan` that of a refresh.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.lifecycle.documents.run import AssignTask, PlannedFile


@dataclass(frozen=True)
class NewestVersion:
    """What a build has to know of a published version.

    Attributes:
        fingerprint: of the declaration it was built by.
        is_current: it covers exactly the rows that are live now.
        recall: that was measured before it was published; 1 where nothing had to be.
    """

    fingerprint: str
    is_current: bool
    recall: float


def nothing_to_do(
    declaration: IndexDeclaration, newest: NewestVersion | None, *, force: bool
) -> str | None:
    """Say why nothing has to be built, or None if a build is required.

    Args:
        declaration: in force for this run.
        newest: the newest version, if there is one.
        force: build whatever is published.
    """
    if force or newest is None or not newest.is_current:
        return None
    if newest.fingerprint != declaration.fingerprint():
        return None
    if newest.recall < declaration.recall_target:
        return None  # the target was raised: the build measures how wide to search
    return "the published version covers exactly the live rows, with the same declaration"


def assign_tasks(
    files: Sequence[PlannedFile], *, row_bytes: int, task_bytes: int
) -> tuple[AssignTask, ...]:
    """Split the table's files into tasks of about `task_bytes` of vectors each.

    Small files share a task, large ones are cut into parts by row group. Tasks keep the order of
    files and row groups, so that rows stay in locator order from the table to the shard.

    Args:
        files: in the order of their file ids.
        row_bytes: bytes of one vector in memory.
        task_bytes: vector bytes that one task may hold.
    """
    tasks: list[AssignTask] = []
    parts: list[tuple[int, int, int]] = []
    filled = 0
    for number, file in enumerate(files):
        size = file.rows * row_bytes
        cuts = max(1, -(-size // task_bytes))
        for part in range(cuts):
            share = size // cuts
            if parts and filled + share > task_bytes:
                tasks.append(AssignTask(parts=tuple(parts)))
                parts, filled = [], 0
            parts.append((number, part, cuts))
            filled += share
    if parts:
        tasks.append(AssignTask(parts=tuple(parts)))
    return tuple(tasks)


GROUP_BYTES = 128 << 20
"""Vectors that are worth a Spark application of their own: fewer are built while one starts."""


def submits(vector_bytes: int, most: int) -> int:
    """Return to how many Spark applications shards with so many bytes of vectors are dealt."""
    return max(1, min(most, vector_bytes // GROUP_BYTES))


def shard_groups(shards: int, max_submits: int) -> dict[str, tuple[int, ...]]:
    """Deal the shards to at most `max_submits` groups of equal size.

    Shards hold about the same number of rows, since cells are dealt to them by expected rows.
    Without shards there is one group all the same, of none: Airflow skips what has no group.
    """
    groups = max(1, min(shards, max_submits))
    bounds = [shards * number // groups for number in range(groups + 1)]
    return {
        f"{number:03d}": tuple(range(bounds[number], bounds[number + 1]))
        for number in range(groups)
    }


def sample_rows(rows: int, cells: int, *, row_bytes: int, sample_bytes: int) -> int:
    """Return how many rows to train on: the larger of 1 % and 256 per centroid, within bounds."""
    wanted = max(-(-rows // 100), 256 * cells)
    return max(cells, min(rows, wanted, sample_bytes // row_bytes))
