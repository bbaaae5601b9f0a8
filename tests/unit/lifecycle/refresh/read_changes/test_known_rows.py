"""Rows by their row ids: which are known, and which are left to their hashes."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.lifecycle.documents.refresh import KnownRowsOfBucket
from puffin_ann.lifecycle.documents.run import StagedFile
from puffin_ann.lifecycle.refresh.read_changes.known_rows import (
    NO_NUMBER,
    RowIds,
    RowsByRowId,
)
from puffin_ann.lifecycle.refresh.read_changes.relocated_rows import _doubtful
from puffin_ann.lifecycle.refresh.read_changes.rewritten_files import RewrittenFiles
from puffin_ann.lifecycle.runtime.workspace import arrays_to_bytes

PAIRS = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3)), max_size=12)
"""Row ids and sequence numbers, some of them twice."""


def identities(numbers) -> np.ndarray:
    """An identity for each number, told from all others."""
    return np.array([[number + 100, number] for number in numbers], np.uint64).reshape(-1, 2)


def lookup(buckets: list[RowsByRowId], *, is_whole: bool = True) -> RowIds:
    """What finds rows of buckets that were staged."""
    staged = {str(number): arrays_to_bytes(rows) for number, rows in enumerate(buckets)}
    workspace = SimpleNamespace(fetch_bytes=lambda file: staged[file.uri])
    known = [
        KnownRowsOfBucket(
            known=StagedFile(uri=str(number), length=0, sha256=""),
            rows=len(rows.row_ids),
            first=int(rows.row_ids[0]) if len(rows.row_ids) else 0,
            last=int(rows.row_ids[-1]) if len(rows.row_ids) else 0,
            is_whole=is_whole or number > 0,
        )
        for number, rows in enumerate(buckets)
    ]
    return RowIds(workspace, known)


@given(indexed=st.lists(PAIRS, min_size=1, max_size=3), skipped=PAIRS, asked=PAIRS)
def test_a_row_is_known_where_one_removed_row_alone_has_its_id_and_its_number(
    indexed, skipped, asked
):
    buckets, every = [], []
    for number, pairs in enumerate(indexed):
        others = skipped if number == 0 else []
        numbers = range(10 * number, 10 * number + len(pairs))
        lineage = np.array([*pairs, *others], np.uint64).reshape(-1, 2)
        buckets.append(RowsByRowId.of(lineage, identities(numbers)))
        values = [*numbers, *(None for _ in others)]
        every += zip([*pairs, *others], values, strict=True)
    found = lookup(buckets)(np.array(asked, np.uint64).reshape(-1, 2))
    for place, pair in enumerate(asked):
        of_id = [value for known, value in every if known[0] == pair[0]]
        mine = [value for known, value in every if known == pair] if len(of_id) == 1 else []
        assert found.indexed[place] == (bool(mine) and mine[0] is not None)
        if found.indexed[place]:
            assert found.identities[place].tolist() == identities(mine)[0].tolist()


def test_a_row_without_a_usable_vector_is_known_by_no_number():
    rows = RowsByRowId.of(np.array([[1, 5], [2, 5]], np.uint64), identities([7]))
    asked = np.array([[2, 5], [1, 5], [2, NO_NUMBER]], np.uint64)
    assert lookup([rows])(asked).indexed.tolist() == [False, True, False]


def test_no_row_is_known_where_a_file_could_not_be_read():
    rows = [
        RowsByRowId.of(np.array([[number, 5]], np.uint64), identities([number]))
        for number in (1, 2)
    ]
    asked = np.array([[1, 5], [2, 5]], np.uint64)
    assert lookup(rows)(asked).indexed.all()
    assert not lookup(rows, is_whole=False)(asked).indexed.any()


def test_files_are_found_among_those_that_are_looked_into():
    ids = np.array([3, 5, 9])
    files = RewrittenFiles(ids, ids, ids, np.array([0, 0, 1]))
    assert files.places(np.array([9, 4, 3, 10, 0], np.uint32)).tolist() == [2, -1, 0, -1, -1]


@pytest.mark.parametrize(
    ("removed", "added", "by_row_id", "doubtful"),
    [
        ([1, 2], [2, 1], [True, True], [False, False]),
        ([1], [1, 1], [True, True], [True, True]),  # one row, and two say that they are it
        ([1], [1, 1], [True, False], [False, False]),  # the other is an equal row
        ([1, 1], [1, 1, 1], [True, True, False], [False, False, False]),
        ([2], [1, 2], [True, True], [True, False]),
        ([], [1], [False], [False]),
    ],
)
def test_rows_that_are_more_than_were_removed_are_doubted(removed, added, by_row_id, doubtful):
    found = _doubtful(identities(removed), identities(added), np.array(by_row_id))
    assert found.tolist() == doubtful
