"""Index files with right checksums and wrong sense: never a wrong row, and doctor tells."""

import io
import json
import tracemalloc
from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from puffin_ann import open_index
from puffin_ann.blobs.encoding import strings
from puffin_ann.blobs.shards import rows
from puffin_ann.blobs.version import coverage as coverage_blob
from puffin_ann.blobs.version import partitions, routing
from puffin_ann.errors import FormatError
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.search.cache.local_cache import LocalCache
from puffin_ann.search.shards.opening.load import load_shard
from puffin_ann.search.version.index_version import load_version
from tests.support.falsified import falsified_columns, falsified_files, falsified_index
from tests.support.falsified.falsified_files import LIES, IndexFile
from tests.support.falsified.falsified_rows import put_rows, replace_columns
from tests.support.lake import table_events
from tests.support.lifecycle import builds

FOUND = (
    "metric_of_a_shard",
    "rows_and_tombstones_of_a_shard",
    "rows_from_one_shard_to_another",
    "a_shard_left_out",
    "partitions_to_probe",
    "locator_of_a_row",
    "a_row_twice",
    "a_tombstone_at_another_row",
    "an_added_tombstone_at_another_row",
    "added_tombstones_of_another_shard",
    "a_tombstone_told_twice",
    "id_of_a_file",
    "algorithm_of_the_index",
    "file_of_a_shard",
    "manifests_of_the_base",
)
"""Lies that searches once fell for."""


@pytest.fixture
def liar(words):
    return falsified_index.liar(words, "exact", "l2")


def test_lies_are_told_from_the_truth(liar):
    assert liar.outcome() == falsified_index.RIGHT
    told = set()
    for name, seed in product(FOUND, (0, 2)):
        with suppress(falsified_files.NotApplicable):
            liar.lie(name, seed)
            told.add(name)
            assert liar.outcome() in (falsified_index.RIGHT, falsified_index.FELL_BACK), name
    assert told == {*FOUND}


def test_cells_of_more_rows_than_there_are_trip_no_search_by_ranges(liar):
    file = IndexFile.read(liar.path)
    cells = file.only(partitions)
    cells.sections["prow"] = np.full(len(cells.sections["prow"]) // 8, 2**64 - 1, "<u8").tobytes()
    file.write(liar.path)
    liar.register()

    assert liar.outcome() == falsified_index.RIGHT


def test_a_row_that_a_shard_has_twice_is_not_answered_by_ranges(words):
    """It would be answered by the vector of another row, in the place of that."""
    path = Path(table_events.publish(words, "run").removeprefix("file://"))
    file = IndexFile.read(path)
    blob = file.all(rows)[0]
    found = rows.read(io.BytesIO(blob.content()))
    columns = [column.copy() for column in (found.file_ids, found.row_groups, found.offsets)]
    for column in columns:
        column[-1] = column[0]
    put_rows(blob, replace_columns(found, columns))
    file.write(path)
    liar = falsified_index.Liar(words.refresh(), "exact", path, b"", builds.live(words))
    liar.register()

    found = liar.by_ranges(liar.live[1].astype(np.float32))

    assert any("has a row of the table twice" in told for told in damaged_by(found))


def test_a_shard_that_no_partition_leads_to_hides_no_row(liar):
    """A delta that calls itself a graph has none; its rows would never be looked at."""
    file = IndexFile.read(liar.path)
    blob = file.only(routing)
    records = blob.records("shrd", routing.SHARD)
    assert records["kind"].any()
    records["kind"] = 0
    blob.sections["shrd"] = records.tobytes()
    file.write(liar.path)
    liar.register()
    ids, vectors = liar.live
    index = open_index(liar.table.refresh(), builds.INDEX)

    found = index.search(vectors[ids >= 60].astype(np.float32), 1, columns=["id"])

    assert found.num_rows == np.count_nonzero(ids >= 60)
    np.testing.assert_allclose(found["distance"], 0.0, atol=1e-6)
    assert damaged_by(found)


def damaged_by(found) -> list[str]:
    return json.loads(found.schema.metadata[b"puffin_ann"])["damaged"]


def test_lies_about_included_columns_hide_no_row_and_answer_none(words):
    liar = falsified_index.liar(words, "exact", "cosine", "id", "word")
    assert liar.outcome() == falsified_index.RIGHT
    names = [name for name, lie in LIES.items() if lie.__module__ == falsified_columns.__name__]
    for name, seed in product(names, range(3)):
        with suppress(falsified_files.NotApplicable):
            liar.lie(name, seed)
            assert liar.outcome() in (falsified_index.RIGHT, falsified_index.FELL_BACK), name


def test_nothing_elsewhere_is_asked_for_because_an_index_file_names_it(liar, monkeypatch):
    asked = []
    io = type(liar.table.io)
    new_input = io.new_input
    monkeypatch.setattr(
        io, "new_input", lambda self, path: asked.append(path) or new_input(self, path)
    )

    for name in (
        "path_of_a_file",
        "paths_of_all_files",
        "file_of_a_shard",
        "manifests_of_the_base",
    ):
        for seed in range(12):
            liar.lie(name, seed)
            liar.outcome()

    root = liar.table.location().removeprefix("file://")
    strays = {path for path in asked if not path.removeprefix("file://").startswith(root)}
    assert asked
    assert strays == set()
    assert not any(".." in path or "%2e" in path for path in asked)


def test_rows_of_another_table_are_never_answered(liar, catalog):
    """A covered file is exchanged for another table's, of as many rows."""
    other = catalog.create_table("demo.other", schema=builds.rows([]).schema)
    other.append(builds.rows(range(900, 930)))
    (task,) = other.scan().plan_files()
    file = IndexFile.read(liar.path)
    coverage = file.only(coverage_blob)
    paths = list(strings.decode(coverage.sections["path"], ""))
    paths[1] = task.file.file_path
    coverage.sections["path"] = strings.encode(paths)
    file.write(liar.path)
    liar.register()

    assert liar.outcome() == falsified_index.RIGHT


def test_files_that_were_added_where_they_lay_are_searched_still(words, tmp_path):
    """They lie outside the table's folders, and its manifests name them."""
    import pyarrow.parquet as pq

    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "elsewhere" / "a.parquet"
    pq.write_table(builds.rows(range(60, 90)), path)
    words.add_files([f"file://{path}"])
    builds.build(builds.declaration(), "a")

    index = open_index(words.refresh(), builds.INDEX)

    assert index.coverage == 1.0
    builds.assert_answers_are(index, builds.live(words), falsified_index.QUERIES, 7)


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("many_rows_in_few_bytes", 3),
        ("more_tombstones", 0),
        ("more_added_tombstones", 2),
        ("rows_of_a_file", 3),
    ],
)
def test_counts_that_nothing_backs_take_no_memory(liar, name, seed):
    liar.outcome()  # what is compiled and imported counts no more
    liar.lie(name, seed)

    tracemalloc.start()
    outcome = liar.outcome()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert outcome == falsified_index.FELL_BACK
    assert peak < 20 << 20


