"""docs/format.md says what the code does: every record field by field, every section by name."""

import importlib
import io
import re

import numpy as np
import pytest

from puffin_ann.blobs import describe
from puffin_ann.blobs.encoding import block_sums
from puffin_ann.blobs.encoding.container import ContainerReader
from puffin_ann.blobs.shards import delta, graph, hnsw, rows
from puffin_ann.blobs.version import centroid, routing
from puffin_ann.puffin import footer, limits
from tests.support.indexes import rows_with_identities
from tests.support.indexes.blob_samples import SAMPLES, sample_rows, sample_wider, written
from tests.support.paths import ROOT

DOCUMENT = (ROOT / "docs" / "format.md").read_text()
TYPES = {
    "u16": "<u2",
    "u32": "<u4",
    "u64": "<u8",
    "i32": "<i4",
    "i64": "<i8",
    "f64": "<f8",
    "bytes4": "|S4",
    "bytes32": "|V32",
}
RECORDS = {
    "puffin_ann.puffin.layout:FOOTER_TAIL",
    "puffin_ann.blobs.encoding.container_layout:HEADER",
    "puffin_ann.blobs.encoding.container_layout:SECTION",
    "puffin_ann.blobs.encoding.container_layout:TRAILER",
    "puffin_ann.blobs.encoding.block_sums:HEAD",
    "puffin_ann.blobs.encoding.block_sums:ENTRY",
    "puffin_ann.blobs.encoding.stored_vectors:FORM",
    "puffin_ann.blobs.shards.identities:HEAD",
    "puffin_ann.blobs.version.routing:HEAD",
    "puffin_ann.blobs.version.routing:SHARD",
    "puffin_ann.blobs.version.gate:RECALL",
    "puffin_ann.blobs.version.gate:WIDER",
    "puffin_ann.blobs.version.routing:APART",
    "puffin_ann.blobs.version.partitions:HEAD",
    "puffin_ann.blobs.version.coverage:HEAD",
    "puffin_ann.blobs.version.coverage:FILE",
    "puffin_ann.blobs.shards.graph:HEAD",
    "puffin_ann.blobs.shards.hnsw:HEAD",
    "puffin_ann.blobs.shards.ivf:HEAD",
    "puffin_ann.blobs.shards.rows:HEAD",
    "puffin_ann.blobs.shards.rows_v1:HEAD",
    "puffin_ann.blobs.version.tombstones:HEAD",
    "puffin_ann.blobs.version.centroid:HEAD",
    "puffin_ann.blobs.version.directory:HEAD",
    "puffin_ann.blobs.version.directory:BLOB",
    "puffin_ann.blobs.changes.coverage_changes:HEAD",
    "puffin_ann.blobs.changes.tombstone_changes:HEAD",
    "puffin_ann.blobs.changes.tombstone_changes:SHARD",
    "puffin_ann.blobs.shards.columns:HEAD",
    "puffin_ann.blobs.shards.columns:COLUMN",
    "puffin_ann.blobs.shards.columns:BLOCK",
    "puffin_ann.blobs.changes.column_changes:HEAD",
}


def tables(marker):
    """The table after each `<!-- marker: name -->`, as {name: list of rows of cells}."""
    pattern = rf"<!-- {marker}: (\S+) -->\n\n((?:\|.*\n)+)"
    return {
        name: [
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for line in body.splitlines()
        ]
        for name, body in re.findall(pattern, DOCUMENT)
    }


LAYOUTS = tables("layout")
SECTIONS = tables("sections")


def test_every_record_of_the_code_stands_in_the_document():
    assert set(LAYOUTS) == RECORDS


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_record_has_the_fields_types_and_offsets_of_the_document(name):
    module, attribute = name.split(":")
    layout: np.dtype = getattr(importlib.import_module(module), attribute)
    header, _, *body = LAYOUTS[name]

    assert header == ["Field", "Type", "Offset", "Unit", "Allowed", "May be ignored by"]
    documented = [(row[0].strip("`"), TYPES[row[1]], int(row[2])) for row in body]
    in_code = [(n, layout.fields[n][0].str, layout.fields[n][1]) for n in layout.names]
    assert documented == in_code
    assert all(row[-1] for row in body), "who may ignore a field is always said"
    assert layout.itemsize == sum(layout.fields[n][0].itemsize for n in layout.names)


EVERYTHING = {
    **SAMPLES,
    routing: lambda: routing.encode(routing.split(sample_wider())[0]),
    rows: lambda: written(rows_with_identities.write, sample_rows(shuffled=True, cells=True)),
}
"""Those of which some sections may be missing, with all of them."""


@pytest.mark.parametrize("module", EVERYTHING, ids=lambda module: module.KIND)
def test_blob_has_the_sections_of_the_document_in_its_order(module):
    documented = [row[0].strip("`") for row in SECTIONS[module.__name__][2:]]
    reader = ContainerReader(io.BytesIO(EVERYTHING[module]()), module.KIND, majors=(1, 2))

    if module is delta:
        assert list(reader.sections) == ["head", "prop", "vecs", *documented]
    else:
        assert list(reader.sections) == documented


@pytest.mark.parametrize("module", EVERYTHING, ids=lambda module: module.KIND)
def test_length_of_head_is_that_of_the_document(module):
    if module is delta:
        return
    documented = int(SECTIONS[module.__name__][2][2].split()[0])

    assert documented == module.HEAD.itemsize


def test_types_and_kinds_are_those_of_the_document():
    documented = dict(
        re.findall(r"^\| `(puffin-ann-[\w-]+-v[12])` \| `(\w{4})` \|", DOCUMENT, re.M)
    )

    assert documented == {type: kind for type, (kind, _) in describe.OURS.items()}


def test_limits_are_those_of_the_document():
    assert "1 to 65,536" in DOCUMENT
    assert graph.MAX_DIMENSION == graph.MAX_BLOCK_NODES == centroid.MAX_DIMENSION == 65_536
    assert "0 to 4,096" in DOCUMENT
    assert graph.MAX_DEGREE == 4096
    assert "1 to 1,048,576" in DOCUMENT
    assert rows.MAX_BLOCK_ROWS == 1_048_576
    assert "128 times the blob's length and 64 MiB" in DOCUMENT
    assert hnsw.EXPANSION == graph.EXPANSION
    assert "we write 16,384 | a power of two, 4,096 to 16,777,216" in DOCUMENT
    sizes = (block_sums.BLOCK_BYTES, block_sums.SMALLEST_BLOCK, block_sums.LARGEST_BLOCK)
    assert sizes == (16_384, 4_096, 16_777_216)
    assert "16 MiB and 256 times" in DOCUMENT
    assert (limits.SMALL, limits.RATIO) == (16 << 20, 256)
    assert "1 GiB or four times" in DOCUMENT
    assert (limits.LARGE, limits.RATIO_OF_LARGE) == (1 << 30, 4)
    assert "1 MiB and 64 times" in DOCUMENT
    assert (footer.SMALL_PAYLOAD, footer.PAYLOAD_RATIO) == (1 << 20, 64)
    assert (graph.EXPANSION, graph.SMALL) == (128, 64 << 20)
