"""Keys of equality deletes: a row equals one where Iceberg says so, whatever its types are."""

import datetime
import decimal
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.lake.read.equality_deletes import DeletedKeys

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


@pytest.mark.parametrize("columns", [1, 5])
def test_keys_of_many_values_in_several_columns_are_told_apart(columns) -> None:
    numbers = pa.array(range(0, 200_000, 2))
    keys = DeletedKeys([pa.table([numbers] * columns, names=[f"c{at}" for at in range(columns)])])
    asked = [pa.array([0, 1, 199_998, 200_000])] * (columns - 1) + [pa.array([0, 1, 199_998, 0])]
    found = keys.contain(pa.table(asked, names=[f"c{at}" for at in range(columns)]))
    assert found.tolist() == [True, False, True, columns == 1]
