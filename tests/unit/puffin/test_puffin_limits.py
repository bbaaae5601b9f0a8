"""What a compressed blob may hold follows from what is stored of it, and writers keep to it."""

import io
import tracemalloc

import pytest
import zstandard

from puffin_ann.errors import OutputLimitError
from puffin_ann.puffin import PuffinReader, PuffinWriter
from puffin_ann.puffin.limits import LARGE, SMALL, content_limit
from puffin_ann.puffin.writer import FinishedFile

MIB = 1 << 20


def file_with(stored: bytes, codec: str) -> bytes:
    """A file whose only blob is a frame as given."""
    out = io.BytesIO()
    with PuffinWriter(out) as writer:
        frame = writer.add("t", stored, fields=[1], snapshot_id=1, sequence_number=1)
        writer._blobs = [type(frame)(**{**vars(frame), "compression_codec": codec})]
        writer.finish({})
    return out.getvalue()


def written(data: bytes, codec: str) -> tuple[FinishedFile, bytes]:
    out = io.BytesIO()
    with PuffinWriter(out) as writer:
        writer.add("t", data, fields=[1], snapshot_id=1, sequence_number=1, codec=codec)
        finished = writer.finish({})
    return finished, out.getvalue()


def test_kilobytes_that_hold_gigabytes_are_refused_in_little_memory():
    data = file_with(zstandard.ZstdCompressor().compress(bytes(256 * MIB)), "zstd")
    assert len(data) < 50_000
    reader = PuffinReader(io.BytesIO(data))
    (blob,) = reader.metadata.blobs
    tracemalloc.start()
    try:
        for read in (reader.read, lambda blob: reader.read_all([blob])):
            with pytest.raises(OutputLimitError, match="limit"):
                read(blob)
        with pytest.raises(OutputLimitError):
            reader.extract(blob, io.BytesIO())
        assert tracemalloc.get_traced_memory()[1] < 2 * SMALL
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_content_is_unpacked_without_being_held_twice(codec):
    _, data = written(bytes(range(256)) * 4 * 8192, codec)
    reader = PuffinReader(io.BytesIO(data))
    tracemalloc.start()
    try:
        content = reader.read(reader.metadata.blobs[0])
        assert len(content) == 8 * MIB
        assert tracemalloc.get_traced_memory()[1] < 1.5 * len(content) + 4 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_what_shrinks_so_far_that_readers_would_refuse_it_is_stored_as_it_is(codec):
    data = bytes(SMALL + 70 * MIB)
    finished, file = written(data, codec)
    (blob,) = finished.metadata.blobs
    reader = PuffinReader(io.BytesIO(file))
    assert reader.read(blob) == data
    # LZ4 shrinks nothing further than that.
    assert blob.compression_codec == (None if codec == "zstd" else "lz4")


def test_what_indexes_store_is_read_whatever_its_size():
    vectors = 3 << 30
    assert content_limit(int(vectors / 1.05)) > vectors
    paths_of_a_million_files, shrunk_to = 250 * MIB, 250 * MIB // 80
    assert content_limit(shrunk_to) > paths_of_a_million_files
    assert content_limit(10 * MIB) <= LARGE
