"""Rows are found by key and searched with whatever the table calls its columns meanwhile."""

import numpy as np
import pyarrow as pa
import pytest

from puffin_ann import open_index
from puffin_ann.errors import ColumnNotFoundError, RowNotFoundError
from puffin_ann.search.row_by_key import vector_of_row
from tests.support.lifecycle import builds


@pytest.fixture
def indexed(words):
    builds.build(builds.declaration(), "run")
    return words.refresh()


def rename(table, before, after):
    with table.update_schema() as update:
        update.rename_column(before, after)


def vector_of(number):
    return np.array(builds.rows([number]).column("embedding")[0].as_py(), np.float32)


def test_a_row_is_found_by_key_where_the_vector_column_was_renamed_and_nothing_written_since(
    indexed,
):
    rename(indexed, "embedding", "vector")
    opened = open_index("test.demo.words", builds.INDEX)
    found = vector_of_row(opened, "word", "w5")
    np.testing.assert_array_equal(found.vector, vector_of(5))
    nearest = opened.search(found.vector, 1, columns=["id"])
    assert nearest.column("id").to_pylist() == [5]


def test_a_row_is_found_by_the_name_that_its_key_column_has_now(indexed):
    rename(indexed, "word", "term")
    opened = open_index("test.demo.words", builds.INDEX)
    np.testing.assert_array_equal(vector_of_row(opened, "term", "w8").vector, vector_of(8))
    with pytest.raises(ColumnNotFoundError, match=r"no top-level column 'word'.*term"):
        vector_of_row(opened, "word", "w8")


def test_a_row_of_an_older_snapshot_is_found_under_the_names_it_had(indexed):
    old = indexed.current_snapshot().snapshot_id
    rename(indexed, "embedding", "vector")
    rename(indexed, "word", "term")
    late = builds.rows(range(60, 63)).rename_columns(["id", "term", "vector"])
    indexed.append(late)
    for snapshot, key in ((old, "word"), (None, "term")):
        opened = open_index("test.demo.words", builds.INDEX, snapshot)
        np.testing.assert_array_equal(vector_of_row(opened, key, "w7").vector, vector_of(7))
    np.testing.assert_array_equal(vector_of_row(opened, "term", "w61").vector, vector_of(61))


def test_a_row_without_a_usable_vector_is_named(indexed):
    broken = builds.rows(range(70, 72)).to_pylist()
    broken[0]["embedding"] = None
    broken[1]["embedding"][3] = float("nan")
    indexed.append(pa.Table.from_pylist(broken, builds.rows([]).schema))
    opened = open_index("test.demo.words", builds.INDEX)
    for word in ("w70", "w71"):
        with pytest.raises(RowNotFoundError, match=f"'{word}': the row has no usable vector"):
            vector_of_row(opened, "word", word)
