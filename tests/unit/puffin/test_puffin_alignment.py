"""Blobs begin at multiples of 64, and are copied so that their ranges adjoin."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.lake.store.assemble.object_plan import CopiedRange, InlineBytes, ObjectPlan
from puffin_ann.puffin import PuffinReader, PuffinWriter
from puffin_ann.puffin.layout import ALIGNMENT

OF_ALL = {"fields": [1], "snapshot_id": 1, "sequence_number": 1}


def file_of(*contents, alignment=ALIGNMENT, name="source"):
    out = io.BytesIO()
    with PuffinWriter(out, alignment=alignment) as writer:
        for number, content in enumerate(contents):
            writer.add("t", content, properties={"n": str(number)}, **OF_ALL)
        writer.finish({})
    return PuffinReader(io.BytesIO(out.getvalue()), name=name)


def carried_out(plan, readers):
    """The bytes of the object that a plan describes."""
    files = {reader.name: reader._source.read(0, reader.length) for reader in readers}
    return b"".join(
        piece.data
        if isinstance(piece, InlineBytes)
        else files[piece.source][piece.offset : piece.offset + piece.length]
        for piece in plan.pieces
    )


def copied(*taken):
    """What is copied of readers and blobs: the plan of the new file, and a reader of it."""
    plan = ObjectPlan(lambda _: "")
    with PuffinWriter(plan) as writer:
        for reader, blob in taken:
            writer.copy(reader, blob)
        writer.finish({})
    data = carried_out(plan, [reader for reader, _ in taken])
    return plan, PuffinReader(io.BytesIO(data))


def test_blobs_begin_at_multiples_with_zeros_between_them():
    reader = file_of(b"a" * 100, b"b", b"", b"c" * 64, b"d")
    data = reader._source.read(0, reader.length)

    assert [blob.offset for blob in reader.metadata.blobs] == [64, 192, 256, 256, 320]
    assert data[4:64] == bytes(60)
    assert data[164:192] == bytes(28)
    footer = reader.length - reader.footer_size
    assert footer == 384
    assert data[321:footer] == bytes(63)


def test_blobs_of_several_files_are_copied_without_a_byte_sent_between_them():
    sources = [file_of(b"a" * 100, b"b" * 7, name=f"s{i}") for i in range(3)]
    taken = [(reader, blob) for reader in sources for blob in reader.metadata.blobs]
    plan, reader = copied(*taken)

    assert [type(piece) for piece in plan.pieces] == [
        InlineBytes,
        *[CopiedRange] * len(sources),
        InlineBytes,
    ]
    assert [blob.offset % ALIGNMENT for blob in reader.metadata.blobs] == [0] * 6
    assert [reader.read(blob) for blob in reader.metadata.blobs] == [b"a" * 100, b"b" * 7] * 3


def test_blobs_of_a_file_without_alignment_adjoin_as_they_did():
    """Else a store that copies would have to be sent what is around every one of them."""
    source = file_of(b"a" * 100, b"b" * 7, b"c" * 9, alignment=1)
    plan, reader = copied(*((source, blob) for blob in source.metadata.blobs))

    assert plan.pieces[1] == CopiedRange("source", 4, 116)
    assert [blob.offset for blob in reader.metadata.blobs] == [64, 164, 171]


def test_what_stands_behind_a_blob_is_not_taken_for_padding():
    crowded = file_of(b"x" * 60, b"a" * 100, b"b" * 64, alignment=1)
    blob = crowded.metadata.blobs[1]
    assert blob.offset == ALIGNMENT, "as if aligned"
    other = file_of(b"c" * 5, name="other")
    plan, reader = copied((crowded, blob), (other, other.metadata.blobs[0]))

    assert plan.pieces[1:3] == (CopiedRange("source", 64, 100), InlineBytes(bytes(28)))
    assert [reader.read(blob) for blob in reader.metadata.blobs] == [b"a" * 100, b"c" * 5]


def test_a_file_that_is_streamed_is_the_one_a_store_puts_together():
    sources = [
        file_of(b"a" * 100, b"b" * 7, name="new"),
        file_of(b"c" * 10, b"d" * 99, alignment=1, name="old"),
    ]
    taken = [(reader, blob) for reader in sources for blob in reader.metadata.blobs]
    plan, _ = copied(*taken)
    streamed = io.BytesIO()
    with PuffinWriter(streamed) as writer:
        for reader, blob in taken:
            writer.copy(reader, blob)
        writer.finish({})

    assert streamed.getvalue() == carried_out(plan, sources)


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_an_alignment_of_ones_own(alignment):
    reader = file_of(b"a" * 100, b"b", alignment=alignment)
    assert all(blob.offset % alignment == 0 for blob in reader.metadata.blobs)
    assert [reader.read(blob) for blob in reader.metadata.blobs] == [b"a" * 100, b"b"]


LENGTHS = st.lists(st.sampled_from([0, 1, 8, 60, 63, 64, 65, 128, 300]), min_size=1, max_size=4)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data(), st.lists(st.tuples(LENGTHS, st.sampled_from([1, 64])), min_size=1, max_size=3))
def test_any_blobs_in_any_order_come_back_where_a_copy_is_read(data, files):
    sources = [
        file_of(
            *(bytes([65 + i]) * length for i, length in enumerate(lengths)),
            alignment=alignment,
            name=f"s{number}",
        )
        for number, (lengths, alignment) in enumerate(files)
    ]
    every = [(reader, blob) for reader in sources for blob in reader.metadata.blobs]
    taken = data.draw(st.permutations(every))
    plan, reader = copied(*taken)

    assert reader.length == plan.length
    assert [reader.read(blob) for blob in reader.metadata.blobs] == [
        source.read(blob) for source, blob in taken
    ]
    for (_, blob), (_, other), there in zip(
        taken, [(None, None), *taken], reader.metadata.blobs, strict=False
    ):
        follows = other is not None and other.offset + other.length == blob.offset
        assert there.offset % ALIGNMENT == 0 or (blob.offset % ALIGNMENT and follows)
