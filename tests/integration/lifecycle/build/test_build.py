import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from puffin_ann import open_index
from puffin_ann.errors import (
    BadVectorsError,
    ColumnNotFoundError,
    DeclarationError,
    IndexNotFoundError,
    QueryError,
    RecallTooLowError,
    SnapshotNotFoundError,
    SparkNotFoundError,
    StagingError,
    TableNotFoundError,
    TooFewRowsError,
    UnsupportedColumnError,
)
from puffin_ann.lifecycle.build import stages
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.evaluate import ground_truth
from puffin_ann.lifecycle.report.status import status
from puffin_ann.lifecycle.runs import build, evaluate, maintain, publish, refresh
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.lifecycle.spark import session
from puffin_ann.settings import settings
from tests.support import builds

QUERIES = np.random.default_rng(5).normal(size=(6, builds.DIMENSION)).astype(np.float32)


def snapshots(table) -> list[int]:
    table.refresh()
    return [snapshot.snapshot_id for snapshot in table.snapshots()]


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("algorithm", ["exact", "vamana", "hnsw", "ivf_pq", "centroid"])
def test_a_built_index_answers_as_brute_force_does(words, metric, algorithm):
    parameters = builds.PARAMETERS.get(algorithm, {})
    declared = builds.declaration(metric=metric, algorithm=algorithm, parameters=parameters)
    builds.build(declared, "run")
    words.refresh()
    index = open_index(words, builds.INDEX)
    assert index.coverage == 1.0
    current = words.current_snapshot().snapshot_id
    for k in (1, 5, 60):
        builds.assert_answers(index, words, current, QUERIES, k)


def test_exact_compares_every_row_of_every_shard_for_queries_far_from_all_rows(words):
    words.append(builds.rows(range(60, 600)))
    gate = {"queries": 100, "k": 5}
    declared = builds.declaration(shards=4, partitions_per_shard=1, recall_target=0.5, gate=gate)
    builds.build(declared, "run")
    index = open_index(words.refresh(), builds.INDEX)
    queries = 4 * np.random.default_rng(5).normal(size=(50, builds.DIMENSION)).astype(np.float32)
    found = index.search(queries, 10).select(["query", "rank", "distance", "locator"])
    every = index.search(queries, 10, exhaustive=True).select(found.column_names)
    assert found.to_pylist() == every.to_pylist()


