"""Spoilt blobs, tens of thousands of them: a typed error or a sound value, quickly, every time.

Three ways of spoiling: anywhere (checksums then find it), under right checksums (so that the
decoders themselves must), and in the section table. The counts add up with those of
`test_hostile_puffin.py` to over 100,000; the run prints the sum.
"""

import io
import random

import numpy as np
import pytest
from blob_samples import (
    same,
    sample_centroids,
    sample_coverage,
    sample_delta,
    sample_graph,
    sample_hnsw,
    sample_ivf,
    sample_routing,
    sample_rows,
    written,
)
from mutation import mutate, mutate_sealed, mutate_table, sections_of
from pyroaring import BitMap
from trial import Trial

from puffin_ann.blobs import (
    bitmaps,
    centroid,
    coverage,
    delta,
    graph,
    hnsw,
    ivf,
    kernels,
    partitions,
    routing,
    rows,
    strings,
    tombstones,
)


def read_graph(module):
    def read(data, folder):
        module.unpack(io.BytesIO(data), folder)
        value = module.open(folder)
        sound = value.graph if module is delta else value
        assert sound.neighbours.shape == (sound.rows, sound.max_degree)
        assert sound.neighbours.max(initial=0) < max(sound.rows, 1)
        assert sound.degrees.max(initial=0) <= sound.max_degree
        assert 0 <= sound.entry < max(sound.rows, 1)
        if sound.codes is not None:
            assert sound.codes.max(initial=0) < sound.codebook.shape[1]
        return value

    return read


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
    layer = [one for level in value.levels for one in range(1, level + 1)]
    for at, degree in enumerate(value.upper_degrees):
        assert (value.levels[value.upper_neighbours[at, :degree]] >= layer[at]).all()
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


def read_rows(data, folder):
    value = rows.read(io.BytesIO(data))
    key = np.stack([value.file_ids, value.row_groups, value.offsets])
    assert np.unique(key, axis=1).shape == key.shape, "locators differ"
    return value


def read_coverage(data, folder):
    value = coverage.decode(data)
    for file in value.files:
        assert sum(file.row_groups) == file.rows
        assert not file.deleted or file.deleted.max() < file.rows
    return value


CELLS, CELL_BYTES = routing.split(sample_routing())


def read_apart(data, folder):
    value = routing.decode(data)
    if value.apart != CELLS:
        return value
    whole = routing.with_partitions(value, CELL_BYTES)
    assert whole.probe_partitions <= len(whole.centroids) == CELLS.partitions
    graphs = {one.shard_id for one in whole.shards if one.kind == "graph"}
    assert set(whole.partition_shards.tolist()) <= graphs
    return whole


def read_partitions(data, folder):
    value = partitions.decode(data)
    assert np.isfinite(value.centroids).all()
    assert (value.radii >= 0).all()
    assert len(value.centroids) == len(value.shards) == len(value.rows) == len(value.radii)
    return value


TARGETS = {
    "routing": (routing, routing.encode(sample_routing()), lambda d, f: routing.decode(d)),
    "routing apart": (routing, routing.encode(sample_routing(), CELLS), read_apart),
    "partitions": (partitions, partitions.encode(sample_routing().partitions), read_partitions),
    "coverage": (coverage, coverage.encode(sample_coverage()), read_coverage),
    "graph": (graph, written(graph.write, sample_graph(n=200, r=6)), read_graph(graph)),
    "lean graph": (
        graph,
        written(graph.write, sample_graph(n=300, d=5, r=4, m=5, bits=3, vectors=False)),
        read_graph(graph),
    ),
    "rows": (rows, written(rows.write, sample_rows(300)), read_rows),
    "shuffled rows": (rows, written(rows.write, sample_rows(200, shuffled=True)), read_rows),
    "tombstones": (
        tombstones,
        tombstones.encode(BitMap([*range(20), *range(70_000, 80_000, 3), 2**31])),
        lambda d, f: tombstones.decode(d, 2**32),
    ),
    "centroid": (centroid, centroid.encode(sample_centroids()), lambda d, f: centroid.decode(d)),
    "delta": (delta, written(delta.write, sample_delta()), read_graph(delta)),
    "lists": (ivf, written(ivf.write, sample_ivf(120, d=4)), read_ivf),
    "hnsw": (hnsw, written(hnsw.write, sample_hnsw(120, d=3, links=4)), read_hnsw),
}
RAW, SEALED, TABLE = 2200, 5500, 1600


