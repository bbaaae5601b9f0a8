import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.data import DataSet
from benchmarks.prices import UPDATES, Hour, bytes_anew, hold_to_oracle, rows_of, told
from tests.support.lake.tables import open_catalog

VECTORS = np.arange(40, dtype=np.float32).reshape(20, 2)
DATA = DataSet("glove-100d", VECTORS, VECTORS[:1], np.zeros((1, 10), np.int64))
PRICES = np.array([150, 30, 99, 100])


def hour(**changes: Any) -> Hour:
    fields = {
        "seconds": 0.3,
        "steps": {"plan": 0.1, "publish": 0.2},
        "built": 10.0,
        "changed": 4,
        "moved": 20,
        "written": 320,
        "copied": 0,
        "of_vectors": 5000,
        "anew": 0,
    }
    return Hour(**{**fields, **changes})


def lines(*hours: Hour):
    return {row.key: row for row in rows_of("merge-on-read", DATA, hours)}


def answering(ids, prices, included: int, read: int = 0):
    """An index that gives one answer, whatever it is asked."""
    report = {"rows_with_columns": included}
    found = pa.table({"id": pa.array(ids, pa.int64()), "price": pa.array(prices, pa.int64())})
    return SimpleNamespace(
        search=lambda *_, **__: found.replace_schema_metadata({"puffin_ann": json.dumps(report)}),
        _allowed=lambda _: SimpleNamespace(matching=SimpleNamespace(bytes_read=read)),
    )


@pytest.mark.parametrize("mode", UPDATES)
def test_an_update_changes_prices_and_nothing_else_of_a_table(tmp_path, mode):
    ids = np.arange(len(VECTORS))
    rows = pa.table({"id": ids, "embedding": VECTORS.tolist(), "price": ids})
    rows = rows.cast(rows.schema.set(1, pa.field("embedding", pa.list_(pa.float32()))))
    table = open_catalog(tmp_path).create_table("demo.items", schema=rows.schema)
    for first in (0, 10):
        table.append(rows.slice(first, 10))
    files = {task.file.file_path for task in table.scan().plan_files()}
    changed, prices = np.array([3, 4, 17]), ids.copy()
    for more in (100, 200):
        prices[changed] += more
        UPDATES[mode](table, changed, prices)

    found = table.refresh().scan().to_arrow().sort_by("id")

    assert found.column("price").to_pylist() == prices.tolist()
    assert found.column("embedding").to_pylist() == VECTORS.tolist()
    stayed = files & {task.file.file_path for task in table.scan().plan_files()}
    assert len(stayed) == (2 if mode == "merge-on-read" else 0)


def test_the_middle_pair_of_a_refresh_and_a_build_counts():
    slow_machine = hour(seconds=0.9, built=20.0)
    row = lines(hour(seconds=0.1), slow_machine, hour(seconds=0.6))["prices-merge-on-read"]
    assert (row.ours, row.theirs) == ("0.90 s", "20.00 s")
    assert row.measured == pytest.approx(0.045)
    assert row.reached


def test_one_graph_written_in_any_hour_is_too_many():
    assert lines(hour(), hour())["prices-merge-on-read-graphs"].reached
    row = lines(hour(anew=7), hour())["prices-merge-on-read-graphs"]
    assert (row.measured, row.reached) == (7, False)


def test_bytes_of_all_hours_are_held_to_what_the_rows_that_moved_take():
    row = lines(hour(written=600), hour(copied=1000))["prices-merge-on-read-bytes"]
    assert row.measured == (600 + 320 + 1000) / (2 * 4 * 8)
    assert row.least == 20 * (28 + 8) / (4 * 8)


def test_each_hour_is_told():
    text = told("merge-on-read", DATA, [hour(), hour(seconds=0.5, copied=1000), hour()])
    assert "4 prices updated merge-on-read each hour, 3 hours, refreshed in 0.300 s" in text
    assert "; 0.500 s and 320 bytes written, 1,000 copied; " in text


def test_a_blob_that_is_copied_is_written_anew():
    before = {("one", 4): 100, ("two", 4): 30}
    assert bytes_anew(before, before) == 0
    assert bytes_anew(before, {("one", 4): 100, ("three", 4): 30}) == 30


def test_rows_and_prices_of_the_oracle_are_taken_from_the_index_alone():
    hold_to_oracle(answering([2, 1], [99, 30], included=2), VECTORS[0], PRICES, 100)


@pytest.mark.parametrize(
    ("index", "says"),
    [
        (answering([1], [30], included=1), "1 rows answered, 1 of the 2 true ones"),
        (answering([1, 3], [30, 100], included=2), "2 rows answered, 1 of the 2 true ones"),
        (answering([1, 2], [30, 98], included=2), "prices that the rows do not have"),
        (answering([1, 2], [30, 99], included=1), "prices of 1 of 2 rows"),
        (answering([1, 2], [30, 99], included=2, read=64), "64 bytes of the table were read"),
    ],
)
def test_other_answers_than_the_oracles_and_those_of_the_table_fail_the_family(index, says):
    with pytest.raises(RuntimeError, match=says):
        hold_to_oracle(index, VECTORS[0], PRICES, 100)
