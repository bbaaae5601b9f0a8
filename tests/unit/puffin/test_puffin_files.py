"""Files written by Iceberg's Java code, and our own writer held against them."""

import io
import random
import threading

import pytest

from puffin_ann.errors import BadInputError, OutputLimitError, PuffinFormatError
from puffin_ann.puffin import PuffinReader, PuffinWriter
from puffin_ann.puffin import writer as writer_module
from tests.support.paths import GOLDEN

ICEBERG = GOLDEN / "iceberg"
BLOB_1 = b"abcdefghi"
BLOB_2 = (
    "some blob \0 binary data 🤯 that is not very very very very very very long, is it?".encode()
)


def write_iceberg_sample(codec):
    out = io.BytesIO()
    with PuffinWriter(out, alignment=1) as writer:
        common = {"snapshot_id": 2, "sequence_number": 1, "codec": codec}
        writer.add("some-blob", BLOB_1, fields=[1], **common)
        writer.add("some-other-blob", BLOB_2, fields=[2], **common)
        finished = writer.finish({"created-by": "Test 1234"})
    return out.getvalue(), finished


@pytest.mark.parametrize(
    ("file", "codec"),
    [
        ("sample-metric-data-uncompressed.bin", None),
        ("sample-metric-data-compressed-zstd.bin", "zstd"),
    ],
)
def test_files_by_iceberg_java_are_read(file, codec):
    reader = PuffinReader(io.BytesIO((ICEBERG / file).read_bytes()), name=file)

    assert reader.metadata.properties == {"created-by": "Test 1234"}
    assert [blob.compression_codec for blob in reader.metadata.blobs] == [codec, codec]
    assert [reader.read(blob) for blob in reader.metadata.blobs] == [BLOB_1, BLOB_2]
    assert reader.metadata.blobs[1].fields == (2,)
    assert reader.metadata.blobs[1].snapshot_id == 2
    assert reader.metadata.blobs[1].sequence_number == 1


def test_uncompressed_file_has_the_very_bytes_iceberg_java_writes():
    data, finished = write_iceberg_sample(None)

    golden = (ICEBERG / "sample-metric-data-uncompressed.bin").read_bytes()
    assert data == golden
    assert finished.length == len(golden)
    assert finished.footer_size == len(golden) - 4 - len(BLOB_1) - len(BLOB_2)


def test_file_without_blobs_has_the_very_bytes_iceberg_java_writes():
    out = io.BytesIO()
    with PuffinWriter(out) as writer:
        writer.finish({})

    assert out.getvalue() == (ICEBERG / "empty-puffin-uncompressed.bin").read_bytes()
    assert PuffinReader(io.BytesIO(out.getvalue())).metadata.blobs == ()


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
@pytest.mark.parametrize("size", [0, 1, 100, 3_000_000])
def test_blob_comes_back_from_bytes_stream_and_file(tmp_path, codec, size):
    content = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    path = tmp_path / "content"
    path.write_bytes(content)
    out = io.BytesIO()
    with PuffinWriter(out) as writer:
        for data in (content, io.BytesIO(content), path):
            writer.add("t", data, fields=[], snapshot_id=-1, sequence_number=-1, codec=codec)
        writer.finish({}, compress_footer=codec == "lz4")

    reader = PuffinReader(io.BytesIO(out.getvalue()))
    extracted = io.BytesIO()
    assert [reader.read(blob) for blob in reader.metadata.blobs] == [content] * 3
    assert reader.extract(reader.metadata.blobs[0], extracted) == size
    assert extracted.getvalue() == content
    stored = {reader.open_stored(blob).read() for blob in reader.metadata.blobs}
    assert len(stored) == 1, "the same content gives the same bytes, however it comes"


def test_stream_is_written_from_where_it_stands():
    source = io.BytesIO(b"skipped|kept")
    source.seek(8)
    out = io.BytesIO()
    with PuffinWriter(out) as writer:
        writer.add("t", source, fields=[], snapshot_id=1, sequence_number=1)
        writer.finish({})

    reader = PuffinReader(io.BytesIO(out.getvalue()))
    assert reader.read(reader.metadata.blobs[0]) == b"kept"


def test_copied_blob_keeps_bytes_and_origin():
    source = PuffinReader(
        io.BytesIO((ICEBERG / "sample-metric-data-compressed-zstd.bin").read_bytes())
    )
    out = io.BytesIO()
    with PuffinWriter(out) as writer:
        writer.add("first", b"x", fields=[], snapshot_id=1, sequence_number=1)
        copied = writer.copy(source, source.metadata.blobs[1], properties={"shard": "3"})
        writer.finish({})

    reader = PuffinReader(io.BytesIO(out.getvalue()))
    assert reader.find("some-other-blob", shard="3") == [copied]
    assert reader.find("some-other-blob", shard="4") == []
    assert reader.read(copied) == BLOB_2
    assert (copied.snapshot_id, copied.fields, copied.compression_codec) == (2, (2,), "zstd")


def test_first_spec_without_snapshot_of_a_blob_is_read():
    payload = b'{"blobs":[{"type":"t","fields":[1],"offset":4,"length":2}]}'
    tail = len(payload).to_bytes(4, "little") + bytes(4) + b"PFA1"
    reader = PuffinReader(io.BytesIO(b"PFA1" + b"ab" + b"PFA1" + payload + tail))

    assert reader.metadata.blobs[0].snapshot_id == -1
    assert reader.metadata.blobs[0].sequence_number == -1
    assert reader.read(reader.metadata.blobs[0]) == b"ab"


