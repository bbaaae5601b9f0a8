"""Tables of version 3 that Spark writes: rows are known again by their row ids."""

import itertools

import pytest

from puffin_ann.lifecycle.refresh.read_changes import rewritten_files
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.search.version.versions import require_versions
from tests.support.lifecycle import builds, publications

pytestmark = pytest.mark.slow

REWRITE = "CALL {c}.system.rewrite_data_files(table => '{n}', options => map('rewrite-all','true'))"
TURN = "UPDATE {t} SET embedding = transform(embedding, x -> CAST(-x AS FLOAT)) WHERE "
RUNS = itertools.count()
BYTES = 4 * builds.DIMENSION

COPY_ON_WRITE = {f"write.{kind}.mode": "copy-on-write" for kind in ("delete", "update", "merge")}


@pytest.fixture
def refreshed(rest_lake, monkeypatch):
    """A table of 60 rows in two files with an index; refreshes it after SQL, and tells of that."""
    monkeypatch.setattr(rewritten_files, "FILE_BYTES", 0)
    lake = rest_lake
    lake.create_by_spark(builds.rows(range(40)), **COPY_ON_WRITE)
    lake.sql("INSERT INTO {t} SELECT id + 40, word, embedding FROM {t} WHERE id < 20")
    declared = builds.declaration(table=lake.named(), include=["word"])
    builds.build(declared, "build")

    def refresh(*statements):
        for statement in statements:
            lake.sql(statement)
        done = refresh_in_process(declared, run_id=f"after-{next(RUNS)}", force=True)
        table = lake.load()
        index = publications.open_index(table, builds.INDEX)
        builds.assert_answers_are(index, lake.rows(), publications.QUERIES, 100)
        words = {row.id: row.word for row in lake.sql("SELECT id, word FROM {t}")}
        found = index.search(
            publications.QUERIES[:1], 100, columns=["id", "word"], allow_fewer=True
        )
        pairs = zip(found["id"].to_pylist(), found["word"].to_pylist(), strict=True)
        assert dict(pairs) == words
        return done, bytes_read(table)

    return refresh


def merge_on_read(lake):
    modes = ", ".join(f"'{name}' = 'merge-on-read'" for name in COPY_ON_WRITE)
    lake.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({modes})")


def bytes_read(table):
    """Bytes of vectors that the run read which made the newest version."""
    newest = require_versions(table, builds.INDEX)[0]
    return int(newest.routing.properties["vector-bytes-read"])


def test_no_vector_is_read_after_a_compaction(refreshed):
    done, read = refreshed(REWRITE)
    assert (done["rows_added"], done["rows_gone"], read) == (0, 0, 0)
    # Row ids stand in the files now, where they followed from the positions of rows before.
    done, read = refreshed(REWRITE, REWRITE)
    assert (done["rows_added"], done["rows_gone"], read) == (0, 0, 0)


@pytest.mark.long
def test_no_vector_is_read_after_new_rows_and_deletes_by_position_were_compacted(
    refreshed, rest_lake
):
    merge_on_read(rest_lake)
    others = "transform(embedding, x -> CAST(x + 1 AS FLOAT))"
    insert = f"INSERT INTO {{t}} SELECT id + 100, word, {others} FROM {{t}} WHERE id < 5"
    done, read = refreshed("DELETE FROM {t} WHERE id % 6 = 2", insert, REWRITE)
    assert (done["rows_added"], done["rows_gone"]) == (4, 10)
    # Those of a row group with a row that is new are all decoded, and it is one file now.
    assert read == 54 * BYTES
    done, read = refreshed("DELETE FROM {t} WHERE id % 6 = 3", REWRITE)
    assert (done["rows_added"], read) == (0, 0)


def test_after_a_copy_on_write_commit_every_rewritten_vector_is_hashed(refreshed):
    # In metadata it looks like files of another table that took the place of ours.
    done, read = refreshed("DELETE FROM {t} WHERE id = 50")
    assert (done["rows_added"], done["rows_gone"], read) == (0, 1, 19 * BYTES)
    done, read = refreshed("UPDATE {t} SET word = concat(word, '+') WHERE id = 51", REWRITE)
    assert (done["rows_added"], done["rows_gone"], read) == (0, 0, 59 * BYTES)
    done, read = refreshed(TURN + "id = 51", REWRITE)
    assert (done["rows_added"], done["rows_gone"], read) == (1, 1, 59 * BYTES)
    done, read = refreshed(REWRITE)
    assert (done["rows_added"], done["rows_gone"], read) == (0, 0, 0)


def test_after_a_merge_on_read_update_of_words_those_rows_alone_are_hashed_and_none_is_built_anew(
    refreshed, rest_lake
):
    merge_on_read(rest_lake)
    # By their numbers these rows were changed, and it may be their vectors that were.
    update = "UPDATE {t} SET word = concat(word, '+') WHERE "
    done, read = refreshed(update + "id = 51")
    assert (done["rows_added"], done["rows_gone"], read) == (0, 0, BYTES)
    done, read = refreshed(update + "id % 10 = 1")
    assert (done["rows_added"], done["rows_gone"], read) == (0, 0, 6 * BYTES)
    done, read = refreshed(update + "id = 7", TURN + "id = 8")
    assert (done["rows_added"], done["rows_gone"], read) == (1, 1, 2 * BYTES)
    done, read = refreshed(update + "id = 9", REWRITE)
    assert (done["rows_added"], done["rows_gone"], read) == (0, 0, 60 * BYTES)


def test_a_rolled_back_update_is_not_taken_for_the_row_before_it(refreshed, rest_lake):
    start = rest_lake.load().current_snapshot().snapshot_id
    refreshed(TURN + "id < 10")
    back = f"CALL {{c}}.system.rollback_to_snapshot('{{n}}', {start})"
    other = "UPDATE {t} SET embedding = transform(embedding, x -> CAST(x + 1 AS FLOAT))"
    done, _ = refreshed(back, other + " WHERE id < 10", REWRITE)
    assert (done["rows_added"], done["rows_gone"]) == (10, 10)


@pytest.mark.long
def test_rows_of_a_table_that_was_upgraded_are_hashed_until_they_have_row_ids(
    rest_lake, monkeypatch
):
    monkeypatch.setattr(rewritten_files, "FILE_BYTES", 0)
    lake = rest_lake
    lake.create_by_spark(builds.rows(range(40)), **COPY_ON_WRITE, **{"format-version": "2"})
    declared = builds.declaration(table=lake.named())
    builds.build(declared, "build")
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    # Iceberg 1.11 gives rows that have no number of their own that of their file, where the
    # specification has the data sequence number: they are hashed once more.
    whole = 40 * BYTES
    for run, expected in (("first", {whole}), ("second", {0, whole}), ("third", {0})):
        lake.sql(REWRITE)
        done = refresh_in_process(declared, run_id=run, force=True)
        table = lake.load()
        assert (done["rows_added"], done["rows_gone"]) == (0, 0)
        assert bytes_read(table) in expected
        index = publications.open_index(table, builds.INDEX)
        builds.assert_answers_are(index, lake.rows(), publications.QUERIES, 50)