@pytest.mark.parametrize("algorithm", ["exact", "vamana", "hnsw", "ivf_pq"])
def test_cached_shards_that_were_cut_short_are_unpacked_anew(words, algorithm):
    parameters = builds.PARAMETERS.get(algorithm, {})
    builds.build(builds.declaration(algorithm=algorithm, parameters=parameters), "run")
    found = open_index(words.refresh(), builds.INDEX).search(QUERIES, 5).to_pylist()
    arrays = [*(settings().cache_dir / "shards").rglob("*.npy")]
    assert arrays
    for array in arrays:
        os.truncate(array, array.stat().st_size // 2)
    assert open_index(words, builds.INDEX).search(QUERIES, 5).to_pylist() == found


def test_equal_distances_are_ordered_by_locator(words):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    found = index.search(builds.rows([8]).column("embedding").to_pylist(), 60, exhaustive=True)
    keys = [
        (row["distance"], row["locator"]["file"], row["locator"]["row_group"],
         row["locator"]["row_offset"])
        for row in found.to_pylist()
    ]  # fmt: skip
    assert keys == sorted(keys)
    assert len({key[0] for key in keys}) < 60


def test_one_commit_publishes_summary_and_registration_and_changes_no_data(words):
    before = words.refresh().current_snapshot()
    data = words.scan().to_arrow()
    builds.build(builds.declaration(), "run")
    words.refresh()
    index_snapshot = words.current_snapshot()
    assert index_snapshot.parent_snapshot_id == before.snapshot_id
    assert index_snapshot.summary.operation.value == "replace"
    properties = index_snapshot.summary.additional_properties
    assert properties[f"ann.{builds.INDEX}.run-id"] == "run"
    assert properties[f"ann.{builds.INDEX}.vectors"] == "60"
    assert len([key for key in properties if key.startswith("ann.")]) <= 10
    registered = {entry.snapshot_id: entry.statistics_path for entry in words.metadata.statistics}
    assert registered[index_snapshot.snapshot_id] == properties["statistics-file"]
    assert registered[before.snapshot_id] == properties["statistics-file"]
    assert words.scan().to_arrow().equals(data)


def test_a_second_build_of_the_same_rows_publishes_nothing(words):
    builds.build(builds.declaration(), "first")
    before = snapshots(words)
    plan = builds.build(builds.declaration(recall_target=0.9), "second")
    assert plan["action"] == "none"
    assert snapshots(words) == before
    forced = builds.build(builds.declaration(), "third", {"force": True})
    assert forced["action"] == "build"
    assert len(snapshots(words)) == len(before) + 1


def test_changed_parameters_or_rows_are_built_again(words):
    builds.build(builds.declaration(), "first")
    assert builds.build(builds.declaration(shards=3), "second")["action"] == "build"
    words.refresh().append(builds.rows(range(60, 70)))
    assert builds.build(builds.declaration(shards=3), "third")["action"] == "build"
    (found,) = status(words.refresh())
    assert (found.shards, found.vectors, found.coverage) == (3, 70, 1.0)


def test_overrides_count_for_one_run(words):
    builds.build(builds.declaration(), "first", {"shards": 4, "partitions_per_shard": 1})
    (found,) = status(words.refresh())
    assert (found.shards, found.partitions) == (4, 4)


def test_indexes_of_one_table_are_carried_along(words):
    builds.build(builds.declaration(name="first"), "a")
    builds.build(builds.declaration(name="second", metric="ip"), "b")
    builds.build(builds.declaration(name="first"), "c", {"force": True})
    words.refresh()
    found = status(words)
    assert [state.index for state in found] == ["first", "second"]
    assert len({state.file for state in found}) == 1
    current = words.current_snapshot().snapshot_id
    for state in found:
        builds.assert_answers(open_index(words, state.index), words, current, QUERIES, 5)


def test_a_run_published_and_cleared_away_is_not_mistaken_for_a_new_one(words):
    builds.build(builds.declaration(), "run")
    words.refresh().append(builds.rows(range(60, 70)))
    plan = builds.build(builds.declaration(), "run")
    assert plan["run_id"] == "run-2"
    assert status(words.refresh())[0].vectors == 70


def test_every_stage_can_be_run_twice_and_publishes_once(words):
    plan = build.plan_build(builds.declaration(), run_id="run")
    assert build.plan_build(builds.declaration(), run_id="run") == plan
    builds.run_stages(plan)
    builds.run_stages(plan)
    first = publish.publish(RunRef.planned(plan))
    assert publish.publish(RunRef.planned(plan)) == first
    publish.report(plan)
    publish.report(plan)
    words.refresh()
    replaced = [s for s in words.snapshots() if s.summary.operation.value == "replace"]
    assert len(replaced) == 1


def test_a_publish_task_that_died_after_the_commit_finds_what_it_published(words):
    plan = build.plan_build(builds.declaration(), run_id="run")
    builds.run_stages(plan)
    first = publish.publish(RunRef.planned(plan))
    folder = words.location().removeprefix("file://") + "/metadata"
    staged = plan["plan"].removeprefix("file://").rpartition("/")[0]
    os.remove(f"{staged}/publish.json")  # the commit landed, the document was never written
    again = publish.publish(RunRef.planned(plan))
    assert (again["snapshot_id"], again["path"]) == (first["snapshot_id"], first["path"])
    files = [name for name in os.listdir(folder) if name.endswith(".puffin")]
    assert len(files) == 1


def test_rows_written_during_the_build_are_searched_and_the_base_stays_what_was_indexed(words):
    plan = build.plan_build(builds.declaration(), run_id="run")
    base = words.refresh().current_snapshot().snapshot_id
    words.append(builds.rows(range(60, 70)))
    builds.run_stages(plan)
    publish.publish(RunRef.planned(plan))
    words.refresh()
    (found,) = status(words)
    assert (found.base_snapshot_id, found.vectors, found.rows_to_scan) == (base, 60, 10)
    index = open_index(words, builds.INDEX)
    builds.assert_answers(index, words, words.current_snapshot().snapshot_id, QUERIES, 70)


def test_an_overwrite_during_the_build_leaves_no_dead_row_to_be_found(words):
    plan = build.plan_build(builds.declaration(), run_id="run")
    builds.run_stages(plan)
    words.refresh().overwrite(builds.rows(range(100, 120)))
    publish.publish(RunRef.planned(plan))
    words.refresh()
    index = open_index(words, builds.INDEX)
    assert index.coverage == 0.0
    builds.assert_answers(index, words, words.current_snapshot().snapshot_id, QUERIES, 20)


def bad_rows(schema) -> pa.Table:
    width = builds.DIMENSION
    vectors = [
        None,
        [float("nan")] * width,
        [float("inf")] + [0.0] * (width - 1),
        [1.0] * (width + 1),
        [],
        [1e19] + [0.0] * (width - 1),
    ]
    data = {"id": range(900, 906), "word": ["bad"] * 6, "embedding": vectors}
    return pa.table(data, schema=schema)


def test_unusable_vectors_are_skipped_counted_and_never_answered(words):
    words.append(bad_rows(builds.rows([]).schema))
    builds.build(builds.declaration(), "run")
    words.refresh()
    (found,) = status(words)
    assert found.skipped == {"null": 1, "wrong-length": 2, "not-finite": 2, "too-long": 1}
    assert found.vectors == 60
    index = open_index(words, builds.INDEX)
    builds.assert_answers(index, words, words.current_snapshot().snapshot_id, QUERIES, 60)
    with pytest.raises(QueryError, match="only 60 rows"):
        index.search(QUERIES, 61)


def test_a_first_row_of_another_width_is_the_one_that_is_left_out(catalog):
    good = builds.rows(range(60))
    short = pa.table({"id": [900], "word": ["short"], "embedding": [[1.0] * 3]}, schema=good.schema)
    table = catalog.create_table("demo.words", schema=good.schema)
    table.append(short)
    table.append(pa.concat_tables([short, good]))
    builds.build(builds.declaration(), "run")
    (found,) = status(table.refresh())
    assert (found.vectors, found.skipped) == (60, {"wrong-length": 2})


def test_unusable_vectors_are_refused_where_the_declaration_says_so(words):
    words.append(bad_rows(builds.rows([]).schema))
    before = snapshots(words)
    counts = "2 not-finite, 1 null, 1 too-long, 2 wrong-length"
    with pytest.raises(BadVectorsError, match=rf"{counts}.*width 8"):
        builds.build(builds.declaration(bad_vectors="refuse"), "run")
    assert snapshots(words) == before


KEY_OF_LISTS = "key of index 'words_index': column 'embedding' of test.demo.words.*list<float>"


def test_bad_input_is_named_and_changes_nothing(words, catalog):
    before = snapshots(words)
    wrong = [
        (TableNotFoundError, {"table": "test.demo.nothing"}, "nothing"),
        (TableNotFoundError, {"table": "test.nowhere.words"}, "nowhere"),
        (ColumnNotFoundError, {"column": "vector"}, "'vector'.*embedding"),
        (ColumnNotFoundError, {"key": "sku"}, "'sku'.*word"),
        (UnsupportedColumnError, {"key": "embedding"}, KEY_OF_LISTS),
        (DeclarationError, {"algorithm": "vamana", "parameters": {"pq_m": 9}}, "vamana.*'pq_m': 9"),
        (DeclarationError, {"algorithm": "ivf_pq", "parameters": {"pq_m": 9}}, "ivf_pq.*'pq_m': 9"),
        (UnsupportedColumnError, {"column": "word"}, "'word'.*string"),
    ]
    for error, change, message in wrong:
        with pytest.raises(error, match=message):
            build.plan_build(builds.declaration(**change), run_id="run")
    catalog.create_table("demo.empty", schema=words.schema())
    with pytest.raises(TooFewRowsError, match="empty"):
        builds.build(builds.declaration(table="test.demo.empty"), "run")
    assert snapshots(words) == before


@pytest.mark.parametrize("algorithm", ["vamana", "exact"])
def test_a_young_table_gets_as_many_shards_as_it_has_rows_and_those_declared_later(
    catalog, algorithm
):
    table = catalog.create_table("demo.young", schema=builds.rows([0]).schema)
    table.append(builds.rows(range(3)))
    shape = {"shards": 5, "partitions_per_shard": 2, "algorithm": algorithm}
    declared = builds.declaration(table="test.demo.young", **shape)
    planned = builds.build(declared, "first")
    assert "with 3 of the 5 declared shards, since the table has 3 rows" in planned["reason"]
    assert builds.build(declared, "again")["action"] == "none"
    index = open_index("test.demo.young", builds.INDEX)
    assert len(index.version.routing.shards) == 3
    table.append(builds.rows(range(3, 4)))
    assert refresh.plan_refresh(declared, run_id="few", force=True)["action"] == "refresh"
    table.append(builds.rows(range(4, 6)))
    due = refresh.plan_refresh(declared, run_id="enough", force=True)
    assert due["action"] == "build"
    assert "it has 3 of the 5 declared shards" in due["reason"]
    assert builds.build(declared, "whole")["action"] == "build"
    index = open_index("test.demo.young", builds.INDEX)
    assert len(index.version.routing.shards) == 5
    _, vectors = builds.live(table)
    snapshot = table.refresh().current_snapshot().snapshot_id
    builds.assert_answers(index, table, snapshot, vectors, 5)
    assert refresh.plan_refresh(declared, run_id="then", force=True)["action"] == "none"


@pytest.mark.parametrize("algorithm", ["vamana", "hnsw", "ivf_pq", "exact"])
def test_fewer_usable_vectors_than_shards_are_indexed_and_found(catalog, algorithm):
    table = catalog.create_table("demo.holey", schema=builds.rows([0]).schema)
    table.append(builds.rows(range(2)))
    unusable = builds.rows(range(2, 8))
    nothing = pa.array([None] * 6, unusable.schema.field("embedding").type)
    table.append(unusable.set_column(2, "embedding", nothing))
    shape = {"shards": 4, "partitions_per_shard": 2, "algorithm": algorithm}
    builds.build(builds.declaration(table="test.demo.holey", **shape), "run")
    index = open_index("test.demo.holey", builds.INDEX)
    _, vectors = builds.live(table)
    builds.assert_answers(index, table, table.refresh().current_snapshot().snapshot_id, vectors, 2)


@pytest.mark.parametrize("algorithm", ["vamana", "hnsw", "ivf_pq", "exact", "centroid", "auto"])
@pytest.mark.parametrize("rows", [1, 3])
def test_fewer_rows_than_partitions_are_indexed_and_found(catalog, algorithm, rows):
    table = catalog.create_table("demo.tiny", schema=builds.rows([0]).schema)
    table.append(builds.rows(range(rows)))
    fewer = {} if algorithm == "centroid" else {"shards": 1, "partitions_per_shard": 8}
    declared = builds.declaration(table="test.demo.tiny", algorithm=algorithm, **fewer)
    builds.build(declared, "run")
    index = open_index("test.demo.tiny", builds.INDEX)
    _, vectors = builds.live(table)
    snapshot = table.refresh().current_snapshot().snapshot_id
    builds.assert_answers(index, table, snapshot, vectors, 5)


def test_a_table_whose_rows_were_all_deleted_is_empty(words):
    words.delete("id >= 0")
    with pytest.raises(TooFewRowsError, match="no live rows"):
        builds.build(builds.declaration(), "run")


def test_rows_that_turn_out_to_hold_no_vector_are_missed_as_dead_ones_are(words):
    builds.build(builds.declaration(), "run")
    words.refresh()
    more = builds.rows(range(1000, 1003))
    place = more.schema.get_field_index("embedding")
    none = pa.nulls(3, more.schema.field(place).type)
    words.append(more.set_column(place, more.schema.field(place), none))
    index = open_index(words, builds.INDEX)
    assert index.view.rows_to_scan == 3
    for exhaustive in (False, True):
        assert len(index.search(QUERIES, 60, exhaustive=exhaustive)) == 6 * 60
        fewer = index.search(QUERIES, 62, exhaustive=exhaustive, allow_fewer=True)
        assert len(fewer) == 6 * 60
        with pytest.raises(QueryError, match=r"only 60 rows hold vectors.* most 60"):
            index.search(QUERIES, 62, exhaustive=exhaustive)


def test_bad_searches_are_named(words):
    with pytest.raises(IndexNotFoundError, match="no readable version of an index named 'x'"):
        open_index(words, "x")
    builds.build(builds.declaration(), "run")
    words.refresh()
    with pytest.raises(IndexNotFoundError, match=f"'x'; it has: {builds.INDEX}"):
        open_index(words, "x")
    with pytest.raises(SnapshotNotFoundError, match="no snapshot 5"):
        open_index(words, builds.INDEX, 5)
    index = open_index("test.demo.words", builds.INDEX)
    wrong = [
        (QUERIES, 0, "k is 0"),
        (QUERIES, -1, "k is -1"),
        (QUERIES, 1.5, "k is 1.5"),
        (QUERIES, 61, "k is 61, but only 60 rows are live"),
        (QUERIES[:, :7], 5, r"shape \(6, 7\).*\(n, 8\)"),
        ([["a"] * 8], 5, "not numbers"),
        ([[float("nan")] * 8], 5, "query 0 holds a NaN"),
        ([[1e300] * 8], 5, "query 0 holds a NaN or infinite"),
    ]
    for queries, k, message in wrong:
        with pytest.raises(QueryError, match=message):
            index.search(queries, k)
    with pytest.raises(QueryError, match="width is 0"):
        index.search(QUERIES, 5, width=0)
    widest = index.search(QUERIES, 5, width=10**30, probe_partitions=10**30)
    assert widest.equals(index.search(QUERIES, 5, exhaustive=True))
    with pytest.raises(ColumnNotFoundError, match="'price'"):
        index.search(QUERIES, 5, columns=["price"])
    for columns, message in (
        (("id", "word", "id"), "columns: 'id' named twice"),
        (("id", "rank"), "'rank' has the name of a result column"),
    ):
        with pytest.raises(QueryError, match=message):
            index.search(QUERIES, 5, columns=columns)
        with pytest.raises(QueryError, match=message):
            index.within(QUERIES, 1.0, columns=columns)
    assert len(index.search(QUERIES, 61, allow_fewer=True)) == 6 * 60


def test_an_empty_batch_of_queries_has_an_empty_answer(words):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    found = index.search(np.zeros((0, builds.DIMENSION), dtype=np.float32), 3, columns=["word"])
    assert len(found) == 0
    assert found.column_names == ["query", "rank", "distance", "word", "locator"]


def test_a_recall_under_the_target_publishes_nothing(words, monkeypatch):
    before = snapshots(words)
    plan = build.plan_build(builds.declaration(recall_target=1.0), run_id="run")
    honest = ground_truth.of_rows

    def nearer_than_any_row(*arguments, **options):
        answers = honest(*arguments, **options)
        return replace(answers, distances=answers.distances / 2)

    monkeypatch.setattr(ground_truth, "of_rows", nearer_than_any_row)
    with pytest.raises(RecallTooLowError, match=r"recall@5 is 0\.0.*target of 1\.0"):
        builds.run_stages(plan)
    with pytest.raises(RecallTooLowError):
        publish.publish(RunRef.planned(plan))
    assert snapshots(words) == before


def test_a_missing_spark_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SparkNotFoundError, match="spark-submit is not on PATH"):
        session.require_spark()


