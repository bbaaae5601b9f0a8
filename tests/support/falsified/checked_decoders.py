"""Decode a blob and hold what came out against what every reader of it relies on.

Each function takes a blob's bytes and a folder to unpack into. It raises FormatError for bytes that
are refused, and AssertionError for a value that should have been.
"""

import contextlib
import io

import numpy as np

from puffin_ann.blobs.changes import column_changes, coverage_changes, tombstone_changes
from puffin_ann.blobs.shards import columns, delta, graph, hnsw, identities, ivf, rows
from puffin_ann.blobs.version import centroid, coverage, directory, partitions, routing, tombstones
from puffin_ann.errors import BlobFormatError
from puffin_ann.search.included.arrow_values import check_values


def read_graph(data, folder):
    graph.unpack(io.BytesIO(data), folder)
    value = graph.open(folder)
    _assert_graph(value)
    return value


def read_delta(data, folder):
    delta.unpack(io.BytesIO(data), folder)
    value = delta.open(folder)
    _assert_graph(value.graph)
    return value


def _assert_graph(value):
    assert value.neighbours.shape == (value.rows, value.max_degree)
    assert value.neighbours.max(initial=0) < max(value.rows, 1)
    assert value.degrees.max(initial=0) <= value.max_degree
    assert 0 <= value.entry < max(value.rows, 1)
    if value.codes is not None:
        assert value.codes.max(initial=0) < value.codebook.shape[1]


def read_hnsw(data, folder):
    hnsw.unpack(io.BytesIO(data), folder)
    value = hnsw.open(folder)
    assert value.neighbours.shape == (value.rows, 2 * value.links)
    assert max(value.neighbours.max(initial=0), value.upper_neighbours.max(initial=0)) < max(
        value.rows, 1
    )
    assert value.degrees.max(initial=0) <= 2 * value.links
    assert value.upper_degrees.max(initial=0) <= value.links
    assert value.levels.sum() == len(value.upper_degrees)
    layers = [layer for level in value.levels for layer in range(1, level + 1)]
    for at, degree in enumerate(value.upper_degrees):
        assert (value.levels[value.upper_neighbours[at, :degree]] >= layers[at]).all()
    return value


def read_ivf(data, folder):
    ivf.unpack(io.BytesIO(data), folder)
    value = ivf.open(folder)
    assert np.isfinite(value.vectors).all()
    if value.has_lists:
        assert np.array_equal(np.sort(value.ordinals), np.arange(value.rows))
        assert value.starts[0] == 0
        assert value.starts[-1] == value.rows
        assert (np.diff(value.starts) >= 0).all()
        assert value.codes.shape == (value.rows, -(-len(value.codebook) // 2))
        assert all(np.isfinite(a).all() for a in (value.centroids, value.codebook, value.biases))
        assert value.subspace_offsets[-1] == value.dimension
    return value


def assert_distinct(value):
    key = np.stack([value.file_ids, value.row_groups, value.offsets])
    assert np.unique(key, axis=1).shape == key.shape, "locators differ"


def read_rows(data, _folder):
    value = rows.read(io.BytesIO(data))
    if rows.open_reader(io.BytesIO(data)).major == 1:
        assert_distinct(value)
    if value.cells is not None:
        ends = [stop for _, _, stop in value.cells.ranges()]
        assert ends == sorted(set(ends))
        assert value.cells.ordered_rows <= len(value)
    return value


IDENTIFIED = 300
"""Rows of which identities are decoded."""


def read_identities(data, _folder):
    value = identities.read(io.BytesIO(data), IDENTIFIED)
    assert value.shape == (IDENTIFIED, 2)
    return value.tolist()


def read_coverage(data, _folder):
    value = coverage.decode(data)
    for file in value.files:
        assert sum(file.row_groups) == file.rows
        assert not file.deleted or file.deleted.max() < file.rows
    return value


def read_routing(data, _folder):
    return routing.decode(data)


def read_partitions(data, _folder):
    value = partitions.decode(data)
    assert np.isfinite(value.centroids).all()
    assert (value.radii >= 0).all()
    assert len(value.centroids) == len(value.shards) == len(value.rows) == len(value.radii)
    return value


def read_directory(data, _folder):
    value = directory.decode(data)
    assert {blob.file for blob in value.blobs} == set(range(len(value.files)))
    assert not any("/" in file.name for file in value.files)
    for blob in value.blobs:
        assert 4 <= blob.offset <= blob.offset + blob.length <= value.files[blob.file].length
    return value


def read_coverage_changes(data, _folder):
    value = coverage_changes.decode(data)
    for file in value.files:
        assert sum(file.row_groups) == file.rows
    for numbers in (value.removed_files, value.removed_manifests):
        assert (np.diff(numbers.astype(np.int64)) > 0).all()
    assert len(value.digest) == 64
    return value


def read_tombstone_changes(data, _folder):
    value = tombstone_changes.decode(data)
    assert list(value) == sorted(set(value))
    assert all(added.ordinals for added in value.values())
    return value


def read_columns(data, _folder):
    value = columns.read(io.BytesIO(data))
    _assert_columns(value)
    return value


def read_column_changes(data, _folder):
    value = column_changes.read(io.BytesIO(data))
    assert (np.diff(value.ordinals.astype(np.int64)) > 0).all()
    _assert_columns(value.values)
    return value


def _assert_columns(value):
    for column in value.columns:
        for block in column.blocks:
            if block is None:
                continue
            values, bounds = block
            assert len(values.valid) <= value.locators.shape[1]
            assert (bounds.lower is None) == (bounds.upper is None)
            if column.bits:
                assert len(values.data) == -(-len(values.valid) * column.bits // 8)
            else:
                assert len(values.offsets) == len(values.valid) + 1
                assert values.offsets[0] == 0
                assert values.offsets[-1] == len(values.data)
                assert (np.diff(values.offsets) >= 0).all()
    with contextlib.suppress(BlobFormatError):
        check_values(value)


def read_tombstones(data, _folder):
    return tombstones.decode(data, 2**32)


def read_centroid(data, _folder):
    return centroid.decode(data)


READERS = {
    routing: read_routing,
    partitions: read_partitions,
    directory: read_directory,
    coverage: read_coverage,
    graph: read_graph,
    hnsw: read_hnsw,
    ivf: read_ivf,
    rows: read_rows,
    tombstones: read_tombstones,
    coverage_changes: read_coverage_changes,
    tombstone_changes: read_tombstone_changes,
    columns: read_columns,
    column_changes: read_column_changes,
    centroid: read_centroid,
    delta: read_delta,
}
