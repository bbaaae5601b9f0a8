"""Mode `tag`: a version under a tag of its own, on no branch."""

import pytest

from puffin_ann import open_index
from puffin_ann.errors import (
    CatalogUnavailableError,
    ConflictError,
)
from puffin_ann.lake.commit import commit_index_file
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lake.metadata.own_tags import PREFIX, own_tags, tag_name
from puffin_ann.lifecycle.documents.run import PUBLISH
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.report.status import status
from puffin_ann.lifecycle.runs import build as planning
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.lifecycle.runtime.workspace import Workspace
from puffin_ann.search.version.versions import find_versions
from tests.support.indexes.tagged_versions import indexes_in, later, main, published, tagged_files
from tests.support.lake import spark_procedures, table_events
from tests.support.lifecycle import builds, publications, refreshes


def test_nothing_comes_upon_main(words):
    before = main(words), words.current_snapshot().snapshot_id
    path = published(words)
    assert (main(words), words.current_snapshot().snapshot_id) == before
    ((snapshot_id, tag),) = own_tags(words).items()
    assert tag.startswith(f"{PREFIX}{builds.INDEX}_")
    assert slots(words).keys() == {snapshot_id}
    assert open_index(words, builds.INDEX).version.path == path
    table_events.assert_alive(words)
    assert words.scan(snapshot_id=snapshot_id).to_arrow().num_rows == 0
    (told,) = status(words)
    assert (told.snapshot_id, told.tag) == (snapshot_id, tag)
    assert told.base_snapshot_id == before[0][-1]
    assert guard(words).actions == ()
    assert doctor(words, [builds.declaration(publish="tag")]).findings == ()


def test_each_refresh_has_a_tag_and_those_of_old_versions_go_with_their_files(words):
    declared = refreshes.declared(publish="tag")
    paths = [published(words, algorithm="exact", recall_target=0.5)]
    for number in range(3):
        words.append(builds.rows(range(100 + 9 * number, 109 + 9 * number)))
        refreshes.refresh(words, declared, f"refresh-{number}")
        paths.append(refreshes.newest(words).path)
    assert len(own_tags(words)) == len(set(paths)) == 4
    snapshots = len(words.snapshots())
    report = clean(words, [declared], at_ms=later())
    lists = [removable for removable in report.gone if removable.kind == "manifest list"]
    assert [removable.location for removable in report.gone if removable not in lists] == paths[
        1::-1
    ]
    assert tagged_files(words) == set(paths[2:])
    assert (len(slots(words)), len(words.snapshots())) == (2, snapshots - 2)
    refreshes.assert_right(words, declared)
    assert doctor(words, [declared]).findings == ()


def test_each_index_of_a_table_has_its_own_file(words):
    one, other = published(words), published(words, "b", name="other")
    assert indexes_in(words, one) == {builds.INDEX}
    assert indexes_in(words, other) == {"other"}
    third = table_events.publish(words, "c", name="third", publish="statistics")
    assert indexes_in(words, third) == {"third"}
    for name in (builds.INDEX, "other", "third"):
        builds.assert_answers(
            open_index(words, name), words, main(words)[-1], table_events.QUERIES, 4
        )
    assert guard(words).actions == ()


def test_an_index_goes_over_to_tags_and_back(words):
    first = table_events.publish(words, "a", publish="statistics")
    assert open_index(words, builds.INDEX).version.path == first
    second = published(words, "b")
    assert open_index(words, builds.INDEX).version.path == second
    third = table_events.publish(words, "c", publish="statistics")
    assert open_index(words, builds.INDEX).version.path == third
    table_events.assert_alive(words)


def test_what_a_tag_has_newer_is_not_carried_into_a_later_file(words):
    """It would count as the newest there."""
    table_events.publish(words, "a", publish="statistics")
    tagged = published(words, "b")
    later_file = table_events.publish(words, "c", name="other", publish="statistics")
    assert indexes_in(words, later_file) == {"other"}
    newest, *_ = find_versions(words.refresh(), builds.INDEX).versions
    assert newest.path == tagged
    assert guard(words).lost == ()
    table_events.assert_alive(words, builds.INDEX, "other")


