"""Versions that were published as none is any more: by snapshots on main, in files of several."""

import pytest

from puffin_ann import open_index
from puffin_ann.errors import IndexNotFoundError
from puffin_ann.lake.commit import attempt as attempts
from puffin_ann.lake.commit.publish_mode import NOT_KEPT
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.drop import drop
from puffin_ann.lifecycle.maintain.gather import gather
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.maintain.rename import rename
from puffin_ann.lifecycle.report.history import history
from puffin_ann.lifecycle.report.status import status
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.search.version.versions import find_versions
from tests.support.indexes import former_modes
from tests.support.indexes.tagged_versions import indexes_in, later, main, published, tagged_files
from tests.support.lake import table_events
from tests.support.lifecycle import builds, refreshes
from tests.support.lifecycle.renamed import NEW, named

OTHER = "other"


@pytest.fixture
def one(words):
    """An index as it was published once; returns its file."""
    return published_so_once(words, "a")


@pytest.fixture
def both(words, one):
    """Two indexes in one file; the first one has a file of its own from before, too."""
    return published_so_once(words, "b", name=OTHER, metric="ip")


def published_so_once(table, run, **declared):
    with pytest.MonkeyPatch.context() as patch:
        former_modes.published_on_main(patch)
        return table_events.publish(table, run, **declared)


def test_it_answers_and_is_told_of_and_no_data_changed(words, one):
    table_events.assert_alive(words)
    (told,) = status(words)
    assert (told.snapshot_id, told.tag) == (main(words)[-1], None)
    assert told.base_snapshot_id == main(words)[-2]
    entries = history("test.demo.words", builds.INDEX).entries
    assert [entry.record.run_id for entry in entries] == ["a"]
    assert builds.build(builds.declaration(), "again").action == "none"
    assert doctor(words, [builds.declaration()]).problems_left == 0


def test_the_guard_publishes_it_under_a_tag_and_adds_nothing_to_main(words, one):
    before = main(words)
    (action,) = guard(words).actions
    (new,) = tagged_files(words)
    assert action == f"published {new}: index {builds.INDEX!r} had no tag"
    assert main(words) == before
    assert find_versions(words, builds.INDEX).versions[0].run_id == "a"
    assert guard(words).actions == ()
    words.append(builds.rows(range(60, 70)))
    table_events.expire_all_but_head(words)
    assert guard(words).actions == ()
    table_events.assert_alive(words)


def test_indexes_of_one_file_come_apart_and_the_file_goes(words, one, both):
    assert indexes_in(words, both) == {builds.INDEX, OTHER}
    assert len(guard(words).actions) == 2
    assert sorted(map(sorted, (indexes_in(words, path) for path in tagged_files(words)))) == [
        [OTHER],
        [builds.INDEX],
    ]
    table_events.assert_alive(words, builds.INDEX, OTHER)
    assert guard(words).actions == ()
    words.append(builds.rows([60]))
    clean(words, at_ms=later())
    assert table_events.index_files(words) == tagged_files(words)
    table_events.assert_alive(words, builds.INDEX, OTHER)
    declared = [builds.declaration(), builds.declaration(name=OTHER, metric="ip")]
    assert doctor(words, declared).problems_left == 0


def test_one_of_them_is_published_by_a_tag_and_the_guard_sees_to_the_other(words, one, both):
    words.append(builds.rows(range(60, 70)))
    new = published(words, "c")
    assert len(guard(words).actions) == 1
    assert len(tagged_files(words)) == 2
    assert indexes_in(words, *(tagged_files(words) - {new})) == {OTHER}
    table_events.expire_all_but_head(words)
    clean(words, at_ms=later())
    table_events.assert_alive(words, builds.INDEX, OTHER)
    assert both not in table_events.index_files(words)


def test_statistics_of_others_in_its_places_stay_theirs(words, one):
    theirs = {slot: table_events.analyse(words, slot) for slot in main(words)}
    assert guard(words).lost == ()
    table_events.assert_alive(words)
    assert {slot: slots(words)[slot].statistics_path for slot in main(words)} == theirs
    assert guard(words).actions == ()


