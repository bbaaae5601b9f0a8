"""Files of every format version stay readable, and today's writer still gives the same bytes.

`tests/golden/every-blob-1.0.puffin` was written once and is never written again: a change that
alters it breaks the indexes people have. A new format version gets a new file beside it. (Frames
depend on the zstd release as well; `requirements.lock` pins it.)
"""

import io
import json
from pathlib import Path

import pytest
from blob_samples import same, sample_coverage, sample_graph, sample_routing, sample_rows, written
from pyroaring import BitMap
from test_centroid_delta_describe import sample_centroids, sample_delta

from puffin_ann.blobs import centroid, coverage, delta, graph, routing, rows, tombstones
from puffin_ann.blobs.describe import OURS
from puffin_ann.puffin import PuffinReader, PuffinWriter

GOLDEN = Path(__file__).parents[2] / "golden"
FILES = sorted(GOLDEN.glob("*.puffin"))

VALUES = {
    routing.TYPE: sample_routing("ip"),
    coverage.TYPE: sample_coverage(),
    graph.TYPE: sample_graph(n=60, d=6, r=5, m=4, bits=4, metric="cosine"),
    rows.TYPE: sample_rows(60, shuffled=True),
    tombstones.TYPE: BitMap([0, 5, *range(20, 40)]),
    centroid.TYPE: sample_centroids(),
    delta.TYPE: sample_delta(),
}
MODULES = {m.TYPE: m for m in (routing, coverage, graph, rows, tombstones, centroid, delta)}
STORED_PLAIN = {graph.TYPE, rows.TYPE, delta.TYPE}


def write_every_blob() -> bytes:
    """One blob of every kind, and one of Iceberg's own."""
    out = io.BytesIO()
    with PuffinWriter(out) as writer:
        for type, value in VALUES.items():
            module = MODULES[type]
            content = (
                module.encode(value) if hasattr(module, "encode") else written(module.write, value)
            )
            writer.add(
                type,
                content,
                fields=[7],
                snapshot_id=4_200_000_000_000_000_001,
                sequence_number=3,
                properties={"index": "golden"}
                | ({"shard": "0"} if type not in (routing.TYPE, coverage.TYPE) else {}),
                codec=None if type in STORED_PLAIN else "zstd",
            )
        writer.add(
            "apache-datasketches-theta-v1",
            b"not a real sketch",
            fields=[1],
            snapshot_id=4_200_000_000_000_000_001,
            sequence_number=3,
            properties={"ndv": "17"},
            codec="zstd",
        )
        writer.finish({"created-by": "puffin-ann golden"})
    return out.getvalue()


def read_blob(type, content, folder):
    module = MODULES[type]
    if hasattr(module, "unpack"):
        folder.mkdir()
        module.unpack(io.BytesIO(content), folder)
        return module.open(folder)
    return module.decode(content) if hasattr(module, "decode") else module.read(io.BytesIO(content))


def test_there_is_a_golden_file_of_every_version():
    assert [file.name for file in FILES] == ["every-blob-1.0.puffin"]
    assert set(VALUES) == set(OURS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_blob_ever_written_is_read(file, tmp_path):
    with file.open("rb") as stream:
        reader = PuffinReader(stream, name=file.name)
        for type, expected in VALUES.items():
            (blob,) = reader.find(type, index="golden")
            value = read_blob(type, reader.read(blob), tmp_path / type)
            assert value == expected or same(value, expected)
        (foreign,) = reader.find("apache-datasketches-theta-v1", ndv="17")
        assert reader.read(foreign) == b"not a real sketch"


def test_todays_writer_gives_the_bytes_of_the_golden_file():
    assert write_every_blob() == FILES[-1].read_bytes()


def test_golden_footer_reads_as_json():
    data = FILES[-1].read_bytes()
    size = int.from_bytes(data[-12:-8], "little")

    footer = json.loads(data[-12 - size : -12])
    assert [blob["type"] for blob in footer["blobs"]] == [*VALUES, "apache-datasketches-theta-v1"]
    assert all(blob["snapshot-id"] == 4_200_000_000_000_000_001 for blob in footer["blobs"])
