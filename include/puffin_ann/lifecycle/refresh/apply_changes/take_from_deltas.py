"""Take the live rows out of a delta, to be merged into shards or into a new delta."""

import numpy as np

from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.engines.delta import DELTA
from puffin_ann.errors import BlobFormatError
from puffin_ann.lifecycle.documents.refresh import Changes
from puffin_ann.lifecycle.documents.run import AssignOutcome
from puffin_ann.lifecycle.ingest.parts import Parts
from puffin_ann.lifecycle.ingest.segments import VectorRows
from puffin_ann.lifecycle.refresh.apply_changes.remap import rows_now
from puffin_ann.lifecycle.refresh.read_changes.added_rows import stage
from puffin_ann.lifecycle.runtime.scratch import scratch_folder
from puffin_ann.lifecycle.runtime.workspace import Workspace
from puffin_ann.search.shards.opening.blobs import shard_blobs
from puffin_ann.search.version.consistency import check_engine
from puffin_ann.search.version.index_version import IndexVersion


def take_from_deltas(
    workspace: Workspace,
    number: int,
    version: IndexVersion,
    shard: ShardEntry,
    changes: Changes,
    *,
    threads: int,
) -> AssignOutcome:
    """Stage the live rows of a delta by cell; deleted ones are left behind for good.

    Args:
        workspace: of the run.
        number: of the outcome.
        version: that is refreshed.
        shard: the delta.
        changes: removed and relocated rows; nothing else is asked of it.
        threads: threads to use.
    """
    now = rows_now(workspace, version, shard, changes)
    live = np.flatnonzero(~now.deleted)
    path = version.file_of(shard)
    with scratch_folder(f"delta-{shard.shard_id}") as folder:
        with version.files(workspace.table.io) as files:
            made = shard_blobs(files, version, shard).engine
            DELTA.unpack(made.open(), folder)
        delta = DELTA.open(folder)
        where = f"{path}: delta {shard.shard_id}"
        check_engine(where, version.routing, shard, delta)
        if now.rows.identities is None:
            raise BlobFormatError(f"{where} has rows without identities")
        locators = np.stack([now.rows.file_ids, now.rows.row_groups, now.rows.offsets], axis=1)
        rows = VectorRows(
            np.ascontiguousarray(delta.vectors(live)),
            locators[live].astype(np.uint32),
            now.rows.identities[live],
        )
        return stage(workspace, number, Parts([], []), rows, version, threads=threads)
