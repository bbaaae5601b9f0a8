"""Rows that satisfy a condition are those of an oracle, however few of them were read."""

import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from puffin_ann.errors import DataFileError
from puffin_ann.lake.read.conditions.condition import read_condition
from puffin_ann.lake.read.conditions.matching_rows import matching_rows
from puffin_ann.lake.read.diff.coverage_diff import ALL
from puffin_ann.lake.read.files.live_files import live_files
from tests.support.lake.conditions import a_condition

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "small", IntegerType(), required=False),
    NestedField(3, "kind", StringType(), required=False),
    NestedField(4, "price", DoubleType(), required=False),
    NestedField(5, "weight", FloatType(), required=False),
    NestedField(6, "day", DateType(), required=False),
    NestedField(7, "at", TimestampType(), required=False),
    NestedField(8, "cost", DecimalType(9, 2), required=False),
    NestedField(9, "open", BooleanType(), required=False),
    NestedField(
        10,
        "place",
        StructType(NestedField(11, "town", StringType(), required=False)),
        required=False,
    ),
)

KINDS = ["tea", "teapot", "coffee", "milk", ""]
START = datetime(2024, 2, 27, 22)

SPECS = {
    "none": PartitionSpec(),
    "identity": PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "kind")),
    "identity of a number": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "small")),
    "identity of a day": PartitionSpec(PartitionField(6, 1000, IdentityTransform(), "day")),
}


def a_row(random, number):
    def maybe(value, share=0.15):
        return None if random.random() < share else value

    weight = float(np.float32(random.choice([0.1, 0.5, 1.5, 0.0, -0.0, math.inf, math.nan])))
    return {
        "id": number,
        "small": maybe(random.randrange(4)),
        "kind": maybe(random.choice(KINDS)),
        "price": maybe(random.choice([0.5, 1.0, 2.5, 0.0, -0.0, -math.inf, math.nan])),
        "weight": maybe(weight),
        "day": maybe(date(2024, 2, 27) + timedelta(random.randrange(4))),
        "at": maybe(START + timedelta(hours=random.randrange(90))),
        "cost": maybe(Decimal(random.randrange(500)) / 100),
        "open": maybe(random.random() < 0.5),
        "place": maybe({"town": maybe(random.choice(["Ulm", "Bonn"]))}),
    }


def some_rows(random, count, first):
    """Rows of a file: of some columns all values are alike, or null, as in sorted tables."""
    rows = [a_row(random, first + at) for at in range(count)]
    for name in random.sample(["small", "kind", "price", "day", "at", "cost", "open"], 3):
        for row in rows:
            row[name] = rows[0][name]
    return rows


VALUES = {
    "id": [3, 17, 40, 1000, 2**70],
    "small": [0, 1, 3, 9, 2**31, -(2**40)],
    "kind": [*KINDS, "tee"],
    "price": [0.5, 1.0, 3.0, 0.0, -0.0, -math.inf],
    "weight": [float(np.float32(0.1)), 0.5, 1.5, 0.0, -0.0, 1e39, -1e39, math.inf],
    "day": [date(2024, 2, 27), date(2024, 3, 1)],
    "at": [START, START + timedelta(hours=30), START + timedelta(hours=2)],
    "cost": [Decimal("1.50"), Decimal("3.25"), Decimal(10) ** 9, Decimal(-(10**20))],
    "open": [True, False],
    "place.town": ["Ulm", "Bonn", "U"],
}


def as_literal(value):
    return value.isoformat() if isinstance(value, date) else value


def flat(row):
    return {**row, "place.town": (row["place"] or {}).get("town")}


def found_ids(table, matching):
    """Ids of the rows found, read by Arrow alone."""
    ids = []
    for path, positions in matching.positions.items():
        column = pq.read_table(path.removeprefix("file://"), columns=["id"]).column("id")
        here = column.to_pylist()
        ids += here if positions is ALL else [here[at] for at in positions]
    return sorted(ids)


