"""Files of every format version stay readable, and today's writer still gives the same bytes.

The files `tests/golden/*.puffin` were written once and are never written again: a change that
alters one breaks the indexes people have. A new format version or blob type gets a new file beside
them. (Frames depend on the zstd release as well; `requirements.lock` pins it.)
"""

import dataclasses
import io
import json

import pytest

from puffin_ann.blobs.changes import column_changes, coverage_changes, tombstone_changes
from puffin_ann.blobs.describe import OURS
from puffin_ann.blobs.shards import columns, delta, graph, hnsw, identities, ivf, rows, rows_v1
from puffin_ann.blobs.version import coverage, directory, partitions, routing
from puffin_ann.puffin import PuffinReader, PuffinWriter
from tests.support.indexes import rows_v1_writer
from tests.support.indexes.blob_samples import (
    LONG_ROWS,
    SAMPLES,
    VALUES,
    same,
    sample_wider,
    written,
)
from tests.support.paths import GOLDEN

FILES = sorted(GOLDEN.glob("*.puffin"))

MODULES = {module.TYPE: module for module in SAMPLES} | {rows_v1.TYPE: rows_v1_writer}
WITHOUT_SHARD = {
    routing.TYPE,
    coverage.TYPE,
    partitions.TYPE,
    directory.TYPE,
    coverage_changes.TYPE,
    tombstone_changes.TYPE,
}
STORED_PLAIN = {
    graph.TYPE,
    rows.TYPE,
    rows_v1.TYPE,
    identities.TYPE,
    delta.TYPE,
    hnsw.TYPE,
    ivf.TYPE,
    columns.TYPE,
    column_changes.TYPE,
}

APART = "routing-1.1.puffin"
WIDER = "routing-1.2.puffin"
ROWS = "identities-1.0.puffin"
ROWS_WITH_IDENTITIES = "rows-2.1.puffin"
ROWS_BEFORE = "rows-2.0.puffin"
COLUMNS = "columns-1.0.puffin"
LATER = {
    "directory-1.0.puffin": (directory.TYPE,),
    "hnsw-1.0.puffin": (hnsw.TYPE,),
    "ivf-1.0.puffin": (ivf.TYPE,),
    ROWS: (rows.TYPE, identities.TYPE),
    ROWS_WITH_IDENTITIES: (rows.TYPE,),
    ROWS_BEFORE: (rows.TYPE,),
    COLUMNS: (columns.TYPE, column_changes.TYPE),
    "changes-1.0.puffin": (coverage_changes.TYPE, tombstone_changes.TYPE),
    APART: (partitions.TYPE, routing.TYPE),
    WIDER: (routing.TYPE,),
}
SINCE = {type for types in LATER.values() for type in types} - {routing.TYPE}
FIRST = tuple(type for type in VALUES if type not in SINCE)
BY_RANGES = "by-ranges-1.2.puffin"
HELD = {
    "every-blob-1.0.puffin": FIRST,
    **LATER,
    BY_RANGES: (graph.TYPE, rows_v1.TYPE, delta.TYPE, hnsw.TYPE, ivf.TYPE),
}
"""The types in each file. A routing blob beside one of partitions has none within."""

ALIGNED = (BY_RANGES, ROWS, ROWS_WITH_IDENTITIES, ROWS_BEFORE, COLUMNS)
"""Files whose blobs are read by ranges."""

BY_EARLIER_WRITERS = {
    "every-blob-1.0.puffin",
    "hnsw-1.0.puffin",
    "ivf-1.0.puffin",
    ROWS_WITH_IDENTITIES,
    ROWS_BEFORE,
}
"""Files whose blobs are written otherwise today, and are only read."""


LONG = {
    BY_RANGES: (rows_v1.TYPE,),
    ROWS_WITH_IDENTITIES: (rows.TYPE,),
    ROWS_BEFORE: (rows.TYPE,),
}
"""The blobs of which some sections have checksums of blocks."""


def values_of(name) -> dict:
    """What the blobs of a file say, by type."""
    own = {routing.TYPE: sample_wider()} if name == WIDER else {}
    if name == ROWS:
        located = dataclasses.replace(LONG_ROWS, identities=None)
        own = {rows.TYPE: located, identities.TYPE: LONG_ROWS.identities}
    return VALUES | dict.fromkeys(LONG.get(name, ()), LONG_ROWS) | own


def write_blobs(name) -> bytes:
    """One blob of each type of a file, and one of Iceberg's own."""
    out, types = io.BytesIO(), HELD[name]
    with PuffinWriter(out, alignment=64 if name in ALIGNED else 1) as writer:
        for type in types:
            module, value = MODULES[type], values_of(name)[type]
            if type == routing.TYPE and partitions.TYPE in types:
                content = routing.encode(routing.split(value)[0])
            elif hasattr(module, "encode"):
                content = module.encode(value)
            else:
                content = written(module.write, value)
            writer.add(
                type,
                content,
                fields=[7],
                snapshot_id=4_200_000_000_000_000_001,
                sequence_number=3,
                properties={"index": "golden"}
                | ({"shard": "0"} if type not in WITHOUT_SHARD else {}),
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
    if module is identities:
        return module.read(io.BytesIO(content), len(LONG_ROWS))
    return module.decode(content) if hasattr(module, "decode") else module.read(io.BytesIO(content))


def test_there_is_a_golden_file_of_every_version():
    assert {file.name for file in FILES} == set(HELD)
    assert set(VALUES) == set(OURS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_blob_ever_written_is_read(file, tmp_path):
    with file.open("rb") as stream:
        reader = PuffinReader(stream, name=file.name)
        for type in HELD[file.name]:
            expected = values_of(file.name)[type]
            (blob,) = reader.find(type, index="golden")
            value = read_blob(type, reader.read(blob), tmp_path / type)
            if file.name == APART and type == routing.TYPE:
                (blob,) = reader.find(partitions.TYPE, index="golden")
                cells = routing.decode_cells(value, reader.read(blob))
                value = dataclasses.replace(value, cells=cells)
            is_array = type == identities.TYPE
            assert (not is_array and value == expected) or same(value, expected)
        (foreign,) = reader.find("apache-datasketches-theta-v1", ndv="17")
        assert reader.read(foreign) == b"not a real sketch"


@pytest.mark.parametrize("name", sorted(HELD.keys() - BY_EARLIER_WRITERS))
def test_todays_writer_gives_the_bytes_of_the_golden_file(name):
    assert write_blobs(name) == (GOLDEN / name).read_bytes()


@pytest.mark.parametrize("name", sorted(BY_EARLIER_WRITERS))
def test_only_blobs_read_by_ranges_are_written_otherwise_today(name):
    stored = PuffinReader(io.BytesIO((GOLDEN / name).read_bytes()))
    written_today = PuffinReader(io.BytesIO(write_blobs(name)))
    for blob, today in zip(stored.metadata.blobs, written_today.metadata.blobs, strict=True):
        is_same = stored.open_stored(blob).read() == written_today.open_stored(today).read()
        assert is_same == (blob.type not in (*HELD[BY_RANGES], rows.TYPE)), blob.type


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_golden_footer_reads_as_json(file):
    data = file.read_bytes()
    size = int.from_bytes(data[-12:-8], "little")

    footer = json.loads(data[-12 - size : -12])
    held = [*HELD[file.name], "apache-datasketches-theta-v1"]
    assert [blob["type"] for blob in footer["blobs"]] == held
    assert all(blob["snapshot-id"] == 4_200_000_000_000_000_001 for blob in footer["blobs"])
