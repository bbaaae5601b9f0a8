"""Columns kept beside the rows: what they answer is what the table has, whatever became of it."""

import json
import math
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
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
)

from puffin_ann import open_index
from puffin_ann.errors import ColumnNotFoundError, UnsupportedColumnError
from puffin_ann.lake.read.conditions.snapshot_entries import ENTRIES
from puffin_ann.lake.read.data.column_chunks import KEPT
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.search.conditions.kept import MATCHING
from puffin_ann.search.included.lookups import LOOKUPS
from tests.support.lake.conditions import a_condition
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds, refreshes
from tests.support.params import long_but_first

QUERIES = np.random.default_rng(5).normal(size=(3, builds.DIMENSION)).astype(np.float32)
VALUES = {
    "id": [3, 17, 31, 44, 61, 70],
    "word": ["w1", "w33", "w61", "w7"],
    "price": [0.5, 3.0, 7.25, 40.0],
}


def priced(ids, round_=0):
    """Rows with a price that depends on id and round; every ninth has none."""
    table = builds.rows(ids)
    prices = [
        None if number % 9 == 4 else float(number % 13) + round_ * 0.25
        for number in table.column("id").to_pylist()
    ]
    return table.append_column("price", pa.array(prices, pa.float64()))


def report(answers):
    return json.loads(answers.schema.metadata[b"puffin_ann"])


def forget():
    KEPT.clear()
    MATCHING.clear()
    ENTRIES.clear()
    LOOKUPS.clear()


def assert_right(table, snapshot_id=None, conditions=4, seed=1, **options):
    """Hold conditions and columns to what PyIceberg reads of a snapshot."""
    forget()
    index = open_index(table, builds.INDEX, snapshot_id, **options)
    data = table.scan(snapshot_id=snapshot_id).to_arrow()
    rows = {row["id"]: row for row in data.drop_columns(["embedding"]).to_pylist()}
    random = Random(seed)
    for _ in range(conditions):
        where, says = a_condition(random, VALUES)
        expected = {number for number, row in rows.items() if says(row)}
        near = partial(index.search, k=200, allow_fewer=True)
        every = partial(index.within, distance=1e6)
        for ask in (near, partial(near, exhaustive=True), every):
            found = ask(QUERIES, columns=["id", "word", "price"], where=where)
            for number in range(len(QUERIES)):
                here = found.filter(pa.compute.equal(found.column("query"), number))
                assert sorted(here.column("id").to_pylist()) == sorted(expected)
            for row in found.select(["id", "word", "price"]).to_pylist():
                assert row == rows[row["id"]]
    return index


@pytest.fixture
def items(catalog):
    """60 rows with prices in two data files of several row groups."""
    table = catalog.create_table(
        "demo.words",
        schema=priced([]).schema,
        properties={"write.parquet.row-group-limit": "10"},
    )
    table.append(priced(range(30)))
    table.append(priced(range(30, 60)))
    return table


INCLUDED = {"include": ["id", "word", "price"]}


@pytest.mark.parametrize("algorithm", ["exact", "vamana", "hnsw", "ivf_pq"])
def test_nothing_is_read_of_the_table_for_what_an_index_includes(items, algorithm):
    builds.build(builds.declaration(algorithm=algorithm, **INCLUDED), "run")
    index = assert_right(items.refresh())
    forget()
    found = index.search(QUERIES, 5, columns=["price", "id"], where="price < 6 and word like 'w%'")
    told = report(found)
    assert (told["bytes_of_columns"], told["rows_with_columns"]) == (0, 15)
    near = index.within(QUERIES, 1e6, columns=["price", "id"], where="price < 6")
    told = report(near)
    assert (told["bytes_of_columns"], told["rows_with_columns"]) == (0, len(near))
    allowed = index._allowed("price < 6 and word like 'w%'")
    assert (allowed.matching.files_asked, allowed.matching.bytes_read) == (2, 0)


FLOATS = {
    "score": [0.0, -0.0, 0.25, 1.0, math.inf, -math.inf, 1e39],
    "weight": [0.0, -0.0, 0.25, 1.0, math.inf, -math.inf, 1e39, -1e39],
}


