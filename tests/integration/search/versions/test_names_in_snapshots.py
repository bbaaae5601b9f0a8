"""Columns, conditions and keys have one schema in a search: that of the snapshot searched."""

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.types import IntegerType, LongType

from puffin_ann import open_index
from puffin_ann.errors import ColumnNotFoundError
from puffin_ann.lake.read.data.column_chunks import KEPT
from puffin_ann.search.row_by_key import vector_of_row
from tests.support.lifecycle import builds, refreshes

QUERIES = np.random.default_rng(5).normal(size=(2, builds.DIMENSION)).astype(np.float32)
OLD = {"id": pa.int64(), "word": pa.large_string(), "number": pa.int32()}
NEW = {"word": pa.int64(), "term": pa.large_string(), "number": pa.int64()}


def counted(ids):
    rows = builds.rows(ids)
    return rows.append_column("number", pa.array([i % 7 for i in ids], pa.int32()))


@pytest.fixture(params=[None, ["id", "word", "number"]], ids=["of the table", "included"])
def evolved(request, words):
    """A table whose names were swapped and a type widened after a snapshot, tagged `then`.

    The index has a delta, and lacks rows of each snapshot.
    """
    with words.update_schema() as update:
        update.add_column("number", IntegerType())
    words.refresh().append(counted(range(60, 80)))
    included = {} if request.param is None else {"include": request.param}
    declaration = refreshes.declared(**included)
    builds.build(declaration, "run")
    words.refresh().append(counted(range(80, 95)))
    refreshes.refresh(words, declaration, "delta")
    words.refresh().append(counted(range(95, 100)))
    words.refresh().delete("id >= 10 and id < 14")
    then = words.refresh().current_snapshot().snapshot_id
    words.manage_snapshots().create_tag(snapshot_id=then, tag_name="then").commit()
    words.manage_snapshots().create_branch(snapshot_id=then, branch_name="side").commit()
    with words.refresh().update_schema() as update:
        update.rename_column("word", "term")
        update.update_column("number", LongType())
    with words.update_schema() as update:
        update.rename_column("id", "word")
    renamed = counted(range(100, 104)).rename_columns(["word", "term", "embedding", "number"])
    words.refresh().append(renamed.cast(words.schema().as_arrow()))
    KEPT.clear()
    return words.refresh(), then


def assert_named(index, kinds, rows):
    """Hold columns of all rows, and of those of a condition, to what PyIceberg reads."""
    names = list(kinds)
    expected = {row[names[0]]: row for row in rows.select(names).to_pylist()}
    found = index.search(QUERIES, len(rows), columns=names)
    assert [found.schema.field(name).type for name in names] == list(kinds.values())
    assert found.column_names[3:-1] == names
    for row in found.select(names).to_pylist():
        assert row == expected[row[names[0]]]
    text = names[1]
    near = index.within(QUERIES[:1], 1e9, columns=[text], where=f"{text} in ('w5', 'w85', 'w97')")
    assert sorted(near[text].to_pylist()) == ["w5", "w85", "w97"]
    row = vector_of_row(index, text, "w85")
    np.testing.assert_array_equal(row.vector, builds.rows([85])["embedding"][0].as_py())


@pytest.mark.parametrize("by", ["snapshot", "tag"])
def test_a_snapshot_of_the_past_is_searched_by_its_own_names_and_types(evolved, by):
    table, then = evolved
    named = {"snapshot_id": then} if by == "snapshot" else {"ref": "then"}
    assert table.refs()["side"].snapshot_id == then  # of no account: it is not what is named
    index = open_index(table, builds.INDEX, **named)
    assert_named(index, OLD, table.scan(snapshot_id=then).to_arrow())
    for ask in (
        lambda: index.search(QUERIES, 1, columns=["term"]),
        lambda: index.search(QUERIES, 1, where="term = 'w5'"),
        lambda: vector_of_row(index, "term", "w5"),
    ):
        with pytest.raises(ColumnNotFoundError, match=r"'term'.*word"):
            ask()


@pytest.mark.parametrize("ref", [None, "side"])
def test_heads_of_branches_are_searched_by_the_names_of_now(evolved, ref):
    table, then = evolved
    index = open_index(table, builds.INDEX, ref=ref)
    rows = table.scan(snapshot_id=then if ref else None).to_arrow()
    if ref:
        rows = rows.rename_columns({"id": "word", "word": "term"})
    assert_named(index, NEW, rows)
    with pytest.raises(ColumnNotFoundError, match=r"'id'.*term"):
        index.search(QUERIES, 1, columns=["id"])
