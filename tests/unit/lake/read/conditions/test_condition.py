"""What a condition may say, and what is told of one that cannot be."""

from datetime import date, datetime, time
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.expressions import (
    And,
    EqualTo,
    GreaterThan,
    In,
    IsNull,
    LessThan,
    Not,
    NotIn,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.expressions.literals import DateLiteral
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from puffin_ann.errors import ColumnNotFoundError, QueryError
from puffin_ann.lake.read.conditions import text
from puffin_ann.lake.read.conditions.condition import read_condition
from puffin_ann.lake.read.conditions.evaluate import rows_that_match
from puffin_ann.lake.read.conditions.words import expression_in_words

SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=False),
    NestedField(2, "word", StringType(), required=False),
    NestedField(3, "embedding", ListType(4, FloatType(), element_required=False), required=False),
    NestedField(5, "cost", DecimalType(9, 2), required=False),
    NestedField(6, "weight", FloatType(), required=False),
    NestedField(7, "count", LongType(), required=True),
    NestedField(
        8,
        "place",
        StructType(
            NestedField(9, "city", StringType(), required=False),
            NestedField(
                10,
                "at",
                ListType(11, StructType(NestedField(12, "x", DoubleType(), required=False))),
                required=False,
            ),
        ),
        required=False,
    ),
)
ROWS = pa.table(
    {
        "id": pa.array([1, 2, None, 4], pa.int32()),
        "word": pa.array(["tea", None, "coffee", ""]),
        "embedding": pa.array([[1.0], None, [], [2.0]], pa.list_(pa.float32())),
        "cost": pa.array(["1.50", "2.00", None, "0.10"]).cast(pa.decimal128(9, 2)),
        "weight": pa.array([0.1, float("nan"), None, 2.0], pa.float32()),
        "count": pa.array([1, 2, 3, 4], pa.int64()),
    }
)


def read(where):
    return read_condition(where, SCHEMA, "demo.words")


def found(where):
    return np.flatnonzero(rows_that_match(read(where), ROWS)).tolist()


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("id > 1", [1, 3]),
        ("id != 1", [1, 3]),
        ("not id = 1", [1, 3]),
        ("id not in (1, 2)", [3]),
        ("not (id in (1, 2))", [3]),
        ("id is null", [2]),
        ("word like 'te%'", [0]),
        ("word not like 'te%'", [2, 3]),
        ("word = ''", [3]),
        ("embedding is null", [1]),
        ("embedding is not null and id >= 1", [0, 3]),
        ("cost = 1.5", [0]),
        ("cost > 1", [0, 1]),
        ("cost in (2.0, 0.1)", [1, 3]),
        ("cost in (2, 0.1)", [1, 3]),
        ("id in (1, 2, 99999999999, '4')", [0, 1, 3]),
        ("weight not in ('-inf', 2.0)", [0, 1]),
        ("weight in ('inf', 2, 1e-1)", [0, 3]),
        ("id not between 2 and 3", [0, 3]),
        ("not id NOT between 2 and 3", [1]),
        ("weight not between 0.5 and '1'", [0, 3]),
        ("true and word not between 'd' and 'u' or id is null", [2, 3]),
        ("weight = 0.1", [0]),
        ("weight > 0.1", [3]),
        ("weight is nan", [1]),
        ("weight is not nan", [0, 3]),
        ("weight != 0.1", [1, 3]),
        ("not weight > 0.1", [0]),
        ("id = 1.0", [0]),
        ("id < 99999999999", [0, 1, 3]),
        ("id != 99999999999", [0, 1, 3]),
        ("id = 99999999999", []),
        ("id between 2 and 4", [1, 3]),
        ("2 <= id", [1, 3]),
        ("count is null", []),
        ("count is not null", [0, 1, 2, 3]),
        ("id is nan", []),
        ("id is not nan", [0, 1, 3]),
        ("true", [0, 1, 2, 3]),
        ("id = 1 or true", [0, 1, 2, 3]),
        ("true and id > 1 and not false", [1, 3]),
        ("not (TRUE or id = 1) or (false) or word = 'tea'", [0]),
        ("truth = 1 and false", []),
        ("id = 1 or word = 'coffee'", [0, 2]),
        (EqualTo("word", "tea"), [0]),
    ],
)
def test_rows_that_match(where, rows):
    assert found(where) == rows


