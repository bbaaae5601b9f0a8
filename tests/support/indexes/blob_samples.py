"""Small examples of what every blob kind holds, made from a seed; shared by the tests here."""

import dataclasses
import io

import numpy as np
from pyroaring import BitMap

from puffin_ann.blobs.changes import column_changes, coverage_changes, tombstone_changes
from puffin_ann.blobs.shards import columns, delta, graph, hnsw, identities, ivf, rows, rows_v1
from puffin_ann.blobs.shards.cells import CellStarts
from puffin_ann.blobs.version import (
    centroid,
    coverage,
    directory,
    gate,
    partitions,
    routing,
    tombstones,
)
from puffin_ann.blobs.version.partitions import Partitions


def sample_routing(metric="l2", cells=6, dimension=5, seed=1):
    rng = np.random.default_rng(seed)
    width = dimension + (metric == "ip")
    return routing.Routing(
        metric=metric,
        algorithm="vamana",
        dimension=dimension,
        cells=Partitions(
            metric=metric,
            dimension=dimension,
            centroids=rng.standard_normal((cells, width)).astype(np.float32),
            shards=(np.arange(cells) % 2).astype(np.uint32),
            rows=rng.integers(0, 2**40, cells).astype(np.uint64),
            radii=rng.random(cells).astype(np.float32),
        ),
        norm_bound=2.5 if metric == "ip" else 0.0,
        shards=(
            routing.ShardEntry(0, "", 100, 4000, 3, "graph"),
            routing.ShardEntry(1, "s3://bucket/é.puffin", 2**40, 2**41, 0, "graph"),
            routing.ShardEntry(7, "", 5, 600, 5, "delta"),
        ),
        search_width=64,
        probe_partitions=3,
        recall=gate.Recall(10, 200, 0.97, 0.95, 0.99, 0.9),
        properties={"run-id": "r1", "spec": '{"name": "ü"}'},
    )


def sample_wider(**cells):
    """A routing blob's content with searches for more rows."""
    told = sample_routing(**cells)
    count = told.cells.count
    return dataclasses.replace(told, wider=(gate.Wider(20, 96, 3), gate.Wider(40, 160, count)))


def sample_apart(**cells):
    """A routing blob that names its cells, and the blob that has them."""
    told, data = routing.split(sample_routing(**cells))
    return routing.encode(told), data


def sample_coverage():
    deleted = BitMap(range(10, 5000, 3)) | BitMap(range(100_000, 150_000))
    return coverage.Coverage(
        base_snapshot_id=-(2**62),
        files=(
            coverage.CoveredFile(
                0, "data/a.parquet", 10, 1, 200_000, (150_000, 50_000), deleted, BitMap()
            ),
            coverage.CoveredFile(
                3, "s3://other/ö.parquet", 2**40, 2**33, 0, (), BitMap(), BitMap()
            ),
            coverage.CoveredFile(9, "data/c.parquet", 7, 2, 5, (2, 3), BitMap(), BitMap([4])),
        ),
        manifests=("metadata/m0.avro", "metadata/m1.avro"),
    )


def sample_rows(count=1000, files=3, *, identities=True, shuffled=False, cells=False, seed=1):
    rng = np.random.default_rng(seed)
    file_ids = np.sort(rng.integers(0, files, count)).astype(np.uint32)
    groups = rng.integers(0, 4, count)
    groups = groups[np.lexsort((groups, file_ids))].astype(np.uint32)
    offsets = np.zeros(count, np.uint32)
    keys = file_ids.astype(np.int64) * 4 + groups
    for key in np.unique(keys):
        here = keys == key
        offsets[here] = np.sort(rng.choice(3 * here.sum(), here.sum(), replace=False))
    order = rng.permutation(count) if shuffled else np.arange(count)
    ids = rng.integers(0, 2**63, (count, 2)).astype(np.uint64) if identities else None
    starts = np.sort(rng.choice(count, 4, replace=False)) if cells else []
    found = (
        CellStarts(np.array([0, 2, 5, 9], "<u4"), np.array([0, *(starts + 1)], "<u4"))
        if cells
        else None
    )
    return rows.Rows(file_ids[order], groups[order], offsets[order], ids, cells=found)


