"""Blobs whose heads claim far more than they hold: refused without taking what they claim."""

import io
import tracemalloc
import zlib

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pyroaring import BitMap

from puffin_ann.blobs.encoding import bitmaps, container, kernels, strings
from puffin_ann.blobs.encoding.container import HEADER, ContainerReader, ContainerWriter
from puffin_ann.blobs.shards import graph, rows
from puffin_ann.blobs.version import routing
from puffin_ann.errors import (
    BlobFormatError,
    ChecksumError,
    FormatError,
    LocalCopyError,
    OutputLimitError,
    UnsupportedVersionError,
)
from tests.support.falsified.mutation import assemble, sections_of
from tests.support.indexes import rows_v1_writer
from tests.support.indexes.blob_samples import sample_graph, sample_routing, sample_rows, written

MEMORY = 8 << 20


def head_with(module, blob, **changes):
    """The blob with other values in its head, under right checksums."""
    sections = sections_of(blob, module.KIND)
    head = np.frombuffer(sections["head"], module.HEAD).copy()
    for name, value in changes.items():
        head[name] = value
    return assemble(sections | {"head": head.tobytes()}, module.KIND)


def refused_in_little_memory(error, call):
    tracemalloc.start()
    try:
        with pytest.raises(error):
            call()
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "claims",
    [
        {"rows": 2**32 - 1},
        {"rows": 2**32},
        {"rows": 2**63},
        {"rows": 100_000, "max_degree": 4096},
        {"rows": 500_000},
        {"dimension": 65_536},
        {"dimension": 2**32 - 1},
        {"dimension": 0},
        {"max_degree": 2**32 - 1},
        {"max_degree": 3},
        {"max_degree": 0, "flags": 0},
        {"entry": 500},
        {"metric": 0},
        {"metric": 4},
        {"alpha": np.nan},
        {"block_nodes": 0},
        {"block_nodes": 2**32 - 1},
        {"block_nodes": 100},
        {"pq_subspaces": 2**32 - 1},
        {"pq_subspaces": 0},
        {"pq_subspaces": 4},
        {"pq_bits": 2**32 - 1},
        {"pq_bits": 9},
        {"pq_bits": 0},
        {"pq_width": 2**32 - 1},
        {"pq_width": 0},
    ],
    ids=str,
)
def test_graph_that_claims_what_it_is_not_is_refused(tmp_path, claims):
    blob = head_with(graph, written(graph.write, sample_graph()), **claims)

    refused_in_little_memory(FormatError, lambda: graph.unpack(io.BytesIO(blob), tmp_path))
    written_bytes = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert written_bytes < MEMORY


