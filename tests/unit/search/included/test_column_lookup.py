"""Rows looked up by value are those that satisfy a condition, of every type that is kept."""

import datetime
import math
import uuid
from decimal import Decimal
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import GreaterThan, In, IsNull, NotIn, NotNull
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from puffin_ann.lake.read.conditions.condition import read_condition
from puffin_ann.lake.read.conditions.evaluate import rows_that_match as evaluated
from puffin_ann.search.included.arrow_values import KEPT_TYPES, arrow_type
from puffin_ann.search.included.asking import rows_that_match
from puffin_ann.search.included.column_lookup import column_lookup
from tests.support.lake.conditions import a_condition

UTC = datetime.UTC
MOMENTS = [
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime.datetime(1970, 1, 1),
    datetime.datetime(2024, 2, 29, 12, 30, 0, 1),
    datetime.datetime(2024, 2, 29, 12, 30),
]
FLOATS = [0.0, -0.0, 0.25, -1.5, math.inf, -math.inf, 1e30, 2.0**-140]
UUIDS = [uuid.UUID(int=number) for number in (0, 1, 1 << 127, (1 << 128) - 1)]
TYPES = {
    BooleanType(): [True, False],
    IntegerType(): [0, -1, 7, 2**31 - 1, -(2**31)],
    LongType(): [0, -1, 7, 2**63 - 1, -(2**63)],
    FloatType(): [float(np.float32(value)) for value in FLOATS],
    DoubleType(): FLOATS,
    DecimalType(9, 2): [Decimal(text) for text in ("0.00", "-1.50", "1.50", "9999999.99")],
    DecimalType(38, 10): [Decimal(text) for text in ("0", "-1.5", "1.25", "9" * 28)],
    DateType(): [moment.date() for moment in MOMENTS] + [datetime.date(1, 1, 1)],
    TimeType(): [datetime.time(0), datetime.time(23, 59, 59, 999999), datetime.time(12)],
    TimestampType(): MOMENTS,
    TimestamptzType(): [moment.replace(tzinfo=UTC) for moment in MOMENTS],
    TimestampNanoType(): MOMENTS,
    TimestamptzNanoType(): [moment.replace(tzinfo=UTC) for moment in MOMENTS],
    StringType(): ["", "a", "ab", "abc", "b", "é", "日本", "\U0001f600", "\uffff", "a\x00"],
    UUIDType(): UUIDS,
    FixedType(2): [b"\x00\x00", b"\x00\x01", b"\xff\x00", b"a\x80"],
    BinaryType(): [b"", b"\x00", b"a", b"a\x00", b"\xff", b"\xfe\xff"],
}
"""Values that a condition compares with, of which a column may have any."""


def literal(value):
    """A value as an expression takes it."""
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value) if isinstance(value, uuid.UUID) else value


def column_of(kind, values):
    """A column in several chunks, as blocks give it."""
    target = arrow_type(kind)
    parts = [values[: len(values) // 3], [], values[len(values) // 3 :]]
    if isinstance(kind, UUIDType):
        storage = [
            pa.array([None if v is None else v.bytes for v in part], pa.binary(16))
            for part in parts
        ]
        return pa.chunked_array([pa.ExtensionArray.from_storage(target, part) for part in storage])
    return pa.chunked_array([pa.array(part, target) for part in parts], target)


def looked_up(condition, lookups, count):
    return sorted({*rows_that_match(condition.tree, lookups, count).tolist()})


def test_every_type_that_can_be_included_is_tried():
    assert {type(kind) for kind in TYPES} == set(KEPT_TYPES)


@settings(max_examples=100, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
    count=st.integers(0, 300),
)
def test_what_is_looked_up_is_what_comparing_each_row_finds(kinds, seed, count):
    """Against what a condition means, and against the evaluation of whole columns."""
    random = Random(seed)
    names = [f"c{number}" for number in range(len(kinds))]
    fields = [
        NestedField(number + 1, name, kind, required=False)
        for number, (name, kind) in enumerate(zip(names, kinds, strict=True))
    ]
    schema = Schema(*fields)
    drawn, asked = {}, {}
    for name, kind in zip(names, kinds, strict=True):
        there = random.sample(TYPES[kind], random.randint(1, len(TYPES[kind])))
        others = [None, math.nan] if isinstance(kind, FloatType | DoubleType) else [None]
        share = random.choice([0.0, 0.3, 1.0])  # of nulls and NaNs
        drawn[name] = [
            random.choice(others if random.random() < share else there) for _ in range(count)
        ]
        if not isinstance(kind, TimestampNanoType | TimestamptzNanoType):
            asked[name] = TYPES[kind]
    columns = {field.name: column_of(field.field_type, drawn[field.name]) for field in fields}
    lookups = {field.field_id: column_lookup(columns[field.name]) for field in fields}
    assert None not in lookups.values()
    table = pa.table(columns)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*drawn.values(), strict=True)]
    for name in names:
        for where, test in ((IsNull(name), True), (NotNull(name), False)):
            condition = read_condition(where, schema, "t")
            expected = [at for at, row in enumerate(rows) if (row[name] is None) is test]
            assert looked_up(condition, lookups, count) == expected
    if not asked:
        return
    for _ in range(8):
        where, says = a_condition(random, asked, literal, depth=3)
        condition = read_condition(where, schema, "t")
        expected = [at for at, row in enumerate(rows) if says(row)]
        assert looked_up(condition, lookups, count) == expected, where
        assert np.flatnonzero(evaluated(condition, table)).tolist() == expected, where


