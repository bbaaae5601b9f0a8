"""Trees as PyIceberg's expressions: they say the same, and prune as well."""

import cProfile

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import In
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, LongType, NestedField, TimestampNanoType

from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.read.conditions import condition as conditions
from puffin_ann.lake.read.conditions.condition import read_condition
from puffin_ann.lake.read.conditions.expression import MOST_LISTS, bound_expression
from puffin_ann.lake.read.conditions.matching_rows import matching_rows
from puffin_ann.lake.read.conditions.text import parsed
from puffin_ann.lake.read.conditions.tree import Leaf, Op, tree_of
from puffin_ann.lake.read.diff.coverage_diff import ALL
from puffin_ann.lake.read.files.live_files import live_files
from puffin_ann.lake.read.files.manifests import Statistics
from puffin_ann.lake.read.files.pruning import Pruning
from tests.unit.lake.read.conditions.test_quick_text import SCHEMA, TEXTS
from tests.unit.lake.read.conditions.test_quick_text import parsed as tree_by_parser

NUMBER = Schema(NestedField(1, "id", LongType(), required=True))


@settings(max_examples=300, deadline=None)
@given(where=TEXTS)
def test_the_expression_of_a_tree_says_what_the_tree_does(where):
    tree = tree_by_parser(where)
    if tree is not None:
        assert tree_of(bound_expression(tree, SCHEMA)) == tree


@settings(max_examples=300, deadline=None)
@given(where=TEXTS)
def test_values_are_of_the_types_that_the_parsers_way_gives_them(where):
    tree = tree_by_parser(where)
    if tree is not None:
        bound, _, _ = conditions._normal_form(where, SCHEMA, "t")
        assert kinds_of(bound_expression(tree, SCHEMA)) == kinds_of(bound)


def kinds_of(bound):
    """Columns, and the types of the literals that they are compared with."""
    found, todo = set(), [bound]
    while todo:
        part = todo.pop()
        if hasattr(part, "left"):
            todo += [part.left, part.right]
            continue
        literals = getattr(part, "literals", [getattr(part, "literal", None)])
        name = part.term.ref().field.name if hasattr(part, "term") else ""
        found |= {(name, type(literal).__name__) for literal in literals}
    return found


def test_a_column_of_another_type_is_left_to_pyicebergs_own_expressions():
    schema = Schema(NestedField(1, "at", TimestampNanoType(), required=False))
    assert bound_expression(Leaf(1, Op.LESS, (3,)), schema) is None
    assert bound_expression(Leaf(1, Op.NOT_NULL), schema) is not None
    raw = Schema(NestedField(1, "raw", FixedType(2), required=False))
    assert bound_expression(Leaf(1, Op.IN, (b"ab",)), raw) is not None


def pruning(where) -> Pruning:
    return Pruning(NUMBER, {}, read_condition(where, NUMBER, "t").bound)