def test_a_version_whose_registrations_are_gone_gets_a_tag(words, one):
    for slot in tuple(slots(words)):
        table_events.drop_registration(words, slot)
    with pytest.raises(IndexNotFoundError):
        open_index(words, builds.INDEX)
    guard(words)
    table_events.assert_alive(words)
    assert len(tagged_files(words)) == 1


def test_an_index_without_any_file_is_told_to_be_lost(words, one):
    words.io.delete(one)
    report = guard(words)
    assert report.lost == (builds.INDEX,)
    assert slots(words.refresh()) == {}
    table_events.publish(words, "b")
    assert guard(words).lost == ()


def test_an_index_that_is_declared_to_have_no_tag_stays_on_main(words):
    path = published_so_once(words, "a", publish="statistics")
    assert guard(words).actions == ()
    words.append(builds.rows(range(60, 70)))
    (action,) = guard(words).actions
    assert f"registered {path} under snapshot {main(words)[-1]}" in action
    assert own_tags(words.refresh()) == {}


def test_where_tags_are_forgotten_that_is_noted_and_it_stays_on_main(words, one, monkeypatch):
    words.append(builds.rows(range(60, 70)))
    files = table_events.index_files(words)
    addition = attempts.TaggedSnapshot.addition.fget
    monkeypatch.setattr(
        attempts.TaggedSnapshot, "updates", property(lambda self: (addition(self),))
    )
    noted, registered = guard(words).actions
    assert noted == "noted that the catalog keeps no tags"
    assert f"registered {one} under snapshot {main(words)[-1]}" in registered
    assert NOT_KEPT in words.refresh().properties
    assert table_events.index_files(words) == files, "what was refused is gone"
    assert guard(words).actions == ()
    table_events.expire_all_but_head(words)
    table_events.assert_alive(words)


def test_it_is_gathered_under_a_tag(words, one, both):
    report = gather(words, OTHER)
    assert tagged_files(words) == {report.file}
    assert indexes_in(words, report.file) == {OTHER}
    table_events.assert_alive(words, builds.INDEX, OTHER)


def test_it_is_refreshed_under_a_tag(words, one):
    declared = refreshes.declared()
    words.append(builds.rows(range(60, 70)))
    assert refreshes.refresh(words, declared, "refresh")["action"] == "refresh"
    assert tagged_files(words) == {refreshes.newest(words).path}
    refreshes.assert_right(words, declared)
    clean(words, [declared], at_ms=later())
    table_events.assert_alive(words)


def test_it_is_renamed_under_a_tag_and_its_neighbour_stays(words, one, both):
    before = main(words)
    report = rename(builds.INDEX, named(NEW))
    assert tagged_files(words) == {report.file}
    assert indexes_in(words, report.file) == {NEW}
    assert main(words) == before
    table_events.assert_alive(words, NEW, OTHER)
    with pytest.raises(IndexNotFoundError):
        open_index(words, builds.INDEX)
    words.append(builds.rows([60]))
    guard(words)
    clean(words, at_ms=later())
    assert table_events.index_files(words) == tagged_files(words)
    table_events.assert_alive(words, NEW, OTHER)


def test_it_is_dropped_and_its_neighbour_stays(words, one, both):
    before = main(words)
    drop(words, builds.INDEX, force=True)
    assert main(words) == before
    with pytest.raises(IndexNotFoundError):
        open_index(words.refresh(), builds.INDEX)
    table_events.assert_alive(words, OTHER)
    words.append(builds.rows([60]))
    guard(words)
    clean(words, at_ms=later())
    table_events.assert_alive(words, OTHER)
    assert [indexes_in(words, path) for path in table_events.index_files(words)] == [{OTHER}]


def test_after_a_rollback_an_older_version_answers_until_it_is_refreshed(words, one):
    at = main(words)[-1]
    words.append(builds.rows(range(60, 70)))
    published_so_once(words, "b")
    words.manage_snapshots().set_current_snapshot(snapshot_id=at).commit()
    assert open_index(words.refresh(), builds.INDEX).version.run_id == "a"
    guard(words)
    assert open_index(words.refresh(), builds.INDEX).version.run_id == "a"
    table_events.assert_alive(words)
    assert guard(words).actions == ()
    table_events.expire_all_but_head(words)
    table_events.assert_alive(words)
