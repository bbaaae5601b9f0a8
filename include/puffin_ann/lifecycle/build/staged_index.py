"""The staged index: a small Puffin file of what an index has beside its shards.

It makes the unpublished index a real one, opened and searched by the same code as a published one;
publishing copies its shards in and clears where they lay.
"""

import io
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from puffin_ann.blobs.changes import coverage_changes as coverage_changes_blob
from puffin_ann.blobs.changes import tombstone_changes as tombstone_changes_blob
from puffin_ann.blobs.changes.coverage_changes import CoverageChanges
from puffin_ann.blobs.changes.tombstone_changes import AddedTombstones
from puffin_ann.blobs.version import centroid as centroid_blob
from puffin_ann.blobs.version import coverage as coverage_blob
from puffin_ann.blobs.version import directory as directory_blob
from puffin_ann.blobs.version import partitions as partitions_blob
from puffin_ann.blobs.version import routing as routing_blob
from puffin_ann.blobs.version.centroid import Centroids
from puffin_ann.blobs.version.coverage import Coverage, CoveredFile
from puffin_ann.blobs.version.directory import Directory
from puffin_ann.blobs.version.gate import Recall, Wider
from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.blobs.version.routing import Routing, ShardEntry
from puffin_ann.declaration import CENTROID
from puffin_ann.lake.store.locations import relative_path
from puffin_ann.lifecycle.build.assign import AssignSummary
from puffin_ann.lifecycle.build.shard import CREATED_BY
from puffin_ann.lifecycle.build.train import TrainResult
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.documents.run import BuildPlan, BuiltShard, RunPlan
from puffin_ann.lifecycle.policy.decision import Drift
from puffin_ann.puffin.writer import PuffinWriter


def routing_of(
    plan: BuildPlan,
    trained: TrainResult,
    summary: AssignSummary,
    shards: list[BuiltShard],
    figures: IndexProperties,
    *,
    algorithm: str,
) -> Routing:
    """Return the routing of a freshly built index, before anything was measured."""
    declaration = plan.declaration
    cells = partitions_blob.none(declaration.metric, plan.dimension)
    if algorithm != CENTROID:
        cells = Partitions(
            metric=declaration.metric,
            dimension=plan.dimension,
            centroids=trained.centroids,
            shards=trained.partition_shards,
            rows=summary.partition_rows,
            radii=summary.partition_radii,
        )
    noted = figures.noting(
        fingerprint=declaration.fingerprint(),
        declaration=declaration.model_dump_json(),
        run_id=plan.run_id,
        drift=drift_of(summary, shards),
        next_file_id=len(plan.files),
    )
    if plan.column_type:
        noted = noted.noting(column_type=plan.column_type)
    if plan.included:
        noted = noted.noting(included=plan.included)
    return Routing(
        metric=declaration.metric,
        algorithm=algorithm,
        vectors=declaration.vectors,
        dimension=plan.dimension,
        cells=cells,
        norm_bound=float(trained.norm_bound[0]),
        shards=tuple(
            ShardEntry(
                shard_id=shard.shard_id,
                file=shard.file.uri,
                rows=shard.rows,
                bytes=shard.bytes,
                tombstones=0,
                kind="graph",
            )
            for shard in sorted(shards, key=lambda shard: shard.shard_id)
        ),
        search_width=64,
        probe_partitions=cells.count,
        recall=None,
        properties=noted.texts,
    )


def drift_of(summary: AssignSummary, shards: list[BuiltShard]) -> Drift:
    """Return what later rows are compared with: how near rows are to their centroids as built."""
    rows = sum(shard.rows for shard in shards)
    largest = max((shard.rows for shard in shards), default=0)
    return Drift(
        built=float(summary.distance_sum[0]) / rows if rows else 0.0,
        imbalance=largest * len(shards) / rows if rows else 1.0,
    )


def coverage_of(plan: BuildPlan, summary: AssignSummary, location: str) -> Coverage:
    """Return which rows the index covers, by data file."""
    row_groups = _by_file(summary.row_groups)
    deleted, skipped = _by_file(summary.deleted), _by_file(summary.skipped)
    files = []
    for file in plan.files:
        groups = row_groups.get(file.file_id, np.zeros((0, 2), dtype=np.int64))
        groups = groups[np.argsort(groups[:, 0])]
        files.append(
            CoveredFile(
                file_id=file.file_id,
                path=relative_path(location, file.path),
                size=file.size,
                sequence_number=file.sequence_number,
                rows=file.rows,
                row_groups=tuple(int(rows) for rows in groups[:, 1]),
                deleted=_bitmap(deleted.get(file.file_id)),
                skipped=_bitmap(skipped.get(file.file_id)),
            )
        )
    return Coverage(plan.base_snapshot_id, tuple(files), plan.manifests)


