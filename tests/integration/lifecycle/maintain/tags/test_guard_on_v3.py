"""Mode `statistics` on tables of format version 3: an index has one slot, which others fill.

Spark writes them, with deletion vectors; the catalog is the REST catalog of Iceberg's own tests.
"""

import pytest

from puffin_ann.errors import IndexNotFoundError
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.drop import drop
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.moments import now_ms
from tests.support.lake import table_events
from tests.support.lake.spark_procedures import (
    analyse,
    delete_rows,
    expire,
    remove_orphans,
    rewrite_data,
)
from tests.support.lifecycle import builds, publications

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("published_by_statistics")]

INSERT = "INSERT INTO {t} SELECT id + 100, word, embedding FROM {t} WHERE id < 7"


@pytest.fixture
def indexed(rest_lake):
    """A table of version 3 with deletion vectors and an index."""
    rest_lake.create_by_spark(builds.rows(range(40)))
    delete_rows(rest_lake)
    build(rest_lake, "run")
    return rest_lake


def build(lake, run: str, **changes):
    builds.build(builds.declaration(table=lake.named(), **changes), run, {"force": True})


def head(table) -> int:
    return table.current_snapshot().snapshot_id


def under_head(lake) -> str | None:
    table = lake.load()
    entry = slots(table).get(head(table))
    return entry.statistics_path if entry else None


def assert_alive(lake, *names) -> None:
    rows = lake.rows()
    for name in names or (builds.INDEX,):
        index = publications.open_index(lake.load(), name)
        builds.assert_answers_are(index, rows, publications.QUERIES, 4)


def assert_guarded(lake, *names) -> None:
    """The guard ends, adds no snapshot, and the strictest expiry takes nothing."""
    before = [snapshot.snapshot_id for snapshot in lake.load().snapshots()]
    assert guard(lake.load()).lost == ()
    assert guard(lake.load()).actions == ()
    assert [snapshot.snapshot_id for snapshot in lake.load().snapshots()] == before
    problems = doctor(lake.named(), quick=True).findings
    assert [
        problem.kind for problem in problems if problem.is_problem and problem.kind != "stale"
    ] == []
    expire(lake)
    remove_orphans(lake)
    assert_alive(lake, *names)


def test_the_live_file_is_registered_under_a_head_that_moved(indexed):
    lake = indexed
    path = under_head(lake)
    lake.sql(INSERT)
    delete_rows(lake)
    assert under_head(lake) is None
    assert_guarded(lake)
    assert under_head(lake) == path
    assert len(lake.load().snapshots()) == 1


def test_without_the_guard_an_expiry_takes_the_index(indexed):
    """The fact that the guard stands on holds for version 3, too."""
    path = under_head(indexed)
    indexed.sql(INSERT)
    expire(indexed)
    assert not indexed.load().io.new_input(path).exists()


@pytest.mark.long
def test_statistics_that_took_the_slot_are_carried_and_stay_listed(indexed):
    lake = indexed
    analyse(lake)  # throws out the only registration there is
    found = [
        finding.kind for finding in doctor(lake.named(), quick=True).findings if finding.is_problem
    ]
    assert found == ["dropped"]
    assert_guarded(lake)
    table = lake.load()
    (blob,) = slots(table)[head(table)].blob_metadata
    assert blob.type == table_events.THETA
    assert lake.distinct_counts()["id"] > 0


@pytest.mark.long
def test_statistics_of_a_later_snapshot_and_two_indexes_come_together_in_one_file(indexed):
    lake = indexed
    build(lake, "second", name="second", metric="ip")
    lake.sql(INSERT)
    analyse(lake)
    assert_guarded(lake, builds.INDEX, "second")
    assert len(slots(lake.load())) == 1


@pytest.mark.long
def test_a_registration_that_was_dropped_comes_back(indexed):
    lake = indexed
    table = lake.load()
    table_events.drop_registration(table, head(table))
    assert_guarded(lake)


