"""The small blobs of an index version, read from its file by as few reads as can be."""

import dataclasses
import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.blobs.encoding.container import fingerprint
from puffin_ann.blobs.version import coverage, partitions, routing
from puffin_ann.errors import BlobFormatError, ChecksumError, PuffinFormatError
from puffin_ann.puffin.reader import PuffinReader
from puffin_ann.puffin.streams import RangeSource
from puffin_ann.puffin.writer import PuffinWriter
from puffin_ann.search.version import index_version
from puffin_ann.search.version.index_version import load_version
from puffin_ann.search.version.version_cells import VersionCells
from tests.support.indexes.blob_samples import same, sample_coverage, sample_routing

COVERAGE = sample_coverage()
IO = PyArrowFileIO()


def covering(cells, rows=COVERAGE.columns.indexed_rows):
    """Return a routing whose shards hold as many rows as are covered."""
    first, second, delta = cells.shards
    second = dataclasses.replace(second, rows=rows - (first.rows - first.tombstones), file="")
    return dataclasses.replace(cells, shards=(first, second, delta))


LARGE = covering(sample_routing("ip", cells=300, dimension=40))
NAMING, CELLS = routing.split(LARGE)
SMALL = {
    routing.TYPE: routing.encode(NAMING),
    coverage.TYPE: coverage.encode(COVERAGE),
}
OTHER = partitions.encode(sample_routing("ip", cells=300, dimension=40, seed=2).cells)


@pytest.fixture
def load(tmp_path):
    """Load index `one` from a file of blobs, given as (type, content, index)."""

    def write_and_load(*blobs):
        path = tmp_path / "index.puffin"
        with path.open("wb") as out, PuffinWriter(out) as writer:
            for kind, content, index in blobs:
                writer.add(
                    kind,
                    content,
                    fields=[3],
                    snapshot_id=1,
                    sequence_number=1,
                    properties={"index": index},
                    codec="zstd",
                )
            writer.finish({})
        return load_version(IO, str(path), "one")

    return write_and_load


@pytest.fixture
def reads(monkeypatch):
    """The bytes of each read of a file."""
    counted = []
    read = RangeSource.read_some

    def counting(source, offset, length):
        data = read(source, offset, length)
        counted.append(len(data))
        return data

    monkeypatch.setattr(RangeSource, "read_some", counting)
    return counted


def naming(cells: bytes) -> bytes:
    """A routing blob of 300 cells that names a partitions blob."""
    told = routing.Apart(300, fingerprint(io.BytesIO(cells)))
    return routing.encode(dataclasses.replace(LARGE, cells=told))


def named(blobs, index="one"):
    return [(kind, content, index) for kind, content in blobs.items()]


def test_partitions_are_read_from_their_own_blob(load):
    found = load((partitions.TYPE, OTHER, "two"), (partitions.TYPE, CELLS, "one"), *named(SMALL))

    assert found.routing.cells == NAMING.cells
    assert same(found.cells(IO), LARGE.cells)
    assert same(dataclasses.replace(found.routing, cells=LARGE.cells), LARGE)


def test_partitions_within_the_routing_blob_are_read_still(load):
    found = load(*named({**SMALL, routing.TYPE: routing.encode(LARGE)}))

    assert same(found.routing, LARGE)
    assert found.cells(IO) is found.routing.cells


def test_all_that_is_small_is_read_at_once(load, reads):
    load((partitions.TYPE, CELLS, "one"), *named(SMALL))
    assert len(reads) == 2, "the footer, and three blobs"

    reads.clear()
    load(*named({**SMALL, routing.TYPE: routing.encode(covering(sample_routing()))}))
    assert len(reads) == 1, "what came along with the footer is not read again"


@pytest.mark.parametrize(
    ("blobs", "error", "message"),
    [
        (
            [],
            PuffinFormatError,
            r"puffin-ann-partitions-v1, index 'one'; found 0",
        ),
        (
            [CELLS, CELLS],
            PuffinFormatError,
            r"puffin-ann-partitions-v1.* found 2",
        ),
        ([OTHER], BlobFormatError, "part blob: is not the one that the routing blob names"),
        ([CELLS[:-1]], BlobFormatError, "blob: does not end with"),
        ([b""], BlobFormatError, "too few"),
        (
            [bytes([*CELLS[:2000], CELLS[2000] ^ 1, *CELLS[2001:]])],
            ChecksumError,
            "part blob: .*cent",
        ),
    ],
    ids=["missing", "twice", "of another version", "cut short", "empty", "damaged"],
)
def test_partitions_that_are_not_those_named_are_refused(load, blobs, error, message):
    found = load(*((partitions.TYPE, blob, "one") for blob in blobs), *named(SMALL))
    assert found.vectors == COVERAGE.columns.indexed_rows, "what needs no cells is known"
    for _ in range(2):
        with pytest.raises(error, match=message) as refused:
            found.cells(IO)
        assert found.path in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [
        {"metric": "cosine", "dimension": 41},
        {"metric": "l2", "dimension": 41},
    ],
)
def test_partitions_of_another_metric_or_dimension_are_refused(load, change):
    centroids = np.zeros((300, change["dimension"]), np.float32)
    content = partitions.encode(dataclasses.replace(LARGE.cells, **change, centroids=centroids))
    small = {**SMALL, routing.TYPE: naming(content)}

    with pytest.raises(
        BlobFormatError, match=r"300 partitions of 41 dimensions for .*says 300 of 40"
    ):
        load((partitions.TYPE, content, "one"), *named(small)).cells(IO)