def told(least: int, most: int) -> Statistics:
    def bound(number):
        return int(number).to_bytes(8, "little", signed=True)

    return Statistics({1: 10}, {1: 0}, {}, {1: bound(least)}, {1: bound(most)})


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 20_000), least=st.integers(-20, 60_020), width=st.integers(0, 5_000)
)  # fmt: skip
def test_long_lists_prune_and_no_more_than_they_may(count, least, width):
    """Of a list of multiples of three, which files may hold one, and which hold nothing else."""
    values = range(0, 3 * count, 3)
    asked = pruning(In("id", set(values)))
    some = any(value in values for value in range(least, least + width + 1))
    every = all(value in values for value in range(least, least + width + 1))
    at = told(least, least + width)
    assert asked.some_of(10, at) or not some
    assert every or not asked.all_of(10, at)
    if count <= 200 * MOST_LISTS:
        assert asked.some_of(10, at) == some
    elif least > values[-1] or least + width < 0:
        assert not asked.some_of(10, at)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """A table of some files, with nulls and NaN."""
    from pyiceberg.catalog.sql import SqlCatalog

    folder = tmp_path_factory.mktemp("numbers")
    catalog = SqlCatalog("t", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("a")
    random, table = np.random.default_rng(3), None
    for first in (0, 300, 900):
        ids = np.arange(first, first + 200)
        price = [None if n % 7 == 0 else float("nan") if n % 11 == 0 else n / 4 for n in ids]
        word = [None if n % 5 == 0 else f"w{random.integers(20)}" for n in ids]
        rows = pa.table({"id": ids, "price": pa.array(price, pa.float64()), "word": word})
        table = table or catalog.create_table("a.b", schema=rows.schema)
        table.append(rows)
    return table


LISTED = st.lists(st.integers(-50, 1_300), min_size=1, max_size=30)
QUESTIONS = st.one_of(
    st.tuples(st.sampled_from(["id", "price"]), st.sampled_from(["=", "<", "<=", ">", ">="]),
              st.integers(-9, 1_200)).map(lambda found: "{} {} {}".format(*found)),
    st.integers(0, 1_200).map("id != {}".format),
    LISTED.map(lambda found: f"id in ({', '.join(map(str, found))})"),
    LISTED.map(lambda found: f"id not in ({', '.join(map(str, found))})"),
    LISTED.map(lambda found: " or ".join(f"id = {number}" for number in found)),
    LISTED.map(lambda found: " and ".join(f"id <> {number}" for number in found)),
    st.tuples(st.integers(-50, 900), st.integers(201, 900)).map(
        lambda found: f"id in ({', '.join(map(str, range(found[0], found[0] + found[1], 2)))})"
    ),
    st.sampled_from(["price is null", "price is not null", "word = 'w3'", "word in ('w1', 'w2')"]),
)  # fmt: skip
CONDITIONS = st.recursive(
    QUESTIONS,
    lambda parts: st.tuples(parts, st.sampled_from([" and ", " or "]), parts).map(
        lambda found: "({})".format("".join(found))
    ),
    max_leaves=6,
)


@settings(max_examples=120, deadline=None)
@given(where=CONDITIONS)
def test_rows_that_match_are_those_of_pyicebergs_own_scan(numbers, where):
    condition = read_condition(where, numbers.schema(), name_of(numbers))
    snapshot = numbers.current_snapshot().snapshot_id
    found = matching_rows(numbers, snapshot, condition).positions
    mine = []
    for file in live_files(numbers, snapshot):
        at = found.get(file.path, ())
        ids = ids_of(numbers, file.path)
        mine += ids if at is ALL else [ids[place] for place in at]
    own = numbers.scan(row_filter=parsed(where), selected_fields=("id",)).to_arrow()
    assert sorted(mine) == sorted(own["id"].to_pylist())


def ids_of(table, path):
    with table.io.new_input(path).open() as file:
        return pa.parquet.read_table(file, columns=["id"])["id"].to_pylist()


LONG = {
    "or": lambda terms: " or ".join(f"id = {3 * number}" for number in range(terms)),
    "and": lambda terms: " and ".join(f"id != {3 * number}" for number in range(terms)),
    "in": lambda terms: f"id in ({', '.join(map(str, range(terms)))})",
    "less": lambda terms: " or ".join(f"id < {-number}" for number in range(terms)),
    "both": lambda terms: " or ".join(f"id = {n} and price < {n}" for n in range(terms // 2)),
}


def calls_of(work):
    """Return how many functions were called: what time tells of a machine that is not busy."""
    with cProfile.Profile() as profile:
        work()
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("kind", LONG)
def test_of_thousands_of_terms_each_takes_as_little_as_of_hundreds(kind, numbers):
    """Of PyIceberg's parser, by which they took seconds, a term takes 1,300 calls."""
    snapshot = numbers.current_snapshot().snapshot_id

    def read(where):
        condition = read_condition(where, numbers.schema(), "t")
        matching_rows(numbers, snapshot, condition)

    read("id = 1")
    none = calls_of(lambda: read("id = 2"))
    few, many = (
        (calls_of(lambda terms=terms: read(LONG[kind](terms))) - none) / terms
        for terms in (400, 2_000)
    )
    assert many < 1.3 * few
    assert many < 1_000
