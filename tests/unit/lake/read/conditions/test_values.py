"""What values mean: beyond a column's type, at its edges, and as text."""

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.expressions import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
)
from pyiceberg.expressions.literals import DateLiteral, TimestampLiteral
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
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from puffin_ann.errors import QueryError
from puffin_ann.lake.read.conditions.condition import read_condition
from puffin_ann.lake.read.conditions.evaluate import rows_that_match

INF, NAN = math.inf, math.nan
MOST = float(np.finfo(np.float32).max)
NOON = datetime(2024, 2, 29, 12)
COLUMNS = {
    "small": (IntegerType(), pa.int32(), [1, 2**31 - 1, -(2**31), 0]),
    "big": (LongType(), pa.int64(), [1, 2**63 - 1, -(2**63), 0]),
    "weight": (FloatType(), pa.float32(), [-0.0, 0.0, 0.5, MOST, INF, -INF, NAN]),
    "price": (DoubleType(), pa.float64(), [-0.0, 0.0, 0.5, 1.7e308, INF, -INF, NAN]),
    "cost": (DecimalType(10, 2), pa.decimal128(10, 2), ["99999999.99", "0.01", "-99999999.99"]),
    "huge": (DecimalType(38, 0), pa.decimal128(38, 0), ["9" * 38, "1" + "0" * 30, "0"]),
    "day": (DateType(), pa.date32(), [date(2024, 2, 29), date(1, 1, 1)]),
    "at": (TimestampType(), pa.timestamp("us"), [NOON, datetime(2024, 2, 29)]),
    "when": (TimestamptzType(), pa.timestamp("us", "UTC"), [NOON, datetime(2024, 2, 29)]),
    "clock": (TimeType(), pa.time64("us"), [time(12), time(0)]),
    "open": (BooleanType(), pa.bool_(), [True, False]),
    "word": (StringType(), pa.string(), ["1", "tea"]),
    "raw": (BinaryType(), pa.binary(), [b"ab", b""]),
    "code": (FixedType(2), pa.binary(2), [b"ab", b"cd"]),
    "uuid": (UUIDType(), pa.binary(16), [UUID(int=1).bytes, UUID(int=2).bytes]),
}
SCHEMA = Schema(
    *(
        NestedField(at, name, kind, required=False)
        for at, (name, (kind, _, _)) in enumerate(COLUMNS.items(), 1)
    )
)
ROWS = 8
"""Of every column, the last of which are null."""


def a_table():
    columns = {}
    for name, (_, kind, values) in COLUMNS.items():
        filled = [*values, *[None] * (ROWS - len(values))]
        text = pa.types.is_decimal(kind)
        columns[name] = pa.array(filled, pa.string()).cast(kind) if text else pa.array(filled, kind)
    return pa.table(columns)


def is_nan(value):
    return isinstance(value, float) and math.isnan(value)


TABLE = a_table()
COMPARISONS = {
    EqualTo: lambda one, other: one == other,
    NotEqualTo: lambda one, other: one != other,
    LessThan: lambda one, other: not is_nan(one) and one < other,
    LessThanOrEqual: lambda one, other: not is_nan(one) and one <= other,
    GreaterThan: lambda one, other: not is_nan(one) and one > other,
    GreaterThanOrEqual: lambda one, other: not is_nan(one) and one >= other,
}


def found(where):
    condition = read_condition(where, SCHEMA, "demo.words")
    return np.flatnonzero(rows_that_match(condition, TABLE)).tolist()


def values_of(name):
    """Values of a column as Python has them, those null left out."""
    decimals = isinstance(COLUMNS[name][0], DecimalType)
    return [Decimal(value) if decimals else value for value in COLUMNS[name][2]]