@pytest.mark.parametrize(
    ("where", "error", "says"),
    [
        ("nope = 1", ColumnNotFoundError, "demo.words has no column 'nope'; it has: id .*word"),
        ("id = 'x'", QueryError, "column 'id' of demo.words is of type int, which 'x' does not"),
        ("word = 5", QueryError, "of type string, which 5 does not fit"),
        ("embedding = 1", QueryError, "of type list<float>, which 1 does not fit"),
        ("embedding.element = 1", QueryError, "is within a list or map"),
        ("id = 1.5", QueryError, "of type int, which 1.5 does not fit: it is no whole number"),
        ("cost = 1.234", QueryError, "more than 2 digits"),
        ("id >", QueryError, "cannot be read"),
        ("id = 1 or", QueryError, "cannot be read (at its end|from 'or' on)"),
        ('word = "tea"', QueryError, "\"tea\" is compared with word.*in single quotes: 'tea'$"),
        ("id like 'a%'", QueryError, "of type int; like compares columns of text"),
        ("", QueryError, "cannot be read: it is empty"),
        ("cost << 20", QueryError, "cannot be read from 'cost << 20' on"),
        ("id = 1 and word = 'tea", QueryError, 'text that begins at "\'tea" has no end'),
        ("id in (1, 'x')", QueryError, "of type int, which 'x' does not fit: it is no number"),
        ("id in (1, true)", QueryError, "true in the list is true or false, and 1 is neither"),
        ("weight in (1, -inf)", QueryError, "inf in the list .* single quotes: 'inf', '-inf'$"),
        ("weight < infinity", QueryError, "infinity is compared with weight.*: 'inf', '-inf'$"),
        ("word = tea", QueryError, "tea is compared with word.* in single quotes: 'tea'$"),
        ('word = "tea.x"', QueryError, "is no value; text stands in single quotes: 'tea.x'$"),
        ("unit-price < 3", QueryError, 'names?.* stands in double quotes: "unit-price"$'),
        ("id = 1 and ünit.prïce% < 3", QueryError, ' in double quotes: "ünit.prïce%"$'),
        ("2nd = 3", QueryError, "names with other characters .* in double ones"),
        ('"a""b" = 7', QueryError, r"double quote .* expression .* EqualTo\('a\"b', 1\)$"),
        ("id not between 1", QueryError, "cannot be read"),
        ("cost > 1 and word in ('x', tea)", QueryError, "tea in the list .* in single quotes"),
        ("word in ('x', null)", QueryError, r"write column in \(...\) or column is null"),
        ("id in (1, 2.5 or id", QueryError, "cannot be read"),
        ("word = null", QueryError, "null is compared with nothing; write word is null$"),
        ("not NULL != word", QueryError, "null is compared with nothing; write word is not null$"),
        ("id = 1 and place.city = null", QueryError, "write place.city is null$"),
        ("weight = nan", QueryError, "NaN is compared with nothing; write weight is nan$"),
        ("word = 'is = null' or", QueryError, "cannot be read (at its end|from 'or' on)"),
        ("word in ('x', 'y', 5.5)", QueryError, "5.5 does not fit: text stands in single quotes"),
        ("id in ('1', 'x', '3.5')", QueryError, "of type int, which 'x', '3.5' does|'3.5', 'x' "),
        ("place = 1", QueryError, r"type struct<city: string, at: list<struct<x: double>>>, whi"),
        (
            "no = 1",
            ColumnNotFoundError,
            r"place \(struct<city: string, at: list<struct<x: double>>",
        ),
        ("1 < id < 5", QueryError, "1 < id < 5 is two comparisons; write id > 1 and id < 5$"),
        ("word = 'x' or 5 >= id>1.5", QueryError, r"two .*; write id <= 5 and id > 1\.5$"),
        ("not (0 = id != 3)", QueryError, "two .*; write id = 0 and id != 3$"),
        ("id < 5 < 7", QueryError, "id < 5 < 7 is two .*; write each by itself, joined by and$"),
        ("word = 'a\nb'", QueryError, r"'a\\nb'.* has a line break, .* EqualTo\('word', 'C:"),
        ("word in ('C:\\', 'x') or id = 1", QueryError, "has a line break, or a backslash that"),
        ("`a b` = 3", QueryError, 'not by backticks: "a b"$'),
        ('place."city" = 3 or', QueryError, "cannot be read (at its end|from 'or' on)"),
        ("word like '%a'", QueryError, "like takes text that ends with its only %"),
        ("word is nan", QueryError, "of type string, which has no NaN"),
        ("embedding is not nan", QueryError, "of type list<float>, which has no NaN"),
        ("word = true", QueryError, "of type string, which true does not fit"),
        (7, QueryError, "it takes text"),
        (bind(SCHEMA, GreaterThan("id", 1), True), QueryError, "bound already"),
    ],
)
def test_what_cannot_be_is_told(where, error, says):
    with pytest.raises(error, match=says):
        read(where)


NAMED = pa.table({"ÄÖ": [7, 1], "a.b": [7, 2], "ü x.y": [1, 7], "in": [7, 3]})
NESTED = pa.table({"é": pa.StructArray.from_arrays([pa.array([7, 1])], ["b"])})


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("ÄÖ = 7", [0]),
        ('"ÄÖ" = 7 and ÄÖ is not null', [0]),
        ("a.b = 7", [0]),
        ('"a.b" in (7, 9.0)', [0]),
        ('"ü x.y" = 7', [1]),
        ('"ü x"."y" not between 2 and 8', [0]),
        ('"in" = 7', [0]),
        ("é.b = 7", [0]),
        ('"é.b" = 7', [0]),
        ('"é".b = 7', [0]),
    ],
)
def test_names_of_any_letters_and_with_points_are_read_with_quotes_and_without(where, rows):
    table = NESTED if "é" in where else NAMED
    kinds = [LongType()] * 4
    if table is NESTED:
        kinds = [StructType(NestedField(2, "b", LongType(), required=False))]
    names = table.column_names
    fields = [
        NestedField(10 + place, name, kind, required=False)
        for place, (name, kind) in enumerate(zip(names, kinds, strict=True))
    ]
    condition = read_condition(where, Schema(*fields), "t")
    assert np.flatnonzero(rows_that_match(condition, table)).tolist() == rows


