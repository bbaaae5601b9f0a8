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


FLAT = [1.0] * builds.DIMENSION
LIST_VIEW = pa.list_view(pa.float32())


@pytest.mark.parametrize(
    "queries",
    [
        np.ones((1, builds.DIMENSION), bool),
        [["1"] * 8],
        [True] * 8,
        np.zeros(builds.DIMENSION, "M8[D]"),
        np.zeros(builds.DIMENSION, "m8[s]"),
        np.array([*FLAT[1:], True], object),
        np.array([FLAT, [*FLAT[1:], "1"]], object),
        [*FLAT[1:], True],
        [FLAT, (*FLAT[1:], np.True_)],
        [np.array(FLAT), np.ones(builds.DIMENSION, bool)],
        [[*FLAT[1:], np.timedelta64(1, "s")]],
        pa.array([[True] * builds.DIMENSION]),
        pa.array([["1"] * builds.DIMENSION]),
    ],
)
def test_queries_of_what_is_no_number_are_refused(words, queries):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    message = r"queries hold (true and false|text|dates|lengths of time); give numbers"
    with pytest.raises(QueryError, match=message):
        index.search(queries, 1)
    with pytest.raises(QueryError, match=message):
        index.within(queries, 1.0)
    assert len(index.search(np.ones((1, builds.DIMENSION), np.uint8), 1)) == 1


MASKED = np.ma.array(np.ones((2, builds.DIMENSION), np.float32), mask=False)
MASKED[1, 3] = np.ma.masked


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        (MASKED, "queries hold masked values"),
        (MASKED[1].astype(np.float64), "queries hold masked values"),
        ([*MASKED], "queries hold masked values"),
        ([*FLAT[1:], np.ma.masked], "queries hold masked values"),
        (np.zeros(builds.DIMENSION, [("a", "f4")]), r"queries are records of fields \(a\)"),
        (np.zeros((2, 8), [("a", "f4"), ("b", "i8")]), r"queries are records of fields \(a, b\)"),
        (np.array(["1"] * builds.DIMENSION, np.dtypes.StringDType()), "queries hold text"),
    ],
)
def test_arrays_of_which_something_would_be_lost_are_refused(words, queries, message):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    with pytest.raises(QueryError, match=message):
        index.search(queries, 1)
    expected = index.search(np.asarray(MASKED[:1]), 3)
    assert index.search(MASKED[:1], 3).equals(expected)  # with a mask of which nothing is masked


def arrow_lists(rows):
    """Return rows as columns of Arrow's: of every kind of list, sliced, and in chunks."""
    kinds = (
        pa.list_(pa.float32()),
        pa.large_list(pa.float64()),
        pa.list_(pa.float16(), builds.DIMENSION),
        pa.list_(pa.int16(), builds.DIMENSION),
    )
    columns = [pa.array(rows, kind) for kind in kinds]
    padded = pa.array([rows[0], None, *rows], kinds[2])
    tensors = pa.fixed_shape_tensor(pa.float32(), [builds.DIMENSION])
    plain = pa.array(rows, tensors.storage_type)
    return [
        *columns,
        padded[2:],
        pa.chunked_array([columns[2][:1], columns[2][1:]]),
        pa.ExtensionArray.from_storage(tensors, plain),
    ]


def test_columns_of_lists_are_queries(words):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    rows = [list(range(1, 1 + builds.DIMENSION)), list(range(builds.DIMENSION, 0, -1))]
    expected = index.search(np.array(rows), 3)
    for column in arrow_lists(rows):
        assert index.search(column, 3).equals(expected)
    alone = index.search(QUERY, 3)
    column = pa.array(rows, pa.list_(pa.float32()))
    assert index.search(column[0], 3).equals(alone)
    assert index.search(column[0].values, 3).equals(alone)
    assert index.search(column[:0], 3).num_rows == 0
    assert index.search(np.array(rows[:0]).reshape(0, builds.DIMENSION), 3).num_rows == 0
    assert index.within(column, 3.0).equals(index.within(np.array(rows), 3.0))


