"""An index of centroids, and threshold queries of any index, held to brute force."""

import json

import numpy as np
import pyarrow as pa
import pytest

from puffin_ann import open_index
from puffin_ann.errors import ColumnNotFoundError, DeclarationError, QueryError
from puffin_ann.lifecycle.build.plan import assign_tasks
from puffin_ann.lifecycle.report.status import status
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds

QUERIES = np.random.default_rng(5).normal(size=(5, builds.DIMENSION)).astype(np.float32)
METRICS = ["l2", "cosine", "ip"]
ALGORITHMS = ["centroid", "exact", "hnsw", "ivf_pq", "vamana"]


def centroids(**changes):
    return builds.declaration(algorithm="centroid", **changes)


def report(answers):
    return json.loads(answers.schema.metadata[b"puffin_ann"])


def clustered(first, count, centre):
    """Rows near a centre: what data files look like whose table is sorted or partitioned."""
    rows = builds.rows(range(first, first + count))
    vectors = np.array(rows.column("embedding").to_pylist(), np.float32) * 0.05 + centre
    lists = pa.FixedSizeListArray.from_arrays(
        pa.array(vectors.astype(np.float32).ravel()), builds.DIMENSION
    ).cast(pa.list_(pa.float32()))
    return rows.set_column(2, "embedding", lists)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("count", [1, 3])
def test_an_index_of_centroids_answers_exactly(words, metric, count):
    builds.build(centroids(metric=metric, parameters={"centroids": count}), "run")
    index = open_index(words.refresh(), builds.INDEX)
    current = words.current_snapshot().snapshot_id
    for k in (1, 5, 60):
        builds.assert_answers(index, words, current, QUERIES, k)
    brute = index.search(QUERIES, 9, exhaustive=True)
    assert index.search(QUERIES, 9).equals(brute)
    (told,) = status(words)
    assert (told.algorithm, told.shards, told.vectors, told.recall) == ("centroid", 0, 60, 1.0)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_row_nearer_than_a_threshold_is_answered(words, metric, algorithm):
    builds.build(builds.declaration(algorithm=algorithm, metric=metric), "run")
    words.refresh().append(builds.rows(range(60, 75)))
    words.delete("id >= 20 and id < 33")
    index = open_index(words.refresh(), builds.INDEX)
    builds.assert_within(index, builds.live(words), QUERIES)


@pytest.mark.parametrize("metric", METRICS)
def test_deleted_uncovered_and_older_rows_count_as_everywhere(words, metric):
    delete_positions(words, {_files(words)[0]: [0, 3, 4]})
    builds.build(centroids(metric=metric), "run")
    words.refresh().append(builds.rows(range(60, 80)))
    delete_positions(words, {_files(words)[0]: [7], _files(words)[1]: [1, 2]})
    words.refresh().delete("id >= 40 and id < 45")
    words.refresh()
    for snapshot in [entry.snapshot_id for entry in words.history()]:
        index = open_index(words, builds.INDEX, snapshot)
        builds.assert_answers(index, words, snapshot, QUERIES, 7)
        ids, _ = builds.live(words, snapshot)
        builds.assert_within(index, builds.live(words, snapshot), QUERIES)
        covered = index.search(
            QUERIES[:1], 60, columns=["id"], freshness="indexed", allow_fewer=True
        )
        assert set(covered.column("id").to_pylist()) <= set(ids.tolist()) - set(range(60, 80))


def _files(table):
    return sorted(task.file.file_path for task in table.scan().plan_files())


@pytest.mark.parametrize("metric", METRICS)
def test_files_that_cannot_matter_are_not_read(catalog, metric):
    table = catalog.create_table("demo.words", schema=builds.rows([]).schema)
    centres = 10 * np.eye(builds.DIMENSION, dtype=np.float32)
    for number, centre in enumerate(centres):
        table.append(clustered(20 * number, 20, centre))
    builds.build(centroids(metric=metric), "run")
    index = open_index(table.refresh(), builds.INDEX)
    query = centres[3:4]
    answers = index.search(query, 5, columns=["id"])
    assert report(answers)["shards_probed"] == 1
    assert set(answers.column("id").to_pylist()) <= set(range(60, 80))
    near = index.search(query, 5, exhaustive=True)
    assert report(near)["shards_probed"] == 8
    assert near.column("locator").equals(answers.column("locator"))
    limit = near.column("distance").to_pylist()[-1]
    inside = index.within(query, limit, columns=["id"])
    assert report(inside)["shards_probed"] == 1
    assert len(inside) == 4


