"""New conditions on included columns are answered by lookups, as exactly as by asking each row."""

from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier

import numpy as np
import pyarrow as pa
import pytest

from puffin_ann import open_index
from puffin_ann.lake.read.conditions import snapshot_entries
from puffin_ann.lake.read.conditions.snapshot_entries import ENTRIES
from puffin_ann.lake.read.data.column_chunks import KEPT
from puffin_ann.search.conditions import kept_shards
from puffin_ann.search.conditions.allowed_rows import AllowedRows
from puffin_ann.search.conditions.gathered import Gathered
from puffin_ann.search.conditions.kept import MATCHING
from puffin_ann.search.included import lookups, matching
from puffin_ann.search.included.lookups import LOOKUPS
from puffin_ann.settings import settings
from tests.support.lake.conditions import a_condition
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds, refreshes
from tests.support.params import long_but_first

QUERY = np.random.default_rng(5).normal(size=builds.DIMENSION).astype(np.float32)
VALUES = {
    "id": [3, 17, 31, 44, 61, 70],
    "word": ["w1", "w33", "w61", "w7"],
    "price": [0.0, 0.5, 3.0, 7.25, 40.0],
}
INCLUDED = {"include": ["id", "word", "price"]}


def priced(ids, change=0):
    """Rows with a price of few values; every fifth has none, every seventh is NaN."""
    table = builds.rows(ids)
    prices = [
        None if number % 5 == 2 else float("nan") if number % 7 == 3 else number % 4 + change * 0.5
        for number in table.column("id").to_pylist()
    ]
    return table.append_column("price", pa.array(prices, pa.float64()))


@pytest.fixture(autouse=True)
def _nothing_kept():
    yield
    forget()
    settings.cache_clear()


def forget():
    for kept in (KEPT, MATCHING, ENTRIES, LOOKUPS):
        kept.clear()


@pytest.fixture
def items(catalog):
    """60 rows in two data files of several row groups, with an index that includes columns."""
    table = catalog.create_table(
        "demo.words",
        schema=priced([]).schema,
        properties={"write.parquet.row-group-limit": "10"},
    )
    table.append(priced(range(30)))
    table.append(priced(range(30, 60)))
    builds.build(refreshes.declared("vamana", **INCLUDED), "run")
    return table.refresh()


def ids_of(index, where):
    found = index.search(QUERY, 200, columns=["id"], where=where, allow_fewer=True)
    return sorted(found.column("id").to_pylist())


@pytest.fixture
def asked_row_by_row(monkeypatch):
    """The conditions of which rows were asked without lookups."""
    asked = []
    evaluate = matching.rows_that_match

    def noted(condition, columns):
        asked.append(condition.text)
        return evaluate(condition, columns)

    monkeypatch.setattr(matching, "rows_that_match", noted)
    return asked


def test_lookups_are_made_by_the_second_condition_and_serve_all_later_ones(items, asked_row_by_row):
    index = open_index(items, builds.INDEX)
    for number in range(6):
        assert ids_of(index, f"id = {number} or id = {number + 20}") == [number, number + 20]
    assert set(asked_row_by_row) == {"id = 0 or id = 20"}
    told = index.cache_statistics.lookup_bytes
    assert told == LOOKUPS.bytes > 0
    assert ids_of(index, "word in ('w7', 'w8') and id < 8") == [7]
    assert index.cache_statistics.lookup_bytes > told
    assert set(asked_row_by_row) == {"id = 0 or id = 20"}


def test_an_index_that_was_warmed_asks_no_row(items, asked_row_by_row):
    index = open_index(items, builds.INDEX)
    index.warm(lookups=False)
    assert index.cache_statistics.lookup_bytes == 0
    index.warm()
    assert index.cache_statistics.lookup_bytes > 0
    before = index._kept.bytes_read
    assert ids_of(index, "id in (4, 5) and price is not null") == [4, 5]
    assert (asked_row_by_row, index._kept.bytes_read) == ([], before)
    again = open_index(items, builds.INDEX)  # shares what this process keeps
    assert ids_of(again, "id in (6, 9)") == [6, 9]
    assert asked_row_by_row == []


