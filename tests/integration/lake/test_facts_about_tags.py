"""Facts about files under tags of their own: who leaves them alone, and who does not.

A snapshot without parent and rows, named by a tag, with a statistics entry, holds a file for as
long as the tag is there. If a fact here changes, so may what can be built on it.
"""

from datetime import datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest
from pyiceberg.exceptions import BadRequestError, CommitFailedException

from puffin_ann.moments import now_ms
from tests.support.indexes import tagged_files
from tests.support.indexes.tagged_files import files_of, tag_of
from tests.support.lake import spark_procedures
from tests.support.lake.orphans_by_name import remove_orphans_by_name
from tests.support.lifecycle import builds
from tests.support.servers.lakes import plain

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(params=["rest_lake", "embedded_lake"])
def lake(request):
    """A table of three commits, in one of both catalogs."""
    found = request.getfixturevalue(request.param)
    found.create(builds.rows(range(300)))
    for first in (300, 320, 340):
        found.load().append(builds.rows(range(first, first + 20)))
    return found


@pytest.fixture
def files(lake):
    """Three files under tags."""
    return {tagged_files.publish(lake.load(), number) for number in (1, 2, 3)}


def rows_of(lake) -> int:
    return int(lake.sql("SELECT count(*) FROM {t}")[0][0])


def insert(lake):
    lake.sql("INSERT INTO {t} SELECT id + 100000, word, embedding FROM {t} LIMIT 10")


def expire_by_java(lake):
    jvm, session = lake.spark.sparkContext._jvm, lake.spark._jsparkSession
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session, lake.named())
    action = jvm.org.apache.iceberg.spark.actions.SparkActions.get(session).expireSnapshots(loaded)
    action.expireOlderThan(4102444800000).retainLast(1).cleanExpiredMetadata(True).execute()


def expire_by_pyiceberg(lake):
    later = datetime.now() + timedelta(days=1)
    lake.load().maintenance.expire_snapshots().older_than(later).commit()


def evolve(lake):
    lake.sql("ALTER TABLE {t} ADD COLUMN more INT")
    lake.sql("ALTER TABLE {t} DROP COLUMN more")
    lake.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id)")


def roll_back(lake):
    first = lake.load().history()[0].snapshot_id
    lake.sql(f"CALL {{c}}.system.rollback_to_snapshot('{{n}}', {first})")


def write_audit_publish(lake):
    lake.sql("ALTER TABLE {t} CREATE BRANCH audit")
    lake.sql("INSERT INTO {t}.branch_audit SELECT id + 200000, word, embedding FROM {t} LIMIT 10")
    lake.sql("CALL {c}.system.fast_forward('{n}', 'main', 'audit')")


def cherry_pick(lake):
    insert(lake)
    picked = lake.load().metadata.current_snapshot_id
    before = lake.load().snapshot_by_id(picked).parent_snapshot_id
    lake.sql(f"CALL {{c}}.system.rollback_to_snapshot('{{n}}', {before})")
    lake.sql(f"CALL {{c}}.system.cherrypick_snapshot('{{n}}', {picked})")


def shorten_ages(lake):
    """Of tags that have none of their own."""
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('history.expire.max-ref-age-ms' = '1')")
    spark_procedures.expire(lake)


DEEDS = (
    insert,
    spark_procedures.delete_rows,
    spark_procedures.rewrite_data,
    spark_procedures.rewrite_manifests,
    spark_procedures.analyse,
    evolve,
    write_audit_publish,
    cherry_pick,
    spark_procedures.expire,
    spark_procedures.remove_orphans,
    expire_by_java,
    remove_orphans_by_name,
    expire_by_pyiceberg,
    shorten_ages,
    spark_procedures.remove_orphans,
    remove_orphans_by_name,
    roll_back,
)


def test_no_procedure_and_no_cleaner_takes_a_file_under_a_tag(lake, files):
    for deed in DEEDS[:-1]:
        deed(lake)
        assert files_of(lake.load()) == files, deed.__name__
    insert(lake)
    spark_procedures.analyse(lake)
    roll_back_to = lake.load().history()[-2].snapshot_id
    lake.sql(f"CALL {{c}}.system.set_current_snapshot('{{n}}', {roll_back_to})")
    assert files_of(lake.load()) == files


