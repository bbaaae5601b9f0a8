"""What a version of 10^9 rows costs to publish and to open: 10,000 shards, 100,000 data files.

Centroids, 4 bytes a number of each cell, are not among it: they are in the partitions blob, which
refreshes name, and the first search reads.
"""

import dataclasses
import io

import numpy as np
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyroaring import BitMap

from puffin_ann.blobs.changes import coverage_changes as coverage_changes_blob
from puffin_ann.blobs.changes import tombstone_changes as tombstone_changes_blob
from puffin_ann.blobs.changes.coverage_changes import CoverageChanges
from puffin_ann.blobs.changes.tombstone_changes import AddedTombstones
from puffin_ann.blobs.encoding.container import fingerprint
from puffin_ann.blobs.shards import graph as graph_blob
from puffin_ann.blobs.shards import identities as identities_blob
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.version import coverage as coverage_blob
from puffin_ann.blobs.version import directory as directory_blob
from puffin_ann.blobs.version import partitions as partitions_blob
from puffin_ann.blobs.version import routing as routing_blob
from puffin_ann.blobs.version import tombstones as tombstones_blob
from puffin_ann.blobs.version.coverage import Coverage, CoveredFile, CoveredFiles
from puffin_ann.blobs.version.directory import Directory, NamedBlob, NamedFile
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.puffin.streams import RangeSource
from puffin_ann.puffin.writer import PuffinWriter
from puffin_ann.search.version.index_version import load_version
from tests.support.indexes.blob_samples import sample_routing

pytestmark = pytest.mark.long

ROWS, SHARDS, FILES, PACKS, DIMENSION = 10**9, 10_000, 100_000, 12, 3072
REFRESHED, LOST = 10, 20
"""Data files that a refresh takes in, and rows that each shard lost since its tombstones blob."""

MOST = 10 * 10**6
"""Bytes of a version's own file beside its change, and bytes read to open one."""


def test_a_version_of_ten_thousand_shards_is_written_and_opened_in_ten_megabytes(
    tmp_path, monkeypatch
):
    rng = np.random.default_rng(1)
    before = covered(rng)
    whole = coverage_blob.encode(before)
    shards = tuple(
        ShardEntry(shard, "", ROWS // SHARDS + LOST, 2**30, LOST, "graph")
        for shard in range(SHARDS)
    )
    cells = sample_routing(cells=SHARDS, dimension=DIMENSION).cells
    owned = dataclasses.replace(cells, shards=np.arange(SHARDS, dtype=np.uint32))
    routing, partitions = routing_blob.split(
        dataclasses.replace(sample_routing(), dimension=DIMENSION, cells=owned, shards=shards)
    )
    changes = CoverageChanges.between(
        before, refreshed(before), written=0, digest=fingerprint(io.BytesIO(whole))
    )
    earlier, stored = write(
        tmp_path / "ann-words-1-n1.puffin",
        {partitions_blob.TYPE: partitions, coverage_blob.TYPE: whole},
    )
    lost = {
        shard: AddedTombstones(BitMap(rng.integers(0, 10**5, 30))[:LOST], 60)
        for shard in range(SHARDS)
    }
    named = in_packs(rng, earlier, stored)

    path, _ = write(
        tmp_path / "ann-words-2-n2.puffin",
        {
            routing_blob.TYPE: routing_blob.encode(routing),
            coverage_changes_blob.TYPE: coverage_changes_blob.encode(changes),
            tombstone_changes_blob.TYPE: tombstone_changes_blob.encode(lost),
            directory_blob.TYPE: directory_blob.encode(named),
        },
    )

    reads = counted(monkeypatch)
    found = load_version(PyArrowFileIO(), str(path), "words")
    opened = sum(reads)
    assert (len(found.routing.shards), found.vectors) == (SHARDS, ROWS)
    assert len(found.coverage.files) == FILES
    written = path.stat().st_size
    print(f"own file {written:,} bytes, read to open it {opened:,} in {len(reads)} reads")
    assert written <= MOST / 2
    assert written <= opened <= MOST

    reads.clear()
    searched = found.cells(PyArrowFileIO())
    assert searched.centroids.tobytes() == owned.centroids.tobytes()
    print(f"read to search it {sum(reads):,} in {len(reads)} reads")
    assert sum(reads) == stored[0].length


def counted(monkeypatch) -> list[int]:
    """The bytes of each read of a file, from now on."""
    reads = []
    read = RangeSource.read_some

    def counting(source, offset, length):
        data = read(source, offset, length)
        reads.append(len(data))
        return data

    monkeypatch.setattr(RangeSource, "read_some", counting)
    return reads


def covered(rng):
    """Data files of names as Iceberg's writers give them: what is random in one does not shrink."""
    records = np.zeros(FILES, coverage_blob.FILE)
    records["file_id"] = np.arange(FILES)
    records["row_groups"] = 1
    records["size"] = rng.integers(10**8, 2 * 10**8, FILES)
    records["sequence_number"] = np.arange(FILES) // 20
    records["rows"] = ROWS // FILES
    drawn = rng.integers(0, 256, (FILES, 16), np.uint8)
    paths = tuple(
        f"data/day={place % 365}/{place % 64:05d}-{place}-{name.tobytes().hex()}-00001.parquet"
        for place, name in enumerate(drawn)
    )
    groups = np.full(FILES, ROWS // FILES, np.uint32)
    manifests = tuple(f"metadata/{name.tobytes().hex()}-m0.avro" for name in drawn[:1000])
    return Coverage(1, CoveredFiles(records, paths, groups, {}, {}), manifests)


def refreshed(before):
    """The coverage after a refresh: some files went, and as many came."""
    rows = ROWS // FILES
    added = [
        CoveredFile(FILES + n, f"data/new-{n}.parquet", 10**8, 9, rows, (rows,), BitMap(), BitMap())
        for n in range(REFRESHED)
    ]
    kept = before.columns.take(np.arange(REFRESHED, FILES))
    return Coverage(2, kept.merged(CoveredFiles.of(added)), (*before.manifests[1:], "metadata/new"))


def in_packs(rng, coverage_file, stored):
    """The directory: the blobs of all shards, in a few files, cells and coverage blob."""
    packs = [NamedFile(f"ann-words-0-n0-{number}.puffin", 2**45) for number in range(PACKS)]
    kinds = (graph_blob.TYPE, rows_blob.TYPE, identities_blob.TYPE, tombstones_blob.TYPE)
    names = [(kind, shard) for shard in range(SHARDS) for kind in kinds]
    digests = rng.integers(0, 256, (len(names), 32), np.uint8)
    lengths = rng.integers(2**16, 2**30, len(names)) // 64 * 64
    blobs = [
        NamedBlob(shard % PACKS, kind, shard, None, int(at), int(length), 1, 1, digest.hex())
        for (kind, shard), at, length, digest in zip(
            names, np.cumsum(lengths), lengths, map(bytes, digests), strict=True
        )
    ]
    own = NamedFile(coverage_file.name, coverage_file.stat().st_size)
    for blob in stored:
        where = (blob.compression_codec, blob.offset, blob.length)
        blobs.append(NamedBlob(PACKS, blob.type, None, *where, 1, 1, ""))
    return Directory((*packs, own), tuple(blobs))


def write(path, blobs):
    with path.open("wb") as out, PuffinWriter(out, alignment=64) as writer:
        for kind, data in blobs.items():
            writer.add(
                kind,
                data,
                fields=[3],
                snapshot_id=1,
                sequence_number=1,
                properties={"index": "words"},
                codec="zstd",
            )
        return path, writer.finish({}).metadata.blobs