@pytest.mark.parametrize("most", [0, 200])
def test_lookups_that_do_not_fit_are_not_made(items, asked_row_by_row, monkeypatch, most):
    monkeypatch.setenv("PUFFIN_ANN_LOOKUPS_MAX_BYTES", str(most))
    settings.cache_clear()
    index = open_index(items, builds.INDEX)
    index.warm()
    for number in range(4):
        assert ids_of(index, f"id = {number}") == [number]
    assert len(set(asked_row_by_row)) == 4
    assert index.cache_statistics.lookup_bytes == 0


@pytest.mark.parametrize("most", range(1200, 1900, 70))
def test_lookups_of_numbers_are_made_only_if_they_stay(items, monkeypatch, most):
    """Of 60 rows that all differ: 8 bytes a row, 8 a value, 4 to say where its rows are."""
    monkeypatch.setenv("PUFFIN_ANN_LOOKUPS_MAX_BYTES", str(most))
    settings.cache_clear()
    index = open_index(items, builds.INDEX)
    for number in range(3):
        assert ids_of(index, f"id = {number}") == [number]
    whole = 60 * (8 + 8 + 4) + 3 * 4 + 60 * 4
    assert LOOKUPS.bytes == (whole if most >= 60 * (8 + 8 + 4 + 8) else 0)


@pytest.mark.parametrize("different", [60, 3])
def test_repeated_text_is_looked_up_if_what_differs_fits(catalog, monkeypatch, different):
    """Packed it takes very little, whether or not all of it differs."""
    rows = builds.rows(range(60))
    texts = [f"{number % different} {'tea' * 700}" for number in range(60)]
    rows = rows.append_column("text", pa.array(texts))
    table = catalog.create_table("demo.words", schema=rows.schema)
    table.append(rows)
    builds.build(refreshes.declared("vamana", include=["id", "text"]), "run")
    monkeypatch.setenv("PUFFIN_ANN_LOOKUPS_MAX_BYTES", "40000")
    settings.cache_clear()
    made = []
    make = lookups.column_lookup
    monkeypatch.setattr(lookups, "column_lookup", lambda column: made.append(1) or make(column))
    index = open_index(table.refresh(), builds.INDEX)
    for number in (0, 1, 2):
        assert ids_of(index, f"text like '{number} %'") == list(range(number, 60, different))
    assert len(made) == (different == 3)
    assert (LOOKUPS.bytes > 3 * 2000) == (different == 3)


def test_a_lookup_that_had_to_leave_is_not_made_again(items, asked_row_by_row, monkeypatch):
    """Words of any length may not fit beside each other, whatever was expected."""
    monkeypatch.setenv("PUFFIN_ANN_LOOKUPS_MAX_BYTES", "2600")
    settings.cache_clear()
    index = open_index(items, builds.INDEX)
    for number in range(5):
        assert ids_of(index, f"word = 'w{number}'") == [number]
        assert ids_of(index, f"id = {number} and word != 'x'") == [number]
        assert ids_of(index, f"id = {number + 30} and price < 100") in ([], [number + 30])
        assert LOOKUPS.bytes <= 2600
    assert len(set(asked_row_by_row)) > 2


def test_manifests_of_a_snapshot_are_read_once(items, monkeypatch):
    read = []
    whole = snapshot_entries.read_manifest

    def noted(io, manifest, **options):
        read.append(manifest.path)
        return whole(io, manifest, **options)

    monkeypatch.setattr(snapshot_entries, "read_manifest", noted)
    for _ in range(2):
        index = open_index(items, builds.INDEX)
        for where in ("id = 3", "id < 3", "price > 1", "word like 'w3%'", "embedding is null"):
            ids_of(index, where)
    assert len(read) == len(set(read)) == 2
    items.append(priced(range(60, 66)))
    index = open_index(items.refresh(), builds.INDEX)
    assert ids_of(index, "id in (61, 5)") == [5, 61]
    assert len(read) == 2 + 3


def test_rows_are_placed_only_where_all_of_them_may_be_kept(items, monkeypatch):
    index = open_index(items, builds.INDEX)
    index.warm()
    assert index._allowed("id < 20").are_to_place
    monkeypatch.setattr(kept_shards, "SHARDS_BYTES", 4 * 19)
    assert not index._allowed("id >= 0 and id < 20").are_to_place
    assert index._allowed("id < 19").are_to_place
    for where, count in (("id >= 0 and id < 20", 20), ("id < 19", 19)):
        assert ids_of(index, where) == list(range(count))