def test_a_roll_back_to_the_first_snapshot_takes_none(lake, files):
    roll_back(lake)
    remove_orphans_by_name(lake)
    spark_procedures.remove_orphans(lake)
    assert rows_of(lake) == 300
    assert files_of(lake.load()) == files


def test_no_row_comes_or_goes_by_files_under_tags(lake):
    before = rows_of(lake), [entry.snapshot_id for entry in lake.load().history()]
    for number in (1, 2, 3):
        tagged_files.publish(lake.load(), number)
    assert (rows_of(lake), [entry.snapshot_id for entry in lake.load().history()]) == before
    assert lake.load().scan().to_arrow().num_rows == before[0]
    assert lake.sql(f"SELECT count(*) FROM {{t}} VERSION AS OF '{tag_of(1)}'")[0][0] == 0
    for name in ("refs", "snapshots", "history", "all_files", "all_manifests", "manifests"):
        lake.sql(f"SELECT * FROM {{t}}.{name}")
    lake.sql("CALL {c}.system.create_changelog_view(table => '{n}')")
    expire_by_pyiceberg(lake)
    spark_procedures.expire(lake)
    assert rows_of(lake) == before[0]


def test_a_file_that_is_registered_nowhere_goes_with_those_who_compare_names(lake, files):
    table = lake.load()
    hidden = f"{table.location()}/metadata/_ann-staging/words/part"
    with table.io.new_output(hidden).create() as out:
        out.write(b"PFA1")
    gone = remove_orphans_by_name(lake)
    assert any(location.endswith("_ann-staging/words/part") for location in gone)
    assert files_of(lake.load()) == files


def test_a_dropped_tag_frees_its_own_file_and_no_other(lake, files):
    lake.sql(f"ALTER TABLE {{t}} DROP TAG {tag_of(2)}")
    spark_procedures.expire(lake)
    kept = files_of(lake.load())
    assert kept == {file for file in files if "ann-pack-2-" not in file}
    [gone] = files - kept
    assert not lake.load().io.new_input(gone).exists()


def test_data_that_comes_before_and_after_a_publication_stays(lake):
    lake.load().append(builds.rows(range(900, 910)))
    path = tagged_files.publish(lake.load(), 1)
    assert files_of(lake.load()) == {path}
    assert rows_of(lake) == 370
    insert(lake)
    assert rows_of(lake) == 380


def test_adding_it_sets_the_last_number_even_backwards(embedded_lake):
    """So a publication asserts what it saw: Java's code does not read such a table.

    And of two commits of one number, the deletes of one would miss rows.
    """
    looked = _looked_at_before_data_came(embedded_lake)
    seen = looked.metadata.last_sequence_number
    tagged_files.publish(looked, 2)
    assert embedded_lake.load().metadata.last_sequence_number == seen
    with pytest.raises(Exception, match="Invalid snapshot with sequence number"):
        rows_of(embedded_lake)
    head = embedded_lake.load().current_snapshot()
    embedded_lake.load().append(builds.rows(range(910, 920)))
    assert embedded_lake.load().current_snapshot().sequence_number == head.sequence_number


def test_a_catalog_in_java_refuses_to_set_the_last_number_backwards(rest_lake):
    looked = _looked_at_before_data_came(rest_lake)
    with pytest.raises(BadRequestError, match="greater than last sequence number"):
        tagged_files.publish(looked, 2)
    assert rows_of(rest_lake) == 40


def _looked_at_before_data_came(lake):
    """A table as it was loaded before it got a file under a tag, and rows after that."""
    lake.create(builds.rows(range(30)))
    looked = lake.load()
    tagged_files.publish(looked, 1)
    assert lake.load().metadata.last_sequence_number == looked.metadata.last_sequence_number
    lake.load().append(builds.rows(range(900, 910)))
    return looked


