"""Blobs of a version, in its own file and in those that its directory names."""

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.blobs.shards import rows
from puffin_ann.blobs.version.directory import Directory, NamedBlob, NamedFile
from puffin_ann.errors import ChecksumError, PuffinFormatError
from puffin_ann.puffin import PuffinWriter
from puffin_ann.search.version.index_files import VersionFiles
from tests.support.indexes.blob_samples import sample_rows, written

IO = PyArrowFileIO()


def written_file(path, shards):
    """A file with a rows blob of each shard; returns their metadata and the file's length."""
    with path.open("wb") as out, PuffinWriter(out) as writer:
        blobs = [
            writer.add(
                rows.TYPE,
                written(rows.write, sample_rows(10 + shard)),
                fields=[7],
                snapshot_id=1,
                sequence_number=1,
                properties={"index": "words", "shard": str(shard)},
                codec="zstd" if shard % 2 else None,
            )
            for shard in shards
        ]
        length = writer.finish({}).length
    return blobs, length


def named(blob, shard, digest):
    codec = blob.compression_codec
    return NamedBlob(0, rows.TYPE, shard, codec, blob.offset, blob.length, 1, 1, digest)


@pytest.fixture
def layered(tmp_path):
    """Shards 0 and 1 are in an earlier file, 1 and 2 in the version's own."""
    blobs, length = written_file(tmp_path / "earlier.puffin", [0, 1])
    written_file(tmp_path / "own.puffin", [1, 2])
    digests = ["", ""]

    def opened():
        directory = Directory(
            (NamedFile("earlier.puffin", length),),
            tuple(map(named, blobs, (0, 1), digests)),
        )
        return VersionFiles(IO, str(tmp_path / "own.puffin"), "words", directory, 7)

    return opened, digests


def test_what_the_directory_names_is_there_and_nowhere_else(layered, tmp_path):
    opened, _ = layered
    with opened() as files:
        places = {shard: files.places(rows.TYPE, shard)[0].path for shard in range(3)}
        assert {shard: path.rpartition("/")[2] for shard, path in places.items()} == {
            0: "earlier.puffin",
            1: "earlier.puffin",
            2: "own.puffin",
        }
        assert [len(files.only(rows.TYPE, shard).read()) > 0 for shard in range(3)] == [True] * 3
        assert files.find(rows.TYPE, 3) == []
        with pytest.raises(PuffinFormatError, match="shard 3; found 0"):
            files.only(rows.TYPE, 3)


@pytest.mark.parametrize("shard", [0, 1])
def test_a_blob_of_another_content_than_the_version_names_is_refused(layered, shard):
    opened, digests = layered
    with opened() as files:
        digests[shard] = files.only(rows.TYPE, shard).fingerprint
    with opened() as files:
        assert files.only(rows.TYPE, shard).read()
    digests[shard] = "00" * 31 + "01"
    with (
        opened() as files,
        pytest.raises(ChecksumError, match=r"earlier\.puffin: .* is not the one"),
    ):
        files.only(rows.TYPE, shard).read()
    with opened() as files:
        assert files.only(rows.TYPE, 1 - shard).read()


def test_a_file_that_is_gone_is_damage(layered, tmp_path):
    opened, _ = layered
    (tmp_path / "earlier.puffin").unlink()
    with pytest.raises(PuffinFormatError, match=r"earlier\.puffin"), opened() as files:
        files.only(rows.TYPE, 0)
