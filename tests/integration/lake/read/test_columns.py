"""Columns of rows by locator: right whatever is in memory, and read once."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
)

from puffin_ann.errors import (
    ColumnNotFoundError,
    DataFileError,
    EnvironmentProblemError,
    FormatError,
    PuffinAnnError,
)
from puffin_ann.lake.read.data import column_chunks
from puffin_ann.lake.read.data.column_chunks import KEPT, Kept
from puffin_ann.lake.read.data.columns import ColumnReader, DataFile, RowGroup, read_rows
from puffin_ann.lake.read.files.live_files import live_files
from puffin_ann.settings import settings
from tests.support.lake import tables


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    KEPT.clear()
    table = tables.create(catalog)
    table.append(tables.rows(0, 25))
    return table


def fetch(table: Table, places: list[tuple[int, int, int]], columns: list[str]):
    """The rows, and the bytes that were read."""
    reader = ColumnReader(table, columns)
    return reader.rows(*locators(table, places)).to_pydict(), reader.bytes_read


# Rows by locator


def locators(table: Table, places: list[tuple[int, int, int]]) -> tuple:
    files = sorted(live_files(table), key=lambda file: file.sequence_number)
    return (
        [DataFile(file.path, file.size) for file in files],
        np.array([file for file, _, _ in places]),
        np.array([group for _, group, _ in places]),
        np.array([offset for _, _, offset in places]),
    )


def test_rows_come_in_the_order_asked_for_and_as_often(table: Table) -> None:
    table.append(tables.rows(25, 15))
    places = [(1, 1, 4), (0, 2, 0), (0, 0, 9), (1, 0, 0), (0, 2, 0)]
    found = read_rows(table, *locators(table, places), ["word", "id"])
    assert found.to_pydict() == {
        "word": ["w39", "w20", "w9", "w25", "w20"],
        "id": [39, 20, 9, 25, 20],
    }


def test_only_row_groups_with_a_wanted_row_are_read(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[int, tuple[str, ...]]] = []
    original = pq.ParquetFile.read_row_group

    def counting(self, i, columns=None, **more):
        read.append((i, tuple(columns)))
        return original(self, i, columns=columns, **more)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counting)
    read_rows(table, *locators(table, [(0, 2, 0), (0, 0, 1), (0, 2, 3)]), ["word"])
    assert read == [(0, ("word",)), (2, ("word",))]


def test_no_rows_and_no_columns_give_an_empty_table(table: Table) -> None:
    none = read_rows(table, [], *[np.zeros(0, int)] * 3, ["id"])
    assert none.schema.names == ["id"]
    assert none.num_rows == 0


def test_rows_have_the_types_and_names_of_the_current_schema(catalog: SqlCatalog) -> None:
    schema = Schema(NestedField(1, "n", IntegerType()), NestedField(2, "x", FloatType()))
    table = tables.create(catalog, schema=schema)
    table.append(
        pa.table({"n": pa.array([1, 2], pa.int32()), "x": pa.array([0.5, 1.5], pa.float32())})
    )
    with table.update_schema() as update:
        update.update_column("n", LongType())
        update.update_column("x", DoubleType())
        update.rename_column("x", "y")
        update.add_column("late", StringType())
    table.append(pa.table({"n": [3], "y": [2.5], "late": ["yes"]}))
    places = [(1, 0, 0), (0, 0, 1)]
    found = read_rows(table, *locators(table, places), ["late", "y", "n"])
    assert found.to_pydict() == {"late": ["yes", None], "y": [2.5, 1.5], "n": [3, 2]}
    assert found.schema.field("n").type == pa.int64()
    assert found.schema.field("y").type == pa.float64()


def test_a_column_no_file_has_yet_is_null(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("late", StringType())
    found = read_rows(table, *locators(table, [(0, 0, 0), (0, 1, 0)]), ["late"])
    assert found.to_pydict() == {"late": [None, None]}


@pytest.mark.parametrize("place", [(0, 3, 0), (0, 0, 10), (0, 0, -1), (0, -1, 0)])
def test_a_locator_outside_its_file_is_refused(table: Table, place: tuple) -> None:
    with pytest.raises(FormatError):
        read_rows(table, *locators(table, [place]), ["id"])


def test_an_unknown_column_is_told_with_those_there_are(table: Table) -> None:
    with pytest.raises(ColumnNotFoundError, match=r"'wrd'.*id, word, embedding"):
        read_rows(table, *locators(table, [(0, 0, 0)]), ["wrd"])


def test_a_file_outside_the_table_location_is_read_too(table: Table) -> None:
    path = f"{table.location()}/../elsewhere/other.parquet"
    with table.io.new_output(path).create() as out:
        pq.write_table(tables.rows(100, 3), out)
    table.add_files([path])
    [size] = [file.size for file in live_files(table) if file.path == path]
    zero = np.array([0])
    fetched = read_rows(table, [DataFile(path, size)], zero, zero, zero + 2, ["word"])
    assert fetched.to_pydict() == {"word": ["w102"]}


# What is kept


def test_what_was_read_is_not_read_again(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fetch(table, [(0, 0, 3), (0, 1, 9)], ["word"])
    assert first[1] > 0

    def refuse(*_arguments, **_named):
        raise AssertionError("a file is read")

    monkeypatch.setattr(column_chunks, "read_ranges", refuse)
    again = fetch(table.catalog.load_table("demo.words"), [(0, 1, 8), (0, 0, 1)], ["word"])
    assert again == ({"word": ["w18", "w1"]}, 0)


def test_another_column_or_row_group_costs_its_own_chunks_alone(table: Table) -> None:
    [file] = live_files(table)
    metadata = pq.read_metadata(file.path.removeprefix("file://"))
    fetch(table, [(0, 0, 3)], ["word"])
    for places, columns, chunk in [
        ([(0, 0, 3)], ["id", "word"], metadata.row_group(0).column(0)),
        ([(0, 0, 3), (0, 2, 3)], ["word"], metadata.row_group(2).column(1)),
    ]:
        assert fetch(table, places, columns)[1] == chunk.total_compressed_size


def test_a_file_that_was_replaced_is_not_answered_from_memory(table: Table) -> None:
    [file] = live_files(table)
    assert fetch(table, [(0, 0, 3)], ["word"])[0] == {"word": ["w3"]}
    other = pq.read_table(file.path.removeprefix("file://"))
    words = pa.array([f"other {number}" for number in range(len(other))])
    field = other.schema.field("word")
    pq.write_table(
        other.set_column(1, field, words), file.path.removeprefix("file://"), row_group_size=10
    )
    with table.io.new_input(file.path).open() as stream:
        size = len(stream.read())
    assert size != file.size
    zero = np.array([0])
    found = read_rows(table, [DataFile(file.path, size)], zero, zero, zero + 3, ["word"])
    assert found.to_pydict() == {"word": ["other 3"]}
    KEPT.clear()
    with pytest.raises(DataFileError, match=file.path):
        fetch(table, [(0, 0, 3)], ["word"])


def test_tables_share_nothing(catalog: SqlCatalog, table: Table) -> None:
    [file] = live_files(table)
    fetch(table, [(0, 0, 3)], ["word"])
    other = tables.create(catalog, "others")
    zero = np.array([0])
    reader = ColumnReader(other, ["word"])
    reader.rows([DataFile(file.path, file.size)], zero, zero, zero)
    assert reader.bytes_read > 0


def test_what_is_kept_of_a_file_does_not_outlive_a_schema(table: Table) -> None:
    places = [(0, 0, 3)]
    assert fetch(table, places, ["id", "word"])[0] == {"id": [3], "word": ["w3"]}
    with table.update_schema() as update:
        update.rename_column("word", "was_word")
        update.add_column("late", StringType())
    with table.update_schema() as update:
        update.rename_column("id", "word")
    found, size = fetch(table, places, ["word", "was_word", "late"])
    assert found == {"word": [3], "was_word": ["w3"], "late": [None]}
    assert size == 0


def test_memory_stays_within_its_bound(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUFFIN_ANN_COLUMNS_MAX_BYTES", "0")
    settings.cache_clear()
    places = [(0, 0, 3), (0, 1, 3), (0, 2, 3)]
    first = fetch(table, places, ["word"])
    assert first == fetch(table, places, ["word"])
    assert first[0] == {"word": ["w3", "w13", "w23"]}
    [file] = live_files(table)
    assert first[1] < 2 * file.size  # the footer once, with what is before it
    assert KEPT.bytes == 0


def test_what_was_used_longest_ago_leaves_first() -> None:
    kept = Kept(lambda: 10)
    kept.put("a", 1, 4)
    kept.put("b", 2, 4)
    assert kept.get("a") == 1
    kept.put("c", 3, 4)
    assert [kept.get(key) for key in "abc"] == [1, None, 3]
    kept.put("c", 4, 1)
    kept.put("too large", 5, 11)
    assert kept.bytes == 5
    assert kept.get("too large") is None


def test_rounds_are_bounded_and_answers_stay_in_order(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_chunks, "ROUND_BYTES", 1)
    places = [(0, 2, 4), (0, 0, 0), (0, 1, 5)]
    assert fetch(table, places, ["id"])[0] == {"id": [24, 0, 15]}


def test_threads_share_what_is_kept(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUFFIN_ANN_COLUMNS_MAX_BYTES", "30000")
    settings.cache_clear()
    table.append(tables.rows(25, 400))
    start = threading.Barrier(4)

    def ask(seed: int) -> None:
        start.wait()
        chance = np.random.default_rng(seed)
        for _ in range(40):
            ids = chance.integers(0, 425, 5)
            places = [
                (0, i // 10, i % 10) if i < 25 else (1, (i - 25) // 10, (i - 25) % 10)
                for i in ids.tolist()
            ]
            found = fetch(table, places, ["id", "word"])[0]
            assert found == {"id": ids.tolist(), "word": [f"w{i}" for i in ids]}

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(ask, range(4)))
    assert KEPT.bytes <= 30_000


# Against a reader that reads everything


KINDS = {
    "whole": lambda c, n: pa.array(c.integers(-9, 9, n), pa.int32(), mask=c.random(n) < 0.2),
    "text": lambda c, n: pa.array([None if c.random() < 0.2 else "x" * i for i in range(n)]),
    "truth": lambda c, n: pa.array(c.random(n) < 0.5, mask=c.random(n) < 0.2),
    "list": lambda c, n: pa.array(
        [None if c.random() < 0.2 else ["a"] * int(c.integers(0, 3)) for _ in range(n)],
        pa.list_(pa.string()),
    ),
    "struct": lambda c, n: pa.array(
        [None if c.random() < 0.2 else {"a": i, "b": [i, None]} for i in range(n)],
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))]),
    ),
    "map": lambda c, n: pa.array(
        [None if c.random() < 0.2 else [("k", i)] * int(c.integers(0, 2)) for i in range(n)],
        pa.map_(pa.string(), pa.int64()),
    ),
    "moment": lambda c, n: pa.array(c.integers(0, 1 << 40, n), pa.timestamp("us", "UTC")),
}


@pytest.mark.parametrize("seed", range(6))
def test_rows_equal_those_of_a_whole_read(catalog: SqlCatalog, seed: int) -> None:
    chance = np.random.default_rng(seed)
    names = chance.permutation([*KINDS]).tolist()
    table = None
    for _ in range(3):
        rows = int(chance.integers(1, 60))
        data = pa.table({name: KINDS[name](chance, rows) for name in names})
        if table is None:
            table = tables.create(catalog, schema=data.schema, row_group_rows=7)
        table.append(data)
    files = sorted(live_files(table), key=lambda file: file.sequence_number)
    whole = [pq.read_table(file.path.removeprefix("file://")).to_pylist() for file in files]
    named = [DataFile(file.path, file.size) for file in files]
    for _ in range(4):
        columns = chance.permutation(names)[: chance.integers(1, len(names) + 1)].tolist()
        numbers = chance.integers(0, 3, chance.integers(1, 30))
        at = np.array([chance.integers(0, len(whole[number])) for number in numbers])
        found = read_rows(table, named, numbers, at // 7, at % 7, columns).to_pylist()
        assert found == [
            {name: whole[number][place][name] for name in columns}
            for number, place in zip(numbers, at, strict=True)
        ]
    groups = [
        RowGroup(file, number)
        for file, rows in zip(named, whole, strict=True)
        for number in range(-(-len(rows) // 7))
    ]
    read = list(ColumnReader(table, ["struct", "text"]).row_groups(groups))
    assert [group for group, _ in read] == groups
    assert [row for _, rows in read for row in rows.to_pylist()] == [
        {"struct": row["struct"], "text": row["text"]} for rows in whole for row in rows
    ]


# Files that cannot be read


def test_any_byte_of_a_file_may_be_wrong(table: Table) -> None:
    [file] = live_files(table)
    path = file.path.removeprefix("file://")
    with open(path, "rb") as stream:
        sound = stream.read()
    chance, refused = random.Random(3), []
    for _ in range(300):
        data = bytearray(sound)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with open(path, "wb") as stream:
            stream.write(data[: chance.choice([len(data), chance.randrange(len(data))])])
        KEPT.clear()
        try:
            fetch(table, [(0, 0, 3), (0, 1, 9)], ["id", "word"])
        except PuffinAnnError as error:
            refused.append(error)
    assert len(refused) > 80
    assert [str(error) for error in refused if path not in str(error)] == []


def test_a_file_that_is_gone_is_named(table: Table) -> None:
    [file] = live_files(table)
    table.io.delete(file.path)
    with pytest.raises(EnvironmentProblemError, match=f"data file {file.path} is gone"):
        fetch(table, [(0, 0, 3)], ["word"])
