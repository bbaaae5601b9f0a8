"""Build one shard from its staged rows, each from a local memory-mapped file."""

import io
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from puffin_ann.blobs.encoding.container import fingerprint
from puffin_ann.blobs.encoding.stored_vectors import Stored
from puffin_ann.blobs.shards import identities as identities_blob
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.shards.rows import Rows
from puffin_ann.engines import engine
from puffin_ann.lifecycle.build.assign import AssignSummary
from puffin_ann.lifecycle.build.cell_order import ShardCells, in_cell_order
from puffin_ann.lifecycle.build.train import TrainResult
from puffin_ann.lifecycle.documents.run import Assigned, BuiltShard, RunPlan, StagedFile
from puffin_ann.lifecycle.ingest.included_columns import write_included
from puffin_ann.lifecycle.ingest.segments import VectorRows, block_offset, mapped_rows, read_block
from puffin_ann.lifecycle.runtime.progress import Report
from puffin_ann.lifecycle.runtime.scratch import scratch_folder
from puffin_ann.lifecycle.runtime.workspace import Workspace, attempt_unique
from puffin_ann.puffin.writer import PuffinWriter
from puffin_ann.search.version.index_files import DIGEST
from puffin_ann.version import __version__

CREATED_BY = f"puffin-ann {__version__}"

Progress = Callable[[str, float], None]

WEIGHTY = ("graph", "insert", "leaves", "train")
"""Steps of the engines that take most of a build's time; the others come after them."""

WEIGHT = 0.9


def of_engine(report: Report) -> Progress:
    """Return what an engine tells its steps to, for what takes the share of the whole build."""
    return lambda step, share: report(WEIGHT * share if step in WEIGHTY else WEIGHT)


def build_shard(
    workspace: Workspace,
    shard: int,
    trained: TrainResult,
    assigned: Assigned,
    summary: AssignSummary,
    *,
    algorithm: str,
    threads: int,
    progress: Progress | None = None,
) -> BuiltShard:
    """Build a shard and stage it as a Puffin file with its engine's blob and those of its rows.

    Rows are put in the order of the shard's cells, those of a cell in the order of their locators.
    Disk in use: the shard's rows, twice while they are put in order, what the engine needs, and its
    blobs; memory does not grow with the stored vectors.

    Raises:
        BadVectorsError: a number is beyond the form that vectors are to be stored in.
    """
    began = time.monotonic()
    plan = workspace.build_plan
    made_by = engine(algorithm)
    with scratch_folder(f"shard-{shard}") as scratch:
        fetched, ordered = scratch / "fetched", scratch / "ordered"
        fetched.mkdir()
        ordered.mkdir()
        rows, located = in_cell_order(
            _fetch(workspace, shard, assigned, summary, fetched),
            ShardCells.of(
                shard,
                trained.centroids,
                trained.partition_shards,
                plan.declaration.metric,
                float(trained.norm_bound[0]),
            ),
            ordered,
            threads=threads,
        )
        if any(ordered.iterdir()):
            shutil.rmtree(fetched)
        built = made_by.build(
            rows.vectors,
            metric=plan.declaration.metric,
            parameters=plan.declaration.parameters_of(algorithm),
            norm_bound=float(trained.norm_bound[0]),
            seed=plan.declaration.seed + shard,
            threads=threads,
            scratch=scratch,
            progress=progress,
        )
        encoded = scratch / "shard.blob"
        with encoded.open("wb") as out:
            made_by.encode(built, out, Stored(plan.declaration.vectors))
        blobs = {made_by.blob_type: encoded, **write_rows(located, scratch)}
        size = sum(path.stat().st_size for path in blobs.values())
        if plan.included:
            blobs |= write_included(workspace, located, scratch)
        return BuiltShard(
            shard_id=shard,
            file=stage_shard(
                workspace,
                plan,
                shard,
                blobs,
            ),
            rows=len(rows.vectors),
            bytes=size,
            seconds=time.monotonic() - began,
        )


def _fetch(
    workspace: Workspace, shard: int, assigned: Assigned, summary: AssignSummary, scratch: Path
) -> VectorRows:
    """Read a shard's blocks of all segments, in order, into memory-mapped files."""
    dimension = workspace.build_plan.dimension
    counts = summary.counts[:, shard].astype(np.int64)
    rows = mapped_rows(int(counts.sum()), dimension, scratch)
    ends = np.cumsum(counts)
    for segment, staged in enumerate(assigned.segments):
        if not counts[segment]:
            continue
        part = slice(int(ends[segment] - counts[segment]), int(ends[segment]))
        with workspace.staging.fetch(staged.uri) as stream:
            read_block(
                stream,
                block_offset(summary.counts[segment], shard, dimension),
                rows.take(part),
                int(summary.checksums[segment, shard]),
                name=staged.uri,
            )
    return rows


def write_rows(rows: Rows, folder: Path) -> dict[str, Path]:
    """Write the blobs that say where rows are, and by what they are found again, to a folder.

    Returns:
        The files, by the types of the blobs.
    """
    found = {rows_blob.TYPE: folder / "rows.blob"}
    with found[rows_blob.TYPE].open("wb") as out:
        rows_blob.write(rows, out)
    if rows.identities is not None:
        found[identities_blob.TYPE] = folder / "identities.blob"
        with found[identities_blob.TYPE].open("wb") as out:
            identities_blob.write(rows.identities, out)
    return found


def stage_shard(
    workspace: Workspace, plan: RunPlan, shard: int, blobs: Mapping[str, Path | bytes]
) -> StagedFile:
    """Stage the blobs of a shard as a Puffin file."""
    name = attempt_unique(f"shard-{shard:05d}.puffin")
    with workspace.staging.create(name) as out, PuffinWriter(out) as writer:
        for kind, data in blobs.items():
            writer.add(
                kind,
                data,
                fields=[plan.field_id],
                snapshot_id=plan.base_snapshot_id,
                sequence_number=plan.base_sequence_number,
                properties={
                    "index": plan.declaration.name,
                    "shard": str(shard),
                    DIGEST: _fingerprint(data),
                },
            )
        writer.finish({"created-by": CREATED_BY})
    return StagedFile.of(out.staged)


def _fingerprint(data: Path | bytes) -> str:
    if isinstance(data, bytes):
        return fingerprint(io.BytesIO(data))
    with data.open("rb") as source:
        return fingerprint(source)