@pytest.mark.parametrize(
    "where",
    [
        "id = {}",
        "weight < {}",
        "id = -{}",
        "{} > id",
        "not id = {}",
        "id in (1, {})",
        "word = {}",
        "word like 'a%' and count = +{}",
    ],
)
def test_whole_numbers_of_very_many_digits_are_refused_by_whoever_reads_them(where):
    with pytest.raises(
        QueryError, match=r"a whole number of 5000 digits, 9999999999\.\.\., is bey"
    ):
        read(where.format("9" * 5000))


def test_digits_in_text_and_behind_a_point_are_no_whole_number():
    many = "1" * 5000
    assert found(f"word = '{many}'") == []
    assert found(f"weight < 0.{many}") == [0]
    assert found(f"id < {many}.5") == [0, 1, 3]
    assert found(f"id < {'9' * 640} and not id = 1") == [1, 3]


def test_an_error_speaks_of_like_where_it_is_written(monkeypatch):
    def refuse(_where, *, parse_all):
        assert parse_all
        raise ValueError

    monkeypatch.setattr(text, "_grammar", lambda: SimpleNamespace(parse_string=refuse))
    with pytest.raises(QueryError, match="cannot be read: it takes comparisons"):
        read("not id = 3")
    with pytest.raises(QueryError, match="cannot be read: like takes text"):
        read("word LIKE 'a%b'")


DAY, NOON = date(2024, 1, 31), datetime(2024, 1, 31, 12, 0, 0, 5)


@pytest.mark.parametrize(
    ("where", "says"),
    [
        (GreaterThan("day", DAY), "day > '2024-01-31'"),
        (In("day", [DAY, date(1, 1, 1)]), "day in ('0001-01-01', '2024-01-31')"),
        (LessThan("at", NOON), "at < '2024-01-31T12:00:00.000005'"),
        (EqualTo("clock", time(14, 30)), "clock = '14:30:00'"),
        (EqualTo("day", DateLiteral(2**40)), "day = '1099511627776'"),
        (EqualTo("open", True) & EqualTo("word", "tea"), "open = true and word = 'tea'"),
        (
            And(Or(IsNull("a"), EqualTo("b.c", 1)), Not(NotIn("d", [1.5, 2.5])), EqualTo("e", 3)),
            "(a is null or b.c = 1) and not d not in (1.5, 2.5) and e = 3",
        ),
        (
            Not(Or(StartsWith("a", "x"), NotStartsWith("b", "y"))),
            "not (a like 'x%' or b not like 'y%')",
        ),
    ],
)
def test_an_expression_is_told_as_it_would_be_written(where, says):
    assert expression_in_words(where) == says


def test_text_is_compared_as_it_is_written_tabs_included():
    rows = pa.table({"word": ["a\tb", "a b", "a       b", None]})
    for where, same in (
        ("word = 'a\tb'", [0]),
        ("word\tin ('a\tb', 'x')", [0]),
        ("word not like 'a\t%'", [1, 2]),
    ):
        condition = read(where)
        assert np.flatnonzero(rows_that_match(condition, rows)).tolist() == same


def test_a_condition_that_is_nested_deeper_than_python_goes_is_refused_at_every_depth():
    said = []
    for depth in range(20, 600, 20):
        nested = EqualTo("id", 0)
        for number in range(depth):
            nested = (Or, And)[number % 2](nested, EqualTo("id", number))
        try:
            read(nested)
        except QueryError as error:
            said.append(str(error))
    assert 10 < len(said) < 28
    assert all("nested too deep" in what for what in said)


def test_conditions_written_alike_have_one_key():
    assert read("id > 1").key == read("id  >  1").key
    assert read("id > 1").key != read("id > 2").key


def test_a_text_that_is_too_long_is_told_the_way_out():
    many = list(range(20_000))
    with pytest.raises(QueryError, match=r"100000 at most .* expression .* such as In\('id', \["):
        read(f"id in ({', '.join(map(str, many))})")
    assert found(In("id", many)) == [0, 1, 3]


MANY = ", ".join(f"'{'x' * 20}{number}'" for number in range(2000))


@pytest.mark.parametrize(
    "where",
    [
        f"word in ({MANY}",
        f"count in ({MANY})",
        f"count like '{'x' * 20_000}%y'",
        f"count = '{'x' * 20_000}'",
        f"{'x' * 20_000} = 1",
        f"count = {'1' * 20_000}.0e9999",
        list(range(20_000)),
    ],
    ids=lambda where: str(where)[:20],
)
def test_of_a_long_condition_an_error_quotes_the_beginning(where):
    with pytest.raises((QueryError, ColumnNotFoundError)) as refused:
        read(where)
    assert "..." in str(refused.value)
    assert len(str(refused.value)) < 1000