def test_a_plan_that_is_not_there_or_not_one_is_named(words):
    with pytest.raises(StagingError, match="not the location of a staged plan"):
        RunRef.at("test.demo.words", "/etc/passwd")
    gone = f"{words.location()}/metadata/_ann-staging/{builds.INDEX}/gone/plan.json"
    with pytest.raises(StagingError, match="gone"):
        stages.train(InProcess(), RunRef.at("test.demo.words", gone))


def test_a_staged_file_that_was_changed_is_noticed(words):
    plan = build.plan_build(builds.declaration(), run_id="run")
    run = RunRef.planned(plan)
    stages.train(InProcess(), run)
    stages.assign(InProcess(), run)
    folder = Path(plan["plan"].removeprefix("file://")).parent
    segment = next(folder.glob("segment-*"))
    data = bytearray(segment.read_bytes())
    data[5] ^= 1
    segment.write_bytes(bytes(data))
    first = plan["groups"][0]  # its shard's block begins the segment
    with pytest.raises(StagingError, match="checksum differs"):
        stages.build_group(InProcess(), run, first)


def test_a_table_without_a_snapshot_has_nothing_to_build_measure_or_clean(words, catalog):
    """What the DAGs call on one that was just created: their runs end with the reason."""
    catalog.create_table("demo.new", schema=words.schema())
    declared = builds.declaration(table="test.demo.new")
    for planning in (
        lambda: build.plan_build(declared, run_id="run"),
        lambda: refresh.plan_refresh(declared, run_id="run", maintenance=True),
    ):
        with pytest.raises(TooFewRowsError, match=r"demo\.new.*empty"):
            planning()
    with pytest.raises(IndexNotFoundError, match=builds.INDEX):
        evaluate.plan_evaluation(declared, run_id="run")
    owner = "maintain/run"
    leases.begin(declared.table, declared.name, owner, "maintain")
    maintain.guard_table(declared.table, owner=owner)
    maintain.clean_table(declared.table, owner=owner)
    assert "has no index" in publish.report({"table": declared.table, "plan": ""})
    assert leases.end(declared.table, declared.name, owner)
