"""Iceberg's own Java Puffin reader and writer against ours, both ways."""

import io

import pytest

from puffin_ann.puffin import PuffinReader, PuffinWriter
from tests.support.paths import GOLDEN

EVERY_BLOB = GOLDEN / "every-blob-1.0.puffin"

pytestmark = pytest.mark.slow


def test_java_reads_every_blob_we_write(read_by_java):
    with EVERY_BLOB.open("rb") as stream:
        ours = PuffinReader(stream)
        contents = [ours.read(blob) for blob in ours.metadata.blobs]

    properties, theirs = read_by_java(EVERY_BLOB)

    assert properties == ours.metadata.properties
    assert [content for _, content in theirs] == contents
    for java, blob in zip((blob for blob, _ in theirs), ours.metadata.blobs, strict=True):
        assert java.type() == blob.type
        assert tuple(java.inputFields()) == blob.fields
        assert java.snapshotId() == blob.snapshot_id
        assert java.sequenceNumber() == blob.sequence_number
        assert (java.offset(), java.length()) == (blob.offset, blob.length)
        assert java.compressionCodec() == blob.compression_codec
        assert dict(java.properties()) == blob.properties


def test_java_reads_a_compressed_blob_of_many_pieces(read_by_java, tmp_path):
    content = b"".join(i.to_bytes(4, "little") for i in range(2_000_000))
    path = tmp_path / "large.puffin"
    with path.open("wb") as out, PuffinWriter(out) as writer:
        writer.add("t", content, fields=[1], snapshot_id=1, sequence_number=1, codec="zstd")
        writer.finish({})

    assert read_by_java(path)[1][0][1] == content


@pytest.mark.parametrize("codec", ["NONE", "ZSTD"])
def test_blobs_java_writes_are_read_and_carried_intact(jvm, read_by_java, tmp_path, codec):
    puffin = jvm.org.apache.iceberg.puffin
    content = bytes(range(256)) * 300
    path = tmp_path / "java.puffin"
    writer = (
        puffin.Puffin.write(jvm.org.apache.iceberg.Files.localOutput(str(path)))
        .createdBy("Java")
        .build()
    )
    fields = jvm.java.util.ArrayList()
    fields.append(7)
    properties = jvm.java.util.HashMap()
    properties["ndv"] = "12"
    blob = puffin.Blob(
        "apache-datasketches-theta-v1",
        fields,
        2**50,
        3,
        jvm.java.nio.ByteBuffer.wrap(content),
        getattr(puffin.PuffinCompressionCodec, codec),
        properties,
    )
    writer.write(blob)
    writer.finish()
    footer_size = writer.footerSize()
    writer.close()

    data = path.read_bytes()
    reader = PuffinReader(io.BytesIO(data), name="java.puffin")
    (found,) = reader.find("apache-datasketches-theta-v1", ndv="12")
    assert reader.metadata.properties == {"created-by": "Java"}
    assert reader.footer_size == footer_size
    assert (found.fields, found.snapshot_id, found.sequence_number) == ((7,), 2**50, 3)
    assert reader.read(found) == content

    carried = tmp_path / "carried.puffin"
    with carried.open("wb") as out, PuffinWriter(out) as ours:
        ours.add("first", b"x" * 10, fields=[], snapshot_id=1, sequence_number=1)
        ours.copy(reader, found)
        ours.finish({})
    again = read_by_java(carried)[1][1]
    assert again[1] == content
    assert again[0].compressionCodec() == found.compression_codec