NUMBERS = {
    "small": [0, 0.0, 2**31, -(2**31) - 1, 2**70, INF, -INF, 1e300, Decimal("1e999999999")],
    "big": [0, 2**63, -(2**63) - 1, 2**70, INF, -INF, Decimal("-1e999999999")],
    "weight": [0.0, -0.0, 0.5, MOST, 1e39, -1e39, 10**39, INF, -INF, 10**400],
    "price": [0.0, -0.0, 0, 0.5, 10**400, -(10**400), INF, -INF, Decimal("1e400")],
    "cost": [0, 99999999999, -1e20, Decimal("99999999.99"), Decimal("1e20"), INF, -INF],
    "huge": [0, 10**37, 10**38, -(10**38), 10**30, INF],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in NUMBERS for value in NUMBERS[name]]
)
def test_numbers_are_compared_as_python_compares_them(name, value):
    """With NaN on no side, nulls in no answer, and `not` for what is left of the numbers."""
    for kind, compare in COMPARISONS.items():
        says = [at for at, it in enumerate(values_of(name)) if compare(it, value)]
        assert found(kind(name, value)) == says, kind
    for kind, opposite in ((LessThan, GreaterThanOrEqual), (LessThanOrEqual, GreaterThan)):
        assert found(Not(kind(name, value))) == found(opposite(name, value))
        assert found(Not(opposite(name, value))) == found(kind(name, value))


@pytest.mark.parametrize("name", NUMBERS)
def test_a_list_has_the_rows_of_its_members(name):
    values = NUMBERS[name]
    for chosen in (values, values[:2], values[-2:], values[1::2], [1, *values[2:4]]):
        among = sorted({row for value in chosen for row in found(EqualTo(name, value))})
        rest = [at for at in range(len(values_of(name))) if at not in among]
        assert found(In(name, chosen)) == among
        assert found(NotIn(name, chosen)) == rest
        assert found(Not(In(name, chosen))) == rest


