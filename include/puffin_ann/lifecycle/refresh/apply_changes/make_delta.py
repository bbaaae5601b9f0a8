"""Make a delta of rows that are new, or that cannot go into shards."""

import time
from collections.abc import Set

from puffin_ann.engines.delta import DELTA
from puffin_ann.lifecycle.build.shard import write_rows
from puffin_ann.lifecycle.documents.refresh import AppliedShard, Changes
from puffin_ann.lifecycle.ingest.included_columns import write_included
from puffin_ann.lifecycle.refresh.apply_changes.load_rows import fetch_new
from puffin_ann.lifecycle.refresh.apply_changes.made_shard import Made, stage_made
from puffin_ann.lifecycle.runtime.scratch import new_folder, scratch_folder
from puffin_ann.lifecycle.runtime.workspace import Workspace
from puffin_ann.search.version.index_version import IndexVersion


def make_delta(
    workspace: Workspace,
    version: IndexVersion,
    changes: Changes,
    shard_id: int,
    *,
    of: Set[int] | None = None,
    threads: int,
) -> AppliedShard | None:
    """Make a delta of rows that are new to shards; None if there are none.

    Args:
        workspace: of the run.
        version: that is refreshed.
        changes: what is known of its rows.
        shard_id: of the delta.
        of: rows in cells of these shards alone; None: all.
        threads: threads to use.
    """
    began = time.monotonic()
    if not changes.rows:
        return None
    others = frozenset(version.routing.graph_ids) - of if of is not None else frozenset()
    with scratch_folder(f"delta-{shard_id}") as scratch:
        fresh = fetch_new(workspace, version, changes, None, scratch, but=others)
        if not len(fresh.rows.vectors):
            return None
        built = DELTA.build(
            fresh.rows.vectors,
            fresh.cells,
            metric=version.routing.metric,
            norm_bound=version.routing.norm_bound,
            seed=workspace.refresh_plan.declaration.seed + shard_id,
            threads=threads,
            scratch=new_folder(scratch, "engine"),
        )
        encoded = scratch / "shard.blob"
        with encoded.open("wb") as out:
            DELTA.encode(built, out)
        rows = fresh.rows.located
        blobs = {DELTA.blob_type: encoded, **write_rows(rows, scratch)}
        blobs |= write_included(workspace, rows, scratch)
        return stage_made(
            workspace, shard_id, Made("delta", rows, blobs, added=len(rows)), began=began
        )
