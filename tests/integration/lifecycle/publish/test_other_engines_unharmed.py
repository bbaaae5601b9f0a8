"""Engines that know nothing of indexes go on as if there were none."""

import pytest

from puffin_ann.lifecycle.runs import build, publish
from tests.support.lifecycle import builds, publications

pytestmark = pytest.mark.slow

FORWARD = "CALL {c}.system.fast_forward('{n}', 'main', 'audit')"


@pytest.fixture
def words(lake):
    return lake.create(builds.rows(range(30)))


@pytest.mark.long
@pytest.mark.parametrize("begun", [True, False])
def test_an_audit_branch_still_fast_forwards(lake, words, begun):
    lake.sql("ALTER TABLE {t} CREATE BRANCH audit")
    write = "INSERT INTO {t}.branch_audit SELECT id + 100, word, embedding FROM {t} WHERE id < 5"
    if begun:
        lake.sql(write)
    builds.build(builds.declaration(table=lake.named()), "run")
    if not begun:
        lake.sql(write)
    lake.sql(FORWARD)
    table = words.refresh()
    assert table.scan().to_arrow().num_rows == 35
    index = publications.open_index(table, builds.INDEX)
    assert index.coverage == 30 / 35
    builds.assert_answers(
        index, table, table.current_snapshot().snapshot_id, publications.QUERIES, 4
    )


def test_a_branch_left_behind_stays_where_it_is(lake, words):
    lake.sql("ALTER TABLE {t} CREATE BRANCH audit")
    words.refresh().append(builds.rows(range(30, 40)))
    builds.build(builds.declaration(table=lake.named()), "run")
    assert publications.runs_published(words) == ["run"]


@pytest.mark.long
def test_spark_streaming_passes_our_snapshots_by(lake, words, tmp_path):
    def stream() -> int:
        query = (
            lake.spark.readStream.format("iceberg")
            .load(lake.named())
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "out"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert query.exception() is None
        return lake.spark.read.parquet(str(tmp_path / "out")).count()

    assert stream() == 30
    builds.build(builds.declaration(table=lake.named(), publish="tag"), "one")
    words.refresh().append(builds.rows(range(30, 35)))
    builds.build(builds.declaration(table=lake.named(), publish="tag"), "two")
    assert publications.runs_published(words) == ["one", "two"]
    assert stream() == 35
    assert stream() == 35


@pytest.mark.long
def test_incremental_scans_pass_our_snapshots_by(lake, words):
    first = words.current_snapshot().snapshot_id
    builds.build(builds.declaration(table=lake.named(), publish="tag"), "one")
    words.refresh().append(builds.rows(range(30, 35)))
    builds.build(builds.declaration(table=lake.named(), publish="tag"), "two")
    last = words.refresh().current_snapshot().snapshot_id
    found = words.incremental_append_scan(
        from_snapshot_id_exclusive=first, to_snapshot_id_inclusive=last
    ).to_arrow()
    assert sorted(found.column("id").to_pylist()) == [*range(30, 35)]
    by_spark = (
        lake.spark.read.format("iceberg")
        .option("start-snapshot-id", first)
        .option("end-snapshot-id", last)
        .load(lake.named())
    )
    assert sorted(row.id for row in by_spark.select("id").collect()) == [*range(30, 35)]


@pytest.mark.parametrize("mode", ["tag", "statistics"])
def test_statistics_stay_visible_to_sparks_optimizer(lake, words, mode):
    lake.sql("CALL {c}.system.compute_table_stats(table => '{n}', columns => array('id', 'word'))")
    before = lake.distinct_counts()
    assert before == {"id": 30, "word": 30}
    builds.build(builds.declaration(table=lake.named(), publish=mode), "run")
    assert lake.distinct_counts() == before
    assert lake.sql("SELECT count(DISTINCT word) FROM {t}")[0][0] == 30


def test_every_engine_loads_and_queries_the_table(lake, words):
    builds.build(builds.declaration(table=lake.named()), "run")
    table = lake.load()
    assert table.scan(row_filter="id < 3").to_arrow().num_rows == 3
    assert lake.sql("SELECT max(id) FROM {t}")[0][0] == 29
    assert lake.sql("SELECT count(*) FROM {t}.history")[0][0] == 1
    assert lake.sql("SELECT count(*) FROM {t}.refs WHERE type = 'TAG'")[0][0] == 1
    lake.sql("DELETE FROM {t} WHERE id = 29")
    told = publish.report(build.nothing(builds.declaration(table=lake.named()), "current"))
    assert told.count(builds.INDEX) >= 1
