"""Files that may hold a row are told by their manifests, without reading any; none is missed."""

import datetime as dt
import uuid
from dataclasses import fields
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyiceberg
import pytest
from packaging.version import Version
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from puffin_ann.errors import PuffinAnnError, QueryError, RowNotFoundError
from puffin_ann.lake.read.files.live_files import live_files
from puffin_ann.lake.read.files.manifests import Entry, FileContent, Statistics
from puffin_ann.lake.read.files.pruning import may_match
from puffin_ann.search.row_by_key import vector_of_row
from tests.support.indexes import avro_files

UUIDS = (uuid.UUID(int=1), uuid.UUID(int=2**127))
DAY = dt.datetime(2024, 2, 28, 12, 30)


@pytest.fixture
def catalog(tmp_path):
    catalog = SqlCatalog("lake", uri="sqlite://", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("demo")
    return catalog


def table_of(catalog, kind: pa.DataType, files: list[list[Any]], **properties: str):
    """A table of one column, with a file for each list of values."""
    schema = pa.schema([pa.field("key", kind)])
    table = catalog.create_table("demo.words", schema=schema, properties=properties)
    for values in files:
        table.append(pa.table({"key": pa.array(values, kind)}, schema))
    return table


def found(table, value: str) -> list[str]:
    return [file.path for file in live_files(table, wanted=may_match(table, EqualTo("key", value)))]


def planned(table, value: str) -> list[str]:
    tasks = table.scan(row_filter=EqualTo("key", value)).plan_files()
    return sorted(task.file.file_path for task in tasks)


KINDS = {
    "int": (pa.int32(), [[1, 2], [3, None], [-(2**31), 2**31 - 1]], ["3", "7", "9999999999"]),
    "long": (pa.int64(), [[1, 2], [3, None]], ["2", "-1"]),
    "float": (pa.float32(), [[1.5, float("nan")], [2.5, 3.5], [float("nan")]], ["1.5", "3"]),
    "double": (pa.float64(), [[1.5, -0.0], [2.5, 3.5]], ["0.0", "2.75"]),
    "string": (pa.string(), [["a", "b" * 40], ["é", "ü"], [None]], ["b" * 40, "é", "zz"]),
    "date": (pa.date32(), [[DAY.date()], [dt.date(1969, 1, 1)]], ["2024-02-28", "1969-01-01"]),
    "time": (pa.time64("us"), [[DAY.time()], [dt.time(1)]], ["12:30:00"]),
    "timestamp": (pa.timestamp("us"), [[DAY], [DAY.replace(year=1969)]], ["2024-02-28T12:30:00"]),
    "timestamptz": (
        pa.timestamp("us", "UTC"),
        [[DAY], [DAY.replace(year=1969)]],
        ["2024-02-28T12:30:00+00:00"],
    ),
    "decimal": (pa.decimal128(9, 2), [[Decimal("1.25")], [Decimal("-9.00")]], ["1.25", "-9.00"]),
    "boolean": (pa.bool_(), [[True], [False], [None]], ["true"]),
    "uuid": (pa.uuid(), [[uuid.bytes] for uuid in UUIDS], [str(UUIDS[1])]),
}


@pytest.mark.parametrize(("kind", "files", "values"), KINDS.values(), ids=KINDS.keys())
def test_the_files_found_are_those_that_pyiceberg_plans(catalog, kind, files, values):
    table = table_of(catalog, kind, files)

    assert [found(table, value) for value in values] == [planned(table, value) for value in values]
    assert len(found(table, values[0])) < len(files)


def test_of_many_files_only_those_whose_bounds_have_the_value_are_found(catalog):
    table = table_of(catalog, pa.int64(), [[10 * file, 10 * file + 5] for file in range(12)])

    assert len(found(table, "72")) == 1
    assert found(table, "79") == []


def test_files_without_statistics_are_found_by_their_partitions(catalog):
    schema = Schema(NestedField(1, "key", LongType(), required=False))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "part"))
    none = {"write.metadata.metrics.default": "none"}
    table = catalog.create_table("demo.words", schema, partition_spec=spec, properties=none)
    table.append(pa.table({"key": pa.array(range(12), pa.int64())}))

    assert len(live_files(table)) > 6
    assert found(table, "7") == planned(table, "7")
    assert len(found(table, "7")) == 1
    assert found(table, "99") == planned(table, "99") == []


def test_statistics_that_are_not_there_exclude_nothing(catalog):
    none = {"write.metadata.metrics.default": "none"}
    table = table_of(catalog, pa.int64(), [[1], [2]], **none)

    assert len(found(table, "7")) == 2