@pytest.mark.parametrize("name", TARGETS)
def test_blob_spoilt_anywhere_is_refused_or_unharmed(name, tmp_path, record_property):
    _, blob, decode = TARGETS[name]
    rng = random.Random(f"raw {name}")
    original = decode(blob, tmp_path)
    trial = Trial(record_property)

    for _ in range(RAW):
        value = trial.run(decode, mutate(blob, rng), tmp_path)
        if value is not None:
            assert value == original or same(value, original), "checksums find every change"
    trial.finish(refused=0.8)


@pytest.mark.parametrize("name", TARGETS)
def test_blob_spoilt_under_right_checksums_is_refused_or_sound(name, tmp_path, record_property):
    module, blob, decode = TARGETS[name]
    rng = random.Random(f"sealed {name}")
    sections = sections_of(blob, module.KIND)
    trial = Trial(record_property)

    for _ in range(SEALED):
        trial.run(decode, mutate_sealed(sections, module.KIND, rng), tmp_path)
    trial.finish(refused=0.2)


@pytest.mark.parametrize("name", TARGETS)
def test_blob_with_a_spoilt_section_table_is_refused_or_unharmed(name, tmp_path, record_property):
    _, blob, decode = TARGETS[name]
    rng = random.Random(f"table {name}")
    trial = Trial(record_property)

    for _ in range(TABLE):
        trial.run(decode, mutate_table(blob, rng), tmp_path)
    trial.finish(refused=0.5)


def test_spoilt_bitmaps_are_refused_or_sound(record_property):
    rng = random.Random("bitmaps")
    samples = [
        bitmaps.encode(BitMap(members))
        for members in (
            [1],
            range(5, 90_000),
            range(0, 60_000, 2),
            [*range(30), *range(2**17, 2**18, 5), *range(2**20, 2**20 + 9), 2**32 - 1],
        )
    ]
    samples.append(BitMap([1, 2, 3, 2**20]).serialize())
    trial = Trial(record_property)

    for _ in range(12_000):
        value = trial.run(bitmaps.decode, mutate(rng.choice(samples), rng), 2**32, "bits")
        if value is not None:
            members = np.asarray(value.to_array())
            assert len(members) == len(value)
            assert np.all(members[1:] > members[:-1])
    trial.finish(refused=0.3)


def test_spoilt_lists_of_texts_are_refused_or_sound(record_property):
    rng = random.Random("texts")
    sample = strings.encode(["", "a", "ü" * 20, "data/part-0.parquet", "x" * 300])
    trial = Trial(record_property)

    for _ in range(6000):
        value = trial.run(strings.decode, mutate(sample, rng), "texts")
        assert value is None or strings.decode(strings.encode(value), "texts") == value
    trial.finish(refused=0.3)


def test_varints_of_any_bytes_end(record_property):
    rng = random.Random("varints")
    for _ in range(6000):
        pool = rng.choice((bytes(range(256)), b"\x80\xff\x01\0", b"\x80"))
        data = np.frombuffer(bytes(rng.choices(pool, k=rng.randrange(60))), np.uint8)
        values = np.empty(rng.randrange(40), np.int64)
        if kernels.get_varints(data, values) == 0:
            assert values.min(initial=0) >= 0
            packed = np.empty(5 * len(values), np.uint8)
            assert packed[: kernels.put_varints(values, packed)].tobytes() == data.tobytes()
        degrees = np.empty(rng.randrange(8), np.uint16)
        neighbours = np.full((len(degrees), rng.randrange(6)), 99, np.uint32)
        if kernels.get_adjacency(data, 50, degrees, neighbours) == 0:
            assert neighbours.max(initial=0) < 50
    record_property("hostile_cases", 12_000)