def test_graph_of_empty_lists_that_would_fill_the_disk_is_refused(tmp_path):
    """A few kilobytes of frames can truthfully hold a million nodes without neighbours."""
    nodes, per_block = 2_000_000, 65_536
    frame = zstandard.ZstdCompressor().compress(bytes(per_block))
    blocks = -(-nodes // per_block)
    sections = sections_of(written(graph.write, sample_graph(m=0, vectors=False)), graph.KIND)
    sections["adja"] = frame * blocks
    sections["adjt"] = (np.arange(blocks + 1) * len(frame)).astype("<u8").tobytes()
    blob = assemble(sections, graph.KIND)
    blob = head_with(graph, blob, rows=nodes, max_degree=4096, block_nodes=per_block, entry=0)

    refused_in_little_memory(OutputLimitError, lambda: graph.unpack(io.BytesIO(blob), tmp_path))


@pytest.mark.parametrize(
    "claims",
    [
        {"rows": 2**32 - 1},
        {"rows": 2**32 - 1, "block_rows": 1 << 20},
        {"rows": 65_536},
        {"rows": 999},
        {"block_rows": 0},
        {"block_rows": 2**32 - 1},
        {"identity": 3},
    ],
    ids=str,
)
def test_rows_that_claim_what_they_are_not_are_refused(claims):
    blob = head_with(rows, written(rows.write, sample_rows()), **claims)

    refused_in_little_memory(FormatError, lambda: rows.read(io.BytesIO(blob)))


@pytest.mark.parametrize(
    "claims",
    [
        {"partitions": 2**32 - 1},
        {"partitions": 2**32 - 1, "centroid_dimension": 2**32 - 1},
        {"centroid_dimension": 4},
        {"shards": 2**32 - 1},
        {"shards": 2},
        {"probe_partitions": 7},
        {"norm_bound": np.inf},
        {"metric": 9},
    ],
    ids=str,
)
def test_routing_that_claims_what_it_is_not_is_refused(claims):
    blob = head_with(routing, routing.encode(sample_routing()), **claims)

    refused_in_little_memory(BlobFormatError, lambda: routing.decode(blob))


def adjacency(content: bytes, **changes):
    """A graph of 4 rows whose one block of adjacency holds `content`."""
    sections = sections_of(written(graph.write, sample_graph(n=4, r=3, m=0)), graph.KIND)
    frame = changes.get("frame", zstandard.compress(content))
    sections["adja"] = frame
    sections["adjt"] = np.array(changes.get("table", [0, len(frame)]), "<u8").tobytes()
    return assemble(sections, graph.KIND)


BLOCKS = {
    "neighbour out of range": (adjacency(b"\1\0\0\0" + b"\4"), "neighbour"),
    "neighbour out of range by gaps": (adjacency(b"\2\0\0\0" + b"\3\0"), "neighbour"),
    "more neighbours than the maximum": (adjacency(b"\4\0\0\0" + b"\0\0\0\0"), "maximum"),
    "varint without end": (adjacency(b"\x80" * 72), "longer"),
    "varint longer than needed": (adjacency(b"\x80\0\0\0\0"), "longer"),
    "varint cut off": (adjacency(b"\1\0\0\0\x80"), "within a varint"),
    "too few varints": (adjacency(b"\1\0\0"), "within a varint"),
    "bytes left over": (adjacency(b"\0\0\0\0\0"), "follow"),
    "empty block": (adjacency(b""), "within a varint"),
    "offsets go backwards": (adjacency(b"\0\0\0\0", table=[9, 0]), "ascend"),
    "offsets do not begin at 0": (adjacency(b"\0\0\0\0", table=[1, 13]), "ascend"),
    "offsets end beyond the section": (adjacency(b"\0\0\0\0", table=[0, 1000]), "end where"),
    "more offsets than blocks": (adjacency(b"\0\0\0\0", table=[0, 5, 13]), "bytes, not"),
    "no frame": (adjacency(b"", frame=b"x" * 9), "zstd"),
    "frame and garbage": (adjacency(b"", frame=zstandard.compress(bytes(4)) + b"x"), "zstd"),
    "more than a block can hold": (adjacency(bytes(73)), "limit is 72"),
    "bomb": (adjacency(b"", frame=zstandard.compress(bytes(1 << 25))), "limit is 72"),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_adjacency_that_is_wrong_is_refused_and_says_why(tmp_path, name):
    blob, message = BLOCKS[name]

    with pytest.raises(FormatError, match=message):
        graph.unpack(io.BytesIO(blob), tmp_path)
    with pytest.raises(LocalCopyError):
        graph.open(tmp_path)


def with_steps(steps, write, major):
    """A rows blob of two rows whose locators are told by steps that no writer makes."""
    value = rows.Rows(*(np.array([0, 1], np.uint32) for _ in range(3)))
    sections = sections_of(written(write, value), rows.KIND)
    packed = np.empty(100, np.uint8)
    used = kernels.put_varints(np.array(steps, np.int64), packed)
    sections["locs"] = zstandard.compress(packed[:used].data)
    sections["loct"] = np.array([0, len(sections["locs"])], "<u8").tobytes()
    return assemble(sections, rows.KIND, major)


@pytest.mark.parametrize(
    "steps",
    [
        [2**33, 0, 0, 0, 0, 0],
        [1, 0, 0, 0, 0, 0],
        [0, 0, 4, 5, 0, 0],
        [0, 0, 2**33 - 2, 2, 0, 0],
        [0, 0, 0, 0, 2**34, 0],
    ],
)
def test_locators_beyond_their_width_are_refused(steps):
    with pytest.raises(BlobFormatError, match="32 bits"):
        rows.read(io.BytesIO(with_steps(steps, rows.write, 2)))


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([5, 0, 1, 0, 0, 2**32], "32 bits"),
        ([2**32, 0, 0, 0, 0, 0], "32 bits"),
        ([0, 2**34, 0, 0, 0, 0], "32 bits"),
    ],
)
def test_locators_of_version_1_beyond_their_width_are_refused(steps, message):
    with pytest.raises(BlobFormatError, match=message):
        rows.read(io.BytesIO(with_steps(steps, rows_v1_writer.write, 1)))


