"""Index versions made by hand: any rows in any shard or delta, deleted ones too, in any order.

No build or refresh makes such a mess, so what holds for these versions holds for theirs.
"""

import io
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyroaring import BitMap

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.shards.rows import Rows
from puffin_ann.blobs.version import coverage as coverage_blob
from puffin_ann.blobs.version import partitions as partitions_blob
from puffin_ann.blobs.version import routing as routing_blob
from puffin_ann.blobs.version import tombstones as tombstones_blob
from puffin_ann.blobs.version.coverage import Coverage, CoveredFile
from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.blobs.version.routing import Routing, ShardEntry
from puffin_ann.engines import engine
from puffin_ann.engines.delta import DELTA
from puffin_ann.lake.store.locations import relative_path
from puffin_ann.puffin.writer import PuffinWriter
from puffin_ann.search.version.index_version import load_version
from puffin_ann.search.version.snapshot_view import live_state

INDEX = "by_hand"
DIMENSION = 3
PARAMETERS = {
    "vamana": {"R": 8, "L": 16, "pq_m": 2, "pq_nbits": 4},
    "hnsw": {"M": 4, "ef_construction": 16},
}


@dataclass
class Content:
    """The rows of a data file: its row groups' sizes and all vectors, deleted or live."""

    groups: tuple[int, ...]
    vectors: np.ndarray

    def locator(self, position):
        """Return the row group and the offset in it of a position in the file."""
        group = int(np.searchsorted(np.cumsum(self.groups), position, side="right"))
        return group, position - sum(self.groups[:group])


def content(path):
    """Read a local data file without the library."""
    file = pq.ParquetFile(path.removeprefix("file://"))
    groups = tuple(file.metadata.row_group(i).num_rows for i in range(file.num_row_groups))
    vectors = np.array(file.read().column("embedding").to_pylist(), np.float32)
    return Content(groups, vectors.reshape(sum(groups), -1))


def live_rows(table, snapshot_id):
    """Return (path, row group, offset) and vectors of all live rows, by path and position."""
    state = live_state(table, snapshot_id)
    locators, vectors = [], []
    for file in sorted(state.files, key=lambda file: file.path):
        rows = content(file.path)
        for position, vector in enumerate(rows.vectors):
            if position not in state.deleted.get(file.path, ()):
                locators.append((file.path, *rows.locator(position)))
                vectors.append(vector)
    return locators, np.array(vectors, np.float32).reshape(-1, DIMENSION)


@dataclass
class Part:
    """A shard or delta in the making: locators (n, 3), vectors (n, d), cells, tombstones."""

    shard_id: int
    kind: str
    locators: list
    vectors: list
    cells: list
    deleted: set

    def add(self, rng, locator, vector, cell, *, deleted=False):
        at = int(rng.integers(len(self.locators) + 1))
        self.deleted = {ordinal + (ordinal >= at) for ordinal in self.deleted}
        if deleted:
            self.deleted.add(at)
        self.locators.insert(at, locator)
        self.vectors.insert(at, vector)
        self.cells.insert(at, cell)


def version(
    table,
    base,
    rng,
    *,
    metric="l2",
    algorithm="exact",
    shards=2,
    deltas=2,
    tombstones=0.3,
    ordered="no",
    change=lambda routing: routing,
):
    """Write a version over a random part of a snapshot's rows and load it.

    Args:
        table: the table.
        base: id of the snapshot.
        rng: what chance decides by.
        metric: of the index.
        algorithm: of the index.
        shards: how many.
        deltas: how many.
        tombstones: how many, as a share of the live rows of each part.
        ordered: `rows` for ordinals in locator order, `all` for file ids in the order of paths,
            too: so builds make them.
        change: makes another routing of the right one.
    """
    state = live_state(table, base)
    files = [file for file in state.files if ordered == "all" or rng.random() < 0.85]
    ids = rng.permutation(3 * len(files) + 5)[: len(files)]
    ids = np.sort(ids) if ordered == "all" else ids
    stale = [number for number in range(3 * len(files) + 8) if number not in ids]
    covered, rows = [], []
    unindexed = []
    for file, file_id in zip(files, ids.tolist(), strict=True):
        there = content(file.path)
        gone = BitMap(state.deleted.get(file.path, ()))
        if ordered != "all":
            gone |= BitMap(np.flatnonzero(rng.random(file.rows) < 0.1).tolist())
        for position, vector in enumerate(there.vectors):
            locator = (file_id, *there.locator(position))
            (unindexed if position in gone else rows).append((locator, vector))
        covered.append(
            CoveredFile(
                file_id,
                relative_path(table.location(), file.path),
                file.size,
                file.sequence_number,
                file.rows,
                there.groups,
                gone,
                BitMap(),
            )
        )
    norm = max((float(np.linalg.norm(vector)) for _, vector in rows), default=0.0) * 1.001
    lift = METRICS[metric].to_search_space
    centroids = lift(rng.integers(-2, 3, (2 * shards, DIMENSION)).astype(np.float32), norm)
    names = rng.permutation(3 * (shards + deltas))[: shards + deltas].tolist()
    parts = [
        Part(name, "graph" if place < shards else "delta", [], [], [], set())
        for place, name in enumerate(names)
    ]
    owners = np.arange(2 * shards) % shards
    radii = np.zeros(2 * shards)
    for locator, vector in rows:
        lifted = lift(vector[None], norm)[0].astype(np.float64)
        apart = np.linalg.norm(centroids.astype(np.float64) - lifted, axis=1)
        cell = int(apart.argmin())
        part = parts[owners[cell]]
        if deltas and rng.random() < 0.3:
            part = parts[shards + int(rng.integers(deltas))]
        else:
            radii[cell] = max(radii[cell], math.nextafter(apart[cell], math.inf))
        part.add(rng, locator, vector, cell)
    for part in parts:
        _add_deleted(part, rng, tombstones, stale, unindexed, DIMENSION, 2 * shards)
        if ordered != "no":
            _sort(part)
    if ordered != "all":
        rng.shuffle(parts)
    radii = np.nextafter(radii.astype(np.float32), np.float32(np.inf))
    return _written(
        table,
        base,
        parts,
        Coverage(base, tuple(covered), ()),
        {
            "metric": metric,
            "algorithm": algorithm,
            "dimension": DIMENSION,
            "cells": Partitions(
                metric=metric,
                dimension=DIMENSION,
                centroids=centroids,
                shards=np.array([names[owner] for owner in owners], np.uint32),
                rows=np.ones(2 * shards, np.uint64),
                radii=radii,
            ),
            "norm_bound": norm if metric == "ip" else 0.0,
            "search_width": 8,
            "probe_partitions": int(rng.integers(1, 2 * shards + 1)),
        },
        change,
    )


