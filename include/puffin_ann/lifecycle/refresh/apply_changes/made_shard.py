"""Stage the blobs of a shard that was made."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.shards import columns as columns_blob
from puffin_ann.blobs.shards.rows import Rows
from puffin_ann.blobs.version import tombstones as tombstones_blob
from puffin_ann.lifecycle.build.shard import stage_shard
from puffin_ann.lifecycle.documents.refresh import AppliedShard
from puffin_ann.lifecycle.refresh.apply_changes.judge_recall import Judgement
from puffin_ann.lifecycle.runtime.workspace import Workspace

BESIDE = (tombstones_blob.TYPE, columns_blob.TYPE)
"""Types of blobs that do not count to the bytes of a shard."""


@dataclass(frozen=True)
class Made:
    """A shard that rows were put into.

    Attributes:
        action: what was done.
        rows: all of it.
        blobs: files, by type.
        added: rows inserted or built.
        deleted: (n,) bool, rows that are; None: none is.
        judged: what it finds; of a delta all rows are compared.
        vector_bytes_read: of the table, for rows that the shard had before.
    """

    action: Literal["insert", "rebuild", "delta"]
    rows: Rows
    blobs: Mapping[str, Path]
    added: int
    deleted: NDArray[np.bool_] | None = None
    judged: Judgement = field(default_factory=Judgement)
    vector_bytes_read: int = 0


def stage_made(workspace: Workspace, shard_id: int, made: Made, *, began: float) -> AppliedShard:
    """Stage a shard's blobs, and say what became of it.

    Args:
        workspace: of the run.
        shard_id: its number.
        made: the shard.
        began: when the work on it did, by the monotonic clock.
    """
    blobs = made.blobs
    return AppliedShard(
        shard_id=shard_id,
        kind="delta" if made.action == "delta" else "graph",
        rows=len(made.rows),
        tombstones=0 if made.deleted is None else int(np.count_nonzero(made.deleted)),
        bytes=sum(blobs[blob].stat().st_size for blob in blobs if blob not in BESIDE),
        file=stage_shard(workspace, workspace.refresh_plan, shard_id, blobs),
        blobs=tuple(blobs),
        added=made.added,
        action=made.action,
        recall=made.judged.recall,
        before=made.judged.before,
        seconds=time.monotonic() - began,
        vector_bytes_read=made.vector_bytes_read,
    )
