"""Which rows of a version are not live where it has them: by shard, as ordinals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import blas
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.lake.read.diff.coverage_diff import ALL
from puffin_ann.lifecycle.documents.refresh import RemovedRowsOfShard
from puffin_ann.lifecycle.documents.run import StagedFile
from puffin_ann.lifecycle.refresh.read_changes.known_rows import stage_by_file
from puffin_ann.lifecycle.refresh.read_changes.rewritten_files import (
    RewrittenFiles,
    load_rewritten_files,
)
from puffin_ann.lifecycle.runtime.workspace import Workspace, arrays_from_bytes, arrays_to_bytes
from puffin_ann.search.shards.opening.deleted_rows import DeletedOfShard, Suspects, find_deleted
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.row_locators import MaskedRows
from puffin_ann.search.version.snapshot_view import SnapshotView


@dataclass(frozen=True)
class MaskedAndRestored:
    """A version against a snapshot: rows it has that are not live, and those it lacks, in part.

    Attributes:
        file_ids, whole, groups, first_group, group_starts, rows: as of `MaskedRows`.
        restored: (r, 2) int64, file id and position of live rows that covered files hold and the
            version does not; rows of other files are all lacking.
    """

    file_ids: NDArray[np.int64]
    whole: NDArray[np.bool_]
    groups: NDArray[np.int64]
    first_group: NDArray[np.int64]
    group_starts: NDArray[np.int64]
    rows: NDArray[np.int64]
    restored: NDArray[np.int64]

    @classmethod
    def of(cls, view: SnapshotView, restored: NDArray[np.int64]) -> "MaskedAndRestored":
        """Take over what a view says."""
        return cls(**vars(MaskedRows.of(view.masked, view.row_group_starts)), restored=restored)

    @property
    def masked(self) -> MaskedRows:
        """The rows that are not live."""
        values = {name: value for name, value in vars(self).items() if name != "restored"}
        return MaskedRows(**values)


@dataclass(frozen=True)
class DeletedRows:
    """Ordinals of a shard's rows that are not live where it has them.

    Attributes:
        newly_deleted: (n,) int64, ascending: live at the version's base.
        already_deleted: (m,) int64, ascending: tombstoned in the version.
    """

    newly_deleted: NDArray[np.int64]
    already_deleted: NDArray[np.int64]


@dataclass(frozen=True)
class RelocationCandidates:
    """Rows of one shard that may be relocated: the removed ones, then tombstoned ones.

    Attributes:
        ordinals: (n,) int64.
        identities: (n, 2) uint64.
        is_newly_deleted: (n,) bool, rows removed since the version was made.
    """

    ordinals: NDArray[np.int64]
    identities: NDArray[np.uint64]
    is_newly_deleted: NDArray[np.bool_]


@dataclass(frozen=True)
class RemovedIdentityPrefixes:
    """What identities of removed rows begin with: (n,) uint64, ascending, each once."""

    prefixes: NDArray[np.uint64]

    def may_hold(self, identities: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return (m,) bool: False where a row is surely not among the removed ones."""
        if not len(self.prefixes):
            return np.zeros(len(identities), np.bool_)
        # Looked up in order, so that neighbours in memory are asked for one after the other.
        order = np.argsort(identities[:, 0])
        wanted = identities[order, 0]
        at = np.searchsorted(self.prefixes, wanted).clip(max=len(self.prefixes) - 1)
        found = np.empty(len(order), np.bool_)
        found[order] = self.prefixes[at] == wanted
        return found


