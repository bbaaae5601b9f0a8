"""Where cells begin in a rows blob: written as told, and nothing about it is believed."""

import dataclasses
import io
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.blobs.shards import cells, rows
from puffin_ann.blobs.shards.cells import CellStarts
from puffin_ann.errors import BlobFormatError, FormatError
from tests.support.falsified.mutation import assemble, sections_of
from tests.support.indexes.blob_samples import same, sample_rows, written

ROWS = 200


def numbers(*values):
    return np.array(values, "<u4")


def with_cells(ids, starts):
    value = sample_rows(ROWS, identities=False)
    return dataclasses.replace(value, cells=CellStarts(numbers(*ids), numbers(*starts)))


def blob_with(data: bytes) -> bytes:
    """A rows blob of so many rows with any bytes in the place of its cells."""
    sections = sections_of(written(rows.write, sample_rows(ROWS)), rows.KIND)
    return assemble({**sections, "cell": data}, rows.KIND)


@pytest.mark.parametrize(
    ("ids", "starts"),
    [
        ((), (0,)),
        ((7,), (0, ROWS)),
        ((0, 3, 2**32 - 1), (0, 1, 2, ROWS)),
        ((4, 9), (0, 50, 120)),
    ],
)
def test_cells_come_back(ids, starts):
    value = with_cells(ids, starts)
    back = rows.read(io.BytesIO(written(rows.write, value)))
    assert same(back, value)
    assert back.cells.ordered_rows == starts[-1]
    assert [line[0] for line in back.cells.ranges()] == list(ids)
    assert [line[1:] for line in back.cells.ranges()] == list(itertools.pairwise(starts))


def test_a_blob_without_cells_has_the_bytes_it_had():
    blob = written(rows.write, sample_rows(ROWS))
    assert "cell" not in rows.open_reader(io.BytesIO(blob))
    assert rows.read(io.BytesIO(blob)).cells is None


def test_rows_that_are_inserted_stand_behind_in_runs_of_their_own():
    value, more = with_cells((4, 9), (0, 50, ROWS)), sample_rows(30, files=1, seed=2)
    more = dataclasses.replace(
        more,
        file_ids=more.file_ids + 100,
        cells=CellStarts(np.array([2, 9], np.uint32), np.array([0, 10, 30], np.uint32)),
    )
    back = rows.read(io.BytesIO(written(rows.write, value.followed_by(more))))
    assert list(back.cells.ranges()) == [
        (4, 0, 50),
        (9, 50, ROWS),
        (2, ROWS, ROWS + 10),
        (9, ROWS + 10, ROWS + 30),
    ]


def test_rows_of_unknown_cells_stand_behind_the_cells():
    value = with_cells((4, 9), (0, 50, ROWS))
    more = sample_rows(30, files=1, seed=2)
    more = dataclasses.replace(more, file_ids=more.file_ids + 100)
    both = value.followed_by(more)
    back = rows.read(io.BytesIO(written(rows.write, both)))
    assert (len(back), back.cells.ordered_rows) == (ROWS + 30, ROWS)
    assert rows.set_aside(back, np.array([3])).cells is back.cells, "ordinals stay"
    assert back.take(np.array([3, 1])).cells is None


LIES = {
    "not from 0": (numbers(4, 9, 1, 50, 120), "starts of cells"),
    "descending starts": (numbers(4, 9, 0, 120, 50), "starts of cells"),
    "a cell without rows": (numbers(4, 9, 0, 50, 50), "starts of cells"),
    "past the rows": (numbers(4, 9, 0, 50, ROWS + 1), "201 rows, of 200"),
    "far past the rows": (numbers(4, 9, 0, 50, 2**32 - 1), "4294967295 rows"),
    "no start of nothing": (b"", "0 bytes"),
    "as many starts as cells": (numbers(4, 9, 0, 50), "16 bytes"),
    "half a number": (numbers(4, 0, 9).tobytes()[:-1], "11 bytes"),
    "more cells than rows": (numbers(*range(2 * ROWS + 3)), "more than 200 rows"),
}


@pytest.mark.parametrize("name", LIES)
def test_cells_that_cannot_be_are_refused(name):
    data, message = LIES[name]
    with pytest.raises(BlobFormatError, match=message):
        rows.read(io.BytesIO(blob_with(bytes(data))))


@pytest.mark.parametrize(
    ("ids", "starts"), [((1,), (0, ROWS + 1)), ((1, 0), (0, 2, 2)), ((1,), (0,)), ((1,), (1, 2))]
)
def test_cells_that_cannot_be_are_not_written(ids, starts):
    with pytest.raises(BlobFormatError):
        rows.write(with_cells(ids, starts), io.BytesIO())


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 40), max_size=60))
def test_every_row_of_a_cell_is_in_its_range(of_rows):
    ordered = np.sort(np.array(of_rows, np.uint32))
    value = CellStarts.of(ordered)
    cells.check(value, len(ordered), "here")
    back = cells.decode(cells.encode(value), len(ordered), "here")
    assert same(back, value)
    found = np.concatenate(
        [np.zeros(0, int), *(np.full(b - a, cell) for cell, a, b in back.ranges())]
    )
    assert found.tolist() == ordered.tolist()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_sound(data):
    try:
        value = cells.decode(data, 50, "here")
    except FormatError:
        return
    assert value.ordered_rows <= 50
    assert (np.diff(value.starts.astype(np.int64)) > 0).all()
    assert cells.encode(value) == data
