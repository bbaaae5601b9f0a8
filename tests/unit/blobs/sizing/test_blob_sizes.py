"""The size calculator against blobs that are really encoded."""

import dataclasses
import io

import numpy as np
import pytest
from pyroaring import BitMap

from puffin_ann.blobs import centroid, coverage, graph, routing, rows, tombstones
from puffin_ann.blobs.cells import CellStarts
from puffin_ann.blobs.partitions import Partitions
from puffin_ann.blobs.sizing import sizes
from puffin_ann.blobs.sizing.shape import IndexShape
from puffin_ann.errors import BadInputError

SHAPES = {
    "GloVe, 2 shards": IndexShape(
        40_000, 100, "cosine", 32, 20.5, pq_subspaces=25, shards=2, files=4, row_groups=5
    ),
    "lean, ip, many shards": IndexShape(
        60_000, 33, "ip", 16, 16, pq_subspaces=11, shards=6, vectors=False, identities=False
    ),
    "exhaustive": IndexShape(10_000, 64, "l2", 0, 0, files=100, shards=3),
    "16 codewords": IndexShape(20_000, 48, "l2", 24, 18, pq_subspaces=24, pq_bits=4),
    "many files": IndexShape(50_000, 16, "l2", 8, 6, files=700, row_groups=3, shards=4),
}


def close(predicted, data):
    assert abs(predicted - len(data)) <= 0.02 * len(data), f"{predicted} for {len(data)}"


