"""Covered files against live files, after everything that Spark does to a table.

An index is built once; after each step, search at the head must equal brute force over what Spark
itself reads. Then it is built again, and must cover everything.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from puffin_ann.lake.read.files.live_files import live_files
from tests.support.lake import tables
from tests.support.lake.equality_scans import read_equality_deletes
from tests.support.lake.spark_changes import COPY_ON_WRITE, MERGE_ON_READ, REWRITES, ROW_CHANGES
from tests.support.lifecycle import builds, publications

pytestmark = pytest.mark.slow


def check(lake, ref: str | None = None) -> float:
    """Hold search to brute force over what Spark reads; gives the coverage."""
    index = publications.open_index(lake.load(), builds.INDEX, ref=ref)
    at = f"VERSION AS OF '{ref}'" if ref else ""
    builds.assert_answers_are(index, lake.rows(at), publications.QUERIES, 4)
    return index.coverage


def build(lake, run_id: str = "run") -> None:
    builds.build(builds.declaration(table=lake.named()), run_id)


def follow(lake, steps: list[str]) -> None:
    """Build, take each step, and build again."""
    build(lake)
    for step in steps:
        lake.sql(step)
        check(lake)
    build(lake, "again")
    assert check(lake) == 1.0


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "modes"),
    [("rest", MERGE_ON_READ), ("embedded", COPY_ON_WRITE)],
    ids=["merge-on-read", "copy-on-write"],
)
def test_rows_changed_and_files_rewritten_in_a_v2_table(request, kind, modes):
    """What Spark writes is the same in any catalog and store: each of them sees one way."""
    lake = request.getfixturevalue(f"{kind}_lake")
    table = lake.create(builds.rows(range(30)), **modes)
    table.append(builds.rows(range(30, 40)))
    follow(lake, ROW_CHANGES + REWRITES)


@pytest.mark.long
def test_rows_changed_and_files_rewritten_in_a_v3_table(rest_lake):
    rest_lake.create_by_spark(builds.rows(range(40)))
    follow(rest_lake, [*ROW_CHANGES, *REWRITES[1:]])


def test_v3_deletion_vectors_of_several_files_in_one_puffin_file(rest_lake):
    table = rest_lake.create_by_spark(builds.rows(range(20)))
    rest_lake.sql("INSERT INTO {t} SELECT id + 20, word, embedding FROM {t}")
    build(rest_lake)
    rest_lake.sql("DELETE FROM {t} WHERE id % 4 = 2")
    files = live_files(table.refresh())
    deletes = [delete for file in files for delete in file.deletes]
    assert len(deletes) > len({delete.path for delete in deletes})
    assert all(d.referenced_data_file == file.path for file in files for d in file.deletes)
    check(rest_lake)


@pytest.mark.long
def test_partitioned_tables_and_a_changed_partitioning(embedded_lake):
    lake = embedded_lake
    lake.create(builds.rows(range(30)), **MERGE_ON_READ)
    follow(
        lake,
        [
            "ALTER TABLE {t} ADD PARTITION FIELD truncate(word, 2)",
            "INSERT INTO {t} SELECT id + 50, word, embedding FROM {t} WHERE id < 15",
            "DELETE FROM {t} WHERE word LIKE 'w1%'",
            "INSERT INTO {t} SELECT id + 100, word, embedding FROM {t} WHERE word LIKE 'w2%'",
            "DELETE FROM {t} WHERE id % 4 = 1",
            "ALTER TABLE {t} REPLACE PARTITION FIELD truncate(word, 2) WITH bucket(3, id)",
            "CALL {c}.system.rewrite_data_files(table => '{n}', "
            "options => map('rewrite-all', 'true'))",
            "INSERT INTO {t} SELECT id + 200, word, embedding FROM {t} WHERE id > 20",
            "DELETE FROM {t} WHERE id = 222",
        ],
    )


def test_the_column_is_found_by_its_field_id_when_renamed_and_moved(embedded_lake):
    lake = embedded_lake
    lake.create(builds.rows(range(30)), **MERGE_ON_READ)
    build(lake)
    assert lake.load().schema().find_column_name(3) == "embedding"
    for step in (
        "ALTER TABLE {t} ADD COLUMN embedding_old ARRAY<FLOAT> FIRST",
        "ALTER TABLE {t} RENAME COLUMN embedding TO vector",
        "ALTER TABLE {t} ALTER COLUMN vector FIRST",
        "ALTER TABLE {t} RENAME COLUMN embedding_old TO another",
        "INSERT INTO {t} (id, word, vector) SELECT id + 50, word, vector FROM {t} WHERE id < 9",
        "DELETE FROM {t} WHERE id % 5 = 4",
        "CALL {c}.system.rewrite_data_files(table => '{n}', options => map('rewrite-all','true'))",
    ):
        lake.sql(step)
        column = lake.load().schema().find_column_name(3)
        found = lake.sql(f"SELECT id, {column} AS vector FROM {{t}}")
        ids = np.array([row.id for row in found])
        vectors = np.array([row.vector for row in found], dtype=np.float32)
        index = publications.open_index(lake.load(), builds.INDEX)
        builds.assert_answers_are(index, (ids, vectors), publications.QUERIES, 4)


@pytest.mark.long
def test_snapshots_rolled_back_expired_and_named(lake):
    table = lake.create(builds.rows(range(30)), **MERGE_ON_READ)
    first = table.current_snapshot().snapshot_id
    lake.sql("ALTER TABLE {t} CREATE TAG before")
    lake.sql("DELETE FROM {t} WHERE id < 5")
    build(lake)
    lake.sql("ALTER TABLE {t} CREATE BRANCH side")
    lake.sql("INSERT INTO {t} SELECT id + 100, word, embedding FROM {t} WHERE id > 20")
    lake.sql("DELETE FROM {t}.branch_side WHERE id % 3 = 0")
    lake.sql("INSERT INTO {t}.branch_side SELECT id + 500, word, embedding FROM {t}")
    for ref in (None, "before", "side", "main"):
        check(lake, ref)
    build(lake, "second")
    for ref in (None, "before", "side"):
        check(lake, ref)

    lake.sql(f"CALL {{c}}.system.rollback_to_snapshot('{{n}}', {first})")
    assert check(lake) < 1, "rows deleted before the base live again"
    lake.sql("INSERT INTO {t} SELECT id + 700, word, embedding FROM {t} WHERE id < 4")
    check(lake)
    lake.sql("ALTER TABLE {t} DROP TAG before")
    lake.sql(
        "CALL {c}.system.expire_snapshots(table => '{n}', "
        "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    )
    # The index went with the snapshots it was registered under; the branch's own has not gone.
    kept = {snapshot.snapshot_id for snapshot in lake.load().snapshots()}
    assert first not in kept
    assert {ref.snapshot_id for ref in lake.load().refs().values()} <= kept


def test_files_added_from_outside_the_tables_location(lake):
    table = lake.create(builds.rows(range(20)), **MERGE_ON_READ)
    build(lake)
    outside = f"{table.location()}-outside/loose.parquet"
    with table.io.new_output(outside).create() as out:
        pq.write_table(builds.rows(range(40, 52)), out, row_group_size=5)
    lake.catalog.load_table(table.name()).add_files([outside])
    assert any(file.path == outside for file in live_files(table.refresh()))
    check(lake)
    build(lake, "second")
    assert check(lake) == 1.0
    lake.sql("DELETE FROM {t} WHERE id IN (41, 44, 51)")
    check(lake)

    folder = f"{table.location()}-more"
    with table.io.new_output(f"{folder}/part.parquet").create() as out:
        pq.write_table(builds.rows(range(60, 70)), out)
    if not lake.on_s3:  # the procedure lists the folder with Hadoop, which has no S3 here
        lake.sql(
            f"CALL {{c}}.system.add_files(table => '{{n}}', source_table => '`parquet`.`{folder}`')"
        )
        assert len(lake.rows()[0]) == 39
        check(lake)


def test_upserts_by_equality_deletes_as_spark_reads_them(embedded_lake, monkeypatch):
    """And as PyIceberg does with what tests give it, which is to judge histories without Spark."""
    read_equality_deletes(monkeypatch)
    lake = embedded_lake
    lake.create(builds.rows(range(30)), **MERGE_ON_READ)
    build(lake)
    for step in (
        {"id": [3, 4, 77]},
        {"word": ["w5", "w6", None], "id": [5, 7, 8]},
        "DELETE FROM {t} WHERE id IN (9, 10)",
        {"id": [9, 11]},
        "INSERT INTO {t} SELECT id + 40, word, embedding FROM {t} WHERE id > 20",
        "ALTER TABLE {t} ADD COLUMN note STRING",
        {"note": [None], "id": [12]},
        {"id": [61, 62]},
        "CALL {c}.system.rewrite_data_files(table => '{n}', "
        "options => map('delete-file-threshold', '1'))",
    ):
        if isinstance(step, str):
            lake.sql(step)
        else:
            types = lake.load().schema().as_arrow()
            keys = {name: pa.array(keys, types.field(name).type) for name, keys in step.items()}
            tables.delete_equal(lake.load(), pa.table(keys))
        check(lake)
        assert tables.live_ids(lake.load()) == sorted(lake.rows()[0].tolist())
    build(lake, "again")
    assert check(lake) == 1.0


def deletes_of(lake) -> set[tuple[str, str]]:
    """Path and kind of each delete file that counts at the head."""
    return {
        (delete.path, delete.kind) for file in live_files(lake.load()) for delete in file.deletes
    }


def test_deletion_vectors_stay_when_position_deletes_are_rewritten(rest_lake):
    """Each data file has one vector: there is nothing to merge, and the procedure leaves them."""
    lake = rest_lake
    lake.create_by_spark(builds.rows(range(30)))
    lake.sql("DELETE FROM {t} WHERE id % 10 = 3")
    build(lake)
    lake.sql("DELETE FROM {t} WHERE id % 4 = 2")
    before, coverage = deletes_of(lake), check(lake)
    assert {kind for _, kind in before} == {"vector"}
    lake.sql(REWRITES[0])
    assert deletes_of(lake) == before
    assert check(lake) == coverage


@pytest.mark.long
@pytest.mark.parametrize("built", ["before the upgrade", "after it"])
def test_position_deletes_of_an_upgraded_table_become_deletion_vectors(rest_lake, built):
    lake = rest_lake
    lake.create_by_spark(builds.rows(range(30)), **{"format-version": "2"})
    lake.sql("INSERT INTO {t} SELECT id + 30, word, embedding FROM {t}")
    lake.sql("DELETE FROM {t} WHERE id % 10 = 3")
    if built == "before the upgrade":
        build(lake)
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    lake.sql("DELETE FROM {t} WHERE id = 35")
    if built == "after it":
        build(lake)
    coverage = check(lake)
    assert "positions" in {kind for _, kind in deletes_of(lake)}
    lake.sql(REWRITES[0])
    assert {kind for _, kind in deletes_of(lake)} == {"vector"}
    assert check(lake) == coverage
    lake.sql("DELETE FROM {t} WHERE id % 4 = 2")
    check(lake)
    build(lake, "again")
    assert check(lake) == 1.0