def test_columns_of_objects_are_queries_where_each_is_a_vector(words):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    rows = np.stack([QUERY, QUERY[::-1]])
    expected = index.search(rows, 3)
    column = np.empty(2, object)
    column[:] = list(rows)
    lists = np.empty(2, object)
    lists[:] = rows.tolist()
    for queries in (column, lists, pa.array(list(rows), LIST_VIEW)):
        assert index.search(queries, 3).equals(expected)
    column[1] = rows[1, 1:]
    lists[1] = [True] * builds.DIMENSION
    for queries, message in (
        (column, "not numbers of one dimension"),
        (lists, "queries hold true and false"),
        (pa.table({"embedding": list(rows)}), r"a table; give one of its columns: table\['"),
        (pa.array([list(rows[0]), None], LIST_VIEW), "queries hold null"),
        (pa.array([*FLAT[1:], None]), "queries hold null"),
    ):
        with pytest.raises(QueryError, match=message):
            index.search(queries, 3)


def test_columns_that_hold_no_query_somewhere_are_refused_with_the_place(words):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    for rows, kind, message in (
        ([FLAT, None], pa.list_(pa.float32()), "query 1 is null; give rows that have a vector"),
        ([FLAT, FLAT[1:]], pa.list_(pa.float32()), "queries have 8 and 7 numbers; all need 8"),
        ([FLAT[1:]], pa.list_(pa.float32()), r"queries have shape \(1, 7\)"),
        ([[*FLAT[1:], None]], pa.list_(pa.float64(), 8), "hold null among their numbers"),
        ([[*FLAT[1:], float("nan")]], pa.list_(pa.float32()), "query 0 holds a NaN"),
    ):
        with pytest.raises(QueryError, match=message):
            index.search(pa.array(rows, kind), 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("many", [1, 3, 3000])
def test_a_query_that_is_not_finite_is_refused_by_its_number(words, bad, many):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    queries = np.ones((many, builds.DIMENSION), np.float32)
    queries[many // 2, 5] = bad
    with pytest.raises(QueryError, match=f"query {many // 2} holds a NaN or infinite"):
        index.search(queries, 3)
    queries[many // 2, 5] = 1e30
    with pytest.raises(QueryError, match=f"query {many // 2} has length 1e\\+30"):
        index.search(queries, 3)


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
        with pytest.raises(QueryError, match=f"either exhaustive, .*, or {name} "):
            index.search(QUERY, 3, exhaustive=True, **{name: 3})
    for many in (1, 2):
        queries = np.tile(QUERY, (many, 1))
        all_cells = index.search(queries, 3, probe_partitions=10**30)
        assert all_cells.equals(index.search(queries, 3, probe_partitions=4))


@pytest.mark.parametrize("huge", [10**400, 10**5000], ids=["400", "5000"])
def test_of_a_number_of_very_many_digits_an_error_shows_the_beginning_at_most(words, huge):
    builds.build(builds.declaration(algorithm="vamana"), "run")
    index = open_index(words.refresh(), builds.INDEX)
    for ask, message in (
        (lambda: index.search(QUERY, huge), "k is .*, but only 60 rows"),
        (lambda: index.search(QUERY, huge, where="id > 1000"), "k is .*, but no rows"),
        (lambda: index.search(QUERY, -huge), "k is .*; it must be a whole"),
        (lambda: index.search(QUERY, 3, width=huge), "width is .*; it must be at most"),
        (lambda: index.search(QUERY, 3, probe_partitions=-huge), "is .*; it must be at least 1"),
        (lambda: index.within(QUERY, huge), "distance is a number beyond float64"),
        (lambda: index.within(QUERY, [huge]), "distance is .*; it must be a number"),
    ):
        with pytest.raises(QueryError, match=message) as refused:
            ask()
        assert len(str(refused.value)) < 500


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
        (b"id", r"columns is b'id'; it takes a list of names: \['id'\]"),
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
