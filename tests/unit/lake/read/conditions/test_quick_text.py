"""Conditions read without PyIceberg's parser say what the parser reads, or are left to it."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from puffin_ann.errors import PuffinAnnError
from puffin_ann.lake.read.conditions import condition as conditions
from puffin_ann.lake.read.conditions import text as parser
from puffin_ann.lake.read.conditions.condition import read_condition
from puffin_ann.lake.read.conditions.quick_text import quick_tree
from puffin_ann.lake.read.conditions.tree import Leaf, Op, all_of, any_of, one_of, tree_of

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "stock", IntegerType(), required=False),
    NestedField(3, "price", DoubleType(), required=False),
    NestedField(4, "weight", FloatType(), required=False),
    NestedField(5, "cost", DecimalType(9, 2), required=False),
    NestedField(6, "word", StringType(), required=False),
    NestedField(7, "day", DateType(), required=False),
    NestedField(8, "at", TimestampType(), required=False),
    NestedField(9, "zoned", TimestamptzType(), required=False),
    NestedField(10, "sold", BooleanType(), required=False),
    NestedField(11, "key", UUIDType(), required=False),
    NestedField(12, "in_", LongType(), required=False),
    NestedField(13, "Not", LongType(), required=False),
    NestedField(14, "list", ListType(15, LongType(), element_required=False), required=False),
    NestedField(
        16, "box", StructType(NestedField(17, "id", LongType(), required=False)), required=False
    ),
)


def parsed(where):
    """What the parser's way makes of a condition; None: an error."""
    try:
        _, tree, _ = conditions._normal_form(where, SCHEMA, "t")
    except PuffinAnnError:
        return None
    return tree


NAMES = st.sampled_from([field.name for field in SCHEMA.fields] + ["box.id", '"word"', "nope", "é"])
VALUES = st.one_of(
    st.integers(-20, 20).map(str),
    st.sampled_from(["+3", "007", "99999999999999999999", "1e3", "-.5", "1.", "true", "null"]),
    st.decimals(-99, 99, places=2, allow_nan=False).map(str),
    st.text("ab'%\\ \n\té😀", max_size=4).map(lambda text: f"'{text}'"),
    st.sampled_from(
        [
            "'2024-02-29'",
            "'2024-02-30'",
            "'2024-02-29T10:00:00'",
            "'2024-02-29 10:00:00+02:00'",
            "'f79c3e09-677c-4bbd-a479-3f349cb785e7'",
            "'5'",
            "''",
        ]
    ),
)
SIGNS = st.sampled_from(["=", "==", "!=", "<>", "<", "<=", ">", ">=", "<<", "=<", "~"])
SPACES = st.sampled_from(["", " ", "  ", "\n"])
WORDS = st.sampled_from(["and", "or", "AND", "Or"])


@st.composite
def questions(draw):
    name, space = draw(NAMES), draw(SPACES)
    no = draw(st.sampled_from(["", "not ", "NOT "]))
    listed = f"{space},{space}".join(draw(st.lists(VALUES, min_size=0, max_size=3)))
    return draw(
        st.sampled_from(
            [
                f"{name}{space}{draw(SIGNS)}{space}{draw(VALUES)}",
                f"{draw(VALUES)} {draw(SIGNS)} {name}",
                f"{name} {no}in{space}({listed})",
                f"{name} is {no}null",
                f"{name} is {no}nan",
                f"{name} {no}like {draw(VALUES)}",
                f"{name} {no}between {draw(VALUES)} and {draw(VALUES)}",
                "true",
            ]
        )
    )


