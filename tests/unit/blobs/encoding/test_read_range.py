"""A part of a section is read and verified without the rest; no table of checksums is trusted."""

import io
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.blobs.encoding import block_sums
from puffin_ann.blobs.encoding.block_sums import BLOCK_BYTES, ENTRY, HEAD, BlockSums, Summed
from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter, length_of
from puffin_ann.blobs.shards import graph, identities
from puffin_ann.errors import BlobFormatError, ChecksumError, FormatError
from puffin_ann.puffin import PuffinReader, PuffinWriter
from tests.support.indexes.blob_samples import LONG_ROWS, same, sample_graph, written

RNG = np.random.default_rng(1)
LONG = RNG.bytes(5 * BLOCK_BYTES + 700)
LONGER = RNG.bytes(9 * BLOCK_BYTES)
SHORT = RNG.bytes(100)
SECTIONS = {"head": SHORT, "long": LONG, "more": LONGER, "tiny": b""}


def blob_of(sections=SECTIONS, *, by_ranges=True, table=None):
    """A blob; `table` stands in the place of its section of checksums."""
    out = io.BytesIO()
    writer = ContainerWriter(out, "test", by_ranges=by_ranges)
    if table is not None:
        writer = ContainerWriter(out := io.BytesIO(), "test")
    for kind, data in sections.items():
        writer.put(kind, data)
    if table is not None:
        writer.put(block_sums.KIND, table)
    assert writer.finish() == len(out.getvalue())
    return out.getvalue()


def reader_of(blob):
    return ContainerReader(io.BytesIO(blob), "test")


def damaged(blob, kind, at):
    section = reader_of(blob).sections[kind]
    corrupted = bytearray(blob)
    corrupted[section.offset + at] ^= 1
    return bytes(corrupted)


class Watched(io.BytesIO):
    """Counts reads, and the bytes they gave."""

    def __init__(self, data):
        super().__init__(data)
        self.reads = []

    def read(self, size=-1):
        data = super().read(size)
        self.reads.append(len(data))
        return data


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from(["head", "long", "more", "tiny"]), st.booleans(), st.data())
def test_any_range_is_that_part_of_the_section(kind, by_ranges, data):
    content = SECTIONS[kind]
    start = data.draw(st.integers(0, len(content)))
    stop = data.draw(st.integers(start, len(content)))

    assert (
        reader_of(blob_of(by_ranges=by_ranges)).read_range(kind, start, stop)
        == (content[start:stop])
    )


@pytest.mark.parametrize("range_", [(-1, 5), (5, 4), (0, len(LONG) + 1), (2**63, 2**64)])
def test_a_range_that_is_not_there_is_refused(range_):
    with pytest.raises(BlobFormatError, match="section long has"):
        reader_of(blob_of()).read_range("long", *range_)


def test_only_the_blocks_of_a_range_are_read_and_at_once():
    stream = Watched(blob_of())
    reader = ContainerReader(stream, "test")
    assert reader.block_sums is not None
    stream.reads.clear()

    reader.read_range("long", BLOCK_BYTES - 1, 2 * BLOCK_BYTES + 1)
    reader.read_range("long", 5 * BLOCK_BYTES, 5 * BLOCK_BYTES + 1)

    assert stream.reads == [3 * BLOCK_BYTES, 700]


@pytest.mark.parametrize("at", [0, BLOCK_BYTES - 1, 3 * BLOCK_BYTES, len(LONG) - 1])
def test_a_wrong_byte_is_found_in_its_block_and_nowhere_else(at):
    reader = reader_of(damaged(blob_of(), "long", at))
    block = at // BLOCK_BYTES

    for number in range(block_sums.count_of(len(LONG))):
        start = number * BLOCK_BYTES
        stop = min(start + BLOCK_BYTES, len(LONG))
        if number == block:
            message = f"test blob: checksum of block {block} of section long is wrong"
            with pytest.raises(ChecksumError, match=message):
                reader.read_range("long", start + 1, start + 2)
        else:
            assert reader.read_range("long", start, stop) == LONG[start:stop]
    with pytest.raises(ChecksumError, match="section long"):
        reader.verify()


@pytest.mark.parametrize("kind", ["head", "long"])
def test_without_checksums_of_blocks_the_whole_section_is_verified(kind):
    end = len(SECTIONS[kind]) - 1
    reader = reader_of(damaged(blob_of(by_ranges=False), kind, end))

    with pytest.raises(ChecksumError, match=f"section {kind}"):
        reader.read_range(kind, 0, 1)