def centroids_of(plan: BuildPlan, summary: AssignSummary, coverage: Coverage) -> Centroids | None:
    """Return the centroids of data files, if the index consists of them."""
    if plan.declaration.algorithm != CENTROID:
        return None
    place = {file.file_id: number for number, file in enumerate(coverage.files)}
    order = np.argsort(summary.file_ids, kind="stable")
    return Centroids(
        metric=plan.declaration.metric,
        centroids=summary.file_centroids[order],
        files=np.array([place[int(number)] for number in summary.file_ids[order]], dtype=np.uint32),
        max_distances=summary.file_radii[order],
        paths=tuple(file.path for file in coverage.files),
    )


def _by_file(table: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    order = np.argsort(table[:, 0], kind="stable")
    ordered = table[order]
    ids, starts = np.unique(ordered[:, 0], return_index=True)
    parts = np.split(ordered[:, 1:], starts[1:])
    return dict(zip(ids.tolist(), parts, strict=False))


def _bitmap(positions: NDArray[np.int64] | None) -> BitMap:
    return BitMap([] if positions is None else positions[:, 0].tolist())


def measured(
    routing: Routing,
    *,
    width: int,
    probe_partitions: int,
    scan_partitions: int,
    wider: tuple[Wider, ...],
    recall: Recall,
    seconds: Mapping[str, float],
) -> Routing:
    """Return the routing with what the gate found, and how long each stage took."""
    return replace(
        routing,
        search_width=width,
        probe_partitions=probe_partitions,
        scan_partitions=scan_partitions,
        wider=wider,
        recall=recall,
        properties=IndexProperties(routing.properties).noting(stage_seconds=dict(seconds)).texts,
    )


def encode(
    plan: BuildPlan, routing: Routing, coverage: Coverage, centroids: Centroids | None
) -> bytes:
    """Return the bytes of the staged index's file."""
    out = io.BytesIO()
    with PuffinWriter(out) as writer:
        if centroids is not None:
            add_centroids(writer, plan, centroids)
        add_index_blobs(writer, plan, routing, coverage)
        writer.finish({"created-by": CREATED_BY})
    return out.getvalue()


def add_index_blobs(
    writer: PuffinWriter,
    plan: RunPlan,
    routing: Routing,
    coverage: Coverage | CoverageChanges,
    directory: Directory | None = None,
) -> None:
    """Add the small blobs of an index to a Puffin file.

    That of its cells is left to the caller, who copies or names it, where the routing names it; so
    is the coverage blob of which there are changes.
    """
    routing, cells = routing_blob.split(routing)
    if cells:
        _add(writer, plan, partitions_blob.TYPE, cells)
    _add(writer, plan, routing_blob.TYPE, routing_blob.encode(routing))
    if isinstance(coverage, Coverage):
        _add(writer, plan, coverage_blob.TYPE, coverage_blob.encode(coverage))
    else:
        _add(writer, plan, coverage_changes_blob.TYPE, coverage_changes_blob.encode(coverage))
    if directory is not None:
        _add(writer, plan, directory_blob.TYPE, directory_blob.encode(directory))


def add_tombstone_changes(
    writer: PuffinWriter, plan: RunPlan, shards: Mapping[int, AddedTombstones]
) -> None:
    """Add what shards lost since their tombstones blobs to a Puffin file."""
    data = tombstone_changes_blob.encode(shards)
    _add(writer, plan, tombstone_changes_blob.TYPE, data)


def add_centroids(writer: PuffinWriter, plan: RunPlan, centroids: Centroids) -> None:
    """Add the centroids of data files to a Puffin file."""
    _add(writer, plan, centroid_blob.TYPE, centroid_blob.encode(centroids))


def _add(writer: PuffinWriter, plan: RunPlan, kind: str, data: bytes) -> None:
    writer.add(
        kind,
        data,
        fields=[plan.field_id],
        snapshot_id=plan.base_snapshot_id,
        sequence_number=plan.base_sequence_number,
        properties={"index": plan.declaration.name},
        codec="zstd",
    )