def test_data_that_was_prepared_before_lands_after_it(lake):
    """It takes no number of its own."""
    stale = lake.load()
    tagged_files.publish(lake.load(), 1)
    stale.append(builds.rows(range(900, 910)))
    table = lake.load()
    line = [table.snapshot_by_id(entry.snapshot_id).sequence_number for entry in table.history()]
    assert line == [1, 2, 3, 4, 5]
    assert rows_of(lake) == 370


def test_of_two_writers_of_one_tag_one_is_first_and_writers_of_two_are_both(lake):
    first = tagged_files.publish(lake.load(), 1)
    with pytest.raises(CommitFailedException):
        tagged_files.publish(lake.load(), 1)
    threads = [
        Thread(target=tagged_files.publish_on_newest, args=(lake.load(), number))
        for number in (2, 3, 4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert first in files_of(lake.load())
    assert len(files_of(lake.load())) == 4


def test_a_replaced_table_keeps_its_files(rest_lake):
    rest_lake.create(builds.rows(range(30)))
    files = {tagged_files.publish(rest_lake.load(), number) for number in (1, 2)}
    rest_lake.sql("CREATE OR REPLACE TABLE {t} USING iceberg AS SELECT 1 AS id, 'a' AS word")
    remove_orphans_by_name(rest_lake)
    spark_procedures.expire(rest_lake)
    assert files_of(rest_lake.load()) == files


@pytest.mark.parametrize("purge", [True, False])
def test_what_is_left_of_a_dropped_table(rest_lake, purge):
    rest_lake.create(builds.rows(range(30)))
    table = rest_lake.load()
    path = tagged_files.publish(table, 1)
    rest_lake.sql("DROP TABLE {t}" + (" PURGE" if purge else ""))
    assert table.io.new_input(path).exists() is not purge


def test_a_copied_table_has_its_files_at_the_new_place(embedded_lake, tmp_path):
    embedded_lake.create(builds.rows(range(30)))
    path = tagged_files.publish(embedded_lake.load(), 1)
    source, target = embedded_lake.load().location(), f"file://{tmp_path}/copy"
    [done] = embedded_lake.sql(
        "CALL {c}.system.rewrite_table_path(table => '{n}', "
        f"source_prefix => '{source}', target_prefix => '{target}', "
        f"staging_location => 'file://{tmp_path}/staged/')"
    )
    listed = Path(plain(done.file_list_location))
    lines = listed.read_text().splitlines()
    assert f"{path},{path.replace(source, target)}" in lines


def test_a_v3_table_takes_files_under_tags(rest_lake):
    rest_lake.create_by_spark(builds.rows(range(300)))
    files = {tagged_files.publish(rest_lake.load(), number) for number in (1, 2)}
    insert(rest_lake)
    spark_procedures.delete_rows(rest_lake)
    expire_by_java(rest_lake)
    spark_procedures.remove_orphans(rest_lake)
    assert files_of(rest_lake.load()) == files
    row_ids = rest_lake.sql("SELECT _row_id FROM {t}")
    assert len({row[0] for row in row_ids}) == len(row_ids)


def test_a_v3_table_that_got_rows_in_between_is_looked_at_again(rest_lake):
    """Its snapshots say from which row id on theirs are."""
    rest_lake.create_by_spark(builds.rows(range(30)))
    looked = rest_lake.load()
    insert(rest_lake)
    with pytest.raises(CommitFailedException):
        tagged_files.publish(looked, 1)
    tagged_files.publish_on_newest(looked, 1)
    assert len(files_of(rest_lake.load())) == 1


def test_a_stream_passes_files_under_tags_by(rest_lake, tmp_path):
    rest_lake.create(builds.rows(range(30)))
    begun = now_ms() - 60_000
    tagged_files.publish(rest_lake.load(), 1)
    rest_lake.load().append(builds.rows(range(30, 40)))
    tagged_files.publish(rest_lake.load(), 2)
    query = (
        rest_lake.spark.readStream.format("iceberg")
        .option("stream-from-timestamp", str(begun))
        .load(rest_lake.named())
        .writeStream.format("memory")
        .queryName("streamed")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert rest_lake.spark.sql("SELECT count(*) FROM streamed").collect()[0][0] == 40
