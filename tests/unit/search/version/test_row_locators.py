"""Which rows of a shard are masked, whatever the order of its ordinals; held to loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from puffin_ann.blobs.shards.rows import Rows
from puffin_ann.errors import BlobFormatError, LocalCopyError
from puffin_ann.lake.read.diff.coverage_diff import ALL
from puffin_ann.search.version.row_locators import FileRanks, Locators, MaskedRows

GROUPS = ((4, 1, 3), (5,), (2, 2), (1, 1, 1))
"""Rows in the row groups of files 3, 10, 2^32 - 2 and 2^32 - 1."""
FILES = (3, 10, 2**32 - 2, 2**32 - 1)


def rows_of(locators):
    table = np.array(locators, np.uint32).reshape(-1, 3)
    return Rows(*(np.ascontiguousarray(column) for column in table.T))


def saved(locators, folder):
    Locators.save(rows_of(locators), folder)
    return Locators.open(folder)


EVERY = [
    (file, group, offset)
    for file, groups in zip(FILES, GROUPS, strict=True)
    for group, rows in enumerate(groups)
    for offset in range(rows)
]
STALE = [(7, 0, 0), (7, 900, 3), (2**32 - 3, 1, 1)]
"""Locators of deleted rows, in files that nobody knows any more."""


def starts(file):
    return np.cumsum([0, *GROUPS[FILES.index(file)]])


masks = st.dictionaries(
    st.sampled_from(FILES),
    st.one_of(st.just(ALL), st.sets(st.integers(0, 7)).map(BitMap)),
)


@settings(max_examples=150, deadline=None)
@given(
    locators=st.lists(st.sampled_from(EVERY + STALE), unique=True),
    ordered=st.booleans(),
    masked=masks,
)
def test_masked_rows_are_found_as_by_a_loop(tmp_path_factory, locators, ordered, masked):
    locators = sorted(locators) if ordered else locators
    laid_out = saved(locators, tmp_path_factory.mktemp("rows"))

    found = laid_out.masked(MaskedRows.of(masked, {file: starts(file) for file in masked}))

    expected = [
        file in masked
        and (masked[file] is ALL or int(starts(file)[group]) + offset in masked[file])
        for file, group, offset in locators
    ]
    assert (found.tolist() if found is not None else [False] * len(locators)) == expected
    assert laid_out.in_order == (locators == sorted(locators))
    assert laid_out.file_ids.tolist() == [file for file, _, _ in locators]
    assert len(laid_out) == len(locators)


def test_keys_are_ranks_groups_and_offsets_in_the_shape_asked_for(tmp_path):
    laid_out = saved([(2**32 - 1, 5, 7), (0, 1, 3), (900, 0, 0)], tmp_path)
    ranks = FileRanks(np.array([0, 7, 2**32 - 1]), np.array([40, 10, 20]))

    keys = laid_out.keys(ranks, np.array([[1, 0], [0, 0]]))

    assert not ranks.in_order
    assert int(ranks[7]) == 10
    assert [key.tolist() for key in keys] == [
        [[40, 20], [20, 20]],
        [[1, 5], [5, 5]],
        [[3, 7], [7, 7]],
    ]


def test_what_is_mapped_is_told_to_have_changed_where_it_names_what_is_not_covered(tmp_path):
    laid_out = saved([(3, 0, 0), (3, 0, 1)], tmp_path)
    ranks = FileRanks(np.array([3]), np.array([0]))
    last = np.load(tmp_path / "files.npy", mmap_mode="r+")
    last[:] = 9
    last.flush()

    with pytest.raises(LocalCopyError, match=r"changed while it was open.*open the index again"):
        laid_out.keys(ranks, np.array([1]))


def test_a_row_group_that_its_file_has_not_is_refused(tmp_path):
    laid_out = saved([(3, 3, 0)], tmp_path)
    masked = MaskedRows.of({3: BitMap([0])}, {3: starts(3)})

    with pytest.raises(BlobFormatError, match="row group"):
        laid_out.masked(masked)


def test_columns_cut_short_are_refused(tmp_path):
    saved([(3, 0, 0), (3, 0, 1)], tmp_path)
    np.save(tmp_path / "offsets.npy", np.zeros(1, np.uint32))

    with pytest.raises(ValueError, match="different lengths"):
        Locators.open(tmp_path)
