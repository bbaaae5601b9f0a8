"""Sequence numbers: a tagged snapshot has the table's last one, and none is given twice."""

import pytest

from puffin_ann import open_index
from puffin_ann.errors import UnclearCommitError
from puffin_ann.lake.commit import commit_index_file, tagged_snapshot
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lifecycle.runs import build as planning
from tests.support.indexes.tagged_versions import main, published
from tests.support.lake import table_events
from tests.support.lifecycle import builds, publications


def last_number(table) -> int:
    return table.refresh().metadata.last_sequence_number


def assert_numbers_rise(table) -> None:
    """Of commits of one number, deletes would miss rows."""
    numbers = [table.snapshot_by_id(held).sequence_number for held in main(table)]
    assert numbers == sorted(set(numbers))
    assert last_number(table) == max(each.sequence_number for each in table.snapshots())


def before_the_commit(monkeypatch, deed) -> list[Exception]:
    """Have something done between the preparation of the first commit and its request."""
    commit, refused = commit_index_file.commit, []
    deeds = iter([deed])

    def late(*arguments):
        next(deeds, lambda: None)()
        try:
            commit(*arguments)
        except Exception as error:
            refused.append(error)
            raise

    monkeypatch.setattr(commit_index_file, "commit", late)
    return refused


def test_data_that_lands_first_keeps_its_numbers(words, monkeypatch):
    def append_twice():
        for first in (60, 70):
            words.refresh().append(builds.rows(range(first, first + 10)))

    refused = before_the_commit(monkeypatch, append_twice)
    published(words)
    assert len(refused) == 1, "a branch moved, so that it has to be prepared again"
    words.append(builds.rows(range(80, 90)))
    assert_numbers_rise(words)
    table_events.assert_alive(words)


def test_data_that_was_prepared_before_lands_afterwards(words):
    stale = words.catalog.load_table(words.name())
    published(words)
    stale.append(builds.rows(range(60, 70)))
    assert_numbers_rise(words)
    assert open_index(words, builds.INDEX).view.rows_to_scan == 10
    table_events.assert_alive(words)


def test_numbers_of_a_branch_that_comes_in_between_are_not_given_twice(words, monkeypatch):
    def branch():
        fresh = words.catalog.load_table(words.name())
        fresh.manage_snapshots().create_branch(main(words)[-1], "audit").commit()
        fresh.refresh().append(builds.rows(range(60, 70)), branch="audit")

    refused = before_the_commit(monkeypatch, branch)
    published(words)
    assert len(refused) == 1, "a number was assigned, so that it has to be prepared again"
    assert_numbers_rise(words)
    words.append(builds.rows(range(80, 90)))
    assert_numbers_rise(words)
    table_events.assert_alive(words)


def test_numbers_that_could_not_be_set_right_are_by_the_next_attempt(words, monkeypatch):
    def branch():
        fresh = words.catalog.load_table(words.name())
        fresh.manage_snapshots().create_branch(main(words)[-1], "audit").commit()
        fresh.refresh().append(builds.rows(range(60, 70)), branch="audit")

    def unreachable(*arguments):
        raise ConnectionError("the catalog is away")

    before_the_commit(monkeypatch, branch)
    # Stands for a catalog that neither PyIceberg nor Java's code writes the metadata of.
    monkeypatch.setattr(tagged_snapshot.AssertNoNewerNumber, "validate", lambda *_: None)
    declared = builds.declaration(publish="tag")
    plan = planning.plan_build(declared, run_id="a", overrides={"force": True})
    builds.run_stages(plan)
    with monkeypatch.context() as patch:
        patch.setattr(tagged_snapshot, "commit", unreachable)
        with pytest.raises(UnclearCommitError, match="run the task again"):
            publications.publish(plan)
    with pytest.raises(AssertionError):
        assert_numbers_rise(words)
    publications.publish(plan)
    assert_numbers_rise(words)
    assert len(own_tags(words)) == 1
    table_events.assert_alive(words)


@pytest.mark.slow
def test_a_rest_catalog_takes_data_before_and_after_as_it_comes(rest_lake, monkeypatch):
    lake = rest_lake
    lake.create(builds.rows(range(40)))

    def append_twice():
        for first in (60, 70):
            lake.load().append(builds.rows(range(first, first + 10)))

    refused = before_the_commit(monkeypatch, append_twice)
    stale = lake.load()
    builds.build(builds.declaration(table=lake.named(), publish="tag"), "run")
    assert len(refused) == 1
    assert_numbers_rise(lake.load())
    stale.refresh()
    builds.build(builds.declaration(table=lake.named(), publish="tag"), "again", {"force": True})
    stale.append(builds.rows(range(80, 90)))
    assert_numbers_rise(lake.load())
    index = publications.open_index(lake.load(), builds.INDEX)
    builds.assert_answers_are(index, lake.rows(), publications.QUERIES, 4)


@pytest.mark.slow
@pytest.mark.parametrize("lake", ["rest_lake", "embedded_lake"])
def test_a_branch_that_comes_in_between_leaves_a_table_that_spark_can_read(
    lake, request, monkeypatch
):
    """Java's code reads no table whose last sequence number is behind its snapshots."""
    lake = request.getfixturevalue(lake)
    lake.create(builds.rows(range(40)))

    def branch():
        lake.sql("ALTER TABLE {t} CREATE BRANCH audit")
        lake.sql("INSERT INTO {t}.branch_audit SELECT id + 50, word, embedding FROM {t}")

    refused = before_the_commit(monkeypatch, branch)
    builds.build(builds.declaration(table=lake.named(), publish="tag"), "run")
    assert len(refused) == 1
    assert_numbers_rise(lake.load())
    assert len(own_tags(lake.load())) == 1
    assert lake.sql("SELECT count(*) FROM {t} VERSION AS OF 'audit'")[0][0] == 80
    lake.sql("DELETE FROM {t} WHERE id < 5")
    assert_numbers_rise(lake.load())
    index = publications.open_index(lake.load(), builds.INDEX)
    builds.assert_answers_are(index, lake.rows(), publications.QUERIES, 4)
    assert not lake.leaked(lake.load())