def test_partitions_of_another_count_are_refused(load):
    few = partitions.encode(sample_routing("ip", cells=299, dimension=40).cells)
    small = {**SMALL, routing.TYPE: naming(few)}

    with pytest.raises(BlobFormatError, match=r"299 partitions .*says 300"):
        load((partitions.TYPE, few, "one"), *named(small)).cells(IO)


def test_partitions_in_no_shard_of_the_routing_are_refused(load):
    astray = dataclasses.replace(LARGE.cells, shards=np.full(300, 7, np.uint32))  # a delta
    content = partitions.encode(astray)
    small = {**SMALL, routing.TYPE: naming(content)}

    with pytest.raises(BlobFormatError, match="a partition belongs to no graph shard"):
        load((partitions.TYPE, content, "one"), *named(small)).cells(IO)


def test_cells_are_read_once_by_whichever_thread_asks_first(load, reads):
    found = load((partitions.TYPE, CELLS, "one"), *named(SMALL))
    reads.clear()
    with ThreadPoolExecutor(8) as threads:
        several = list(threads.map(lambda _: found.cells(IO), range(8)))
    assert all(cells is several[0] for cells in several)
    assert not reads, "they came along with what is beside them"


def test_large_cells_are_read_when_they_are_asked_for(load, reads, monkeypatch):
    monkeypatch.setattr(index_version, "SMALL_CELLS", len(CELLS) // 2)
    found = load((partitions.TYPE, CELLS, "one"), *named(SMALL))
    opened = sum(reads)
    reads.clear()
    assert same(found.cells(IO), LARGE.cells)
    assert found.cells(IO) is found.cells(IO)
    assert len(reads) == 1, "the blob"
    assert opened < sum(reads)


def test_cells_that_a_network_garbled_are_read_again(load, monkeypatch):
    garbled = bytes([*CELLS[:2000], CELLS[2000] ^ 1, *CELLS[2001:]])
    answers = [garbled, CELLS]
    cells = VersionCells(NAMING)
    assert same(cells.get(lambda: answers.pop(0)), LARGE.cells)
    assert same(VersionCells(NAMING, garbled).get(lambda: CELLS), LARGE.cells)
    assert not answers


def test_cells_of_shards_that_are_left_out_lead_to_the_first_of_the_others():
    cells = sample_routing().cells
    assert cells.among([0, 1]) is cells
    assert cells.among([1]).shards.tolist() == [1] * cells.count
    assert same(dataclasses.replace(cells.among([1]), shards=cells.shards), cells)


@pytest.mark.parametrize("by", [-1, 1])
def test_shards_that_hold_other_rows_than_are_covered_are_refused(load, by):
    lying = covering(LARGE, COVERAGE.columns.indexed_rows + by)

    with pytest.raises(BlobFormatError, match=r"shards hold \d+ rows .*covers \d+"):
        load(*named({**SMALL, routing.TYPE: routing.encode(lying)}))


@pytest.mark.parametrize("algorithm", ["auto", "annoy", ""])
def test_an_algorithm_that_nobody_knows_is_refused(load, algorithm):
    other = dataclasses.replace(LARGE, algorithm=algorithm)

    with pytest.raises(BlobFormatError, match=f"algorithm '{algorithm}' is not known"):
        load(*named({**SMALL, routing.TYPE: routing.encode(other)}))


def test_an_index_of_centroids_with_shards_is_refused(load):
    other = dataclasses.replace(LARGE, algorithm="centroid")

    with pytest.raises(BlobFormatError, match="3 shards of an index of centroids"):
        load(*named({**SMALL, routing.TYPE: routing.encode(other)}))


def test_a_shard_in_a_file_of_another_folder_is_refused_before_that_is_opened(load, tmp_path):
    def naming(file):
        shards = (*LARGE.shards[:-1], dataclasses.replace(LARGE.shards[-1], file=file))
        return {**SMALL, routing.TYPE: routing.encode(dataclasses.replace(LARGE, shards=shards))}

    beside = load(*named(naming(f"file://{tmp_path}/shard.puffin")))
    assert beside.file_of(beside.routing.shards[-1]) == f"file://{tmp_path}/shard.puffin"
    for elsewhere in (f"{tmp_path}/../x.puffin", "s3://bucket/x.puffin", "http://host/x", "x"):
        with pytest.raises(PuffinFormatError, match="not in the folder of the table's index files"):
            load(*named(naming(elsewhere)))


def test_blobs_that_share_a_range_or_are_empty_are_read_together(tmp_path):
    path = tmp_path / "some.puffin"
    common = {"fields": [], "snapshot_id": 1, "sequence_number": 1}
    with path.open("wb") as out, PuffinWriter(out) as writer:
        blobs = [writer.add("t", content, **common) for content in (b"", b"one", b"", b"x" * 99)]
        far = writer.add("t", bytes(1 << 17), **common)
        blobs += [far, writer.add("t", b"last", codec="zstd", **common)]
        writer.finish({})
    with path.open("rb") as stream:
        reader = PuffinReader(stream)
        backwards = [*reversed(blobs), blobs[1]]
        assert reader.read_all(backwards) == [reader.read(backward) for backward in backwards]
        assert reader.read_all([]) == []