def test_a_commit_of_data_does_not_conflict(words, monkeypatch):
    calls = publications.overtake(monkeypatch, lambda: words.append(builds.rows(range(60, 70))))
    published(words)
    assert len(calls) == 1
    index = open_index(words, builds.INDEX)
    assert (index.view.rows_to_scan, index.coverage < 1) == (10, True)
    table_events.assert_alive(words)


def test_a_tag_of_somebody_else_is_in_the_way_and_named(words):
    name = tag_name(builds.INDEX, "a")
    words.manage_snapshots().create_tag(main(words)[-1], name).commit()
    with pytest.raises(ConflictError, match=f"tag {name} of .* drop the tag"):
        table_events.publish(words, "a", publish="tag")
    assert words.refresh().refs()[name].snapshot_id == main(words)[-1]


def test_publishing_once_more_finds_what_was_published(words):
    declared = builds.declaration(publish="tag")
    plan = planning.plan_build(declared, run_id="a", overrides={"force": True})
    builds.run_stages(plan)
    first = publications.publish(plan)
    assert first.snapshot_id in own_tags(words.refresh())
    metadata = words.metadata_location
    assert publications.publish(plan) == first
    staging = Workspace.open(RunRef.planned(plan)).staging
    words.io.delete(staging.uri(PUBLISH))  # it was killed right after the commit
    again = publications.publish(plan)
    assert (again.snapshot_id, again.path) == (first.snapshot_id, first.path)
    assert words.refresh().metadata_location == metadata
    assert len(table_events.index_files(words)) == 1


def test_a_lost_answer_is_found(words, monkeypatch):
    commit = commit_index_file.commit

    def unanswered(*arguments):
        commit(*arguments)
        raise ConnectionError("the answer is lost")

    monkeypatch.setattr(commit_index_file, "commit", unanswered)
    published(words)
    assert len(own_tags(words)) == 1
    table_events.assert_alive(words)


def test_a_refusal_leaves_no_file(words, monkeypatch):
    def refuse(*arguments):
        raise commit_index_file.ForbiddenError("tags may not be made")

    monkeypatch.setattr(commit_index_file, "commit", refuse)
    before = table_events.index_files(words)
    with pytest.raises(CatalogUnavailableError, match="tags may not be made"):
        published(words)
    assert table_events.index_files(words) == before
    assert words.refresh().metadata.statistics == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "lake", [pytest.param("rest_lake", marks=pytest.mark.long), "embedded_lake"]
)
def test_no_procedure_of_spark_takes_it(lake, request):
    lake = request.getfixturevalue(lake)
    lake.create(builds.rows(range(60)))
    builds.build(builds.declaration(table=lake.named(), publish="tag"), "run")
    path = slots(lake.load())[next(iter(own_tags(lake.load())))].statistics_path
    for deed in (
        spark_procedures.delete_rows,
        spark_procedures.rewrite_data,
        spark_procedures.analyse,
        spark_procedures.expire,
        spark_procedures.remove_orphans,
    ):
        deed(lake)
        assert find_versions(lake.load(), builds.INDEX).versions[0].path == path, deed.__name__
    index = publications.open_index(lake.load(), builds.INDEX)
    builds.assert_answers_are(index, lake.rows(), publications.QUERIES, 4)


@pytest.mark.slow
def test_a_v3_table_takes_it(rest_lake):
    lake = rest_lake
    lake.create_by_spark(builds.rows(range(40)))
    lake.sql("DELETE FROM {t} WHERE id % 5 = 0")
    declared = builds.declaration(table=lake.named(), publish="tag")
    builds.build(declared, "run")
    lake.sql("INSERT INTO {t} SELECT id + 100, word, embedding FROM {t} WHERE id < 9")
    builds.build(declared, "again", {"force": True})
    table = lake.load()
    assert len(own_tags(table)) == 2
    ids = lake.sql("SELECT _row_id AS number FROM {t}")
    assert len({row.number for row in ids}) == len(ids)
    index = publications.open_index(table, builds.INDEX)
    builds.assert_answers_are(index, lake.rows(), publications.QUERIES, 4)
    assert index.coverage == 1.0
