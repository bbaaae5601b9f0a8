"""What a search refuses, and what it warns of, before or with its answer."""

import json
import logging

import numpy as np
import pyarrow as pa
import pytest

from puffin_ann import open_index
from puffin_ann.errors import QueryError
from puffin_ann.search.questions.checks import MOST_WIDTH
from tests.support.lifecycle import builds

QUERY = np.arange(1, 1 + builds.DIMENSION, dtype=np.float32)


@pytest.mark.parametrize("where", [None, "id >= 50"])
def test_more_rows_than_hold_vectors_are_refused_once_with_their_number(words, where):
    """The rows that are live were told first, and asked for them the rows that hold vectors."""
    builds.build(builds.declaration(algorithm="vamana"), "run")
    rows = builds.rows(range(60, 75))
    field = rows.schema.field("embedding")
    vectors = rows["embedding"].to_pylist()
    vectors[3] = vectors[5] = None
    column = rows.column_names.index("embedding")
    words.refresh().append(rows.set_column(column, field, pa.array(vectors, field.type)))
    index = open_index(words.refresh(), builds.INDEX)
    there = 73 if where is None else 23
    for k in (there + 1, there + 2, 1000):
        with pytest.raises(
            QueryError, match=f"only {there} rows .*hold usable vectors.*most {there},"
        ):
            index.search(QUERY, k, where=where)
    assert len(index.search(QUERY, there, where=where)) == there
    covered = 60 if where is None else 10
    with pytest.raises(QueryError, match=f"only {covered} rows .*are in the index in"):
        index.search(QUERY, covered + 1, where=where, freshness="indexed")


@pytest.mark.parametrize("algorithm", ["vamana", "centroid"])
def test_rows_that_live_without_a_usable_vector_are_not_said_to_be_missing(words, algorithm):
    rows = builds.rows(range(60, 70))
    field = rows.schema.field("embedding")
    vectors = rows["embedding"].to_pylist()
    vectors[0], vectors[1], vectors[2] = None, [1.0], [float("nan")] * builds.DIMENSION
    column = rows.column_names.index("embedding")
    words.refresh().append(rows.set_column(column, field, pa.array(vectors, field.type)))
    builds.build(builds.declaration(algorithm=algorithm), "run")
    index = open_index(words.refresh(), builds.INDEX)
    for where, k, told in (
        (None, 68, "only 67 rows hold usable vectors in"),
        ("embedding is null", 1, "no rows satisfy .* and hold usable vectors in .* none to answer"),
        ("id in (60, 63)", 2, "only 1 row satisfies .* and holds a usable vector in .* most 1,"),
        ("id in (62, 63, 64)", 3, "only 2 rows satisfy .* and hold usable vectors in"),
        ("id in (63, 64)", 3, "only 2 rows satisfy the condition .id in .63, 64.. in snapshot"),
        ("id > 1000", 1, "no rows satisfy the condition 'id > 1000' in snapshot"),
    ):
        with pytest.raises(QueryError, match=told):
            index.search(QUERY, k, where=where)


@pytest.mark.parametrize(
    "queries",
    [
        np.ones((1, builds.DIMENSION), bool),
        [["1"] * 8],
        [True] * 8,
        np.zeros(builds.DIMENSION, "M8[D]"),
        np.zeros(builds.DIMENSION, "m8[s]"),
    ],
)
def test_queries_of_what_is_no_number_are_refused(words, queries):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    with pytest.raises(
        QueryError, match=r"queries are (true and false|text|dates|lengths of time); give numbers"
    ):
        index.search(queries, 1)
    assert len(index.search(np.ones((1, builds.DIMENSION), np.uint8), 1)) == 1


@pytest.mark.parametrize("algorithm", ["vamana", "exact", "centroid"])
@pytest.mark.parametrize("width", [10**12, MOST_WIDTH + 1, np.int64(2**40), 10**30])
def test_a_width_that_no_search_may_have_is_refused(words, algorithm, width):
    builds.build(builds.declaration(algorithm=algorithm), "run")
    index = open_index(words.refresh(), builds.INDEX)
    with pytest.raises(QueryError, match=f"width is {width}; it must be at most {MOST_WIDTH}; exh"):
        index.search(QUERY, 3, width=width)
    assert len(index.search(QUERY, 3, width=MOST_WIDTH)) == 3


def test_effort_is_a_whole_number_and_all_cells_are_the_most(words):
    builds.build(builds.declaration(algorithm="vamana"), "run")
    index = open_index(words.refresh(), builds.INDEX)
    for name in ("width", "probe_partitions"):
        for value in (1.5, True, "3"):
            with pytest.raises(QueryError, match=f"{name} is {value!r}; it must be a whole number"):
                index.search(QUERY, 3, **{name: value})
    for many in (1, 2):
        queries = np.tile(QUERY, (many, 1))
        all_cells = index.search(queries, 3, probe_partitions=10**30)
        assert all_cells.equals(index.search(queries, 3, probe_partitions=4))


def warnings(caplog):
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def test_queries_of_zeros_are_warned_of_once_by_cosine_and_answered(words, caplog):
    builds.build(builds.declaration(algorithm="vamana", metric="cosine"), "run")
    index = open_index(words.refresh(), builds.INDEX)
    zeros = np.zeros(builds.DIMENSION, np.float32)
    asked = (lambda some: index.search(some, 3), lambda some: index.within(some, 1.5))
    for search in asked:
        caplog.clear()
        found = search(np.stack([QUERY, zeros, zeros]))
        (warning,) = warnings(caplog)
        assert "'words_index': 2 queries are all zeros, without a direction" in warning
        report = json.loads(found.schema.metadata[b"puffin_ann"])
        assert report["queries_of_zeros"] == 2
        distances = found["distance"].to_numpy()[found["query"].to_numpy() == 1]
        assert len(distances) >= 3
        assert len({*distances.tolist()}) == 1
        caplog.clear()
        search(QUERY)
        assert not warnings(caplog)


def test_queries_of_zeros_are_like_others_by_other_metrics(words, caplog):
    builds.build(builds.declaration(algorithm="vamana", metric="l2"), "run")
    index = open_index(words.refresh(), builds.INDEX)
    found = index.search(np.zeros(builds.DIMENSION, np.float32), 3)
    assert json.loads(found.schema.metadata[b"puffin_ann"])["queries_of_zeros"] == 0
    assert not warnings(caplog)


def test_columns_are_any_names_that_can_be_iterated(words):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    expected = index.search(QUERY, 3, columns=["id", "word"])
    names = ["id", "word"]
    for columns in ({"word", "id"}, iter(names), dict.fromkeys(names).keys(), np.array(names)):
        assert index.search(QUERY, 3, columns=columns).equals(expected)
    assert index.within(QUERY, 1e9, columns=frozenset({"word"})).column_names[3:-1] == ["word"]


def test_columns_that_are_no_names_are_refused(words):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    for columns, message in (
        (3, "columns is 3; it takes a list of names"),
        ("id", r"it takes a list of names: \['id'\]"),
        ({"id", 3}, "columns: 3 is no name"),
        ([b"id"], "columns: b'id' is no name"),
        (["id", None], "columns: None is no name"),
        ([["id"]], r"columns: \['id'\] is no name"),
        ({"rank"}, "'rank' has the name of a result column"),
    ):
        with pytest.raises(QueryError, match=message):
            index.search(QUERY, 3, columns=columns)
        with pytest.raises(QueryError, match=message):
            index.within(QUERY, 1.0, columns=columns)
