"""Keys of equality deletes: a row equals one where Iceberg says so, whatever its types are."""

import datetime
import decimal
import io
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    NestedField,
    StringType,
)

from puffin_ann.lake.read.deletes.equality_deletes import DeletedKeys
from puffin_ann.lake.read.files.row_group_statistics import statistics_of

OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]

few = {
    pa.int64(): st.integers(-2, 2),
    pa.large_string(): st.sampled_from(["", "a", "ab", "b"]),
    pa.float64(): st.sampled_from([0.0, -0.0, 1.5, float("nan"), OTHER_NAN, float("inf")]),
    pa.float32(): st.sampled_from([0.0, -0.0, 1.5, float("nan")]),
    pa.bool_(): st.booleans(),
    pa.decimal128(9, 2): st.sampled_from([decimal.Decimal("1.50"), decimal.Decimal("-3.00")]),
    pa.date32(): st.sampled_from([datetime.date(2024, 2, 29), datetime.date(1969, 12, 31)]),
    pa.binary(2): st.sampled_from([b"ab", b"\0\0"]),
}


ICEBERG = {
    pa.int64(): LongType(),
    pa.large_string(): StringType(),
    pa.float64(): DoubleType(),
    pa.float32(): FloatType(),
    pa.bool_(): BooleanType(),
    pa.decimal128(9, 2): DecimalType(9, 2),
    pa.date32(): DateType(),
    pa.binary(2): BinaryType(),
}


@st.composite
def tables(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(few, key=str)), min_size=1, max_size=3))

    def drawn(most):
        rows = draw(st.lists(st.tuples(*(st.none() | few[kind] for kind in kinds)), max_size=most))
        columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
        return rows, pa.table(columns, names=[f"c{at}" for at in range(len(kinds))])

    return [drawn(5) for _ in range(draw(st.integers(1, 3)))], drawn(12)


def as_iceberg_compares(value):
    """A value that is equal in Python just where it is in Java."""
    if isinstance(value, float):
        return ("nan",) if value != value else struct.pack("<d", value)
    return value


@given(tables())
def test_a_row_is_deleted_just_where_all_its_columns_equal_those_of_one_key(drawn) -> None:
    deletes, (rows, table) = drawn
    keys = {tuple(map(as_iceberg_compares, key)) for several, _ in deletes for key in several}
    found = DeletedKeys([table for _, table in deletes]).contain(table)
    assert found.tolist() == [tuple(map(as_iceberg_compares, row)) in keys for row in rows]


@given(tables(), st.integers(1, 4))
def test_no_row_group_that_holds_a_key_is_left_out(drawn, size) -> None:
    deletes, (_, table) = drawn
    keys = DeletedKeys([table for _, table in deletes])
    fields = [
        NestedField(at + 1, field.name, ICEBERG[field.type], required=False)
        for at, field in enumerate(table.schema)
    ]
    near = keys.near(Schema(*fields))
    stream = io.BytesIO()
    pq.write_table(table, stream, row_group_size=size)
    parquet = pq.ParquetFile(stream)
    columns = {field.field_id: (field.name, field.field_type) for field in fields}
    for number in range(parquet.num_row_groups):
        told = statistics_of(parquet.metadata, parquet.schema_arrow, number, columns)
        rows = parquet.read_row_group(number).cast(table.schema)
        if keys.contain(rows).any():
            assert near is None or near.some_of(len(rows), told)


@pytest.mark.parametrize(
    ("values", "read"),
    [([10, 20], [1, 2]), ([None], [3]), ([44, None], [3, 4]), ([200], []), ([0, 99], range(10))],
)
def test_row_groups_without_a_key_are_left_out(values, read) -> None:
    numbers = [None if number == 35 else number for number in range(100)]
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    near = DeletedKeys([pa.table({"id": pa.array(values, pa.int64())})]).near(schema)
    stream = io.BytesIO()
    pq.write_table(pa.table({"id": numbers}), stream, row_group_size=10)
    parquet = pq.ParquetFile(stream)
    told = [
        statistics_of(parquet.metadata, parquet.schema_arrow, number, {1: ("id", LongType())})
        for number in range(parquet.num_row_groups)
    ]
    assert [number for number in range(len(told)) if near.some_of(10, told[number])] == list(read)


@pytest.mark.parametrize("columns", [1, 5])
def test_keys_of_many_values_in_several_columns_are_told_apart(columns) -> None:
    numbers = pa.array(range(0, 200_000, 2))
    keys = DeletedKeys([pa.table([numbers] * columns, names=[f"c{at}" for at in range(columns)])])
    asked = [pa.array([0, 1, 199_998, 200_000])] * (columns - 1) + [pa.array([0, 1, 199_998, 0])]
    found = keys.contain(pa.table(asked, names=[f"c{at}" for at in range(columns)]))
    assert found.tolist() == [True, False, True, columns == 1]
