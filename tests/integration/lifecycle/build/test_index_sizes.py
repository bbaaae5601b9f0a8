"""The size calculator against files that builds wrote, from real vectors."""

import io
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from puffin_ann.blobs import graph
from puffin_ann.blobs import rows as rows_blob
from puffin_ann.blobs.sizing import sizes
from puffin_ann.blobs.sizing.shape import IndexShape
from puffin_ann.engines import engine as sharded
from puffin_ann.engines import sizes as engine_sizes
from puffin_ann.engines.sizes import Engine
from puffin_ann.puffin import PuffinReader, PuffinWriter
from puffin_ann.search.index_files import open_puffin
from puffin_ann.search.index_version import load_version
from tests.support import builds
from tests.support.paths import SAMPLE

ROWS = 12_000

pytestmark = pytest.mark.slow


@pytest.fixture(params=[("vamana", "cosine", 64), ("vamana", "l2", 32), ("exact", "ip", 0)])
def built(request, catalog):
    """An index of 12,000 words in order of frequency, from 3 files: table, file, what was asked."""
    algorithm, metric, degree = request.param
    words = pq.read_table(SAMPLE).slice(0, ROWS)
    table = catalog.create_table("demo.words", schema=words.schema)
    for number in range(3):
        table.append(words.slice(number * ROWS // 3, ROWS // 3))
    parameters = {"R": degree, "L": 64} if degree else {}
    declared = builds.declaration(algorithm=algorithm, metric=metric, parameters=parameters)
    builds.build(declared, "run")
    path = table.refresh().metadata.statistics[0].statistics_path
    shape = IndexShape(
        ROWS,
        100,
        metric,
        degree,
        pq_subspaces=25 if degree else 0,
        shards=2,
        partitions_per_shard=2,
        files=3,
    )
    return table, path, shape


def shards(table, path):
    """Of each shard: what the calculator is told by its blobs, its rows and its graph's bytes."""
    version = load_version(table.io, path, builds.INDEX)
    with open_puffin(table.io, path) as reader:
        for shard in version.routing.shards:
            of_it = {"index": builds.INDEX, "shard": str(shard.shard_id)}
            (blob,) = reader.find(graph.TYPE, **of_it)
            (locators,) = reader.find(rows_blob.TYPE, **of_it)
            told = sizes.shape_of(reader.open(blob), reader.open(locators))
            yield told, shard.rows, blob.length, locators.length


def assert_close(predicted, real):
    print(f"{predicted:,} bytes predicted, {real:,} written: {predicted / real - 1:+.2%}")
    assert abs(predicted - real) <= 0.02 * real, f"{predicted} for {real}"


def test_a_file_is_predicted_from_another_shard_of_such_data(built):
    table, path, shape = built
    told, _, _, _ = next(shards(table, path))
    assert told["dimension"] == shape.dimension
    predicted = sizes.predict(IndexShape(**(vars(shape) | told)))
    assert_close(predicted.file, os.path.getsize(path.removeprefix("file://")))


def test_a_file_of_words_is_predicted_from_its_declaration_alone(built):
    _, path, shape = built
    assert_close(sizes.predict(shape).file, os.path.getsize(path.removeprefix("file://")))


def test_shards_are_predicted_from_their_mean_degree_with_vectors_or_without(built):
    table, path, shape = built
    for told, count, graph_bytes, rows_bytes in shards(table, path):
        told = told | {"mean_degree": measured_degree(table, path, graph_bytes)}
        told = vars(shape) | told
        vectors = 4 * count * shape.dimension
        assert_close(sizes.graph_size(IndexShape(**told), count), graph_bytes)
        lean = IndexShape(**(told | {"vectors": False}))
        if shape.max_degree:
            assert_close(sizes.graph_size(lean, count), graph_bytes - vectors)
        assert_close(sizes.rows_size(IndexShape(**told), count), rows_bytes)


def measured_degree(table, path, length):
    """The mean degree of the shard with a graph blob of so many bytes, counted."""
    import tempfile

    with open_puffin(table.io, path) as reader, tempfile.TemporaryDirectory() as folder:
        (blob,) = (
            blob_of_file
            for blob_of_file in reader.find(graph.TYPE)
            if blob_of_file.length == length
        )
        graph.unpack(reader.open(blob), Path(folder))
        return float(graph.open(Path(folder)).degrees.mean())


def test_the_cache_of_a_search_is_predicted(built, tmp_path):
    from puffin_ann.engines import engine

    table, path, shape = built
    with open_puffin(table.io, path) as reader:
        for number, blob in enumerate(reader.find(graph.TYPE)):
            chosen = engine("vamana" if shape.max_degree else "exact")
            (tmp_path / str(number)).mkdir()
            chosen.unpack(reader.open(blob), tmp_path / str(number))
    real = sum(file.stat().st_size for file in tmp_path.glob("[01]/*"))
    assert_close(engine_sizes.predict(shape, Engine()).unpacked, real)


@pytest.mark.parametrize(
    ("algorithm", "metric", "parameters"),
    [
        ("hnsw", "cosine", {"M": 16, "ef_construction": 60}),
        ("hnsw", "l2", {"M": 8, "ef_construction": 60}),
        ("ivf_pq", "cosine", {}),
        ("ivf_pq", "ip", {"lists": 20, "pq_m": 33}),
    ],
)
def test_shards_of_layers_and_lists_are_predicted(algorithm, metric, parameters, tmp_path):
    count = 5000
    words = pq.read_table(SAMPLE, columns=["embedding"]).slice(0, count).column("embedding")
    vectors = np.array(words.to_pylist(), np.float32)
    chosen = sharded(algorithm)
    declared = chosen.check(parameters, 100)
    built = chosen.build(
        vectors,
        metric=metric,
        parameters=declared,
        norm_bound=10.0,
        seed=1,
        threads=2,
        scratch=tmp_path,
    )
    blob = io.BytesIO()
    written = chosen.encode(built, blob)
    folder = tmp_path / "unpacked"
    folder.mkdir()
    chosen.unpack(blob, folder)
    cached = sum(file.stat().st_size for file in folder.glob("*"))

    codes = parameters.get("pq_m", 100) if algorithm == "ivf_pq" else 0
    shape = IndexShape(count, 100, metric, pq_subspaces=codes, max_degree=0, partitions_per_shard=1)
    given = {"lists": parameters.get("lists")}
    engine = Engine(algorithm, links=parameters.get("M", 16), **given)
    predicted = engine_sizes.predict(shape, engine)
    assert_close(predicted.shard, written)
    assert_close(predicted.unpacked, cached)

    file = io.BytesIO()
    with PuffinWriter(file) as writer:
        blob.seek(0)
        writer.add(chosen.blob_type, blob.read(), fields=[1], snapshot_id=1, sequence_number=1)
        writer.finish({})
    of_shape, of_engine = engine_sizes.read_shape(PuffinReader(file))
    told = IndexShape(**{"rows": count, "max_degree": 0, **of_shape})
    predicted = engine_sizes.predict(told, Engine(**of_engine, **given))
    assert abs(predicted.shard - written) <= 0.002 * written