def _add_deleted(part, rng, share, stale, unindexed, dimension, cells):
    """Add deleted rows, some where nobody knows the file and some at deleted rows of known ones."""
    for number in range(int(share * len(part.locators)) + (share > 0) * int(rng.integers(2))):
        locator = (int(rng.choice(stale)), int(rng.integers(9)), number)
        if unindexed and rng.random() < 0.5:
            locator = unindexed[int(rng.integers(len(unindexed)))][0]
        if locator not in part.locators:
            vector = rng.integers(-2, 3, dimension).astype(np.float32)
            part.add(rng, locator, vector, int(rng.integers(cells)), deleted=True)


def _sort(part):
    order = sorted(range(len(part.locators)), key=part.locators.__getitem__)
    part.deleted = {order.index(ordinal) for ordinal in part.deleted}
    for name in ("locators", "vectors", "cells"):
        setattr(part, name, [getattr(part, name)[ordinal] for ordinal in order])


def _written(table, base, parts, coverage, figures, change):
    path = f"{table.location()}/metadata/by-hand-{np.random.default_rng().integers(2**62)}.puffin"
    entries = []
    with table.io.new_output(path).create() as out, PuffinWriter(out) as writer:

        def add(kind, data, codec=None, **properties):
            writer.add(
                kind,
                data,
                fields=[3],
                snapshot_id=base,
                sequence_number=1,
                properties={"index": INDEX, **properties},
                codec=codec,
            )

        for part in parts:
            kind, data = encoded(part, figures)
            add(kind, data, shard=str(part.shard_id))
            table_of = np.array(part.locators, np.uint32).reshape(-1, 3)
            blob = io.BytesIO()
            rows_blob.write(Rows(*(np.ascontiguousarray(column) for column in table_of.T)), blob)
            add(rows_blob.TYPE, blob.getvalue(), shard=str(part.shard_id))
            if part.deleted:
                bits = tombstones_blob.encode(BitMap(part.deleted))
                add(tombstones_blob.TYPE, bits, "zstd", shard=str(part.shard_id))
            entries.append(
                ShardEntry(
                    part.shard_id, "", len(part.vectors), len(data), len(part.deleted), part.kind
                )
            )
        routing = change(Routing(**figures, shards=tuple(entries)))
        if len(parts) % 2:  # both forms are searched by the same tests
            routing, partitions = routing_blob.split(routing)
            add(partitions_blob.TYPE, partitions, "zstd")
        add(routing_blob.TYPE, routing_blob.encode(routing), "zstd")
        add(coverage_blob.TYPE, coverage_blob.encode(coverage), "zstd")
        writer.finish({})
    return load_version(table.io, path, INDEX)


def encoded(part, figures):
    """Return the type and the bytes of a part's engine or delta blob."""
    vectors = np.array(part.vectors, np.float32).reshape(-1, figures["dimension"])
    common = {"metric": figures["metric"], "norm_bound": 10.0, "seed": 1, "threads": 1}
    blob = io.BytesIO()
    with tempfile.TemporaryDirectory() as scratch:
        if part.kind == "delta":
            cells = np.array(part.cells, np.uint32)
            DELTA.encode(DELTA.build(vectors, cells, **common, scratch=Path(scratch)), blob)
            return DELTA.blob_type, blob.getvalue()
        made = engine(figures["algorithm"])
        chosen = made.check(PARAMETERS.get(figures["algorithm"], {}), figures["dimension"])
        made.encode(made.build(vectors, parameters=chosen, **common, scratch=Path(scratch)), blob)
        return made.blob_type, blob.getvalue()