def test_a_file_that_was_written_before_its_column_was_widened_is_found_by_its_bounds(catalog):
    schema = Schema(NestedField(1, "key", IntegerType(), required=False))
    table = catalog.create_table("demo.words", schema)
    table.append(pa.table({"key": pa.array([1, 2], pa.int32())}))
    with table.update_schema() as update:
        update.update_column("key", LongType())
    table.append(pa.table({"key": pa.array([3, 2**40], pa.int64())}))

    # Until PyIceberg 0.12 bounds of the older type cannot be compared, and exclude nothing.
    in_doubt = Version(pyiceberg.__version__) < Version("0.12")
    assert len(found(table, "2")) == 1
    assert len(found(table, "0")) == in_doubt
    assert len(found(table, str(2**40))) == 1 + in_doubt


def entry(**changes: Any) -> Entry:
    known = {"content": FileContent.DATA, "partition": (), "spec_id": 0, "rows": 3}
    nothing = dict.fromkeys(field.name for field in fields(Entry))
    return Entry(**nothing | known | changes)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [(b"\x01", None), (b"", b""), (None, b"abc"), (b"x" * 99, b"y" * 99)],
)
def test_bounds_that_are_none_of_the_columns_type_exclude_nothing(catalog, lower, upper):
    table = table_of(catalog, pa.int64(), [])
    told = may_match(table, EqualTo("key", "7"))
    bounds = Statistics({1: 3}, {1: 0}, None, {1: lower}, {1: upper})

    assert told(entry(statistics=bounds))
    assert told(entry(statistics=Statistics(None, None, None, None, None)))
    assert not told(entry(statistics=Statistics({1: 3}, {1: 3}, None, None, None)))


def test_a_partition_that_is_none_of_its_specs_excludes_nothing(catalog):
    schema = Schema(NestedField(1, "key", StringType(), required=False))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "part"))
    table = catalog.create_table("demo.words", schema, partition_spec=spec)
    told = may_match(table, EqualTo("key", "7"))

    assert told(entry(partition=("7",)))
    assert not told(entry(partition=("8",)))
    assert told(entry(partition=()))
    assert told(entry(partition=(), spec_id=9))


def test_files_of_another_bucket_are_excluded(catalog):
    schema = Schema(NestedField(1, "key", LongType(), required=False))
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(64), "part"))
    told = may_match(
        catalog.create_table("demo.words", schema, partition_spec=spec), EqualTo("key", "7")
    )
    bucket = BucketTransform(64).transform(LongType())(7)

    assert [at for at in range(64) if told(entry(partition=(at,)))] == [bucket]
    assert not told(entry(partition=(None,)))


def indexed(table) -> Any:
    """As much of an index as a search by key asks for before it has found the row."""
    at = table.current_snapshot().snapshot_id
    view = SimpleNamespace(snapshot_id=at, schema=lambda table: table.schema())
    return SimpleNamespace(table=table, view=view)


def corrupt(table, corrupted) -> None:
    """Replace what is in the blocks of a table's only manifest."""
    (manifest,) = table.current_snapshot().manifests(table.io)
    path = manifest.manifest_path.removeprefix("file://")
    with open(path, "rb") as file:
        parts = avro_files.parts_of(file.read())
    with open(path, "wb") as file:
        file.write(avro_files.assembled(parts._replace(blocks=corrupted(parts.blocks))))


def endless(blocks):
    """An entry with a map of numbers without end, where its data file has one by column."""
    [(count, records)] = blocks
    [at] = [at for at in range(len(records)) if records.startswith(PARQUET, at)]
    return [(count, records[: at + len(PARQUET)] + avro_files.number(2**40) * 6)]


PARQUET = avro_files.text(b"PARQUET")
CORRUPTED = {
    "a bomb": lambda blocks: [(1 << 20, bytes(64 << 20))],
    "a map without end": endless,
    "a block cut off": lambda blocks: [(count, data[:-9]) for count, data in blocks],
    "more records than there are": lambda blocks: [(2**40, data) for _, data in blocks],
}


@pytest.mark.parametrize("corrupted", CORRUPTED.values(), ids=CORRUPTED.keys())
def test_a_search_by_key_names_the_manifest_that_is_damaged(catalog, corrupted):
    table = table_of(catalog, pa.int64(), [[1, 2]])
    corrupt(table, corrupted)

    with pytest.raises(PuffinAnnError, match=r"\.avro is not a readable manifest: "):
        vector_of_row(indexed(table), "key", "2")


def test_a_search_by_key_tells_of_keys_that_no_row_has_or_can_have(catalog):
    table = table_of(catalog, pa.int32(), [[1, 2**31 - 1]])

    for value in ("7", "2147483648"):
        with pytest.raises(RowNotFoundError, match="no live row has this key"):
            vector_of_row(indexed(table), "key", value)
    for value in ("seven", "1.5"):
        with pytest.raises(QueryError, match=f"key='{value}' cannot be looked up"):
            vector_of_row(indexed(table), "key", value)