class CountingStream(io.BytesIO):
    reads = got = 0

    def read(self, size=-1):
        data = super().read(size)
        self.reads += 1
        self.got += len(data)
        return data


@pytest.mark.parametrize(
    ("blobs", "known", "reads"), [(3, False, 1), (500, False, 2), (500, True, 1)]
)
def test_footer_takes_two_reads_at_most_and_one_if_its_size_is_known(blobs, known, reads):
    out = io.BytesIO()
    with PuffinWriter(out) as writer:
        for _ in range(blobs):
            writer.add("t" * 50, b"x" * 100, fields=[1], snapshot_id=1, sequence_number=1)
        finished = writer.finish({})
    stream = CountingStream(out.getvalue())

    hint = finished.footer_size if known else None
    reader = PuffinReader(stream, length=finished.length, footer_size=hint)

    assert stream.reads == reads
    assert reader.metadata == finished.metadata
    assert reader.footer_size == finished.footer_size


def test_open_gives_a_seekable_view_of_an_uncompressed_blob_only():
    data, _ = write_iceberg_sample(None)
    reader = PuffinReader(io.BytesIO(data))
    view = reader.open(reader.metadata.blobs[1])

    assert view.seek(-5, io.SEEK_END) == len(BLOB_2) - 5
    assert view.read(100) == BLOB_2[-5:]
    assert view.seek(3) == 3
    assert view.read(4) == BLOB_2[3:7]

    compressed = PuffinReader(io.BytesIO(write_iceberg_sample("zstd")[0]))
    with pytest.raises(PuffinFormatError, match="compressed"):
        compressed.open(compressed.metadata.blobs[0])


def test_threads_read_one_reader_at_once():
    out = io.BytesIO()
    contents = [bytes([i]) * 200_000 for i in range(8)]
    with PuffinWriter(out) as writer:
        for content in contents:
            writer.add("t", content, fields=[], snapshot_id=1, sequence_number=1, codec="zstd")
        writer.finish({})
    reader = PuffinReader(io.BytesIO(out.getvalue()))
    got = {}

    def read(i):
        got[i] = [reader.read(reader.metadata.blobs[i]) for _ in range(20)]

    threads = [threading.Thread(target=read, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(got[i] == [contents[i]] * 20 for i in range(8))


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_content_beyond_the_limit_is_refused(codec):
    out = io.BytesIO()
    with PuffinWriter(out) as writer:
        blob = writer.add(
            "bomb", bytes(5_000_000), fields=[], snapshot_id=1, sequence_number=1, codec=codec
        )
        writer.finish({})
    reader = PuffinReader(io.BytesIO(out.getvalue()))

    with pytest.raises(OutputLimitError):
        reader.read(blob, limit=4_999_999)
    assert len(reader.read(blob, limit=5_000_000)) == 5_000_000


def test_blob_java_cannot_read_is_written_only_when_asked_for(monkeypatch):
    monkeypatch.setattr(writer_module, "MAX_JAVA_BLOB", 10)
    common = {"fields": [], "snapshot_id": 1, "sequence_number": 1}
    writer = PuffinWriter(io.BytesIO())

    with pytest.raises(BadInputError, match="Java"):
        writer.add("t", b"12345678901", **common)
    with pytest.raises(BadInputError, match="Java"):
        writer.add("t", bytes(range(256)), codec="zstd", **common)
    assert writer.add("t", b"12345678901", allow_large=True, **common).length == 11


def test_leaving_a_writer_without_footer_is_an_error():
    with pytest.raises(RuntimeError, match="finish"), PuffinWriter(io.BytesIO()):
        pass


def test_large_blob_is_read_in_few_requests_and_a_jump_fetches_little():
    out = io.BytesIO()
    content = bytes(range(256)) * (1 << 17)
    with PuffinWriter(out) as writer:
        blob = writer.add("t", content, fields=[], snapshot_id=1, sequence_number=1)
        writer.finish({})
    stream = CountingStream(out.getvalue())
    reader = PuffinReader(stream, length=len(out.getvalue()))

    stream.reads = 0
    assert reader.read(blob) == content
    assert stream.reads == 1, "all of it is wanted, and its length known"

    stream.reads = stream.got = 0
    view = reader.open(blob)
    for at in (20 << 20, 5, 30 << 20):
        view.seek(at)
        assert view.read(10) == content[at : at + 10]
    assert (stream.reads, stream.got) == (3, 3 * (64 << 10))


def test_reading_in_random_order_gives_the_same_bytes():
    rng = random.Random(1)
    content = rng.randbytes(1 << 20)
    out = io.BytesIO()
    with PuffinWriter(out) as writer:
        blob = writer.add("t", content, fields=[], snapshot_id=1, sequence_number=1)
        writer.finish({})
    view = PuffinReader(io.BytesIO(out.getvalue())).open(blob)

    for _ in range(500):
        at = view.seek(rng.randrange(len(content) + 100)) if rng.random() < 0.5 else view.tell()
        size = rng.choice((0, 1, 100, 70_000, 200_000))
        assert view.read(size) == content[at : at + size]
