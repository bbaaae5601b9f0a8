"""Deleted rows of a shard are found by a look at few rows: as many as by a look at each."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from puffin_ann.blobs.encoding.container import ContainerReader
from puffin_ann.blobs.shards import identities as identities_blob
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.shards.rows import Rows
from puffin_ann.blobs.version.coverage import CoveredFile, CoveredFiles
from puffin_ann.lake.read.diff.coverage_diff import ALL
from puffin_ann.search.shards.opening.deleted_rows import Suspects
from puffin_ann.search.version import consistency
from puffin_ann.search.version.consistency import CoveredRows
from puffin_ann.search.version.row_locators import Locators, MaskedRows
from tests.support.indexes import rows_with_identities

GROUPS = {2: (4, 6), 3: (), 7: (5,), 8: (3, 1, 9), 2**32 - 9: (2,)}
COUNTS = {file: sum(groups) for file, groups in GROUPS.items()}


def positions(file):
    return st.sets(st.integers(0, COUNTS[file] - 1)) if COUNTS[file] else st.just(set())


@st.composite
def cases(draw):
    """Covered files, rows of them masked, and locators that may be anywhere."""
    deleted = {file: BitMap(draw(positions(file))) for file in GROUPS}
    files = CoveredFiles.of(
        [
            CoveredFile(file, str(file), 1, 1, COUNTS[file], groups, deleted[file], BitMap())
            for file, groups in GROUPS.items()
        ]
    )
    masked = {}
    for file, groups in GROUPS.items():
        way = draw(st.sampled_from(["none", "all", "some"]))
        if way == "all":
            masked[file] = ALL
        elif way == "some" and groups:
            masked[file] = BitMap(draw(positions(file)))
    starts = {file: np.append(0, np.cumsum(groups)) for file, groups in GROUPS.items()}
    locators = draw(
        st.lists(
            st.tuples(
                st.sampled_from([0, *GROUPS, 9, rows_blob.NOWHERE]),
                st.sampled_from([0, 0, 1, 2, 2**32 - 1]),
                st.sampled_from([*range(10), 2**32 - 1]),
            ),
            max_size=60,
        )
    )
    columns = np.array(locators, np.int64).reshape(-1, 3).T.astype(np.uint32)
    return files, MaskedRows.of(masked, starts), Rows(*map(np.ascontiguousarray, columns))


@pytest.mark.parametrize("few_rows", [0, 3, 1 << 22])
@given(case=cases())
@settings(max_examples=150, deadline=None)
def test_every_row_that_is_not_live_is_among_the_suspects(few_rows, case):
    files, masked, rows = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consistency, "FEW_ROWS", few_rows)
        covered = CoveredRows.of(files)
    locators = Locators.of(rows)
    wrong = covered.not_among(locators)
    sound = np.flatnonzero(~wrong)
    gone = Locators.of(rows.take(sound)).masked(masked)
    expected = set(np.flatnonzero(wrong).tolist())
    if gone is not None:
        expected |= set(sound[gone].tolist())

    found = Suspects.of(covered, masked).among(rows)

    assert (np.diff(found) > 0).all()
    assert expected <= set(found.tolist())


def test_few_live_rows_are_among_them():
    count = 200_000
    files = CoveredFiles.of([CoveredFile(0, "a", 1, 1, count, (count,), BitMap(), BitMap())])
    masked = MaskedRows.of({0: BitMap(range(0, count, 1000))}, {0: np.array([0, count])})
    nothing = np.zeros(count, np.uint32)
    rows = Rows(nothing, nothing, np.arange(count, dtype=np.uint32))

    found = Suspects.of(CoveredRows.of(files), masked).among(rows)

    assert 200 <= len(found) <= 200 + count // 32


@pytest.mark.parametrize("wanted", [[], [0], [9_999, 0, 5_000, 5_000], list(range(0, 10_000, 7))])
def test_identities_of_some_rows_are_those_of_the_blob(wanted, monkeypatch):
    count = 10_000
    identities = np.random.default_rng(1).integers(0, 2**63, (count, 2)).astype(np.uint64)
    numbers = np.arange(count, dtype=np.uint32)
    monkeypatch.setattr(identities_blob, "NEAR_ROWS", 100)
    earlier, apart = io.BytesIO(), io.BytesIO()
    rows_with_identities.write(Rows(numbers * 0, numbers * 0, numbers, identities), earlier)
    identities_blob.write(identities, apart)
    reads = []
    read_range = ContainerReader.read_range
    monkeypatch.setattr(
        ContainerReader,
        "read_range",
        lambda self, *range_: reads.append(range_) or read_range(self, *range_),
    )

    for module, blob in (
        (rows_blob.read_identities, rows_blob.open_reader(earlier)),
        (identities_blob.read_some, identities_blob.open_reader(apart, count)),
    ):
        reads.clear()
        found = module(blob, count, np.array(wanted, np.int64))

        assert np.array_equal(found, identities[wanted])
        assert len(reads) <= identities_blob.RANGES


def test_a_rows_blob_without_identities_gives_none():
    blob = io.BytesIO()
    rows_blob.write(Rows(*np.zeros((3, 1), np.uint32)), blob)

    reader = rows_blob.open_reader(blob)

    assert rows_blob.read_identities(reader, 1, np.array([0])) is None