def test_damage_to_the_checksums_themselves_is_found_before_they_are_used():
    reader = reader_of(damaged(blob_of(), block_sums.KIND, 30))
    with pytest.raises(ChecksumError, match="section bcrc"):
        reader.read_range("long", 0, 1)
    with pytest.raises(ChecksumError, match="section bcrc"):
        reader.verify()
    assert reader.read("long") == LONG, "whole sections do without"


def summed(data, block_bytes=BLOCK_BYTES):
    sums = Summed(block_bytes)
    sums.update(data)
    return sums.checksums()


TRUE = {"long": summed(LONG), "more": summed(LONGER)}


def table_of(entries, checksums, block_bytes=BLOCK_BYTES, sections=None):
    """Any bytes of a section of checksums."""
    head = np.array((block_bytes, len(entries) if sections is None else sections), HEAD)
    return b"".join(
        [head.tobytes(), np.array(entries, ENTRY).tobytes(), np.array(checksums, "<u4").tobytes()]
    )


LIES = {
    "too few blocks": (table_of([(b"long", 5)], TRUE["long"][:5]), "5 blocks"),
    "too many blocks": (table_of([(b"long", 7)], [*TRUE["long"], 0]), "7 blocks"),
    "blocks beyond counting": (table_of([(b"long", 2**32 - 1)], TRUE["long"]), "4294967295 blocks"),
    "sections beyond counting": (table_of([], [1], sections=2**32 - 1), "do not fit"),
    "no blocks of a section": (table_of([(b"long", 0)], []), "0 blocks"),
    "a section that is not there": (table_of([(b"gone", 6)], TRUE["long"]), "not there"),
    "a section twice": (table_of([(b"long", 6)] * 2, [*TRUE["long"]] * 2), "twice"),
    "itself": (table_of([(b"bcrc", 1)], [0]), "not there"),
    "checksums missing": (table_of([(b"long", 6)], TRUE["long"][:4]), "ends within"),
    "checksums too many": (table_of([(b"long", 6)], [*TRUE["long"], 1]), "4 bytes follow"),
    "bytes too many": (table_of([(b"long", 6)], TRUE["long"]) + b"x", "1 bytes follow"),
    "nothing": (b"", "too few"),
    "half a head": (b"\0\x40\0\0", "too few"),
    "blocks of no bytes": (table_of([(b"long", 6)], TRUE["long"], 0), "blocks of 0"),
    "tiny blocks": (table_of([(b"long", 6)], TRUE["long"], 2048), "blocks of 2048"),
    "odd blocks": (table_of([(b"long", 6)], TRUE["long"], 16385), "blocks of 16385"),
    "huge blocks": (table_of([(b"long", 1)], [0], 1 << 25), "blocks of 33554432"),
    "largest number": (table_of([(b"long", 1)], [0], 2**32 - 1), "blocks of 4294967295"),
}


@pytest.mark.parametrize("name", LIES)
def test_checksums_of_blocks_that_cannot_be_are_refused(name):
    table, message = LIES[name]
    reader = reader_of(blob_of(table=table))

    for use in (lambda: reader.read_range("long", 0, 1), reader.verify):
        with pytest.raises(BlobFormatError, match=message):
            use()
    assert reader.read("long") == LONG, "whole sections do without"


@pytest.mark.parametrize("kind", TRUE)
def test_a_wrong_checksum_of_a_block_under_a_right_one_of_all_is_found(kind):
    lying = {**TRUE, kind: TRUE[kind] ^ (np.arange(len(TRUE[kind])) == 2).astype("<u4")}
    reader = reader_of(blob_of(table=block_sums.encode(BlockSums(BLOCK_BYTES, lying))))

    assert reader.read_range(kind, 0, 5) == SECTIONS[kind][:5]
    with pytest.raises(ChecksumError, match=f"block 2 of section {kind}"):
        reader.read_range(kind, 2 * BLOCK_BYTES, 2 * BLOCK_BYTES + 1)
    with pytest.raises(ChecksumError, match=f"block 2 of section {kind}"):
        reader.verify()


