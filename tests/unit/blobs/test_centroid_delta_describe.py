"""Centroid and delta blobs, and what `inspect` is told of every kind."""

import dataclasses
import io
import struct

import numpy as np
import pytest

from puffin_ann.blobs.changes import column_changes
from puffin_ann.blobs.describe import OURS, describe
from puffin_ann.blobs.encoding.container import ContainerReader
from puffin_ann.blobs.shards import columns, delta, graph, hnsw, identities, ivf, rows, rows_v1
from puffin_ann.blobs.version import centroid, routing
from puffin_ann.errors import BlobFormatError, FormatError
from tests.support.indexes.blob_samples import (
    SAMPLES,
    same,
    sample_apart,
    sample_centroids,
    sample_delta,
    sample_routing,
    written,
)


@pytest.mark.parametrize("dimension", [1, 3, 4])
def test_centroids_come_back(dimension):
    value = sample_centroids(dimension)

    assert same(centroid.decode(centroid.encode(value)), value)


def test_centroids_of_no_file_come_back():
    empty = centroid.Centroids(
        "l2", np.zeros((0, 2), np.float32), np.zeros(0, np.uint32), np.zeros(0, np.float32), ()
    )

    assert same(centroid.decode(centroid.encode(empty)), empty)


def test_bytes_from_the_head_on_are_the_structure_of_the_paper():
    value = sample_centroids()
    data = centroid.encode(value)
    start = ContainerReader(io.BytesIO(data), centroid.KIND).sections["head"].offset

    magic, version, d, entries, files, metric, entry_size, paths = struct.unpack_from(
        "<4s7I", data, start
    )
    assert (magic, version, d, entries, files, metric) == (b"ANNI", 1, 3, 4, 3, 2)
    second = struct.unpack_from("<3fIf", data, start + 32 + entry_size)
    assert second == (*value.centroids[1].tolist(), 1, 0.5)
    length = struct.unpack_from("<I", data, start + paths)[0]
    assert data[start + paths + 4 :][:length] == b"data/a.parquet"


@pytest.mark.parametrize(
    "wrong",
    [
        {"files": np.array([0, 1, 1, 3], np.uint32)},
        {"files": np.array([0, 1], np.uint32)},
        {"max_distances": np.array([0, np.nan, 1, 1], np.float32)},
        {"max_distances": np.array([0, -1, 1, 1], np.float32)},
    ],
)
def test_centroids_that_contradict_themselves_are_not_written(wrong):
    with pytest.raises(BlobFormatError):
        centroid.encode(dataclasses.replace(sample_centroids(), **wrong))


def test_delta_comes_back_memory_mapped(tmp_path):
    value = sample_delta()

    delta.unpack(io.BytesIO(written(delta.write, value)), tmp_path)

    assert same(delta.open(tmp_path), value)
    assert same(graph.open(tmp_path), value.graph), "a delta is searched as any shard"


def test_delta_without_a_partition_for_each_row_is_refused():
    value = dataclasses.replace(sample_delta(), cells=np.zeros(59, np.uint32))

    with pytest.raises(BlobFormatError, match="cells"):
        delta.write(value, io.BytesIO())


def test_blob_of_another_kind_is_refused():
    with pytest.raises(BlobFormatError, match="delt"):
        graph.unpack(io.BytesIO(written(delta.write, sample_delta())), None)


def test_every_type_we_write_is_described():
    assert {module.TYPE for module in SAMPLES} | {rows_v1.TYPE} == set(OURS)


BY_RANGES = (graph, delta, hnsw, ivf, identities, columns, column_changes)


@pytest.mark.parametrize("module", SAMPLES, ids=lambda module: module.KIND)
def test_description_names_head_fields_and_sections(module):
    data = SAMPLES[module]()

    told = describe(module.TYPE, io.BytesIO(data))

    assert told["known"]
    by_ranges = "1.2" if module in BY_RANGES else "1.0"
    assert told["version"] == ("2.1" if module is rows else by_ranges)
    assert told["bytes"] == len(data)
    assert "head" in [section["kind"] for section in told["sections"]]
    assert all(isinstance(value, int | float | str) for value in told["head"].values())


def test_description_of_a_graph_has_its_figures():
    told = describe(graph.TYPE, io.BytesIO(SAMPLES[graph]()))

    assert told["head"]["rows"] == 500
    assert told["head"]["metric"] == "l2"
    assert told["head"]["max_degree"] == 8


def test_description_does_not_read_large_sections():
    class Counting(io.BytesIO):
        got = 0

        def read(self, size=-1):
            data = super().read(size)
            self.got += len(data)
            return data

    source = Counting(SAMPLES[graph]())
    describe(graph.TYPE, source)

    assert source.got < 1000


@pytest.mark.parametrize(
    ("type", "known", "note"),
    [
        ("flockdb-ann-index-v1", False, "paper"),
        ("ann-diskann-v1", False, "paper"),
        ("apache-datasketches-theta-v1", True, "sketch"),
        ("deletion-vector-v1", True, "deleted"),
        ("something-else", False, "unknown"),
    ],
)
def test_blobs_of_others_are_recognised_but_not_decoded(type, known, note):
    told = describe(type, io.BytesIO(b"anything"))

    assert told["known"] is known
    assert note in told["note"]


def test_broken_blob_of_ours_is_an_error():
    with pytest.raises(FormatError):
        describe(graph.TYPE, io.BytesIO(b"anything"))


@pytest.mark.parametrize(
    ("written_down", "told"),
    [
        ('[{"algorithm": "hnsw", "recall": 0.97}]', [{"algorithm": "hnsw", "recall": 0.97}]),
        ("[]", []),
        ("[1]", None),
        ("not JSON", None),
        pytest.param("[" * 100_000, None, id="deeply nested"),
    ],
)
def test_trials_of_engines_are_told_where_they_can_be_understood(written_down, told):
    value = dataclasses.replace(sample_routing(), properties={"trials": written_down})
    described = describe(routing.TYPE, io.BytesIO(routing.encode(value)))
    assert described.get("trials") == told
    assert described["shards"]


def test_description_of_a_routing_blob_tells_of_partitions_in_another():
    data, _ = sample_apart()

    told = describe(routing.TYPE, io.BytesIO(data))

    assert told["version"] == "1.1"
    assert (told["head"]["partitions"], told["head"]["probe_partitions"]) == (6, 3)
    assert len(told["shards"]) == 3
