"""Tables of few rows, of none, or without a snapshot."""

import pytest

from puffin_ann import open_index
from puffin_ann.errors import (
    IndexNotFoundError,
    TooFewRowsError,
)
from puffin_ann.lifecycle.runs import build, evaluate, maintain, publish, refresh
from puffin_ann.lifecycle.runtime import leases
from tests.support.lifecycle import builds


@pytest.mark.parametrize("algorithm", ["vamana", "exact"])
def test_a_young_table_gets_as_many_shards_as_it_has_rows_and_those_declared_later(
    catalog, algorithm
):
    table = catalog.create_table("demo.young", schema=builds.rows([0]).schema)
    table.append(builds.rows(range(3)))
    shape = {"shards": 5, "partitions_per_shard": 2, "algorithm": algorithm}
    declared = builds.declaration(table="test.demo.young", **shape)
    planned = builds.build(declared, "first")
    assert "with 3 of the 5 declared shards, since the table has 3 rows" in planned.reason
    assert builds.build(declared, "again").action == "none"
    index = open_index("test.demo.young", builds.INDEX)
    assert len(index.version.routing.shards) == 3
    table.append(builds.rows(range(3, 4)))
    assert refresh.plan_refresh(declared, run_id="few", force=True).action == "refresh"
    table.append(builds.rows(range(4, 6)))
    due = refresh.plan_refresh(declared, run_id="enough", force=True)
    assert due.action == "build"
    assert "it has 3 of the 5 declared shards" in due.reason
    assert builds.build(declared, "whole").action == "build"
    index = open_index("test.demo.young", builds.INDEX)
    assert len(index.version.routing.shards) == 5
    _, vectors = builds.live(table)
    snapshot = table.refresh().current_snapshot().snapshot_id
    builds.assert_answers(index, table, snapshot, vectors, 5)
    assert refresh.plan_refresh(declared, run_id="then", force=True).action == "none"


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
    assert "has no index" in publish.report(build.nothing(declared, "empty"))
    assert leases.end(declared.table, declared.name, owner)
