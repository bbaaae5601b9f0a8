"""What changed since a coverage blob or a shard's tombstones blob was written."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from puffin_ann.blobs.changes import coverage_changes, tombstone_changes
from puffin_ann.blobs.changes.coverage_changes import CoverageChanges
from puffin_ann.blobs.changes.tombstone_changes import AddedTombstones
from puffin_ann.blobs.version import coverage
from puffin_ann.blobs.version.coverage import Coverage, CoveredFile
from puffin_ann.errors import BlobFormatError
from tests.support.indexes.blob_samples import sample_coverage, sample_coverage_changes

DIGEST = "ab" * 32


@st.composite
def coverages(draw):
    ids = draw(st.sets(st.integers(0, 12), max_size=9))
    files = []
    for number in sorted(ids):
        groups = tuple(draw(st.lists(st.integers(1, 9), max_size=3)))
        rows = sum(groups)
        positions = st.sets(st.integers(0, rows - 1), max_size=3) if rows else st.just(set())
        gone, skipped = BitMap(draw(positions)), BitMap(draw(positions))
        path = f"data/{number}-{draw(st.integers(0, 1))}.parquet"
        files.append(
            CoveredFile(number, path, draw(st.integers(0, 2)), 1, rows, groups, gone, skipped)
        )
    manifests = draw(st.lists(st.integers(0, 6), unique=True, max_size=5))
    return Coverage(
        draw(st.integers(0, 3)), tuple(files), tuple(f"m{number}.avro" for number in manifests)
    )


@settings(max_examples=300, deadline=None)
@given(coverages(), coverages())
def test_changes_between_any_two_coverages_make_one_of_the_other(before, after):
    stored = coverage.decode(coverage.encode(before))
    changes = CoverageChanges.between(stored, after, written=5, digest=DIGEST)

    read = coverage_changes.decode(coverage_changes.encode(changes))
    found = read.applied_to(stored)

    assert found.base_snapshot_id == after.base_snapshot_id
    assert list(found.files) == list(after.files)
    assert sorted(found.manifests) == sorted(after.manifests)
    assert (read.written, read.digest) == (5, DIGEST)
    # It can be written and changed again, as any coverage.
    assert list(coverage.decode(coverage.encode(found)).files) == list(after.files)
    nothing = CoverageChanges.between(found, after, written=0, digest=DIGEST)
    assert (len(nothing.files), len(nothing.removed_files)) == (0, 0)


def test_files_that_did_not_change_are_not_told():
    before = sample_coverage()
    changes = sample_coverage_changes()

    assert [file.file_id for file in changes.files] == [0, 12]
    assert changes.removed_files.tolist() == [3]
    assert changes.manifests == ("metadata/m2.avro",)
    assert changes.removed_manifests.tolist() == [0]
    assert before.files[-1] == changes.applied_to(before).files[1]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"removed_files": np.array([1], np.uint32)}, "a removed file"),
        ({"removed_manifests": np.array([2], np.uint32)}, "a removed manifest"),
    ],
)
def test_changes_of_another_coverage_are_refused(changed, message):
    changes = dataclasses.replace(sample_coverage_changes(), **changed)

    with pytest.raises(BlobFormatError, match=message):
        changes.applied_to(sample_coverage())


def test_a_shard_that_lost_nothing_is_not_among_the_tombstone_changes():
    with pytest.raises(BlobFormatError, match="shard 4 has no deleted rows"):
        tombstone_changes.encode({4: AddedTombstones(BitMap(), 0)})


def test_a_thousand_shards_that_lost_a_row_each_take_thirty_kilobytes():
    shards = {number: AddedTombstones(BitMap([number]), 9) for number in range(1000)}

    assert len(tombstone_changes.encode(shards)) < 40_000