@pytest.mark.parametrize("seed", range(3))
def test_many_rows_are_marked_and_few_are_listed_alike(seed):
    """Columns of frequent and rare values, of so many rows that all ways to join are taken."""
    draw, random = np.random.default_rng(seed), Random(seed)
    columns = {
        f"c{number}": (draw.pareto(0.7, 20_000) * 3).clip(max=5000).astype(np.int64)
        for number in range(4)
    }
    fields = [NestedField(at + 1, name, LongType()) for at, name in enumerate(columns)]
    table = pa.table(columns)
    lookups = {field.field_id: column_lookup(table.column(field.name)) for field in fields}
    values = {name: [0, 1, 2, 5, 40, 300, 4000] for name in columns}
    ways = {"few": 0, "many": 0}
    for _ in range(150):
        where, _ = a_condition(random, values, depth=4)
        condition = read_condition(where, Schema(*fields), "t")
        expected = np.flatnonzero(evaluated(condition, table)).tolist()
        assert looked_up(condition, lookups, 20_000) == expected, where
        ways["few" if len(expected) < 500 else "many"] += 1
    assert min(ways.values()) > 10


@pytest.mark.parametrize("kind", [LongType(), DoubleType(), StringType(), DecimalType(9, 2)])
def test_lists_of_many_values_are_looked_up(kind):
    random = Random(1)
    made = {"string": lambda n: f"w{n}", "double": lambda n: n / 4}
    make = made.get(str(kind), int if isinstance(kind, LongType) else Decimal)
    schema = Schema(NestedField(1, "c", kind, required=False))
    numbers = [random.randrange(-400, 400) for _ in range(2000)]
    values = [None if number % 9 == 0 else make(number) for number in numbers]
    column = column_of(kind, values)
    lookups = {1: column_lookup(column)}
    for many in (3, 17, 300):
        some = [make(number) for number in random.sample(range(-500, 500), many)]
        for where in (In("c", some), NotIn("c", some)):
            condition = read_condition(where, schema, "t")
            expected = np.flatnonzero(evaluated(condition, pa.table({"c": column}))).tolist()
            assert looked_up(condition, lookups, 2000) == expected
            assert len(expected) > 0


def test_a_lookup_tells_what_it_takes():
    lookup = column_lookup(pa.chunked_array([pa.array(np.arange(1000, dtype=np.int64))]))
    assert 1000 * (4 + 4 + 8 + 4) <= lookup.size < 1000 * 21


def test_lists_have_no_lookup():
    assert column_lookup(pa.chunked_array([pa.array([[1], None])])) is None


def test_conditions_without_a_row_and_of_all_rows():
    schema = Schema(NestedField(1, "c", LongType(), required=False))
    lookups = {1: column_lookup(pa.chunked_array([pa.array([1, None, 3])]))}
    empty = {1: column_lookup(pa.chunked_array([], pa.int64()))}
    for where, rows in (("c = 9", []), ("true", [0, 1, 2]), ("false", [])):
        assert looked_up(read_condition(where, schema, "t"), lookups, 3) == rows
    for where in ("true", "false", "c = 9"):
        assert looked_up(read_condition(where, schema, "t"), empty, 0) == []
    both = read_condition(In("c", [1, 3]) & GreaterThan("c", 1), schema, "t")
    assert looked_up(both, lookups, 3) == [2]