def scored(ids):
    """Rows with floating-point numbers of every kind."""
    kinds = [0.0, -0.0, 0.25, 1.0, math.inf, -math.inf, math.nan, None]
    table = builds.rows(ids)
    numbers = [kinds[number % 8 if number < 40 else number // 10] for number in ids]
    return table.append_column("score", pa.array(numbers, pa.float64())).append_column(
        "weight", pa.array(numbers, pa.float32())
    )


@pytest.mark.parametrize("included", [[], ["id", "score", "weight"]])
def test_floating_point_numbers_are_compared_alike_wherever_they_are_kept(catalog, included):
    """By blocks of the index, by statistics of files and row groups, and by rows."""
    table = catalog.create_table(
        "demo.words",
        schema=scored([]).schema,
        properties={"write.parquet.row-group-limit": "10"},
    )
    table.append(scored(range(40)))
    for first in (40, 50, 60):
        table.append(scored(range(first, first + 10)))
    builds.build(builds.declaration(include=included), "run")
    table.refresh().append(scored(range(70, 80)))
    forget()
    index = open_index(table.refresh(), builds.INDEX)
    rows = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    random = Random(3)
    fixed = [
        (
            f"{name} {says}",
            lambda row, name=name, test=test: row[name] is not None and test(row[name]),
        )
        for name in FLOATS
        for says, test in (
            ("in (0.0, 0.25)", lambda value: value in (0.0, 0.25)),
            ("not in (-0.0, 0.25)", lambda value: value not in (0.0, 0.25)),
            ("< 1e39", lambda value: value < 1e39),
            ("> -1e39", lambda value: value > -1e39),
        )
    ]
    drawn = [a_condition(random, FLOATS) for _ in range(30)]
    for where, says in fixed + drawn:
        expected = sorted(number for number, row in rows.items() if says(row))
        for exhaustive in (False, True):
            found = index.search(
                QUERIES[:1],
                99,
                columns=["id"],
                where=where,
                exhaustive=exhaustive,
                allow_fewer=True,
            )
            assert sorted(found.column("id").to_pylist()) == expected, where
        near = index.within(QUERIES[:1], 1e6, columns=["id"], where=where)
        assert sorted(near.column("id").to_pylist()) == expected, where


def update_prices(table, numbers, round_, *, merge_on_read):
    """Give some rows other prices: their files written anew, or deletes and a file beside."""
    live = sorted(
        set(numbers) & set(table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())
    )
    changed = priced(live, round_)
    if merge_on_read:
        positions = {}
        for task in table.scan().plan_files():
            path = task.file.file_path
            ids = pq.read_table(path.removeprefix("file://"), columns=["id"])["id"].to_pylist()
            positions[path] = [at for at, number in enumerate(ids) if number in set(live)]
        delete_positions(table, {path: found for path, found in positions.items() if found})
        table.refresh().append(changed)
        return
    data = table.scan().to_arrow()
    kept = data.filter(pa.compute.invert(pa.compute.is_in(data["id"], changed["id"])))
    table.overwrite(pa.concat_tables([kept, changed.cast(kept.schema)]))


@pytest.mark.parametrize("merge_on_read", [False, True])
def test_prices_updated_each_hour_are_answered_as_they_are_and_no_graph_is_touched(
    items, merge_on_read
):
    table, random = items, Random(2)
    declaration = refreshes.declared("vamana", **INCLUDED)
    builds.build(declaration, "run")
    before, types = refreshes.blob_digests(table.refresh()), set()
    for hour in range(1, 5):
        update_prices(table, random.sample(range(60), 12), hour, merge_on_read=merge_on_read)
        index = assert_right(table.refresh(), conditions=2, seed=hour)  # not refreshed yet
        done = refreshes.refresh(table, declaration, f"hour-{hour}")
        assert done["action"] == "refresh"
        index = assert_right(table, conditions=3, seed=hour)
        forget()
        found = index.search(QUERIES, 60, columns=["price"], where="price > 1", allow_fewer=True)
        told = report(found)
        assert told["rows_with_columns"] == len(found)
        assert index._allowed("price > 1").matching.bytes_read == 0
        now = refreshes.blob_digests(table)
        assert now["puffin-ann-graph-v1"] == before["puffin-ann-graph-v1"]
        types |= set(now)
    assert ("puffin-ann-column-changes-v1" in types) == merge_on_read
    for entry in table.history():
        assert_right(table, entry.snapshot_id, conditions=1, seed=hour)


@pytest.mark.parametrize("algorithm", long_but_first(["vamana", "ivf_pq"]))
def test_included_values_are_those_of_the_table_through_any_history(items, algorithm):
    table, random = items, Random(algorithm)
    declaration = refreshes.declared(algorithm, **INCLUDED)
    builds.build(declaration, "run")
    for step in range(10):
        kind = random.choice(["append", "delete", "update", "update", "compact", "roll back"])
        if kind == "append":
            table.append(priced(range(60 + 5 * step, 65 + 5 * step), step))
        elif kind == "delete":
            first = random.randrange(50)
            table.delete(f"id >= {first} and id < {first + 6}")
        elif kind == "update":
            some = random.sample(range(90), 15)
            update_prices(table, some, step, merge_on_read=random.random() < 0.5)
        elif kind == "compact":
            refreshes.compact(table)
        else:
            refreshes.roll_back(table, random.choice(table.history()).snapshot_id)
        table.refresh()
        assert_right(table, conditions=1, seed=step)
        if random.random() < 0.7:
            due = random.random() < 0.5
            refreshes.refresh(table, declaration, f"refresh-{step}", maintenance=due)
            assert_right(table, conditions=2, seed=step)
    for entry in table.history():
        assert_right(table, entry.snapshot_id, conditions=1)


def test_columns_are_known_by_field_id_whatever_they_are_called(items):
    declaration = refreshes.declared(include=["id", "word", "price"])
    builds.build(declaration, "run")
    with items.refresh().update_schema() as change:
        change.rename_column("price", "cost")
    with items.update_schema() as change:
        change.add_column("price", StringType())
    items.refresh().append(
        builds.rows(range(60, 66))
        .append_column("cost", pa.array([1.5] * 6))
        .append_column("price", pa.array(["dear"] * 6))
    )
    with items.refresh().update_schema() as change:
        change.delete_column("word")
    with items.update_schema() as change:
        change.add_column("word", LongType())
    for refreshed in (False, True):
        if refreshed:
            refreshes.refresh(items, declaration)
        forget()
        index = open_index(items.refresh(), builds.INDEX)
        rows = {
            row["id"]: row
            for row in items.scan().to_arrow().drop_columns(["embedding"]).to_pylist()
        }
        found = index.search(QUERIES, 66, columns=["id", "word", "price", "cost"])
        assert report(found)["rows_with_columns"] == 0  # `word` and `price` are others now
        for row in found.select(["id", "word", "price", "cost"]).to_pylist():
            assert row == rows[row["id"]]
        found = index.search(QUERIES, 66, columns=["cost"], where="cost < 3", allow_fewer=True)
        expected = {
            number for number, row in rows.items() if row["cost"] is not None and row["cost"] < 3
        }
        assert len(found) == 3 * len(expected)
        for where, least in (("price = 'dear'", 6), ("price is null", 60), ("word is null", 66)):
            assert len(index.search(QUERIES[:1], 66, where=where, allow_fewer=True)) == least


def test_values_have_the_type_that_their_column_has_in_the_snapshot(catalog):
    table = catalog.create_table(
        "demo.words",
        schema=Schema(
            NestedField(1, "id", LongType()),
            NestedField(2, "word", StringType()),
            NestedField(3, "embedding", ListType(4, FloatType(), element_required=False)),
            NestedField(5, "stock", IntegerType()),
            NestedField(6, "weight", FloatType()),
            NestedField(7, "cost", DecimalType(6, 2)),
        ),
    )

    def stocked(ids, stock, weight, cost):
        return (
            builds.rows(ids)
            .append_column("stock", pa.array([number % 4 for number in ids], stock))
            .append_column("weight", pa.array([number / 3 for number in ids], weight))
            .append_column("cost", pa.array([Decimal(number) for number in ids], cost))
        )

    table.append(stocked(range(40), pa.int32(), pa.float32(), pa.decimal128(6, 2)))
    declaration = refreshes.declared(include=["stock", "weight", "cost"])
    builds.build(declaration, "run")
    old = table.refresh().current_snapshot().snapshot_id
    with table.update_schema() as change:
        change.update_column("stock", LongType())
        change.update_column("weight", DoubleType())
        change.update_column("cost", DecimalType(12, 2))
    table.append(stocked(range(40, 50), pa.int64(), pa.float64(), pa.decimal128(12, 2)))
    for done in ("built before", "refreshed", "built since"):
        if done == "refreshed":
            refreshes.refresh(table, declaration)
        elif done == "built since":
            assert builds.build(declaration, "again", {"force": True}).action == "build"
        for snapshot_id in (None, old):
            forget()
            index = open_index(table.refresh(), builds.INDEX, snapshot_id)
            data = table.scan(snapshot_id=snapshot_id).to_arrow()
            where = "stock = 3 and weight > 2.1 and cost < 39.5"
            expected = data.filter(
                (pa.compute.field("stock") == 3)
                & (pa.compute.field("weight") > 2.1)
                & (pa.compute.field("cost") < Decimal("39.5"))
            )
            columns = ["stock", "weight", "cost"]
            found = index.search(QUERIES[:1], 50, columns=columns, where=where, allow_fewer=True)
            assert sorted(found["cost"].to_pylist()) == sorted(expected["cost"].to_pylist())
            kinds = (pa.int32(), pa.float32()) if snapshot_id else (pa.int64(), pa.float64())
            assert (found.schema.field("stock").type, found.schema.field("weight").type) == kinds
            assert sorted(found["weight"].to_pylist()) == pytest.approx(
                sorted(expected["weight"].to_pylist()), rel=1e-6
            )


@pytest.mark.parametrize("kind", ["columns", "column-changes"])
def test_the_table_answers_for_values_that_are_damaged_and_the_damage_is_told(items, kind):
    declaration = refreshes.declared(**INCLUDED)
    builds.build(declaration, "run")
    update_prices(items.refresh(), [3, 5, 8], 1, merge_on_read=True)
    refreshes.refresh(items, declaration)
    version = refreshes.newest(items)
    with version.files(items.io) as files:
        places = [p for p in files.every_place() if p.metadata.type == f"puffin-ann-{kind}-v1"]
    assert places
    for place in places:
        path = Path(place.path.removeprefix("file://"))
        data = bytearray(path.read_bytes())
        data[place.metadata.offset + 140] ^= 0x55
        path.write_bytes(data)
    index = assert_right(items)
    found = index.search(QUERIES, 3, columns=["price"])
    assert any("checksum" in told for told in report(found)["damaged"])


@pytest.mark.parametrize(
    ("include", "says"),
    [
        (["tags"], "'tags' of test.demo.words is of type list<string>"),
        (["prize"], "no top-level column 'prize' (did you mean 'price'"),
        (["name"], "it is called 'word' now"),
    ],
)
def test_columns_that_cannot_be_included_are_refused_by_name(items, include, says):
    with items.update_schema() as change:
        change.add_column("tags", ListType(99, StringType(), element_required=False))
        change.rename_column("word", "name")
    with items.update_schema() as change:
        change.rename_column("name", "word")
    with pytest.raises((UnsupportedColumnError, ColumnNotFoundError)) as refused:
        builds.build(builds.declaration(include=include), "run")
    assert says in str(refused.value)


def test_other_columns_to_include_build_the_index_again_and_the_plan_says_so(items):
    builds.build(refreshes.declared(), "run")
    decided = refresh_in_process(refreshes.declared(include=["price"]), run_id="more")
    assert decided["action"] == "build"
    assert "include [] → ['price']" in decided["reason"]
    assert (
        report(open_index(items.refresh(), builds.INDEX).search(QUERIES, 2, columns=["price"]))[
            "rows_with_columns"
        ]
        == 6
    )


@pytest.mark.parametrize("include", [["price"], ["word"], ["id", "word", "price"]], ids=str)
def test_columns_that_may_not_be_null_are_kept_and_answered(catalog, include):
    """What the index has of them was of another type than what the table has, and met with it."""
    listed = ListType(element_id=9, element_type=FloatType(), element_required=False)
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "word", StringType(), required=True),
        NestedField(3, "embedding", listed, required=False),
        NestedField(4, "price", DoubleType(), required=False),
    )
    table = catalog.create_table("demo.words", schema=schema)
    rows = priced(range(120)).select(["id", "word", "embedding", "price"])
    fields = [pa.field(one.name, one.type, one.name not in ("id", "word")) for one in rows.schema]
    rows = rows.cast(pa.schema(fields))
    table.append(rows.slice(0, 100))
    declared = builds.declaration(include=include, key="id")
    builds.build(declared, "build")
    for changed in (False, True):
        if changed:
            table.append(rows.slice(100))
            refresh_in_process(declared, run_id="refresh")
        index = open_index(table.refresh(), builds.INDEX)
        count = 120 if changed else 100
        for columns in (["id"], ["word", "id"], ["price"], ["id", "word", "price"]):
            found = index.search(QUERIES[:1], count, columns=columns)
            assert [found.schema.field(name).nullable for name in columns] == [
                schema.find_field(name).optional for name in columns
            ]
            expected = rows.slice(0, count).select(columns).to_pylist()
            assert sorted(found.select(columns).to_pylist(), key=str) == sorted(expected, key=str)
        asked = index.search(QUERIES[:1], 200, columns=["id"], where="price > 3", allow_fewer=True)
        expected = {
            row["id"] for row in rows.slice(0, count).to_pylist() if (row["price"] or 0) > 3
        }
        assert set(asked["id"].to_pylist()) == expected