@pytest.mark.parametrize("name", ["locator_of_a_row", "metric_of_a_shard"])
def test_what_cannot_be_loaded_leaves_nothing_in_the_cache(liar, tmp_path, name):
    liar.lie(name, 0)
    version = load_version(liar.table.io, str(liar.path), builds.INDEX)

    refused = []
    for shard in version.routing.shards:
        cache = LocalCache(tmp_path / str(shard.shard_id))
        try:
            load_shard(liar.table.io, version, shard, cache, "test")
        except FormatError:
            refused.append(shard)
            assert {path.name for path in cache.root.iterdir()} <= {"names"}
    assert len(refused) == 1


@pytest.mark.parametrize(
    ("name", "seed"),
    [("metric_of_a_shard", 0), ("locator_of_a_row", 0), ("a_row_twice", 0), ("id_of_a_file", 0)],
)
def test_doctor_tells_of_blobs_that_contradict_each_other(liar, name, seed):
    liar.lie(name, seed)

    damaged = [
        finding for finding in doctor(liar.table.refresh()).findings if finding.kind == "damaged"
    ]

    assert [finding.indexes for finding in damaged] == [(builds.INDEX,)]
    assert str(liar.path) in damaged[0].file


def test_doctor_tells_of_rows_that_two_shards_hold(liar):
    file = IndexFile.read(liar.path)
    blobs = file.all(rows)
    found = [rows.read(io.BytesIO(blob.content())) for blob in blobs]
    first, second = found[0], found[1]
    columns = [column.copy() for column in (second.file_ids, second.row_groups, second.offsets)]
    taken = [column[-1] for column in (first.file_ids, first.row_groups, first.offsets)]
    for column, value in zip(columns, taken, strict=True):
        column[-1] = value
    put_rows(blobs[1], replace_columns(second, columns))
    file.write(liar.path)
    liar.register()

    (damaged,) = [
        finding for finding in doctor(liar.table.refresh()).findings if finding.kind == "damaged"
    ]

    assert "that another shard has, too" in damaged.what


def test_doctor_tells_of_rows_in_the_order_of_cells_that_lie_elsewhere(liar):
    file = IndexFile.read(liar.path)
    first, second, *_ = file.all(rows)
    first.sections["cell"], second.sections["cell"] = (
        np.concatenate([cells(other).cells, cells(own).starts]).tobytes()
        for own, other in ((first, second), (second, first))
    )
    file.write(liar.path)
    liar.register()

    damaged = [
        finding for finding in doctor(liar.table.refresh()).findings if finding.kind == "damaged"
    ]

    assert len(damaged) == 2, "each of the two shards"
    assert all("which does not lie in it" in finding.what for finding in damaged)
    assert liar.outcome(by_ranges=False) == falsified_index.RIGHT, "whole shards need no cells"
    assert liar.outcome() == falsified_index.FELL_BACK


def cells(blob):
    return rows.read(io.BytesIO(blob.content())).cells


def test_partitions_that_claim_no_rows_hide_none(liar):
    file = IndexFile.read(liar.path)
    cells = file.only(partitions)
    cells.sections["prow"] = bytes(len(cells.sections["prow"]))
    file.write(liar.path)
    liar.register()

    assert liar.outcome() == falsified_index.RIGHT