def test_threads_that_ask_for_a_shard_at_once_get_the_same_rows(items, monkeypatch):
    index = open_index(items, builds.INDEX)
    shard = index._shards._opened.open_all()[0]
    allowed, both = index._allowed("id < 20"), Barrier(2)
    among = AllowedRows.among

    def together(rows, locators):
        both.wait(10)
        return among(rows, locators)

    monkeypatch.setattr(AllowedRows, "among", together)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(shard.allowed, [allowed, allowed])
    assert one is other is shard.allowed(allowed)
    assert allowed.size == one.size


def test_rows_side_by_side_take_the_room_of_shards(items, monkeypatch):
    index = open_index(items, builds.INDEX)
    shards = index._shards._opened.open_all()
    allowed = index._allowed("id < 20")
    parts = [shard.part(allowed) for shard in shards]
    before = allowed.size
    assert before == sum(len(shard.loaded.locators) for shard in shards)
    gathered = Gathered.of(parts)
    monkeypatch.setattr(kept_shards, "SHARDS_BYTES", gathered.size + before - 1)
    allowed.gathered = gathered
    without_first = before - len(shards[0].loaded.locators)
    assert allowed.size == gathered.size + without_first
    allowed.gathered = None
    assert allowed.size == without_first


def changed(table, random, step):
    """Change a table in some way."""
    kind = random.choice(["append", "delete", "delete rows", "update", "compact", "roll back"])
    if kind == "append":
        table.append(priced(range(60 + 5 * step, 65 + 5 * step), step))
    elif kind == "delete":
        first = random.randrange(50)
        table.delete(f"id >= {first} and id < {first + 6}")
    elif kind == "delete rows":
        path = random.choice([task.file.file_path for task in table.scan().plan_files()])
        delete_positions(table, {path: sorted(random.sample(range(5), 2))})
    elif kind == "update":
        data = table.scan().to_arrow()
        some = pa.array(random.sample(range(90), 15))
        chosen = pa.compute.is_in(data["id"], some)
        again = priced(data.filter(chosen)["id"].to_pylist(), step + 1)
        kept = data.filter(pa.compute.invert(chosen))
        table.overwrite(pa.concat_tables([kept, again.cast(kept.schema)]))
    elif kind == "compact":
        refreshes.compact(table)
    else:
        refreshes.roll_back(table, random.choice(table.history()).snapshot_id)
    if table.refresh().scan().count() < 20:
        table.append(priced(range(200 + 20 * step, 220 + 20 * step), step))
        table.refresh()


def assert_found_alike(table, random, snapshot_id=None):
    """Hold rows that are looked up, and where they are found, to those asked one by one."""
    forget()
    index = open_index(table, builds.INDEX, snapshot_id)
    index.warm()
    plain = open_index(table, builds.INDEX, snapshot_id)
    rows = {row["id"]: row for row in table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()}
    shards = index._shards._opened
    for _ in range(6):
        where, says = a_condition(random, VALUES)
        expected = sorted(number for number, row in rows.items() if says(row))
        MATCHING.clear()
        found = index._allowed(where)
        MATCHING.clear()
        plain._conditions.__init__()  # so that it never makes lookups
        LOOKUPS.clear()
        asked = plain._allowed(where)
        LOOKUPS.clear()
        index.warm()
        if found is None or asked is None:
            assert found is asked
            continue
        assert found.rows == asked.rows == len(expected)
        assert found.rows_answered == asked.rows_answered
        assert found.scanned == asked.scanned
        if found.are_to_place:
            shards.place(found)
        for shard in shards.open_all():
            one, other = shard.allowed(found), shard.allowed(asked)
            assert one.ordinals.tolist() == other.ordinals.tolist()
            assert one.excluded.tolist() == other.excluded.tolist()
            assert one.count == other.count == len(one.ordinals)
        assert ids_of(index, where) == expected


@pytest.mark.parametrize("seed", long_but_first(range(3)))
def test_rows_are_found_as_ever_through_any_history(items, seed):
    random, declaration = Random(seed), refreshes.declared("vamana", **INCLUDED)
    for step in range(8):
        changed(items, random, step)
        assert_found_alike(items, random)
        if random.random() < 0.7:
            due = random.random() < 0.5
            refreshes.refresh(items, declaration, f"refresh-{step}", maintenance=due)
            assert_found_alike(items, random)
    for entry in items.history()[-5:]:
        assert_found_alike(items, random, entry.snapshot_id)