def test_sections_that_are_not_named_are_verified_as_a_whole():
    reader = reader_of(blob_of(table=block_sums.encode(BlockSums(4096, {}))))
    assert reader.read_range("long", 7, 9) == LONG[7:9]
    reader.verify()


@pytest.mark.parametrize("block_bytes", [4096, 1 << 16, 1 << 24])
def test_blocks_of_another_size_are_used_as_they_are(block_bytes):
    sums = BlockSums(block_bytes, {"more": summed(LONGER, block_bytes)})
    reader = reader_of(blob_of(table=block_sums.encode(sums)))
    reader.verify()
    assert reader.read_range("more", 4000, 70_000) == LONGER[4000:70_000]


def test_a_table_longer_than_its_blob_could_need_is_not_even_read():
    reader = reader_of(blob_of({"head": SHORT}, table=bytes(20 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises(BlobFormatError, match="too many"):
            reader.read_range("head", 0, 1)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.binary(max_size=64), st.sampled_from(["cut", "flip", "any"]), st.integers(0, 127))
def test_any_bytes_in_the_place_of_checksums_never_make_wrong_bytes_right(noise, way, at):
    table = bytearray(block_sums.encode(BlockSums(BLOCK_BYTES, TRUE)))
    if way == "cut":
        del table[at:]
    elif way == "flip":
        for place, value in enumerate(noise, at):
            table[place % len(table)] ^= value
    else:
        table = bytearray(noise)
    reader = reader_of(damaged(blob_of(table=bytes(table)), "long", 3 * BLOCK_BYTES))
    for start in range(0, len(LONG), BLOCK_BYTES):
        try:
            got = reader.read_range("long", start, start + 9)
        except FormatError:
            continue
        assert got == LONG[start : start + 9]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(0, 3 * BLOCK_BYTES), max_size=5),
    st.lists(st.integers(1, 40_000), min_size=1),
)
def test_checksums_do_not_depend_on_the_pieces_in_which_bytes_come(lengths, cuts):
    for length in lengths:
        data = LONGER[:length]
        sums = Summed()
        at = 0
        for cut in cuts:
            sums.update(data[at : at + cut])
            at += cut
        sums.update(data[at:])
        blocks = [data[i : i + BLOCK_BYTES] for i in range(0, length, BLOCK_BYTES)]
        assert sums.checksums().tolist() == list(map(zlib.crc32, blocks))
        assert sums.of_all() == zlib.crc32(data)
        assert len(sums.checksums()) == block_sums.count_of(length)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 3 * BLOCK_BYTES), max_size=6), st.booleans())
def test_the_length_of_a_container_is_known_before_it_is_written(lengths, by_ranges):
    sections = {f"s{i:03}": bytes(length) for i, length in enumerate(lengths)}
    blob = blob_of(sections, by_ranges=by_ranges)
    assert len(blob) == length_of(lengths, by_ranges=by_ranges)
    alignment = 64 if by_ranges else 8
    assert all(section.offset % alignment == 0 for section in reader_of(blob).sections.values())


def test_vectors_of_a_shard_are_read_by_ranges_out_of_its_file(tmp_path):
    value = sample_graph(3000, d=20)
    out = io.BytesIO()
    with PuffinWriter(out) as writer:
        blob = writer.add(
            graph.TYPE,
            written(graph.write, value),
            fields=[1],
            snapshot_id=1,
            sequence_number=1,
        )
        writer.finish({})
    reader = PuffinReader(io.BytesIO(out.getvalue()))
    container = ContainerReader(reader.open(blob), graph.KIND)

    got = np.frombuffer(container.read_range("vecs", 80 * 1000, 80 * 1100), "<f4")
    np.testing.assert_array_equal(got.reshape(100, 20), value.vectors[1000:1100])
    assert (blob.offset + container.sections["vecs"].offset) % 64 == 0
    graph.unpack(reader.open(blob), tmp_path)
    assert same(graph.open(tmp_path), value)


def test_checksums_of_blocks_take_a_fortieth_of_a_per_cent():
    blob = written(identities.write, LONG_ROWS.identities)
    container = identities.open_reader(io.BytesIO(blob), len(LONG_ROWS))
    container.verify()
    assert list(container.sections)[-1] == block_sums.KIND
    large = length_of([56, 1 << 26, 1 << 28], by_ranges=True)
    assert large < 1.00025 * length_of([56, 1 << 26, 1 << 28])
