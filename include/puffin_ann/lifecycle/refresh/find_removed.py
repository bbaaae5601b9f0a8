"""Find the removed rows of all shards, and what they are known again by wherever they are now.

The first part of the stage `read_changes`: tasks look into shards, and then into files that rows
were removed with.
"""

import time
from collections.abc import Sequence
from functools import partial

from puffin_ann.errors import BlobFormatError
from puffin_ann.lifecycle.documents.refresh import (
    REMOVED,
    KnownRowsOfBucket,
    RemovedRows,
    RemovedRowsOfShard,
)
from puffin_ann.lifecycle.documents.run import StagedFile, done, store
from puffin_ann.lifecycle.refresh.damage import naming_the_remedy
from puffin_ann.lifecycle.refresh.read_changes import known_rows, removed_rows
from puffin_ann.lifecycle.runtime.progress import Size
from puffin_ann.lifecycle.runtime.run_each import run_each
from puffin_ann.lifecycle.runtime.runners import Runner
from puffin_ann.lifecycle.runtime.workspace import Workspace, arrays_to_bytes

TASK_ROWS = 1_000_000
"""Rows of shards whose rows blobs one task reads; about a second's work."""


def find_removed(runner: Runner, workspace: Workspace) -> RemovedRows:
    """Find the removed rows, unless that is done.

    Raises:
        BlobFormatError: a shard has a row twice, or none has a row that is covered.
    """
    finished = done(workspace.staging, REMOVED, RemovedRows)
    if finished:
        return finished
    began = time.monotonic()
    decision = workspace.refresh_plan.decision
    shards: list[int] = []
    # Where rows were only added, no shard is looked into.
    if decision.rows_gone or decision.matches:
        shards = [
            shard.shard_id for shard in decision.shards if shard.shard_id not in decision.unreadable
        ]
    batches = batches_of(workspace, shards)
    size = size_of(workspace, batches)
    find = partial(_find_removed_of, threads=runner.threads_per_task(len(batches)))
    looked_at = run_each(runner, workspace.run, find, batches, size=size)
    found = [shard for batch in looked_at for shard in batch]
    if shards and not decision.unreadable:
        _require_found(workspace, sum(shard.newly_deleted for shard in found))
    prefixes = None
    if decision.matches:
        (prefixes,) = run_each(runner, workspace.run, _stage_prefixes, [found])
    document = RemovedRows(
        shards=tuple(found),
        prefixes=prefixes,
        seconds=time.monotonic() - began,
        known=_find_row_ids(runner, workspace, found),
    )
    return store(workspace.staging, REMOVED, document)


def _require_found(workspace: Workspace, rows: int) -> None:
    """Refuse to go on where shards hold more or fewer of the removed rows than the version says.

    Raises:
        BlobFormatError: a shard has a row twice, or none has a row that is covered.
    """
    expected = workspace.refresh_plan.decision.rows_gone
    if rows != expected:
        version = workspace.base_version
        with naming_the_remedy(workspace):
            raise BlobFormatError(
                f"{version.path}: the shards hold {rows:,} of the rows that are not live any "
                f"more; by the coverage blob {expected:,}"
            )


def _find_removed_of(
    workspace: Workspace, shards: list[int], *, threads: int
) -> list[RemovedRowsOfShard]:
    version = workspace.base_version
    entries = {shard.shard_id: shard for shard in version.routing.shards}
    given = [entries[number] for number in shards]
    with naming_the_remedy(workspace):
        return removed_rows.find_removed_rows(workspace, version, given, threads=threads)


def _find_row_ids(
    runner: Runner, workspace: Workspace, shards: Sequence[RemovedRowsOfShard]
) -> tuple[KnownRowsOfBucket, ...]:
    """Find the row ids of rows that were removed with their files, if the plan says so."""
    buckets = list(zip(*(shard.rewritten for shard in shards if shard.rewritten), strict=True))
    find = partial(_find_row_ids_of, threads=runner.threads_per_task(len(buckets)))
    return tuple(run_each(runner, workspace.run, find, enumerate(buckets))) if buckets else ()


def _find_row_ids_of(
    workspace: Workspace, numbered: tuple[int, Sequence[StagedFile]], *, threads: int
) -> KnownRowsOfBucket:
    """Find row ids of one bucket: its number, and what shards staged for it."""
    number, staged = numbered
    return known_rows.find_row_ids(workspace, number, staged, threads=threads)


def _stage_prefixes(workspace: Workspace, shards: list[RemovedRowsOfShard]) -> StagedFile:
    values = removed_rows.collect_prefixes(workspace, shards)
    return workspace.stage_bytes("prefixes.arrays", arrays_to_bytes(values))


def batches_of(workspace: Workspace, shards: Sequence[int]) -> list[list[int]]:
    """Deal shards to tasks of about `TASK_ROWS` rows: to begin a task may cost more than a shard.

    A shard that is inserted into or built is a task of its own.
    """
    rows = {shard.shard_id: shard.rows for shard in workspace.base_version.routing.shards}
    actions = {shard.shard_id: shard.action for shard in workspace.refresh_plan.decision.shards}
    batches: list[list[int]] = []
    filled = TASK_ROWS + 1
    for shard in shards:
        is_light = actions.get(shard) in ("none", "mask", "remap")
        size = rows[shard] if is_light else TASK_ROWS + 1
        if filled + size > TASK_ROWS:
            batches.append([])
            filled = 0
        batches[-1].append(shard)
        filled += size
    return batches


def size_of(workspace: Workspace, batches: Sequence[Sequence[int]]) -> Size:
    """Return the rows of the shards in each batch, expected ones of a new delta."""
    plan = workspace.refresh_plan
    rows = {shard.shard_id: shard.rows for shard in workspace.base_version.routing.shards}
    if plan.decision.delta is not None:
        rows[plan.decision.delta.shard_id] = plan.decision.delta.rows
    counts = [sum(rows[shard] for shard in batch) for batch in batches]
    return Size.of_vectors(counts, plan.dimension)