def a_table(catalog, spec, files, seed=1):
    random = Random(seed)
    table = catalog.create_table(
        "demo.goods",
        SCHEMA,
        partition_spec=spec,
        properties={"write.parquet.row-group-limit": "8"},
    )
    rows = []
    for number in range(files):
        more = some_rows(random, random.choice([1, 7, 20]), 100 * number)
        table.append(pa.Table.from_pylist(more, schema=table.schema().as_arrow()))
        rows += more
    return table.refresh(), rows


@pytest.mark.parametrize("spec", SPECS)
def test_rows_that_match_are_those_of_an_oracle(catalog, spec):
    table, rows = a_table(catalog, SPECS[spec], 5)
    snapshot = table.current_snapshot().snapshot_id
    random = Random(spec)
    decided = 0
    for _ in range(100):
        expression, says = a_condition(random, VALUES, as_literal)
        condition = read_condition(expression, table.schema(), "demo.goods")
        matching = matching_rows(table, snapshot, condition)
        expected = sorted(row["id"] for row in rows if says(flat(row)))
        assert found_ids(table, matching) == expected, expression
        decided += matching.files_in + matching.files_out
    assert decided, "metadata decided nothing"


def test_files_and_row_groups_that_metadata_decides_are_not_read(catalog):
    table = catalog.create_table(
        "demo.goods", SCHEMA, properties={"write.parquet.row-group-limit": "10"}
    )
    for first in (0, 100, 200):
        rows = [{"id": first + at, "small": at // 10} for at in range(30)]
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    snapshot = table.refresh().current_snapshot().snapshot_id

    def told(where):
        return matching_rows(table, snapshot, read_condition(where, table.schema(), "goods"))

    halves = told("id >= 100 and id < 200")
    assert (halves.files_in, halves.files_out, halves.row_groups, halves.bytes_read) == (1, 2, 0, 0)
    grouped = told("id < 110 and small = 0")
    assert (grouped.files_in, grouped.files_out) == (0, 1)
    assert (grouped.row_groups, grouped.row_groups_read) == (6, 0)
    one = told("id = 114")
    assert (one.files_out, one.row_groups, one.row_groups_read) == (2, 3, 1)
    assert found_ids(table, one) == [114]


def test_renamed_added_and_promoted_columns_are_read_by_the_schema_asked_for(catalog):
    table = catalog.create_table("demo.goods", SCHEMA)
    old = [{"id": at, "small": at, "weight": float(at)} for at in range(6)]
    table.append(pa.Table.from_pylist(old, schema=table.schema().as_arrow()))
    before = table.schema()
    with table.update_schema() as update:
        update.rename_column("small", "size")
        update.update_column("small", field_type=LongType())
        update.update_column("weight", field_type=DoubleType())
        update.add_column("extra", StringType())
    new = [{"id": 10, "size": 1 << 40, "weight": 0.1, "extra": "a"}]
    table.refresh().append(pa.Table.from_pylist(new, schema=table.schema().as_arrow()))
    snapshot = table.refresh().current_snapshot().snapshot_id

    def found(where, schema=None):
        condition = read_condition(where, schema or table.schema(), "goods")
        return found_ids(table, matching_rows(table, snapshot, condition))

    assert found("size >= 4") == [4, 5, 10]
    assert found("size > 5") == [10]
    assert found("size < 6") == [0, 1, 2, 3, 4, 5]
    assert found("weight < 2.0") == [0, 1, 10]
    assert found("weight >= 5") == [5]
    assert found("extra is null") == [0, 1, 2, 3, 4, 5]
    assert found("extra = 'a' or size = 2") == [2, 10]
    first = table.snapshots()[0].snapshot_id
    condition = read_condition("small >= 4", before, "goods")
    assert found_ids(table, matching_rows(table, first, condition)) == [4, 5]


def test_a_file_of_other_rows_than_its_manifest_says_is_damage(catalog):
    table = catalog.create_table("demo.goods", SCHEMA)
    rows = [{"id": at, "weight": 0.5} for at in range(6)]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    (file,) = live_files(table.refresh())
    path = file.path.removeprefix("file://")
    read = pq.read_table(path)
    pq.write_table(pa.concat_tables([read, read]), path)
    condition = read_condition("weight is nan", table.schema(), "goods")
    snapshot = table.current_snapshot().snapshot_id
    with pytest.raises(DataFileError):
        matching_rows(table, snapshot, condition)
