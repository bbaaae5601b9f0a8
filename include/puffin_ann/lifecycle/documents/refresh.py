"""What the stages of a refresh hand each other, beside the documents that builds have too."""

from typing import Literal

from pydantic import AliasChoices, Field

from puffin_ann.blobs.version.routing import ShardEntry, ShardKind
from puffin_ann.lifecycle.documents.run import (
    AssignOutcome,
    AssignTask,
    Document,
    RunPlan,
    StagedFile,
)
from puffin_ann.lifecycle.policy.decision import Decision, Drift, Rates
from puffin_ann.lifecycle.policy.kept_recall import ShardRecall


class RefreshPlan(RunPlan):
    """A run that makes a new version out of a published one, its base version.

    `files` are those of the base snapshot that the version does not cover, and covered ones of
    which rows are live again; in order of their ids.

    Attributes:
        base_path: Puffin file of the base version; `base_snapshot_id` is that of the new version.
        base_run_id: the run that published it.
        registered: Puffin files that were registered when this was planned.
        decision: what is done to each shard.
        state_rates: rates that earlier runs recorded.
        state_drift: as above, for drift.
        read_tasks: which parts of `files` each task reads.
        next_file_id: above any id in use.
        buckets: identities are matched in so many parts, by their first bits; a power of two.
        groups: by group id, the shards whose blobs one spark-submit makes.
        difference: a file of arrays, see `removed_rows.MaskedAndRestored`.
        coverage: a coverage blob of the base snapshot; of `files` it has neither row groups nor
            skipped rows.
        cells: a partitions blob in place of that of the base version; None if that is read.
        rewritten: a file of arrays, see `rewritten_files.RewrittenFiles`; None if no row is known
            by its row id.
    """

    kind: Literal["refresh"] = "refresh"
    base_path: str = Field(validation_alias=AliasChoices("base_path", "source"))
    base_run_id: str = Field(validation_alias=AliasChoices("base_run_id", "source_run"))
    registered: tuple[str, ...]
    algorithm: str
    decision: Decision
    state_rates: Rates
    state_drift: Drift
    read_tasks: tuple[AssignTask, ...]
    next_file_id: int
    buckets: int
    groups: dict[str, tuple[int, ...]]
    difference: StagedFile
    coverage: StagedFile
    cells: StagedFile | None = None
    rewritten: StagedFile | None = None

    def action_of(self, shard_id: int) -> str:
        """Return what is done to a shard; of the new delta, `delta`."""
        if self.decision.delta is not None and self.decision.delta.shard_id == shard_id:
            return "delta"
        return next(shard.action for shard in self.decision.shards if shard.shard_id == shard_id)


class RemovedRowsOfShard(Document):
    """The rows of a shard that are not live where it has them.

    Attributes:
        deleted: a file of arrays, see `removed_rows.DeletedRows`.
        newly_deleted: rows removed since the version was made.
        already_deleted: rows that were tombstoned.
        identified: by bucket, files of arrays, see `removed_rows.RelocationCandidates`; empty if
            nothing is matched.
        rewritten: by bucket of rewritten files, files of arrays, see
            `known_rows.RemovedRowsOfFiles`; empty if no row is known by its row id.
    """

    shard_id: int
    deleted: StagedFile
    newly_deleted: int
    already_deleted: int
    identified: tuple[StagedFile, ...]
    rewritten: tuple[StagedFile, ...] = ()


class KnownRowsOfBucket(Document):
    """What is known of the rows of some rewritten files.

    Attributes:
        known: a file of arrays, see `known_rows.RowsByRowId`.
        rows: how many.
        first: lowest row id of them, as `last` is the highest; 0 of none.
        is_whole: whether all of the files were read.
    """

    known: StagedFile
    rows: int
    first: int
    last: int
    is_whole: bool = False


class RemovedRows(Document):
    """Outcome of looking for removed rows.

    Attributes:
        prefixes: a file of arrays, see `removed_rows.RemovedIdentityPrefixes`; None if nothing is
            matched.
        known: rows that are known by their row ids wherever they are now.
    """

    shards: tuple[RemovedRowsOfShard, ...]
    prefixes: StagedFile | None
    seconds: float
    known: tuple[KnownRowsOfBucket, ...] = ()


class AddedRowsOfTask(Document):
    """What one task read of the table.

    Attributes:
        outcome: the rows that surely are new, staged by cell, and all counts.
        candidates: by bucket, files of arrays, see `row_groups.IdentifiedRows`: rows that may have
            been there.
        known: rows of which no vector was hashed, since they are known by their row ids.
    """

    outcome: AssignOutcome
    candidates: tuple[StagedFile, ...]
    known: int = 0