def encoded_graph(shape, count):
    rng = np.random.default_rng(7)
    mean = shape.mean_degree
    least = max(round(2 * mean - shape.max_degree), 0)
    degrees = rng.integers(least, shape.max_degree + 1, count).astype(np.uint16)
    neighbours = np.zeros((count, shape.max_degree), np.uint32)
    for i, degree in enumerate(degrees):
        neighbours[i, :degree] = rng.choice(count, degree, replace=False)
    m, width = shape.pq_subspaces, -(-shape.dimension // max(shape.pq_subspaces, 1))
    book = rng.standard_normal((m, 1 << shape.pq_bits, width)).astype(np.float32)
    return graph.Graph(
        metric=shape.metric,
        max_degree=shape.max_degree,
        build_width=100,
        alpha=1.2,
        entry=0,
        codebook=book if m else None,
        codes=rng.integers(0, 1 << shape.pq_bits, (count, m)).astype(np.uint8) if m else None,
        degrees=degrees,
        neighbours=neighbours,
        vectors=rng.standard_normal((count, shape.dimension)).astype(np.float32)
        if shape.vectors
        else None,
        dimension=shape.dimension,
    )


def written(write, value):
    out = io.BytesIO()
    write(value, out)
    return out.getvalue()


@pytest.mark.parametrize("name", SHAPES)
def test_graph_size_is_right_within_two_per_cent(name):
    shape = SHAPES[name]
    shape = dataclasses.replace(shape, partitions_per_shard=1)  # neighbours are anywhere
    count = -(-shape.rows // shape.shards)

    close(sizes.predict(shape).shard, written(graph.write, encoded_graph(shape, count)))


def test_the_mean_degree_of_a_shard_is_found_from_its_bytes():
    shape = IndexShape(5000, 1, max_degree=40, mean_degree=27.5, partitions_per_shard=1)
    shard = written(graph.write, encoded_graph(shape, 5000))
    locators = written(rows.write, rows.Rows(*np.zeros((3, 0), np.uint32)))
    told = sizes.shape_of(io.BytesIO(shard), io.BytesIO(locators))
    assert abs(told.pop("mean_degree") - 27.5) < 0.3
    assert told == {
        "dimension": 1,
        "metric": "l2",
        "max_degree": 40,
        "pq_subspaces": 0,
        "pq_bits": 8,
        "vectors": True,
        "identities": False,
        "partitions_per_shard": 1,
    }


def test_shards_are_as_few_as_java_can_read():
    shape = IndexShape(10**9, 768, "cosine", pq_subspaces=192, shards=10**4)
    fewest = sizes.fewest_shards(shape)
    assert sizes.graph_size(shape, 10**9 // fewest) < 1 << 31
    assert sizes.graph_size(shape, round(1.2 * 10**9 / fewest)) > 1 << 31


@pytest.mark.parametrize("cells", [1, 8, 32])
@pytest.mark.parametrize("name", SHAPES)
def test_rows_size_is_right_within_two_per_cent(name, cells):
    shape = dataclasses.replace(SHAPES[name], partitions_per_shard=cells)
    rng = np.random.default_rng(3)
    count = -(-shape.rows // shape.shards)
    here = np.sort(rng.choice(shape.rows, count, replace=False))
    in_file = shape.rows // shape.files
    in_group = max(in_file // shape.row_groups, 1)
    value = rows.Rows(
        (here // in_file).astype(np.uint32),
        (here % in_file // in_group).astype(np.uint32),
        (here % in_file % in_group).astype(np.uint32),
        rng.integers(0, 2**63, (count, 2)).astype(np.uint64) if shape.identities else None,
    )
    cell = rng.integers(0, cells, count)
    value = value.take(np.argsort(cell, kind="stable"))
    value = dataclasses.replace(value, cells=CellStarts.of(np.sort(cell)))

    close(sizes.predict(shape).rows, written(rows.write, value))


@pytest.mark.parametrize("name", SHAPES)
def test_routing_and_centroid_sizes_are_right_within_two_per_cent(name):
    shape = SHAPES[name]
    partitions = shape.shards * shape.partitions_per_shard
    width = shape.dimension + (shape.metric == "ip")
    value = routing.Routing(
        metric=shape.metric,
        algorithm="vamana",
        dimension=shape.dimension,
        cells=Partitions(
            metric=shape.metric,
            dimension=shape.dimension,
            centroids=np.zeros((partitions, width), np.float32),
            shards=(np.arange(partitions) % shape.shards).astype(np.uint32),
            rows=np.zeros(partitions, np.uint64),
            radii=np.zeros(partitions, np.float32),
        ),
        norm_bound=0.0,
        shards=tuple(routing.ShardEntry(i, "", 1, 1, 0, "graph") for i in range(shape.shards)),
        search_width=100,
        probe_partitions=1,
        recall=routing.Recall(10, 100, 1, 1, 1, 1),
        properties={"declaration": "x" * (shape.property_bytes - 12 - 11)},
    )
    told, cells = routing.split(value)
    close(sizes.predict(shape).routing, routing.encode(told))
    close(sizes.predict(shape).partitions, cells)

    paths = tuple(f"{i}".rjust(shape.path_bytes, "p") for i in range(shape.files))
    count = 3 * shape.files
    centroids = centroid.Centroids(
        shape.metric,
        np.zeros((count, shape.dimension), np.float32),
        np.zeros(count, np.uint32),
        np.zeros(count, np.float32),
        paths,
    )
    close(sizes.centroid_size(shape, count), centroid.encode(centroids))


@pytest.mark.parametrize("name", SHAPES)
def test_coverage_size_is_right_within_two_per_cent(name):
    shape = SHAPES[name]
    files = tuple(
        coverage.CoveredFile(
            i,
            f"{i}".rjust(shape.path_bytes, "p"),
            1,
            1,
            3 * shape.row_groups,
            (3,) * shape.row_groups,
            BitMap(),
            BitMap(),
        )
        for i in range(shape.files)
    )

    close(
        sizes.predict(shape).coverage,
        coverage.encode(coverage.Coverage(1, files, ("m" * shape.path_bytes,))),
    )


@pytest.mark.parametrize("ratio", [0.0, 0.001, 0.05, 0.3])
def test_tombstones_size_is_right_within_two_per_cent(ratio):
    shape = IndexShape(1_000_000, 8, tombstone_ratio=ratio)
    members = np.random.default_rng(1).choice(shape.rows, round(shape.rows * ratio), replace=False)

    close(sizes.predict(shape).tombstones, tombstones.encode(BitMap(members.astype(np.uint32))))


def test_a_billion_rows_are_predicted_without_building_any():
    lean = IndexShape(
        10**9, 768, pq_subspaces=48, shards=400, vectors=False, files=10_000, row_groups=4
    )

    size = sizes.predict(lean)

    assert size.file == pytest.approx(400 * (size.shard + size.rows), rel=0.01)
    assert 150e9 < size.file < 210e9
    assert size.shard < 2**31, "a shard's blob stays readable for Java"


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": -1},
        {"shards": 0},
        {"dimension": 0},
        {"metric": "hamming"},
        {"max_degree": 5000},
        {"pq_bits": 9},
        {"rows": 2**33},
    ],
)
def test_shapes_the_formats_cannot_hold_are_refused(wrong):
    with pytest.raises(BadInputError):
        IndexShape(**({"rows": 10, "dimension": 3} | wrong))