@pytest.mark.long
def test_a_dangling_registration_goes(indexed):
    lake = indexed
    table = lake.load()
    older = under_head(lake)
    lake.sql(INSERT)
    build(lake, "again")
    newer = under_head(lake)
    assert newer != older
    table.io.delete(newer)
    assert guard(lake.load()).lost == ()
    assert under_head(lake) == older
    assert_guarded(lake)


@pytest.mark.long
def test_compaction_expiry_and_clean_up_leave_the_live_version_alone(indexed):
    lake = indexed
    for number in range(2):
        lake.sql(INSERT.replace("100", str(200 + 100 * number)))
        build(lake, f"run-{number}")
        guard(lake.load())
        rewrite_data(lake)
    assert_guarded(lake)
    clean(lake.load(), at_ms=now_ms() + 25 * table_events.HOUR_MS)
    assert_guarded(lake)
    left = table_events.index_files(lake.load())
    assert under_head(lake) in left
    assert len(left) <= 2


@pytest.mark.long
def test_damage_is_replaced_by_the_older_version_without_a_snapshot(indexed):
    from tests.support.falsified.damage import forget_cache

    lake = indexed
    older = under_head(lake)
    lake.sql(INSERT)
    build(lake, "again")
    newer = under_head(lake)
    table = lake.load()
    with table.io.new_input(newer).open() as stream:
        data = bytearray(stream.read())
    data[128] ^= 1  # in section `head` of the first blob
    with table.io.new_output(newer).create(overwrite=True) as out:
        out.write(bytes(data))
    forget_cache()
    snapshots = len(table.snapshots())
    fixed = doctor(lake.named(), fix=True)
    assert [finding.repaired for finding in fixed.findings if finding.kind == "damaged"] == [True]
    assert not table.io.new_input(newer).exists()
    assert len(lake.load().snapshots()) == snapshots
    assert older in table_events.index_files(lake.load())
    assert_guarded(lake)


@pytest.mark.long
def test_a_dropped_index_goes_and_the_other_stays_without_a_snapshot(indexed):
    lake = indexed
    build(lake, "second", name="second", metric="ip")
    lake.sql(INSERT)
    analyse(lake)
    before = [snapshot.snapshot_id for snapshot in lake.load().snapshots()]
    report = drop(lake.load(), builds.INDEX)
    table = lake.load()
    assert [snapshot.snapshot_id for snapshot in table.snapshots()] == before
    assert report.snapshot_id == head(table)
    assert under_head(lake) == report.file
    assert lake.distinct_counts()["id"] > 0
    with pytest.raises(IndexNotFoundError):
        publications.open_index(table, builds.INDEX)
    assert_guarded(lake, "second")
    clean(lake.load(), at_ms=now_ms() + 25 * table_events.HOUR_MS)
    assert table_events.index_files(lake.load()) == {report.file}
    assert_guarded(lake, "second")


@pytest.mark.long
def test_the_last_index_is_dropped_and_the_statistics_beside_it_stay(indexed):
    lake = indexed
    analyse(lake)
    assert_guarded(lake)  # one file has both now
    report = drop(lake.load(), builds.INDEX)
    assert under_head(lake) == report.file
    assert lake.distinct_counts()["id"] > 0
    with pytest.raises(IndexNotFoundError):
        publications.open_index(lake.load(), builds.INDEX)
    assert guard(lake.load()).actions == ()
    build(lake, "anew")
    assert_guarded(lake)
    assert lake.distinct_counts()["id"] > 0


@pytest.mark.long
def test_the_last_index_is_deregistered_where_nothing_stands_beside_it(indexed):
    lake = indexed
    drop(lake.load(), builds.INDEX)
    assert slots(lake.load()) == {}
    assert guard(lake.load()).actions == ()
    clean(lake.load(), at_ms=now_ms() + 25 * table_events.HOUR_MS)
    assert table_events.index_files(lake.load()) == set()