def sample_graph(n=500, d=7, r=8, m=3, bits=8, *, metric="l2", vectors=True, seed=1):
    rng = np.random.default_rng(seed)
    degrees = rng.integers(0, min(r, n) + 1, n).astype(np.uint16)
    neighbours = np.zeros((n, r), np.uint32)
    for i, degree in enumerate(degrees):
        neighbours[i, :degree] = np.sort(rng.choice(n, degree, replace=False))
    codebook = codes = offsets = None
    if m:
        widths = np.array([d // m + (j < d % m) for j in range(m)])
        offsets = np.concatenate([[0], np.cumsum(widths)]).astype(np.uint32)
        codebook = rng.standard_normal((m, 1 << bits, widths.max())).astype(np.float32)
        for j, width in enumerate(widths):
            codebook[j, :, width:] = 0
        codes = rng.integers(0, 1 << bits, (n, m)).astype(np.uint8)
    return graph.Graph(
        metric=metric,
        max_degree=r,
        build_width=100,
        alpha=1.2,
        entry=n // 2,
        codebook=codebook,
        codes=codes,
        degrees=degrees,
        neighbours=neighbours,
        vectors=rng.standard_normal((n, d)).astype(np.float32) if vectors else None,
        dimension=d,
        subspace_offsets=offsets,
        properties={"seed": "1"},
    )


def sample_hnsw(n=400, d=6, links=5, *, metric="l2", seed=1):
    rng = np.random.default_rng(seed)
    levels = rng.choice(4, n, p=[0.7, 0.2, 0.08, 0.02]).astype(np.uint8)
    top = int(levels.max(initial=0))

    def lists(layers, most):
        degrees = np.zeros(len(layers), np.uint16)
        found = np.zeros((len(layers), most), np.uint32)
        for i, layer in enumerate(layers):
            there = np.flatnonzero(levels >= layer)
            degrees[i] = rng.integers(0, min(most, len(there)) + 1)
            found[i, : degrees[i]] = np.sort(rng.choice(there, degrees[i], replace=False))
        return degrees, found

    degrees, neighbours = lists([0] * n, 2 * links)
    upper_degrees, upper = lists(
        [layer for level in levels for layer in range(1, level + 1)], links
    )
    return hnsw.Hnsw(
        metric=metric,
        ef_construction=200,
        entry=int(np.flatnonzero(levels == top)[-1]) if n else 0,
        neighbours=neighbours,
        degrees=degrees,
        levels=levels,
        upper_neighbours=upper,
        upper_degrees=upper_degrees,
        vectors=rng.standard_normal((n, d)).astype(np.float32),
        dimension=d,
        properties={"seed": "1"},
    )


def sample_ivf(n=300, d=5, lists=7, m=3, *, metric="l2", relative=False, seed=1):
    rng = np.random.default_rng(seed)
    offsets = np.linspace(0, d, m + 1).astype(np.uint32)
    widths = np.diff(offsets)
    codebook = rng.standard_normal((m, 16, int(widths.max()))).astype(np.float32)
    for j, width in enumerate(widths):
        codebook[j, :, width:] = 0
    codes = rng.integers(0, 256, (n, -(-m // 2))).astype(np.uint8)
    if m % 2:
        codes[:, -1] &= 15
    cuts = np.sort(rng.integers(0, n + 1, lists - 1))
    return ivf.Ivf(
        metric=metric,
        vectors=rng.standard_normal((n, d)).astype(np.float32),
        relative=relative,
        scale=0.25 if metric == "ip" else 1.0,
        origin=rng.standard_normal(d).astype(np.float32),
        centroids=rng.standard_normal((lists, d + (metric == "ip"))).astype(np.float32),
        subspace_offsets=offsets,
        codebook=codebook,
        starts=np.concatenate([[0], cuts, [n]]).astype(np.int64),
        ordinals=rng.permutation(n).astype(np.uint32),
        codes=codes,
        biases=rng.standard_normal(n).astype(np.float32),
        properties={"seed": "1"},
    )


def sample_centroids(dimension=3):
    rng = np.random.default_rng(1)
    return centroid.Centroids(
        metric="cosine",
        centroids=rng.standard_normal((4, dimension)).astype(np.float32),
        files=np.array([0, 1, 1, 2], np.uint32),
        max_distances=np.array([0, 0.5, np.inf, 2], np.float32),
        paths=("data/a.parquet", "", "s3://b/ü.parquet"),
    )


def sample_delta():
    value = sample_graph(60, r=0, m=0)
    value = dataclasses.replace(value, degrees=np.zeros(60, np.uint16))
    return delta.Delta(value, np.arange(60, dtype=np.uint32) % 5)


def sample_directory():
    digest = "0123456789abcdef" * 4
    return directory.Directory(
        files=(
            directory.NamedFile("ann-words-1-n1-a.puffin", 5000),
            directory.NamedFile("ann-wörter-2-n7-b.puffin", 2**40),
        ),
        blobs=(
            directory.NamedBlob(0, graph.TYPE, 0, None, 4, 4996, 1, 0, digest),
            directory.NamedBlob(1, graph.TYPE, 7, None, 2**39, 2**38, -(2**62), 9, ""),
            directory.NamedBlob(0, rows_v1.TYPE, 0, "zstd", 64, 100, 1, 0, digest[::-1]),
            directory.NamedBlob(1, partitions.TYPE, None, "lz4", 64, 0, 2, 1, ""),
        ),
    )


def sample_coverage_changes():
    before = sample_coverage()
    first, *_, last = before.files
    after = coverage.Coverage(
        7,
        (
            dataclasses.replace(first, deleted=BitMap([0, 3])),
            coverage.CoveredFile(12, "data/d.parquet", 9, 5, 4, (4,), BitMap(), BitMap([1])),
            last,
        ),
        ("metadata/m1.avro", "metadata/m2.avro"),
    )
    return coverage_changes.CoverageChanges.between(
        before, after, written=300, digest="0123456789abcdef" * 4
    )


def sample_tombstone_changes():
    return {
        2: tombstone_changes.AddedTombstones(BitMap([0, 7, *range(70_000, 70_900)]), 40),
        9: tombstone_changes.AddedTombstones(BitMap([2**32 - 1]), 2**33),
    }


def sample_columns(count=1000):
    """Values of a column of numbers with bounds, one of text, and one of which nothing is kept."""
    rng = np.random.default_rng(1)
    located = sample_rows(count, identities=False)
    prices = rng.integers(-50, 50, count).astype("<i8")
    valid = rng.random(count) < 0.9
    prices[~valid] = 0
    bounds = [int(value).to_bytes(8, "little", signed=True) for value in (-50, 49)]
    words = [b"" if number % 5 == 0 else f"ü{number % 7}".encode() for number in range(count)]
    offsets = np.concatenate([[0], np.cumsum([len(word) for word in words])]).astype("<i4")
    return columns.ShardColumns(
        np.stack([located.file_ids, located.row_groups, located.offsets]),
        (
            columns.IncludedColumn(
                4,
                "long",
                64,
                (
                    (
                        columns.Values(valid, prices.tobytes()),
                        columns.Bounds(int((~valid).sum()), 0, *bounds),
                    ),
                ),
            ),
            columns.IncludedColumn(
                9,
                "string",
                0,
                (
                    (
                        columns.Values(np.ones(count, np.bool_), b"".join(words), offsets),
                        columns.Bounds(0, 0, b"", "ü6".encode()),
                    ),
                ),
            ),
            columns.IncludedColumn(11, "decimal(10, 2)", 128, (None,)),
        ),
    )


def sample_column_changes():
    ordinals = np.arange(0, 3000, 3, dtype=np.uint32)
    return column_changes.ColumnChanges(ordinals, sample_columns(), 77)


def written(write, value):
    out = io.BytesIO()
    length = write(value, out)
    assert length == len(out.getvalue())
    return out.getvalue()


def same(a, b, name="value"):
    """Equal in every field, arrays in dtype, shape and value."""
    if isinstance(a, np.ndarray):
        assert isinstance(b, np.ndarray), name
        assert a.dtype == b.dtype, name
        np.testing.assert_array_equal(a, b, err_msg=name)
    elif hasattr(a, "__dataclass_fields__"):
        for field in a.__dataclass_fields__:
            same(getattr(a, field), getattr(b, field), field)
    elif isinstance(a, tuple) and isinstance(b, tuple):
        assert len(a) == len(b), name
        for one, other in zip(a, b, strict=True):
            same(one, other, name)
    else:
        assert a == b, name
    return True


SAMPLES = {
    routing: lambda: routing.encode(sample_routing()),
    partitions: lambda: partitions.encode(sample_routing().cells),
    directory: lambda: directory.encode(sample_directory()),
    coverage: lambda: coverage.encode(sample_coverage()),
    graph: lambda: written(graph.write, sample_graph()),
    rows: lambda: written(rows.write, sample_rows()),
    identities: lambda: written(identities.write, sample_rows().identities),
    columns: lambda: written(columns.write, sample_columns()),
    column_changes: lambda: written(column_changes.write, sample_column_changes()),
    tombstones: lambda: tombstones.encode(BitMap([1, 5])),
    coverage_changes: lambda: coverage_changes.encode(sample_coverage_changes()),
    tombstone_changes: lambda: tombstone_changes.encode(sample_tombstone_changes()),
    centroid: lambda: centroid.encode(sample_centroids()),
    delta: lambda: written(delta.write, sample_delta()),
    hnsw: lambda: written(hnsw.write, sample_hnsw()),
    ivf: lambda: written(ivf.write, sample_ivf()),
}
"""Makes a blob of each of our types, by the type's module."""


VALUES = {
    routing.TYPE: sample_routing("ip"),
    coverage.TYPE: sample_coverage(),
    graph.TYPE: sample_graph(n=60, d=6, r=5, m=4, bits=4, metric="cosine"),
    rows.TYPE: sample_rows(60, shuffled=True),
    identities.TYPE: sample_rows(60).identities,
    rows_v1.TYPE: sample_rows(60, shuffled=True),
    tombstones.TYPE: BitMap([0, 5, *range(20, 40)]),
    centroid.TYPE: sample_centroids(),
    delta.TYPE: sample_delta(),
    hnsw.TYPE: sample_hnsw(60, d=3, links=3, metric="cosine"),
    ivf.TYPE: sample_ivf(70, metric="ip", relative=True),
    partitions.TYPE: sample_routing("ip").cells,
    directory.TYPE: sample_directory(),
    coverage_changes.TYPE: sample_coverage_changes(),
    tombstone_changes.TYPE: sample_tombstone_changes(),
    columns.TYPE: sample_columns(),
    column_changes.TYPE: sample_column_changes(),
}


LONG_ROWS = sample_rows(1100, shuffled=True, cells=True)
"""Rows with identities longer than a block, so that their blob has checksums of blocks."""