def test_permutation_that_names_an_ordinal_twice_is_refused():
    value = rows.Rows(*(np.array([1, 0], np.uint32) for _ in range(3)))
    sections = sections_of(written(rows_v1_writer.write, value), rows.KIND)
    sections["perm"] = zstandard.compress(b"\2\0")
    sections["pert"] = np.array([0, len(sections["perm"])], "<u8").tobytes()

    with pytest.raises(BlobFormatError, match="permutation"):
        rows.read(io.BytesIO(assemble(sections, rows.KIND, 1)))


def test_unknown_sections_are_skipped_and_longer_heads_read():
    sections = sections_of(routing.encode(sample_routing()), routing.KIND)
    sections["head"] += b"a later field"
    later = assemble({"xnew": b"anything"} | sections | {"xyz1": b""}, routing.KIND)

    assert routing.decode(later).algorithm == "vamana"


def test_later_minor_version_is_read_and_later_major_version_refused():
    def version(major, minor):
        blob = bytearray(routing.encode(sample_routing()))
        blob[8:10] = major.to_bytes(2, "little")
        blob[10:12] = minor.to_bytes(2, "little")
        table = len(blob) - 32 - 32 * 10
        checked = blob[: HEADER.itemsize] + blob[table:-12]
        blob[-12:-8] = zlib.crc32(checked).to_bytes(4, "little")
        return bytes(blob)

    assert routing.decode(version(1, 7)).algorithm == "vamana"
    with pytest.raises(UnsupportedVersionError, match=r"2\.0.*knows 1"):
        routing.decode(version(2, 0))


def test_checksum_names_the_section_that_is_damaged():
    blob = bytearray(routing.encode(sample_routing()))
    section = ContainerReader(io.BytesIO(bytes(blob)), routing.KIND).sections["cent"]
    blob[section.offset] ^= 1

    with pytest.raises(ChecksumError, match="section cent"):
        routing.decode(bytes(blob))


def test_sections_at_odd_places_are_refused(monkeypatch):
    """Whoever maps a blob into memory relies on where its numbers stand."""
    out = io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr(container, "ALIGNMENT", 1)
        writer = ContainerWriter(out, "rows")
        writer.put("one", b"1")
        writer.put("two", b"22")
        writer.finish()

    with pytest.raises(BlobFormatError, match="section 'two' begins at 17, no multiple of 8"):
        ContainerReader(io.BytesIO(out.getvalue()), "rows")


def test_container_with_too_many_sections_is_refused():
    out = io.BytesIO()
    writer = ContainerWriter(out, "test")
    for i in range(257):
        writer.put(f"s{i:03}", b"")
    writer.finish()

    with pytest.raises(BlobFormatError, match="257 sections"):
        ContainerReader(io.BytesIO(out.getvalue()), "test")


@settings(max_examples=300, derandomize=True)
@given(hnp.arrays(np.int64, st.integers(0, 200), elements=st.integers(0, 2**35 - 1)))
def test_varints_come_back(values):
    packed = np.empty(5 * len(values), np.uint8)
    used = kernels.put_varints(values, packed)
    back = np.empty(len(values), np.int64)

    assert kernels.get_varints(packed[:used], back) == 0
    np.testing.assert_array_equal(back, values)


@settings(max_examples=300, deadline=2000, derandomize=True)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_texts_come_back(texts):
    assert strings.decode(strings.encode(texts), "texts") == tuple(texts)


@settings(max_examples=300, deadline=2000, derandomize=True)
@given(
    st.sets(st.integers(0, 2**32 - 1), max_size=200),
    st.lists(st.tuples(st.integers(0, 2**20), st.integers(1, 9000)), max_size=4),
)
def test_bitmaps_come_back(members, runs):
    bitmap = BitMap(members)
    for start, length in runs:
        bitmap.add_range(start, start + length)

    assert bitmaps.decode(bitmaps.encode(bitmap), 2**32, "bits") == bitmap


@settings(max_examples=100, deadline=2000, derandomize=True)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_by_every_decoder(data):
    for decode in (
        routing.decode,
        lambda d: rows.read(io.BytesIO(d)),
        lambda d: bitmaps.decode(b"\x3a\x30\0\0" + d, 1000, "bits"),
    ):
        try:
            decode(data)
        except FormatError:
            continue
        assert decode is not routing.decode
