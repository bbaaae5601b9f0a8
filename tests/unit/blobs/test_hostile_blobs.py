"""Corrupted blobs, over ten thousand of them: a typed error or a sound value, quickly, every time.

Three ways of corrupting: anywhere (checksums then find it), under right checksums (so that the
decoders themselves must), and in the section table. The run prints how many there were;
`make fuzz` goes on from there, with the same ways and the same checks of what is decoded.
"""

import random

import numpy as np
import pytest
from pyroaring import BitMap

from puffin_ann.blobs.changes import column_changes, coverage_changes, tombstone_changes
from puffin_ann.blobs.encoding import bitmaps, kernels, strings
from puffin_ann.blobs.shards import columns, delta, graph, hnsw, identities, ivf, rows, rows_v1
from puffin_ann.blobs.version import centroid, coverage, directory, partitions, routing, tombstones
from tests.support.falsified.checked_decoders import (
    IDENTIFIED,
    read_centroid,
    read_column_changes,
    read_columns,
    read_coverage,
    read_coverage_changes,
    read_delta,
    read_directory,
    read_graph,
    read_hnsw,
    read_identities,
    read_ivf,
    read_partitions,
    read_routing,
    read_rows,
    read_tombstone_changes,
    read_tombstones,
)
from tests.support.falsified.decoding_limits import Trial
from tests.support.falsified.mutation import mutate, mutate_sealed, mutate_table, sections_of
from tests.support.indexes import rows_v1_writer, rows_with_identities
from tests.support.indexes.blob_samples import (
    same,
    sample_centroids,
    sample_column_changes,
    sample_columns,
    sample_coverage,
    sample_coverage_changes,
    sample_delta,
    sample_directory,
    sample_graph,
    sample_hnsw,
    sample_ivf,
    sample_routing,
    sample_rows,
    sample_tombstone_changes,
    written,
)

NAMING, CELL_BYTES = routing.split(sample_routing())


def read_apart(data, folder):
    value = routing.decode(data)
    if value.cells != NAMING.cells:
        return value
    cells = routing.decode_cells(value, CELL_BYTES)
    assert value.probe_partitions <= cells.count == NAMING.cells.count
    assert set(cells.shards.tolist()) <= set(value.graph_ids)
    return value


TARGETS = {
    "routing": (routing, routing.encode(sample_routing()), read_routing),
    "routing apart": (routing, routing.encode(NAMING), read_apart),
    "partitions": (partitions, partitions.encode(sample_routing().cells), read_partitions),
    "directory": (directory, directory.encode(sample_directory()), read_directory),
    "coverage": (coverage, coverage.encode(sample_coverage()), read_coverage),
    "graph": (graph, written(graph.write, sample_graph(n=200, r=6)), read_graph),
    "lean graph": (
        graph,
        written(graph.write, sample_graph(n=300, d=5, r=4, m=5, bits=3, vectors=False)),
        read_graph,
    ),
    "rows": (rows, written(rows.write, sample_rows(300)), read_rows),
    "identities": (
        identities,
        written(identities.write, sample_rows(IDENTIFIED).identities),
        read_identities,
    ),
    "rows with identities": (
        rows,
        written(rows_with_identities.write, sample_rows(100)),
        read_rows,
    ),
    "rows by cells": (
        rows,
        written(rows.write, sample_rows(150, shuffled=True, cells=True)),
        read_rows,
    ),
    "shuffled rows": (rows, written(rows.write, sample_rows(200, shuffled=True)), read_rows),
    "rows of version 1": (
        rows_v1,
        written(rows_v1_writer.write, sample_rows(200, shuffled=True, cells=True)),
        read_rows,
    ),
    "tombstones": (
        tombstones,
        tombstones.encode(BitMap([*range(20), *range(70_000, 80_000, 3), 2**31])),
        read_tombstones,
    ),
    "columns": (columns, written(columns.write, sample_columns(300)), read_columns),
    "column changes": (
        column_changes,
        written(column_changes.write, sample_column_changes()),
        read_column_changes,
    ),
    "coverage changes": (
        coverage_changes,
        coverage_changes.encode(sample_coverage_changes()),
        read_coverage_changes,
    ),
    "tombstone changes": (
        tombstone_changes,
        tombstone_changes.encode(sample_tombstone_changes()),
        read_tombstone_changes,
    ),
    "centroid": (centroid, centroid.encode(sample_centroids()), read_centroid),
    "delta": (delta, written(delta.write, sample_delta()), read_delta),
    "lists": (ivf, written(ivf.write, sample_ivf(120, d=4)), read_ivf),
    "hnsw": (hnsw, written(hnsw.write, sample_hnsw(120, d=3, links=4)), read_hnsw),
}
RAW, SEALED, TABLE = 220, 550, 160


@pytest.mark.parametrize("name", TARGETS)
def test_blob_corrupted_anywhere_is_refused_or_unharmed(name, tmp_path, record_property):
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
def test_blob_corrupted_under_right_checksums_is_refused_or_sound(name, tmp_path, record_property):
    module, blob, decode = TARGETS[name]
    rng, major = random.Random(f"sealed {name}"), getattr(module, "MAJOR", 1)
    sections = sections_of(blob, module.KIND)
    trial = Trial(record_property)

    for _ in range(SEALED):
        trial.run(decode, mutate_sealed(sections, module.KIND, rng, major), tmp_path)
    trial.finish(refused=0.2)


@pytest.mark.parametrize("name", TARGETS)
def test_blob_with_a_corrupted_section_table_is_refused_or_unharmed(
    name, tmp_path, record_property
):
    _, blob, decode = TARGETS[name]
    rng = random.Random(f"table {name}")
    trial = Trial(record_property)

    for _ in range(TABLE):
        trial.run(decode, mutate_table(blob, rng), tmp_path)
    trial.finish(refused=0.5)


def test_corrupted_bitmaps_are_refused_or_sound(record_property):
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

    for _ in range(1_200):
        value = trial.run(bitmaps.decode, mutate(rng.choice(samples), rng), 2**32, "bits")
        if value is not None:
            members = np.asarray(value.to_array())
            assert len(members) == len(value)
            assert np.all(members[1:] > members[:-1])
    trial.finish(refused=0.3)


def test_corrupted_lists_of_texts_are_refused_or_sound(record_property):
    rng = random.Random("texts")
    sample = strings.encode(["", "a", "ü" * 20, "data/part-0.parquet", "x" * 300])
    trial = Trial(record_property)

    for _ in range(600):
        value = trial.run(strings.decode, mutate(sample, rng), "texts")
        assert value is None or strings.decode(strings.encode(value), "texts") == value
    trial.finish(refused=0.3)


def test_varints_of_any_bytes_end(record_property):
    rng = random.Random("varints")
    for _ in range(600):
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
    record_property("hostile_cases", 1200)
