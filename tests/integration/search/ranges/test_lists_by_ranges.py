"""Shards of codes alone that are not on local disk: their nearest lists are read, and no more."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from puffin_ann import open_index
from puffin_ann.blobs.shards import ivf
from puffin_ann.search.shards.cold import decide, scan_lists
from puffin_ann.search.shards.opening import opened as opened_shards
from puffin_ann.settings import settings as of_process
from tests.support.falsified import falsified_files, falsified_index
from tests.support.falsified.damage import corrupt, forget_cache, report
from tests.support.falsified.falsified_files import LIES
from tests.support.falsified.index_file import IndexFile
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds, refreshes

ROWS, LISTS, K = 600, 12, 5
QUERIES = np.random.default_rng(3).normal(size=(4, builds.DIMENSION)).astype(np.float32)


@pytest.fixture(autouse=True)
def any_shard(monkeypatch):
    """However small, a shard that is not on local disk is searched by ranges, and has lists."""
    monkeypatch.setenv("PUFFIN_ANN_RANGES_MIN_BYTES", "0")
    monkeypatch.setattr("puffin_ann.ann.ivf.lists.LEAST_ROWS", 4)
    of_process.cache_clear()
    yield
    monkeypatch.undo()
    of_process.cache_clear()


@pytest.fixture
def never_brought(monkeypatch):
    """From when it is called no shard is brought, so that every answer is made of ranges."""

    def refuse(*_: object) -> None:
        raise AssertionError("a shard was brought")

    return lambda: monkeypatch.setattr(opened_shards, "load_shard", refuse)


@pytest.fixture
def make_table(catalog):
    """Makes a table of so many rows, in the place of the one before."""

    def make(rows=ROWS):
        if catalog.table_exists("demo.words"):
            catalog.drop_table("demo.words")
        table = catalog.create_table(
            "demo.words",
            schema=builds.rows([]).schema,
            properties={"write.parquet.row-group-limit": "50"},
        )
        table.append(builds.rows(range(rows // 2)))
        table.append(builds.rows(range(rows // 2, rows)))
        return table

    return make


def declared(**changes):
    parameters = changes.pop("parameters", {"lists": LISTS})
    changes = {"shards": 2, "partitions_per_shard": 4, "recall_target": 0.5, **changes}
    return builds.declaration(algorithm="ivf_pq", vectors="none", parameters=parameters, **changes)


def cold(table, **options):
    forget_cache()
    return open_index(table.refresh(), builds.INDEX, cache="none", **options)


def assert_right(table, found, k=K, metric="l2"):
    """Rows are live, each answered once, with its exact distance; k of them, as there are."""
    ids, vectors = builds.live(table)
    place = {key: at for at, key in enumerate(ids.tolist())}
    for number, query in enumerate(QUERIES):
        here = found.filter(pa.compute.equal(found.column("query"), number))
        mine, distances = here.column("id").to_pylist(), here.column("distance").to_numpy()
        assert len(set(mine)) == len(mine) == min(k, len(ids))
        exact = builds.distances(metric, query, vectors)
        np.testing.assert_allclose(distances, exact[[place[key] for key in mine]], rtol=1e-6)
        assert (np.diff(distances) >= 0).all()


@pytest.mark.parametrize("lists", [LISTS, None])
@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_answers_are_those_of_shards_on_local_disk(make_table, never_brought, metric, lists):
    table = make_table()
    parameters = {"lists": lists} if lists else {}
    builds.build(declared(metric=metric, parameters=parameters), "build")
    whole = open_index(table.refresh(), builds.INDEX, cache="full")
    expected = whole.search(QUERIES, K, columns=["id"])

    never_brought()
    found = cold(table).search(QUERIES, K, columns=["id"])

    assert found.equals(expected)
    assert report(found)["bytes_by_ranges"] > 0
    assert_right(table, found, metric=metric)


def test_one_query_reads_few_lists(make_table, never_brought, monkeypatch):
    monkeypatch.setattr("puffin_ann.search.shards.cold.parts.WHOLE_BYTES", 0)
    table = make_table(3000)
    builds.build(declared(parameters={"lists": 24}, shards=1), "build")
    never_brought()
    index = cold(table)
    index._shards._reach = type("Reach", (), {"width": lambda *_: 2, "cells": lambda *_: 1})()

    assert len(index.search(QUERIES[0], K)) == K

    (shard,) = index._shards._ranges.tier.shards._opened.values()
    assert shard.spans(shard.lists.near(QUERIES[:1], 1)) != [(0, 3000)]


def test_rows_deleted_since_are_left_out_and_others_found_in_their_place(make_table, never_brought):
    table = make_table()
    builds.build(declared(), "build")
    never_brought()
    for path in table.refresh().inspect.files()["file_path"].to_pylist():
        delete_positions(table, {path: list(range(280))})

    found = cold(table).search(QUERIES, K, columns=["id"])

    assert_right(table, found)
    assert report(found)["bytes_by_ranges"] > 0


def test_all_that_are_left_are_found(make_table, never_brought):
    table = make_table()
    builds.build(declared(), "build")
    paths = table.refresh().inspect.files()["file_path"].to_pylist()
    for path in paths:
        delete_positions(table, {path: list(range(299))})

    found = cold(table).search(QUERIES, K, columns=["id"], allow_fewer=True)

    assert_right(table, found)


@pytest.mark.parametrize("kind", ["ivf", "rows"])
def test_damage_of_a_range_is_told_and_answered_otherwise(make_table, kind):
    table = make_table()
    builds.build(declared(), "build")
    corrupt(refreshes.newest(table.refresh()).path.removeprefix("file://"), kind)

    found = cold(table).search(QUERIES, K, columns=["id"])

    assert len(report(found)["damaged"]) == 1
    assert_right(table, found)


def test_a_row_of_two_lists_is_not_answered_twice(make_table):
    table = make_table()
    builds.build(declared(), "build")
    path = Path(refreshes.newest(table.refresh()).path.removeprefix("file://"))
    file = IndexFile.read(path)
    for blob in file.all(ivf):
        ordinals = np.frombuffer(blob.sections["ordi"], "<u4").copy()
        ordinals[:] = ordinals[0]
        blob.sections["ordi"] = ordinals.tobytes()
    file.write(path)
    falsified_index.Liar(table, "ivf_pq", path, b"", builds.live(table)).register()

    found = cold(table).search(QUERIES, K, columns=["id"])

    assert any("two lists" in told for told in report(found)["damaged"])
    assert_right(table, found)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_lies_of_a_lean_index_are_answered_rightly_or_told(words, seed):
    liar = falsified_index.liar(words, falsified_index.LEAN, "l2", layered=True)
    assert liar.outcome() == falsified_index.RIGHT
    for name in LIES:
        with suppress(falsified_files.NotApplicable):
            liar.lie(name, seed)
            liar.outcome()  # holds whatever is answered to brute force


def test_a_batch_of_too_many_candidates_has_shards_brought(make_table, monkeypatch):
    table = make_table()
    builds.build(declared(), "build")
    monkeypatch.setattr(decide, "MOST_BYTES", 16)

    found = cold(table).search(QUERIES, K, columns=["id"])

    assert report(found)["bytes_by_ranges"] > 0
    assert_right(table, found)


def test_where_live_rows_are_too_far_to_be_found_shards_are_brought(make_table, monkeypatch):
    table = make_table()
    builds.build(declared(), "build")
    for path in table.refresh().inspect.files()["file_path"].to_pylist():
        delete_positions(table, {path: list(range(290))})
    monkeypatch.setattr(scan_lists, "are_too_many", lambda *_: True)
    index = cold(table)

    found = index.search(QUERIES, K, columns=["id"])

    assert_right(table, found)
    assert index._shards._opened.kept


STEPS = st.lists(
    st.sampled_from(["append", "delete", "update", "mask", "refresh", "merge"]), max_size=6
)


@given(steps=STEPS, seed=st.integers(0, 1000), metric=st.sampled_from(["l2", "cosine", "ip"]))
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_whatever_became_of_the_rows_answers_are_right(make_table, layered, steps, seed, metric):
    table = make_table(200)

    def whole(ratio):
        options = {"refresh": {"delta_ratio": ratio}, "rebuild": {"tombstone_ratio": 0.9}}
        return declared(metric=metric, parameters={"lists": 6}, **options)

    builds.build(whole(0.3), "build")
    next_id, rng = 1000, np.random.default_rng(seed)
    for number, step in enumerate(steps):
        table.refresh()
        some = rng.choice(builds.live(table)[0], 6, replace=False).tolist()
        if step in ("append", "update"):
            table.append(builds.rows(range(next_id, next_id + 6), seed=seed))
            next_id += 6
        if step in ("delete", "update"):
            table.delete(f"id in ({', '.join(map(str, some))})")
        if step == "mask":
            path = table.inspect.files()["file_path"][0].as_py()
            delete_positions(table, {path: rng.choice(5, 2, replace=False).tolist()})
        if step in ("refresh", "merge"):
            ratio = 0.3 if step == "refresh" else 0.0001
            refreshes.refresh(table, whole(ratio), f"step {number}")
        found = cold(table).search(QUERIES, K, columns=["id"])
        assert_right(table, found, metric=metric)
