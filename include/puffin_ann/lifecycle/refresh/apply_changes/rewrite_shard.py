"""Put rows into an unpacked shard: insert them, or build the shard again.

What comes out are staged blobs.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding import stored_vectors
from puffin_ann.blobs.encoding.stored_vectors import Stored
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.shards.cells import CellStarts
from puffin_ann.blobs.version import tombstones as tombstones_blob
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.engines import ShardEngine, engine
from puffin_ann.errors import FormatError, RecallTooLowError
from puffin_ann.lifecycle.build.cell_order import ShardCells
from puffin_ann.lifecycle.build.shard import of_engine, write_rows
from puffin_ann.lifecycle.documents.refresh import (
    AppliedShard,
    Changes,
    RefreshPlan,
    RefusedShard,
)
from puffin_ann.lifecycle.ingest.included_columns import Before, write_included
from puffin_ann.lifecycle.policy.kept_recall import ShardRecall, why_loses
from puffin_ann.lifecycle.refresh.apply_changes.judge_recall import (
    Changed,
    Judgement,
    Published,
    RecallJudge,
)
from puffin_ann.lifecycle.refresh.apply_changes.load_rows import CHUNK_ROWS, FreshRows, fetch_new
from puffin_ann.lifecycle.refresh.apply_changes.made_shard import Made, stage_made
from puffin_ann.lifecycle.refresh.apply_changes.remap import (
    ShardRows,
    rows_now,
    set_aside_clashes,
    update_rows_and_tombstones,
    write_tombstones,
)
from puffin_ann.lifecycle.refresh.apply_changes.table_vectors import (
    ShardVectors,
    gathered,
    shard_vectors,
)
from puffin_ann.lifecycle.runtime.progress import reporter
from puffin_ann.lifecycle.runtime.scratch import new_folder, scratch_folder
from puffin_ann.lifecycle.runtime.workspace import Workspace
from puffin_ann.search.shards.opening.blobs import shard_blobs
from puffin_ann.search.version.consistency import check_engine
from puffin_ann.search.version.index_version import IndexVersion


@dataclass(frozen=True)
class ShardRewriter:
    """What it takes to put rows into the shards of a version.

    Attributes:
        workspace: of the run.
        version: that is refreshed.
        changes: what is known of its rows.
        threads: threads to use.
    """

    workspace: Workspace
    version: IndexVersion
    changes: Changes
    threads: int

    @property
    def _plan(self) -> RefreshPlan:
        return self.workspace.refresh_plan

    @property
    def _made_by(self) -> ShardEngine:
        return engine(self.version.routing.algorithm)

    @property
    def _judge(self) -> RecallJudge:
        return RecallJudge(self.workspace, self.version, self.threads)

    def insert(self, shard: ShardEntry) -> AppliedShard:
        """Insert the new rows of a shard's cells; builds it again if its recall suffers.

        Where it surely suffers even so, the shard stays as it is, but for masks and locators.
        """
        began = time.monotonic()
        with scratch_folder(f"shard-{shard.shard_id}") as scratch:
            now = rows_now(self.workspace, self.version, shard, self.changes)
            fresh = self._fetch(shard.shard_id, scratch)
            if not len(fresh.rows.vectors):
                return update_rows_and_tombstones(self.workspace, self.version, shard, self.changes)
            made = self._inserted(shard, now, fresh, scratch)
            applied, before = self._checked(shard, made, now, fresh, scratch, began)
            return applied or self._rebuilt(shard, now, fresh, scratch, began, before)

    def rebuild(self, shard: ShardEntry) -> AppliedShard:
        """Build a shard again of its live rows, and of the new ones of its cells.

        Where its recall surely suffers, the shard stays as it is, but for masks and locators.
        """
        began = time.monotonic()
        with scratch_folder(f"shard-{shard.shard_id}") as scratch:
            now = rows_now(self.workspace, self.version, shard, self.changes)
            number = shard.shard_id if self._plan.decision.merges else -1
            fresh = self._fetch(number, scratch)
            if now.deleted.all() and not len(fresh.rows.vectors):
                # Nothing can be built of no row.
                return update_rows_and_tombstones(self.workspace, self.version, shard, self.changes)
            return self._rebuilt(shard, now, fresh, scratch, began)

    def build_of_table(self, shard: ShardEntry) -> AppliedShard:
        """Build a shard that cannot be read: of the rows of its cells, read from the table.

        Raises:
            RecallTooLowError: its recall surely suffers; it cannot stay as it is.
        """
        began = time.monotonic()
        with scratch_folder(f"shard-{shard.shard_id}") as scratch:
            fresh = self._fetch(shard.shard_id, scratch)
            if len(fresh.rows.vectors):
                return self._rebuilt(shard, None, fresh, scratch, began)
        return AppliedShard(
            shard_id=shard.shard_id,
            kind=shard.kind,
            rows=0,
            action="rebuild",
            seconds=time.monotonic() - began,
        )

    def _fetch(self, shard: int, scratch: Path) -> FreshRows:
        return fetch_new(self.workspace, self.version, self.changes, shard, scratch)

    def _unpacked(self, shard: ShardEntry, scratch: Path) -> Path:
        """Return the folder of a shard of the version refreshed, filled."""
        folder = scratch / "unpacked"
        if folder.exists():
            return folder
        new_folder(scratch, "unpacked")
        path = self.version.file_of(shard)
        with self.version.files(self.workspace.table.io) as files:
            try:
                made = shard_blobs(files, self.version, shard).engine
                self._made_by.unpack(made.open(), folder, searched=False)
                check_engine("it", self.version.routing, shard, self._made_by.open(folder))
            except FormatError as error:
                index = self.version.index
                raise type(error)(
                    f"{path}: shard {shard.shard_id} of index {index!r}: {error}"
                ) from None
        return folder

    def _inserted(self, shard: ShardEntry, now: ShardRows, fresh: FreshRows, scratch: Path) -> Any:
        return self._made_by.insert(
            self._unpacked(shard, scratch),
            fresh.rows.vectors,
            deleted=now.deleted if now.deleted.any() else None,
            **self._building(shard, new_folder(scratch, "inserting")),
        )

    def _building(self, shard: ShardEntry, scratch: Path) -> dict[str, Any]:
        """Return what an engine is told of a shard whether it inserts rows or builds."""
        declaration, routing = self._plan.declaration, self.version.routing
        return {
            "parameters": declaration.parameters_of(routing.algorithm),
            "norm_bound": routing.norm_bound,
            "seed": declaration.seed + shard.shard_id,
            "threads": self.threads,
            "scratch": scratch,
            "progress": of_engine(reporter()),
        }

    def _checked(
        self,
        shard: ShardEntry,
        made: Any,
        now: ShardRows,
        fresh: FreshRows,
        scratch: Path,
        began: float,
    ) -> tuple[AppliedShard | None, ShardRecall | None]:
        """Return the grown shard, None if too few neighbours are found in it, and the bar."""
        added = replace(fresh.rows.located, cells=CellStarts.of(fresh.cells))
        rows = now.rows.followed_by(added)
        deleted = np.concatenate([now.deleted, np.zeros(len(fresh.rows.vectors), np.bool_)])
        encoded = scratch / "inserted.blob"
        stored = stored_vectors.known(self._unpacked(shard, scratch), self.version.routing.vectors)
        with encoded.open("wb") as out:
            self._made_by.encode(made, out, stored)
        judged = self._judge.judge(
            Changed(encoded, deleted, fresh.rows.vectors),
            shard.shard_id,
            Published(shard, now),
            scratch / "judging-inserted",
        )
        if not judged.keeps:
            return None, judged.before
        blobs = {
            self._made_by.blob_type: encoded,
            **write_rows(set_aside_clashes(rows, deleted), scratch),
        }
        blobs |= write_included(
            self.workspace,
            rows_blob.set_aside(rows, np.flatnonzero(deleted)),
            scratch,
            Before(self.version, shard, _ordinals(np.arange(len(now.rows)), len(rows))),
        )
        if deleted.any():
            blobs[tombstones_blob.TYPE] = write_tombstones(np.flatnonzero(deleted), scratch)
        grown = Made("insert", rows, blobs, len(fresh.rows.vectors), deleted, judged)
        return stage_made(self.workspace, shard.shard_id, grown, began=began), judged.before

    def _rebuilt(
        self,
        shard: ShardEntry,
        now: ShardRows | None,
        fresh: FreshRows,
        scratch: Path,
        began: float,
        before: ShardRecall | None = None,
    ) -> AppliedShard:
        """Build a shard of its live rows, None of those where it cannot be read, and new ones."""
        routing = self.version.routing
        rows, cells = fresh.rows.located, fresh.cells
        old, live = None, np.zeros(0, np.int64)
        if now is not None:
            folder = self._unpacked(shard, scratch)
            opened = self._made_by.open(folder)
            old = shard_vectors(self.workspace, opened, folder, now, scratch)
            live = np.flatnonzero(~now.deleted)
            rows = now.rows.take(live).followed_by(rows)
            cells = self._cells(shard, old, live, fresh)
        order = np.lexsort((rows.offsets, rows.row_groups, rows.file_ids, cells))
        vectors = gathered(old, live, fresh.rows.vectors, order, scratch)
        made = self._made_by.build(
            vectors,
            metric=routing.metric,
            **self._building(shard, new_folder(scratch, "building")),
        )
        encoded = scratch / "rebuilt.blob"
        with encoded.open("wb") as out:
            self._made_by.encode(made, out, Stored(routing.vectors))
        none_deleted = np.zeros(len(order), np.bool_)
        judged = self._judge.judge(
            Changed(encoded, none_deleted, vectors),
            shard.shard_id,
            None if now is None else Published(shard, now, old),
            scratch / "judging-rebuilt",
            before,
        )
        if judged.loses:
            return self._refused(shard, now, len(order), judged, began)
        rows = replace(rows.take(order), cells=CellStarts.of(cells[order]))
        blobs = {self._made_by.blob_type: encoded, **write_rows(rows, scratch)}
        columns = None
        if now is not None:
            columns = Before(self.version, shard, _ordinals(live, len(order))[order])
        blobs |= write_included(self.workspace, rows, scratch, columns)
        bytes_read = 0 if old is None else old.bytes_read
        rebuilt = Made("rebuild", rows, blobs, len(order), None, judged, bytes_read)
        return stage_made(self.workspace, shard.shard_id, rebuilt, began=began)

    def _refused(
        self,
        shard: ShardEntry,
        now: ShardRows | None,
        rows: int,
        judged: Judgement,
        began: float,
    ) -> AppliedShard:
        """Leave a shard as it is, but for masks and locators.

        Raises:
            RecallTooLowError: it cannot be read.
        """
        recall = judged.recall or 0.0
        why = why_loses(
            shard.shard_id,
            rows,
            recall,
            judged.before,
            self._plan.declaration.recall_target,
            self.version.routing.search_width,
        )
        if now is None:
            raise RecallTooLowError(
                f"index {self.version.index!r}: {why}; nothing was published, since the published "
                "shard cannot be read. Build the whole index: 'puffin-ann build "
                f"{self.version.index} --force', or lower recall_target"
            )
        kept = update_rows_and_tombstones(self.workspace, self.version, shard, self.changes)
        return kept.model_copy(
            update={
                "before": judged.before,
                "refused": RefusedShard(recall=recall, why=why),
                "seconds": time.monotonic() - began,
            }
        )

    def _cells(
        self, shard: ShardEntry, old: ShardVectors, live: NDArray[np.int64], fresh: FreshRows
    ) -> NDArray[np.uint32]:
        """Return (n,) uint32, the cells of live rows of a shard and then of new ones."""
        every = self.version.cells(self.workspace.table.io)
        cells = ShardCells.of(
            shard.shard_id,
            every.centroids,
            every.shards,
            every.metric,
            self.version.routing.norm_bound,
        )
        found = [
            cells.nearest(old.read(live[start : start + CHUNK_ROWS]), self.threads)
            for start in range(0, len(live), CHUNK_ROWS)
        ]
        return np.concatenate([*found, fresh.cells])


def _ordinals(before: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """Return (rows,) int64: ordinals that the first rows had before, then -1 of those added."""
    return np.concatenate([before, np.full(rows - len(before), -1, np.int64)])