@pytest.mark.parametrize("name", ["weight", "price"])
def test_zero_has_no_sign(name):
    for zero in ("0.0", "-0.0"):
        for where in (
            f"{name} = {zero}",
            f"{name} in ({zero}, 7.5)",
            f"not {name} not in ({zero}, 7.5)",
            f"{name} between {zero} and 0.25",
        ):
            assert found(where) == [0, 1], where
        for where in (f"{name} != {zero}", f"{name} not in ({zero}, 7.5)"):
            assert found(where) == [2, 3, 4, 5, 6], where


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("weight < 1e39", [0, 1, 2, 3, 5]),
        ("weight > -1e39", [0, 1, 2, 3, 4]),
        ("weight <= 3.4028235e38", [0, 1, 2, 3, 5]),
        ("weight = 3.4028235e+38", [3]),
        ("weight = 'inf'", [4]),
        ("price in (5e-1, 1.7e308)", [2, 3]),
        ("price < 1e-3 and price > -1E-3", [0, 1]),
        ("small = 1e0", [0]),
        ("cost < 99999999999", [0, 1, 2]),
        ("cost not in (0.01, 99999999999.00)", [0, 2]),
        ("cost < '10'", [1, 2]),
        ("small = '1'", [0]),
        ("weight = '0.5'", [2]),
        ("word = '1e5'", []),
        ("word = '1'", [0]),
        ("day = '2024-02-29'", [0]),
        ("at = '2024-02-29T12:00:00'", [0]),
        ("at = '2024-02-29 12:00:00'", [0]),
        ("at = '2024-02-29 12:00'", [0]),
        ("at = '2024-02-29T12:00:00.000000'", [0]),
        ("at = '2024-02-29'", [1]),
        ("when = '2024-02-29T12:00:00Z'", [0]),
        ("when = '2024-02-29 14:00:00+02:00'", [0]),
        ("clock = '12:00:00'", [0]),
        ("clock = '12:00'", [0]),
        ("open = true", [0]),
        ("uuid = '00000000-0000-0000-0000-000000000001'", [0]),
        (EqualTo("raw", b"ab"), [0]),
        (EqualTo("code", b"ab"), [0]),
        (EqualTo("day", date(2024, 2, 29)), [0]),
        (EqualTo("day", datetime(2024, 2, 29)), [0]),
        (EqualTo("at", NOON), [0]),
        (EqualTo("at", date(2024, 2, 29)), [1]),
        (EqualTo("when", NOON.replace(tzinfo=UTC)), [0]),
        (EqualTo("when", NOON), [0]),
        (EqualTo("when", NOON.replace(hour=14, tzinfo=timezone(timedelta(hours=2)))), [0]),
        (EqualTo("at", NOON.replace(hour=14, tzinfo=timezone(timedelta(hours=2)))), [0]),
        (EqualTo("clock", time(12)), [0]),
        (In("day", [date(2024, 2, 29), date(1, 1, 1)]), [0, 1]),
        (In("at", [NOON, datetime(2024, 2, 29)]), [0, 1]),
        (GreaterThan("clock", time(11)), [0]),
        (LessThan("at", TimestampLiteral(2**70)), [0, 1]),
        (LessThan("at", DateLiteral(2**40)), [0, 1]),
    ],
)
def test_values_may_be_written_so(where, rows):
    assert found(where) == rows


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("small = '3.5'", "no whole number"),
        ("small = 1e-3", "no whole number"),
        ("cost = '0.001'", "more than 2 digits"),
        ("small = true", "no number"),
        (EqualTo("cost", date(2024, 1, 1)), "which 2024-01-01 does not fit: it is no number"),
        (In("cost", [NOON]), "which 2024-02-29T12:00:00 does not fit"),
        (EqualTo("word", time(12)), "which 12:00:00 does not fit"),
        (GreaterThan("when", date(2024, 1, 1)), "which 2024-01-01 does not fit.*its time zone"),
        ("price < '1e99999999999999999999'", "no number"),
        ("price = 'nan'", "no number"),
        ("price = '1_0'", "no number"),
        ("day = '2024-02-30'", "no such moment; a date is written as '2024-01-31'"),
        ("day > '2024-01-01T00:00:00'", "a date is written as '2024-01-31'"),
        (EqualTo("day", NOON), "which 2024-02-29T12:00:00 does not fit: it has a time of day"),
        ("at = '2024-01-01T00:00:00Z'", "'2024-01-31T14:30:00'.*without a time zone"),
        ("at = 'yesterday'", "'2024-01-31 14:30:00'"),
        ("at = true", "'2024-01-31 14:30:00'"),
        ("when = '2024-01-01T00:00:00'", "'2024-01-31T14:30:00Z'.*with its time zone"),
        ("when = '2024-01-01'", "'2024-01-31T14:30:00Z'"),
        ("clock = '12:00:00+02:00'", "a time is written as '14:30:00'"),
        ("clock = '25:00'", "a time is written as '14:30:00'"),
        ("day > 5", "'day' of demo.words is of type date, which 5 .* written as '2024-01-31'"),
        ("day in (19700, 19800)", "a date is written as '2024-01-31'"),
        ("day between 19700 and 19800", "a date is written as '2024-01-31'"),
        ("day > 5.0", "a date is written as '2024-01-31'"),
        ("at > 2024", "'at' of demo.words is of type timestamp, which 2024 .* '2024-01-31T14:30"),
        ("not (at in (2024, 2025) or small = 1)", "'2024-01-31T14:30:00'.*without a time zone"),
        ("when > 5", "of type timestamptz, which 5 does not fit.*'2024-01-31T14:30:00Z'"),
        ("clock > 5", "of type time, which 5 does not fit: a time is written as '14:30:00'"),
        (GreaterThan("day", 5), "a date is written as '2024-01-31'"),
        (GreaterThan("at", 5), "'2024-01-31T14:30:00'.*without a time zone"),
        (LessThan("at", 2**70), "'2024-01-31T14:30:00'.*without a time zone"),
        (In("when", [5, 6]), "'2024-01-31T14:30:00Z'"),
        (NotEqualTo("clock", 5), "a time is written as '14:30:00'"),
        (EqualTo("clock", NOON), "a time is written as '14:30:00'"),
        ("word = 1", "text stands in single quotes"),
        ("open = 1", "true or false"),
        ("raw = 'ab'", r"EqualTo\('name', b'...'\)"),
        (EqualTo("code", b"abc"), "as many as the column has"),
        ("uuid = 'x'", "f79c3e09"),
        ("price < 1e401", "powers of ten go from -400 to 400"),
        ("price < 1e99999999999999", "powers of ten"),
        ("price in (" + "1e400, " * 300 + "1e1)", "powers of ten written out"),
        ("price < 1e5x", "cannot be read"),
    ],
)
def test_what_does_not_fit_is_told_with_what_would(where, says):
    with pytest.raises(QueryError, match=says):
        found(where)
