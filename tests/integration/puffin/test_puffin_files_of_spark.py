"""Puffin files that Spark writes into tables: read, carried along, and read by Java again."""

import numpy as np
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from puffin_ann import open_index
from puffin_ann.lake.read.deletes.row_deletes import deleted_positions
from puffin_ann.lake.read.files.live_files import live_files
from puffin_ann.puffin import PuffinReader, PuffinWriter
from puffin_ann.settings import settings
from tests.support.lifecycle import builds

pytestmark = pytest.mark.slow

THETA = "apache-datasketches-theta-v1"
DELETION_VECTOR = "deletion-vector-v1"
QUERIES = np.random.default_rng(5).normal(size=(4, builds.DIMENSION)).astype(np.float32)


@pytest.fixture
def catalog(stage, spark, tmp_path, monkeypatch):
    """PyIceberg's side of Spark's catalog, found by name as it finds a user's."""
    monkeypatch.setenv("PYICEBERG_CATALOG__TEST__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__TEST__URI", f"sqlite:///{stage}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__TEST__WAREHOUSE", f"file://{stage}/warehouse")
    monkeypatch.setenv("PUFFIN_ANN_CACHE_DIR", str(tmp_path / "cache"))
    # PyIceberg and the library read the environment once.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    settings.cache_clear()
    catalog = load_catalog("test")
    catalog.create_namespace_if_not_exists("demo")
    yield catalog
    settings.cache_clear()


def stored(table, path, kind):
    """Of each blob of a type: what its footer says but for the place, and its bytes as stored."""
    with table.io.new_input(path).open() as stream:
        reader = PuffinReader(stream, name=path)
        return [
            (
                (blob.fields, blob.snapshot_id, blob.sequence_number, blob.compression_codec),
                dict(blob.properties),
                reader.open_stored(blob).read(),
                reader.read(blob) if kind == THETA else b"",
            )
            for blob in reader.find(kind)
        ]


def test_statistics_of_spark_are_read_and_carried_by_an_index(catalog, spark, read_by_java):
    table = catalog.create_table("demo.words", schema=builds.rows([]).schema)
    table.append(builds.rows(range(60)))
    spark.sql(
        "CALL test.system.compute_table_stats("
        "table => 'demo.words', columns => array('id', 'word'))"
    ).collect()

    (entry,) = table.refresh().metadata.statistics
    sketches = stored(table, entry.statistics_path, THETA)
    assert [sketch[1]["ndv"] for sketch in sketches] == ["60", "60"]
    assert [sketch[0][3] for sketch in sketches] == ["zstd", "zstd"]
    written_by_java = read_by_java(entry.statistics_path)[1]
    assert [sketch[3] for sketch in sketches] == [content for _, content in written_by_java]

    builds.build(builds.declaration(publish="statistics"), "run")

    current = table.refresh().current_snapshot().snapshot_id
    (mine,) = (entry for entry in table.metadata.statistics if entry.snapshot_id == current)
    assert mine.statistics_path != entry.statistics_path
    assert stored(table, mine.statistics_path, THETA) == sketches
    listed = [(blob.type, blob.properties["ndv"]) for blob in mine.blob_metadata]
    assert listed == [(THETA, "60"), (THETA, "60")]
    contents = {blob.type(): content for blob, content in read_by_java(mine.statistics_path)[1]}
    assert contents[THETA] == sketches[-1][3]
    assert set(contents) > {THETA, "puffin-ann-graph-v1", "puffin-ann-routing-v1"}
    builds.assert_answers(open_index(table, builds.INDEX), table, current, QUERIES, 5)


def test_spark_goes_on_with_a_table_that_has_an_index(catalog, spark):
    table = catalog.create_table("demo.shared", schema=builds.rows([]).schema)
    table.append(builds.rows(range(60)))
    builds.build(builds.declaration(table="test.demo.shared"), "run")

    assert spark.sql("SELECT count(*) FROM test.demo.shared").collect()[0][0] == 60
    spark.sql("DELETE FROM test.demo.shared WHERE id < 10").collect()
    spark.sql(
        "INSERT INTO test.demo.shared SELECT id + 100, word, embedding FROM test.demo.shared "
        "WHERE id > 50"
    ).collect()

    table.refresh()
    current = table.current_snapshot().snapshot_id
    assert table.scan().to_arrow().num_rows == 59
    builds.assert_answers(open_index(table, builds.INDEX), table, current, QUERIES, 5)


def test_deletion_vectors_of_spark_are_read_and_carried(catalog, spark, read_by_java, tmp_path):
    spark.sql(
        "CREATE TABLE test.demo.vectors USING iceberg TBLPROPERTIES "
        "('format-version' = '3', 'write.delete.mode' = 'merge-on-read') "
        "AS SELECT id FROM range(0, 5000, 1, 2)"
    ).collect()
    spark.sql("DELETE FROM test.demo.vectors WHERE id % 3 = 0 OR id BETWEEN 100 AND 900").collect()

    table = catalog.load_table("demo.vectors")
    files = live_files(table)
    assert any(file.deletes for file in files)
    deleted = deleted_positions(table, files)
    left = set()
    for file in files:
        ids = table.io.new_input(file.path)
        left |= set(ids_of(ids).tolist()) - {ids_of(ids)[at] for at in deleted.get(file.path, ())}
    assert left == {row.id for row in spark.sql("SELECT id FROM test.demo.vectors").collect()}

    (path, *_) = {delete.path for file in files for delete in file.deletes}
    copy = tmp_path / "copy.puffin"
    with (
        table.io.new_input(path).open() as stream,
        copy.open("wb") as out,
        PuffinWriter(out) as writer,
    ):
        reader = PuffinReader(stream, name=path)
        for blob in reader.find(DELETION_VECTOR):
            writer.copy(reader, blob)
        writer.finish({})
    original, carried = read_by_java(path)[1], read_by_java(copy)[1]
    assert [content for _, content in carried] == [content for _, content in original]
    for ours, theirs in zip(carried, original, strict=True):
        assert ours[0].type() == theirs[0].type() == DELETION_VECTOR
        assert dict(ours[0].properties()) == dict(theirs[0].properties())
        assert ours[0].snapshotId() == theirs[0].snapshotId() == -1


def ids_of(file) -> np.ndarray:
    import pyarrow.parquet as pq

    with file.open() as stream:
        return pq.read_table(stream, columns=["id"]).column("id").to_numpy()