class AddedRows(Document):
    """Outcome of reading the rows that the version does not cover."""

    tasks: tuple[AddedRowsOfTask, ...]
    seconds: float


class RelocationsOfShard(Document):
    """The relocated rows of a shard.

    Attributes:
        relocations: a file of arrays, see `relocated_rows.Relocations`.
        rows: how many.
    """

    shard_id: int
    relocations: StagedFile
    rows: int


class MatchedBucket(Document):
    """Outcome of matching one bucket.

    Attributes:
        unmatched: a file of arrays, see `relocated_rows.UnmatchedRows`: added rows whose equals
            were removed, and that are new all the same.
        unmatched_tasks: numbers of the tasks that read them.
    """

    shards: tuple[RelocationsOfShard, ...]
    unmatched: StagedFile
    unmatched_tasks: tuple[int, ...]


class Matched(Document):
    """Outcome of matching."""

    buckets: tuple[MatchedBucket, ...]
    seconds: float


class Changes(Document):
    """Everything that is known before the first shard is touched.

    Attributes:
        removed: by shard, if rows were removed.
        segments: rows that are added to shards or become the delta, staged by cell.
        summary: a file of arrays, see `assign.AssignSummary`; its blocks are cells, in the order
            of `added_rows.cell_order`. None if nothing was read.
        relocations: per bucket and shard.
        rows: rows of the segments.
        relocated: relocated rows, which only got another locator.
        known: added rows of which no vector was hashed, since they are known by their row ids.
        rows_removed: rows of the version that are not live where it has them, relocated ones
            included.
        skipped: by reason, added rows that have no usable vector.
        read: rows with a usable vector that were read of the table, or relocated.
    """

    removed: tuple[RemovedRowsOfShard, ...]
    relocations: tuple[RelocationsOfShard, ...]
    segments: tuple[StagedFile, ...]
    summary: StagedFile | None
    rows: int
    relocated: int
    rows_removed: int
    skipped: dict[str, int]
    read: int
    vector_bytes_read: int
    seconds: float
    read_seconds: float
    known: int = 0


class StagedTombstones(Document):
    """What a shard lost since its tombstones blob was written.

    Attributes:
        bits: a bitmap of ordinals, base64; few bytes.
        written: bytes that were written of such rows since.
    """

    bits: str
    written: int


class RefusedShard(Document):
    """Why a shard stays as it was, though rows were to go into it, or it was to be built again.

    Attributes:
        recall: what it found so, alone.
        why: the same in words, with what was asked.
    """

    recall: float
    why: str


class AppliedShard(Document):
    """What became of one shard.

    Attributes:
        rows: rows of its rows blob, tombstoned ones included.
        tombstones: those of them that are deleted.
        bytes: of its engine's or delta blob, as the routing blob says it.
        file: staged Puffin file with its new blobs; None if there are none.
        blobs: types of those; others are taken from the version refreshed.
        added: rows inserted or built.
        action: what was done: `kept`, `mask`, `remap`, `insert`, `rebuild` or `delta`.
        recall: of the shard alone, measured after an insertion or a rebuild.
        vector_bytes_read: of the table, for rows that the shard had before.
        added_tombstones: those that its tombstones blob, old or new, does not name; None: as in the
            version refreshed, or none if there is a new blob.
        before: what the published shard finds, where that was found out.
        refused: why it was only masked or remapped; None if it was not to be more.
    """

    shard_id: int
    kind: ShardKind
    rows: int
    tombstones: int = 0
    bytes: int = 0
    file: StagedFile | None = None
    blobs: tuple[str, ...] = ()
    added: int = 0
    action: str
    recall: float | None = None
    seconds: float = 0.0
    vector_bytes_read: int = 0
    added_tombstones: StagedTombstones | None = None
    before: ShardRecall | None = None
    refused: RefusedShard | None = None

    @classmethod
    def kept(cls, shard: ShardEntry) -> "AppliedShard":
        """Return a shard of the version refreshed that nothing was done to."""
        return cls(
            shard_id=shard.shard_id,
            kind=shard.kind,
            rows=shard.rows,
            tombstones=shard.tombstones,
            bytes=shard.bytes,
            action="kept",
        )


class AppliedGroup(Document):
    """Outcome of one spark-submit of the apply stage."""

    shards: tuple[AppliedShard, ...]
    seconds: float


REMOVED = "removed.json"
ADDED = "added.json"
MATCH = "match.json"
CHANGES = "changes.json"


def applied_name(group: str) -> str:
    """Return the name of a group's document."""
    return f"applied-{group}.json"
