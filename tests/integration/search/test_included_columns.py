"""Columns kept beside the rows: what they answer is what the table has, whatever became of it."""

import json
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from puffin_ann import open_index
from puffin_ann.lake.read.column_chunks import KEPT
from puffin_ann.search.conditions.kept import MATCHING
from tests.support import builds, refreshes
from tests.support.conditions import a_condition
from tests.support.tables import delete_positions

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
        for exhaustive in (False, True):
            found = index.search(
                QUERIES,
                200,
                columns=["id", "word", "price"],
                where=where,
                exhaustive=exhaustive,
                allow_fewer=True,
            )
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
    allowed = index._allowed("price < 6 and word like 'w%'")
    assert (allowed.matching.files_asked, allowed.matching.bytes_read) == (2, 0)


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


def blobs(table):
    """Digests of the newest version's blobs, by type."""
    version = refreshes.newest(table)
    found = {}
    with version.files(table.io) as files:
        for place in files.every_place(version.staged):
            found.setdefault(place.metadata.type, set()).add(
                place.metadata.properties.get("digest")
            )
    return found


@pytest.mark.parametrize("merge_on_read", [False, True])
def test_prices_updated_each_hour_are_answered_as_they_are_and_no_graph_is_touched(
    items, merge_on_read
):
    table, random = items, Random(2)
    declaration = refreshes.declared("vamana", **INCLUDED)
    builds.build(declaration, "run")
    before = blobs(table.refresh())
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
        now = blobs(table)
        assert now["puffin-ann-graph-v1"] == before["puffin-ann-graph-v1"]
    for entry in table.history():
        assert_right(table, entry.snapshot_id, conditions=1, seed=hour)


@pytest.mark.parametrize("algorithm", ["vamana", "ivf_pq"])
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
