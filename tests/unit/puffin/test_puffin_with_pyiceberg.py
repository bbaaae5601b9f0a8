"""Our reader and writer on PyIceberg's streams, and PyIceberg's own Puffin reader on our files."""

from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.puffin import PuffinFile

from puffin_ann.puffin import PuffinReader, PuffinWriter


def test_files_are_written_and_read_through_pyiceberg_file_io(tmp_path):
    file_io = PyArrowFileIO()
    location = (tmp_path / "a.puffin").as_uri()
    content = bytes(range(256)) * 5000
    with file_io.new_output(location).create() as out, PuffinWriter(out) as writer:
        writer.add("plain", content, fields=[1], snapshot_id=1, sequence_number=1)
        writer.add("zstd", content, fields=[1], snapshot_id=1, sequence_number=1, codec="zstd")
        finished = writer.finish({"created-by": "test"})

    source = file_io.new_input(location)
    assert len(source) == finished.length
    with source.open() as stream:
        reader = PuffinReader(stream, name=location)
        assert reader.metadata == finished.metadata
        assert [reader.read(blob) for blob in reader.metadata.blobs] == [content, content]
        view = reader.open(reader.metadata.blobs[0])
        view.seek(1000)
        assert view.read(300) == content[1000:1300]


def test_files_are_read_through_fsspec(tmp_path):
    path = tmp_path / "a.puffin"
    with path.open("wb") as out, PuffinWriter(out) as writer:
        blob = writer.add("t", b"abc", fields=[1], snapshot_id=1, sequence_number=1)
        writer.finish({})
    with FsspecFileIO({}).new_input(str(path)).open() as stream:
        assert PuffinReader(stream).read(blob) == b"abc"


def test_pyiceberg_reads_the_footer_of_our_files(tmp_path):
    """PyIceberg 0.12 knows deletion vectors alone, so the file holds one such blob."""
    path = tmp_path / "a.puffin"
    properties = {"referenced-data-file": "s3://b/a.parquet", "cardinality": "0"}
    with path.open("wb") as out, PuffinWriter(out) as writer:
        writer.add(
            "deletion-vector-v1",
            b"\0" * 20,
            fields=[],
            snapshot_id=-1,
            sequence_number=-1,
            properties=properties,
        )
        finished = writer.finish({"created-by": "test"})

    footer = PuffinFile(path.read_bytes()).footer

    assert footer.properties == {"created-by": "test"}
    assert footer.blobs[0].properties == properties
    assert footer.blobs[0].offset == finished.metadata.blobs[0].offset