def bucket_of(identities: NDArray[np.uint64], buckets: int) -> NDArray[np.int64]:
    """Return (n,) int64, the part in which each identity is matched.

    Args:
        identities: (n, 2) uint64.
        buckets: a power of two.
    """
    # Upper bits of a 32-bit lane that is uniform.
    return ((identities[:, 0] >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype(
        np.int64
    )


def find_removed_rows(
    workspace: Workspace, version: IndexVersion, shards: Sequence[ShardEntry], *, threads: int
) -> list[RemovedRowsOfShard]:
    """Find the rows of shards that are not live where these have them, and stage them.

    Args:
        workspace: of the run.
        version: that is refreshed.
        shards: some of it.
        threads: threads to use; of files that hold several shards each reads the footer once.

    Raises:
        FormatError: a blob is missing or broken, or says what another contradicts.
    """
    difference = arrays_from_bytes(
        MaskedAndRestored, workspace.fetch_bytes(workspace.refresh_plan.difference)
    ).masked
    matches = workspace.refresh_plan.decision.matches
    suspects = Suspects.of(version.covered, difference)
    rewritten = load_rewritten_files(workspace)

    def find_in(some: Sequence[ShardEntry]) -> list[RemovedRowsOfShard]:
        with version.files(workspace.table.io) as files:
            return [
                _staged(
                    workspace,
                    shard,
                    find_deleted(files, version, shard, suspects, identities=matches),
                    rewritten,
                )
                for shard in some
            ]

    size = max(1, math.ceil(len(shards) / threads))
    parts = [shards[at : at + size] for at in range(0, len(shards), size)]
    return list(chain.from_iterable(blas.parallel(find_in, parts, threads)))


def _staged(
    workspace: Workspace, shard: ShardEntry, found: DeletedOfShard, rewritten: RewrittenFiles
) -> RemovedRowsOfShard:
    """Stage which rows of a shard are deleted, and identities by which they are found again."""
    plan = workspace.refresh_plan
    name = f"{shard.shard_id:05d}"
    newly_deleted, already_deleted = found.newly_deleted, found.already_deleted
    identified = []
    if plan.decision.matches:
        ordinals, identities = np.concatenate([newly_deleted, already_deleted]), found.identities
        if identities is None:
            ordinals, identities = ordinals[:0], np.zeros((0, 2), np.uint64)
        buckets = bucket_of(identities, plan.buckets)
        for bucket in range(plan.buckets):
            mine = np.flatnonzero(buckets == bucket)
            removed = RelocationCandidates(
                ordinals[mine], identities[mine], mine < len(newly_deleted)
            )
            staged = workspace.stage_bytes(
                f"removed-{name}-{bucket:04d}.arrays", arrays_to_bytes(removed)
            )
            identified.append(staged)
    by_file: tuple[StagedFile, ...] = ()
    if len(rewritten.file_ids) and found.identities is not None:
        identities = found.identities[: len(newly_deleted)]
        by_file = stage_by_file(workspace, rewritten, name, found.locators, identities)
    return RemovedRowsOfShard(
        shard_id=shard.shard_id,
        deleted=workspace.stage_bytes(
            f"deleted-{name}.arrays", arrays_to_bytes(DeletedRows(newly_deleted, already_deleted))
        ),
        newly_deleted=len(newly_deleted),
        already_deleted=len(already_deleted),
        identified=tuple(identified),
        rewritten=by_file,
    )


def collect_prefixes(
    workspace: Workspace, shards: Sequence[RemovedRowsOfShard]
) -> RemovedIdentityPrefixes:
    """Return what the identities of all removed rows begin with."""
    found = [np.zeros(0, np.uint64)]
    for shard in shards:
        for staged in shard.identified:
            rows = arrays_from_bytes(RelocationCandidates, workspace.fetch_bytes(staged))
            found.append(rows.identities[:, 0])
    # By sorting: `np.unique` hashes, which takes far longer for values that hardly ever repeat.
    prefixes = np.sort(np.concatenate(found))
    is_first = np.ones(len(prefixes), np.bool_)
    is_first[1:] = prefixes[1:] != prefixes[:-1]
    return RemovedIdentityPrefixes(prefixes[is_first])


def find_restored_rows(view: SnapshotView, file_ids: dict[str, int]) -> NDArray[np.int64]:
    """Return (r, 2) int64, file id and position of the rows of covered files that came back.

    Args:
        view: the version against the snapshot.
        file_ids: by path, ids of the covered files.
    """
    pairs = [np.zeros((0, 2), np.int64)]
    for file, positions in view.scanned:
        if file.path in file_ids and positions is not ALL:
            here = np.asarray(positions.to_array(), dtype=np.int64)
            ids = np.full(len(here), file_ids[file.path])
            pairs.append(np.column_stack([ids, here]).astype(np.int64))
    return np.concatenate(pairs)