TEXTS = st.recursive(
    questions(),
    lambda parts: st.one_of(
        st.tuples(parts, SPACES, WORDS, SPACES, parts).map("".join),
        st.tuples(parts, WORDS, parts).map(" ".join),
        parts.map("({})".format),
        parts.map("not {}".format),
        parts.map("{} ".format),
    ),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(where=TEXTS)
def test_what_is_read_at_once_is_what_the_parser_reads(where):
    found = quick_tree(where, SCHEMA)
    assert found is None or found == parsed(where)


@settings(max_examples=200, deadline=None)
@given(where=TEXTS, at=st.integers(0, 40), put=st.text("()',.=<> \n$_1aé", max_size=2))
def test_what_was_mistyped_is_left_to_the_parser_or_read_as_it_does(where, at, put):
    mistyped = where[:at] + put + where[at + 1 :]
    found = quick_tree(mistyped, SCHEMA)
    assert found is None or found == parsed(mistyped)


@pytest.mark.parametrize(
    ("where", "tree"),
    [
        ("id=1", one_of(1, [1])),
        (
            "id = 1 or stock = 2 and cost >= 1.5",
            any_of(
                one_of(1, [1]),
                all_of(one_of(2, [2]), Leaf(5, Op.AT_LEAST, (Decimal("1.50"),))),
            ),
        ),
        ("( (id in (3, 1, 3)) )", one_of(1, [1, 3])),
        ("word != ' or '", all_of(Leaf(6, Op.NOT_NULL), Leaf(6, Op.NOT_IN, (" or ",)))),
        ("day between '1970-01-01' and '1970-01-03'", all_of(
            Leaf(7, Op.AT_LEAST, (0,)), Leaf(7, Op.AT_MOST, (2,)))),
        ("stock not between 1 and 3", any_of(Leaf(2, Op.LESS, (1,)), Leaf(2, Op.MORE, (3,)))),
        ("price in (1, 2.5, '-inf')", one_of(3, [1.0, 2.5, float("-inf")])),
        ("stock IS NOT null", Leaf(2, Op.NOT_NULL)),
        ("price < 3", Leaf(3, Op.LESS, (3.0,))),
    ],
)  # fmt: skip
def test_conditions_as_most_are_written_are_read_at_once(where, tree):
    assert quick_tree(where, SCHEMA) == tree == parsed(where)


def test_the_parser_is_not_asked_for_what_is_read_at_once(monkeypatch):
    monkeypatch.setattr(conditions, "parsed", None)
    condition = read_condition("id in (1, 2) and (word = 'a' or stock > 3)", SCHEMA, "t")
    assert [column.name for column in condition.columns] == ["id", "stock", "word"]
    monkeypatch.setattr(conditions, "parsed", parser.parsed)
    assert tree_of(condition.bound) == condition.tree


def test_conditions_have_one_key_whoever_reads_them():
    at_once = read_condition("id = 1 and stock = 2 and word = 'a'", SCHEMA, "t")
    by_parser = read_condition("1 = id and (stock = 2 and word like 'a')", SCHEMA, "t")
    assert at_once.key == by_parser.key


def test_long_and_deep_conditions_are_left_to_the_parser():
    assert quick_tree("(" * 16 + "id = 1" + ")" * 16, SCHEMA) is not None
    assert quick_tree("(" * 17 + "id = 1" + ")" * 17, SCHEMA) is None
    assert quick_tree("id = 1" + " " * 99_994, SCHEMA) is not None
    assert quick_tree("id = 1" + " " * 99_995, SCHEMA) is None


@pytest.mark.parametrize(
    "where",
    [
        " or ".join(f"stock = {number}" for number in range(150)),
        " and ".join(f"stock <> {number}" for number in range(150)),
        " or ".join(f"stock = {n} and price < {n}.5" for n in range(60)),
        "stock in (" + ", ".join(map(str, range(900))) + ")",
    ],
)
def test_long_conditions_are_read_as_the_parser_does(where):
    assert quick_tree(where, SCHEMA) == parsed(where)


@pytest.mark.parametrize(
    ("where", "tree"),
    [
        ("id = 3 or id = 1 or id in (1, 7)", one_of(1, [1, 3, 7])),
        ("id = 3 or (price < 1 or id = 4)", any_of(one_of(1, [3, 4]), Leaf(3, Op.LESS, (1.0,)))),
        (
            "stock != 3 and stock not in (1, 2) and stock != 3",
            all_of(Leaf(2, Op.NOT_NULL), Leaf(2, Op.NOT_IN, (1, 2, 3))),
        ),
        ("id = 1 and id = 2", all_of(one_of(1, [1]), one_of(1, [2]))),
        ("price < 1 or price < 1", Leaf(3, Op.LESS, (1.0,))),
    ],
)
def test_comparisons_of_one_column_become_one_with_a_list_where_that_says_the_same(where, tree):
    assert quick_tree(where, SCHEMA) == tree == parsed(where)
