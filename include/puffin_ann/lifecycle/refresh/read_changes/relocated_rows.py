"""Pair removed rows with added rows by identity: a relocated row keeps its place in its shard."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puffin_ann.lake.read.identity.row_identity import match_identities
from puffin_ann.lifecycle.documents.refresh import (
    AddedRowsOfTask,
    MatchedBucket,
    RelocationsOfShard,
    RemovedRowsOfShard,
)
from puffin_ann.lifecycle.ingest.row_groups import IdentifiedRows
from puffin_ann.lifecycle.refresh.read_changes.removed_rows import RelocationCandidates
from puffin_ann.lifecycle.runtime.workspace import Workspace, arrays_from_bytes, arrays_to_bytes


@dataclass(frozen=True)
class Relocations:
    """Rows of a shard that are live again, elsewhere.

    Attributes:
        ordinals: (n,) int64, each once.
        locators: (n, 3) uint32: file id, row group, offset in it.
    """

    ordinals: NDArray[np.int64]
    locators: NDArray[np.uint32]


@dataclass(frozen=True)
class UnmatchedRows:
    """Added rows that are not relocated, though their identities were removed: (n, 3) uint32."""

    locators: NDArray[np.uint32]


def match_bucket(
    workspace: Workspace,
    bucket: int,
    removed: Sequence[RemovedRowsOfShard],
    added: Sequence[AddedRowsOfTask],
) -> MatchedBucket:
    """Pair the rows of one bucket, each at most once, and stage what became of them.

    Removed rows are paired before those that were tombstoned before, so that of equal rows the
    fewest change.
    """
    candidates = [
        arrays_from_bytes(RelocationCandidates, workspace.fetch_bytes(shard.identified[bucket]))
        for shard in removed
    ]
    found = [
        arrays_from_bytes(IdentifiedRows, workspace.fetch_bytes(task.candidates[bucket]))
        for task in added
    ]
    shards = np.repeat(np.arange(len(candidates)), [len(rows.ordinals) for rows in candidates])
    ordinals = np.concatenate([np.zeros(0, np.int64), *(rows.ordinals for rows in candidates)])
    newly_deleted = np.concatenate(
        [np.zeros(0, np.bool_), *(rows.is_newly_deleted for rows in candidates)]
    )
    identities = np.concatenate(
        [np.zeros((0, 2), np.uint64), *(rows.identities for rows in candidates)]
    )
    order = np.argsort(~newly_deleted, kind="stable")
    tasks = np.repeat(np.arange(len(found)), [len(rows.locators) for rows in found])
    locators = np.concatenate([np.zeros((0, 3), np.uint32), *(rows.locators for rows in found)])
    added_identities = np.concatenate(
        [np.zeros((0, 2), np.uint64), *(rows.identities for rows in found)]
    )
    by_row_id = np.concatenate([np.zeros(0, np.bool_), *(rows.by_row_id for rows in found)])
    places = np.full(len(ordinals), -1, np.int64)
    places[order] = match_identities(identities[order], added_identities)
    if _may_be_doubtful(places, newly_deleted, by_row_id):
        doubtful = _doubtful(identities[newly_deleted], added_identities, by_row_id)
        sure = np.flatnonzero(~doubtful)
        places[order] = match_identities(identities[order], added_identities[sure])
        places[places >= 0] = sure[places[places >= 0]]
    relocations = []
    for number, shard in enumerate(removed):
        mine = np.flatnonzero((shards == number) & (places >= 0))
        if len(mine):
            name = f"relocations-{shard.shard_id:05d}-{bucket:04d}.arrays"
            values = arrays_to_bytes(Relocations(ordinals[mine], locators[places[mine]]))
            relocations.append(
                RelocationsOfShard(
                    shard_id=shard.shard_id,
                    relocations=workspace.stage_bytes(name, values),
                    rows=len(mine),
                )
            )
    is_unmatched = np.ones(len(locators), np.bool_)
    is_unmatched[places[places >= 0]] = False
    return MatchedBucket(
        shards=tuple(relocations),
        unmatched=workspace.stage_bytes(
            f"unmatched-{bucket:04d}.arrays", arrays_to_bytes(UnmatchedRows(locators[is_unmatched]))
        ),
        unmatched_tasks=tuple(np.unique(tasks[is_unmatched]).tolist()),
    )


def _may_be_doubtful(
    places: NDArray[np.int64], newly_deleted: NDArray[np.bool_], by_row_id: NDArray[np.bool_]
) -> bool:
    """Tell whether a row known by its row id was paired with none that was removed just now."""
    paired = places[newly_deleted]
    rest = by_row_id.copy()
    rest[paired[paired >= 0]] = False
    return bool(rest.any())


def _doubtful(
    removed: NDArray[np.uint64], added: NDArray[np.uint64], by_row_id: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return (m,) bool, added rows of which more have the row id of one row than were removed.

    No two rows may have one row id. Where they do, which one is the row that was there cannot be
    told without its vector.
    """
    doubtful = np.zeros(len(added), np.bool_)
    known = np.flatnonzero(by_row_id)
    if len(known):
        left = known[match_identities(added[known], removed) < 0]
        if len(left):
            pair = np.dtype([("first", "<u8"), ("second", "<u8")])
            whole = np.ascontiguousarray(added).view(pair).reshape(-1)
            doubtful[known] = np.isin(whole[known], whole[left])
    return doubtful