def test_a_budget_bounds_the_files_but_never_the_answers(catalog):
    table = catalog.create_table("demo.words", schema=builds.rows([]).schema)
    for number in range(6):
        table.append(builds.rows(range(4 * number, 4 * number + 4)))
    builds.build(centroids(), "run")
    index = open_index(table.refresh(), builds.INDEX)
    one = index.search(QUERIES[:1], 3, probe_partitions=1)
    assert (len(one), report(one)["shards_probed"]) == (3, 1)
    many = index.search(QUERIES[:1], 11, probe_partitions=1)
    assert len(many) == 11, "too few rows in one file: others are read"
    assert index.search(QUERIES, 3, probe_partitions=6).equals(index.search(QUERIES, 3))


def test_centroids_are_carried_along_when_another_index_is_published(words):
    builds.build(centroids(name="files"), "a")
    builds.build(builds.declaration(name="other"), "b")
    index = open_index(words.refresh(), "files")
    builds.assert_answers(index, words, words.current_snapshot().snapshot_id, QUERIES, 5)


def test_a_table_cut_into_many_parts_has_centroids_of_each(words, monkeypatch):
    monkeypatch.setattr(
        "puffin_ann.lifecycle.build.whole_table.assign_tasks",
        lambda files, **_: assign_tasks(files, row_bytes=32, task_bytes=400),
    )
    builds.build(centroids(parameters={"centroids": 2}), "run")
    index = open_index(words.refresh(), builds.INDEX)
    assert len(index._files.bounds) == 12, "two files of three parts of two centroids"
    builds.assert_answers(index, words, words.current_snapshot().snapshot_id, QUERIES, 7)


def test_rows_without_a_vector_are_left_out(catalog):
    table = catalog.create_table("demo.words", schema=builds.rows([]).schema)
    rows = builds.rows(range(20))
    vectors = rows.column("embedding").to_pylist()
    vectors[3], vectors[5] = None, [float("nan")] * builds.DIMENSION
    bad = rows.set_column(2, "embedding", pa.array(vectors, pa.list_(pa.float32())))
    table.append(bad)
    table.append(bad.slice(3, 1))
    builds.build(centroids(), "run")
    index = open_index(table.refresh(), builds.INDEX)
    builds.assert_answers(index, table, table.current_snapshot().snapshot_id, QUERIES, 18)
    assert len(index.within(QUERIES[:1], 1e9)) == 18


def test_shards_have_no_meaning_for_centroids():
    with pytest.raises(DeclarationError, match="has no shards"):
        builds.declaration(algorithm="centroid", shards=2)


def test_a_dropped_column_is_told(words):
    builds.build(centroids(), "run")
    with words.refresh().update_schema() as update:
        update.delete_column("embedding")
    words.append(words.refresh().scan().to_arrow().slice(0, 1))
    with pytest.raises(ColumnNotFoundError, match=r"column 'embedding'.*is not in the schema"):
        open_index(words.refresh(), builds.INDEX)


@pytest.mark.parametrize("distance", [float("nan"), "near", True, None])
def test_a_threshold_that_is_none_is_refused(words, distance):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    with pytest.raises(QueryError, match="distance"):
        index.within(QUERIES, distance)
    with pytest.raises(QueryError, match="freshness"):
        index.within(QUERIES, 1.0, freshness="now")


def test_nothing_is_within_nothing(words):
    builds.build(centroids(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    assert len(index.within(QUERIES, 0.0, columns=["word"])) == 0
    assert len(index.within(QUERIES, float("-inf"))) == 0
    assert len(index.within(QUERIES[:2], float("inf"))) == 120
