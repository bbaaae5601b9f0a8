"""Pair rows that went with rows that came: a row that moved keeps its place in its shard."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puffin_ann.lake.read.row_identity import matched
from puffin_ann.lifecycle.documents.refresh import ComeTask, GoneShard, MatchedBucket, MovesOfShard
from puffin_ann.lifecycle.ingest.row_groups import IdentifiedRows
from puffin_ann.lifecycle.refresh.detect.removed_rows import GoneRows
from puffin_ann.lifecycle.runtime.workspace import Workspace, arrays_from_bytes, arrays_to_bytes


@dataclass(frozen=True)
class Moves:
    """Rows of a shard that are live again, elsewhere.

    Attributes:
        ordinals: (n,) int64, each once.
        locators: (n, 3) uint32: file id, row group, offset in it.
    """

    ordinals: NDArray[np.int64]
    locators: NDArray[np.uint32]


@dataclass(frozen=True)
class Left:
    """Rows that came and are no rows that went, though their identities are: (n, 3) uint32."""

    locators: NDArray[np.uint32]


def match_bucket(
    workspace: Workspace, bucket: int, gone: Sequence[GoneShard], come: Sequence[ComeTask]
) -> MatchedBucket:
    """Pair the rows of one bucket, each at most once, and stage what became of them.

    Rows that went are paired before those that were tombstoned before, so that of equal rows the
    fewest change.
    """
    went = [
        arrays_from_bytes(GoneRows, workspace.fetch_bytes(one.identified[bucket])) for one in gone
    ]
    came = [
        arrays_from_bytes(IdentifiedRows, workspace.fetch_bytes(one.candidates[bucket]))
        for one in come
    ]
    shard = np.repeat(np.arange(len(went)), [len(one.ordinals) for one in went])
    ordinals = np.concatenate([np.zeros(0, np.int64), *(one.ordinals for one in went)])
    newly = np.concatenate([np.zeros(0, np.bool_), *(one.is_newly for one in went)])
    identities = np.concatenate([np.zeros((0, 2), np.uint64), *(one.identities for one in went)])
    order = np.argsort(~newly, kind="stable")
    task = np.repeat(np.arange(len(came)), [len(one.locators) for one in came])
    locators = np.concatenate([np.zeros((0, 3), np.uint32), *(one.locators for one in came)])
    theirs = np.concatenate([np.zeros((0, 2), np.uint64), *(one.identities for one in came)])
    places = np.full(len(ordinals), -1, np.int64)
    places[order] = matched(identities[order], theirs)
    moves = []
    for number, one in enumerate(gone):
        mine = np.flatnonzero((shard == number) & (places >= 0))
        if len(mine):
            made = Moves(ordinals[mine], locators[places[mine]])
            name = f"moves-{one.shard_id:05d}-{bucket:04d}.npz"
            moves.append(
                MovesOfShard(
                    shard_id=one.shard_id,
                    moves=workspace.stage_bytes(name, arrays_to_bytes(made)),
                    rows=len(mine),
                )
            )
    is_left = np.ones(len(locators), np.bool_)
    is_left[places[places >= 0]] = False
    return MatchedBucket(
        shards=tuple(moves),
        left=workspace.stage_bytes(
            f"left-{bucket:04d}.npz", arrays_to_bytes(Left(locators[is_left]))
        ),
        left_tasks=tuple(np.unique(task[is_left]).tolist()),
    )
