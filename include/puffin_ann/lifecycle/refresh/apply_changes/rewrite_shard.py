"""Put rows into an unpacked shard: insert them, build the shard again, or make a delta of them.

What comes out are staged blobs.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding import stored_vectors
from puffin_ann.blobs.encoding.stored_vectors import Stored
from puffin_ann.blobs.shards import columns as columns_blob
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.shards.cells import CellStarts
from puffin_ann.blobs.shards.rows import Rows
from puffin_ann.blobs.version import tombstones as tombstones_blob
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.declaration import EXACT
from puffin_ann.engines import ShardEngine, engine
from puffin_ann.engines.delta import DELTA
from puffin_ann.errors import FormatError, RecallTooLowError
from puffin_ann.lifecycle.build.assign import AssignSummary
from puffin_ann.lifecycle.build.cell_order import ShardCells
from puffin_ann.lifecycle.build.shard import of_engine, stage_shard
from puffin_ann.lifecycle.documents.refresh import AppliedShard, Changes, RefreshPlan
from puffin_ann.lifecycle.evaluate.measure import Measure
from puffin_ann.lifecycle.ingest.included_columns import Before, write_included
from puffin_ann.lifecycle.refresh.apply_changes.check_recall import recall_of_blob
from puffin_ann.lifecycle.refresh.apply_changes.load_rows import CHUNK_ROWS, FreshRows, fetch
from puffin_ann.lifecycle.refresh.apply_changes.remap import (
    ShardRows,
    rows_now,
    set_aside_clashes,
    update_rows_and_tombstones,
    write_rows,
    write_tombstones,
)
from puffin_ann.lifecycle.refresh.apply_changes.table_vectors import (
    ShardVectors,
    gathered,
    shard_vectors,
)
from puffin_ann.lifecycle.runtime.progress import reporter
from puffin_ann.lifecycle.runtime.scratch import scratch_folder
from puffin_ann.lifecycle.runtime.workspace import Workspace, arrays_from_bytes
from puffin_ann.search.shards.opening.blobs import shard_blobs
from puffin_ann.search.version.consistency import check_engine
from puffin_ann.search.version.index_version import IndexVersion

BESIDE = (tombstones_blob.TYPE, columns_blob.TYPE)
"""Types of blobs that do not count to the bytes of a shard."""


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

    def delta(self, shard_id: int) -> AppliedShard | None:
        """Make a delta of all rows that are new; None if there are none."""
        began = time.monotonic()
        if not self.changes.rows:
            return None
        with scratch_folder(f"delta-{shard_id}") as scratch:
            fresh = self._fetch(None, scratch)
            if not len(fresh.rows.vectors):
                return None
            built = DELTA.build(
                fresh.rows.vectors,
                fresh.cells,
                metric=self.version.routing.metric,
                norm_bound=self.version.routing.norm_bound,
                seed=self._plan.declaration.seed + shard_id,
                threads=self.threads,
                scratch=_new(scratch, "engine"),
            )
            encoded = scratch / "shard.blob"
            with encoded.open("wb") as out:
                DELTA.encode(built, out)
            rows = fresh.rows.located
            blobs = {DELTA.blob_type: encoded, rows_blob.TYPE: write_rows(rows, scratch)}
            blobs |= write_included(self.workspace, rows, scratch)
            return self._applied(shard_id, rows, None, blobs, len(rows), "delta", None, began)

    def insert(self, shard: ShardEntry) -> AppliedShard:
        """Insert the new rows of a shard's cells; builds it again if its recall suffers.

        Raises:
            RecallTooLowError: even built again it is surely under the target.
        """
        began = time.monotonic()
        with scratch_folder(f"shard-{shard.shard_id}") as scratch:
            now = rows_now(self.workspace, self.version, shard, self.changes)
            fresh = self._fetch(shard.shard_id, scratch)
            if not len(fresh.rows.vectors):
                return update_rows_and_tombstones(self.workspace, self.version, shard, self.changes)
            made = self._inserted(shard, now, fresh, scratch)
            applied = self._checked(shard, made, now, fresh, scratch, began)
            return applied or self._rebuilt(shard, now, fresh, scratch, began)

    def rebuild(self, shard: ShardEntry) -> AppliedShard:
        """Build a shard again of its live rows, and of the new ones of its cells.

        Raises:
            RecallTooLowError: it is surely under the target.
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
            RecallTooLowError: it is surely under the target.
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

    def _fetch(self, shard: int | None, scratch: Path) -> FreshRows:
        summary = None
        if self.changes.summary is not None:
            data = self.workspace.fetch_bytes(self.changes.summary)
            summary = arrays_from_bytes(AssignSummary, data)
        folder = _new(scratch, "fresh")
        return fetch(
            self.workspace,
            self.changes.segments,
            summary,
            self.version.cells(self.workspace.table.io),
            shard,
            folder,
            but=frozenset(self._plan.decision.unreadable),
        )

    def _unpacked(self, shard: ShardEntry, scratch: Path) -> Path:
        """Return the folder of a shard of the version refreshed, filled."""
        folder = scratch / "unpacked"
        if folder.exists():
            return folder
        _new(scratch, "unpacked")
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
            **self._building(shard, _new(scratch, "inserting")),
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
    ) -> AppliedShard | None:
        """Return the grown shard; None if too few neighbours are found in it."""
        added = replace(fresh.rows.located, cells=CellStarts.of(fresh.cells))
        rows = now.rows.followed_by(added)
        deleted = np.concatenate([now.deleted, np.zeros(len(fresh.rows.vectors), np.bool_)])
        encoded = scratch / "inserted.blob"
        stored = stored_vectors.known(self._unpacked(shard, scratch), self.version.routing.vectors)
        with encoded.open("wb") as out:
            self._made_by.encode(made, out, stored)
        recall = self._recall(
            encoded, deleted, scratch / "inserted", fresh.rows.vectors, first=len(now.rows)
        )
        if recall is not None and recall.recall < self._plan.declaration.recall_target:
            return None
        blobs = {
            self._made_by.blob_type: encoded,
            rows_blob.TYPE: write_rows(set_aside_clashes(rows, deleted), scratch),
        }
        blobs |= write_included(
            self.workspace,
            rows_blob.set_aside(rows, np.flatnonzero(deleted)),
            scratch,
            Before(self.version, shard, _ordinals(np.arange(len(now.rows)), len(rows))),
        )
        if deleted.any():
            blobs[tombstones_blob.TYPE] = write_tombstones(np.flatnonzero(deleted), scratch)
        return self._applied(
            shard.shard_id,
            rows,
            deleted,
            blobs,
            len(fresh.rows.vectors),
            "insert",
            recall,
            began,
        )

    def _rebuilt(
        self,
        shard: ShardEntry,
        now: ShardRows | None,
        fresh: FreshRows,
        scratch: Path,
        began: float,
    ) -> AppliedShard:
        """Build a shard of its live rows, None of those where it cannot be read, and new ones."""
        declaration, routing = self._plan.declaration, self.version.routing
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
            **self._building(shard, _new(scratch, "building")),
        )
        encoded = scratch / "rebuilt.blob"
        with encoded.open("wb") as out:
            self._made_by.encode(made, out, Stored(routing.vectors))
        none_deleted = np.zeros(len(order), np.bool_)
        recall = self._recall(encoded, none_deleted, scratch / "rebuilt", vectors, first=0)
        if recall is not None and recall.high < declaration.recall_target:
            raise RecallTooLowError(
                f"index {self.version.index!r}: shard {shard.shard_id}, built again of "
                f"{len(order)} rows, finds {recall.recall:.4f} of their neighbours at search width "
                f"{routing.search_width}, under the declared recall_target of "
                f"{declaration.recall_target}; nothing was published. Build the whole index: "
                f"'puffin-ann build {self.version.index} --force', or lower recall_target"
            )
        rows = replace(rows.take(order), cells=CellStarts.of(cells[order]))
        blobs = {self._made_by.blob_type: encoded, rows_blob.TYPE: write_rows(rows, scratch)}
        before = None
        if now is not None:
            before = Before(self.version, shard, _ordinals(live, len(order))[order])
        blobs |= write_included(self.workspace, rows, scratch, before)
        return self._applied(
            shard.shard_id,
            rows,
            None,
            blobs,
            len(order),
            "rebuild",
            recall,
            began,
            vector_bytes_read=0 if old is None else old.bytes_read,
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
            cells.nearest(old.of(live[start : start + CHUNK_ROWS]), self.threads)
            for start in range(0, len(live), CHUNK_ROWS)
        ]
        return np.concatenate([*found, fresh.cells])

    def _recall(
        self,
        encoded: Path,
        deleted: NDArray[np.bool_],
        folder: Path,
        vectors: NDArray[np.float32],
        *,
        first: int,
    ) -> Measure | None:
        """Return the recall of a shard, see `recall_of_blob`; of one that compares all, None."""
        routing, declaration = self.version.routing, self._plan.declaration
        if routing.algorithm == EXACT:
            return None
        return recall_of_blob(
            self._made_by,
            encoded,
            deleted,
            folder,
            vectors,
            first=first,
            k=declaration.gate.k,
            width=routing.search_width,
            target=declaration.recall_target,
            seed=declaration.seed,
            threads=self.threads,
        )

    def _applied(
        self,
        shard_id: int,
        rows: Rows,
        deleted: NDArray[np.bool_] | None,
        blobs: Mapping[str, Path],
        added: int,
        action: str,
        recall: Measure | None,
        began: float,
        vector_bytes_read: int = 0,
    ) -> AppliedShard:
        return AppliedShard(
            shard_id=shard_id,
            kind="delta" if action == "delta" else "graph",
            rows=len(rows),
            tombstones=0 if deleted is None else int(np.count_nonzero(deleted)),
            bytes=sum(blobs[blob].stat().st_size for blob in blobs if blob not in BESIDE),
            file=stage_shard(self.workspace, self._plan, shard_id, blobs),
            blobs=tuple(blobs),
            added=added,
            action=action,
            recall=None if recall is None else recall.recall,
            seconds=time.monotonic() - began,
            vector_bytes_read=vector_bytes_read,
        )


def _ordinals(before: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """Return (rows,) int64: ordinals that the first rows had before, then -1 of those added."""
    return np.concatenate([before, np.full(rows - len(before), -1, np.int64)])


def _new(scratch: Path, name: str) -> Path:
    """Return a new folder: engines name files in theirs as they like."""
    folder = scratch / name
    folder.mkdir()
    return folder
