"""How many tags an index has, which versions lose theirs, and what becomes of their files."""

import os

import pytest

from puffin_ann import open_index
from puffin_ann.declaration import RetentionOptions
from puffin_ann.lake.commit import commit_index_file
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lake.store.objects import object_exists
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.publish import layers
from puffin_ann.lifecycle.retention import tags
from puffin_ann.lifecycle.retention.tags import superseded_tags, tagged_versions
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.moments import now_ms
from puffin_ann.search.version.versions import find_versions
from tests.support.indexes.tagged_versions import DAY_MS, later, published, tagged_files
from tests.support.lake import table_events
from tests.support.lifecycle import builds, refreshes

pytestmark = pytest.mark.usefixtures("layered")

DECLARED = refreshes.declared(publish="tag", refresh={"min_rows": 0, "max_lag": "0s"})
RETENTION = DECLARED.retention
HOUR_MS = table_events.HOUR_MS


@pytest.fixture
def few(monkeypatch):
    """Three versions keep their tags, and name two other files."""
    monkeypatch.setattr(tags, "TAGGED_VERSIONS", 3)
    monkeypatch.setattr(layers, "MOST_FILES", 2)


@pytest.fixture
def first(words):
    """The file of a whole build."""
    return published(words, algorithm="exact", recall_target=0.5)


def follow(table, number, declared=DECLARED):
    """Append rows and refresh; returns the location of the new version's file."""
    start = 1000 + 100 * number
    table.refresh().append(builds.rows(range(start, start + 4)))
    refresh_in_process(declared, run_id=f"refresh-{number}", force=True)
    return newest(table).path


def newest(table):
    return find_versions(table.refresh(), builds.INDEX).versions[0]


def exists(table, path):
    return object_exists(table.io, path)


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.long)])
def test_an_index_has_few_tags_at_every_moment(words, first, count):
    most = tags.TAGGED_VERSIONS + layers.MOST_FILES
    for number in range(count):
        follow(words, number)
        assert len(own_tags(words)) <= most
    assert {newest(words).path, *newest(words).needs} <= tagged_files(words)
    assert len(words.snapshots()) == len(own_tags(words)) + 2 + count
    refreshes.assert_right(words, DECLARED)
    assert guard(words, [DECLARED]).actions == ()
    assert doctor(words, [DECLARED]).problems_left == 0


def test_what_the_newest_versions_name_keeps_its_tag(words, first, few):
    for number in range(8):
        follow(words, number)
        held = tagged_files(words)
        for version in find_versions(words, builds.INDEX).versions[:3]:
            assert {version.path, *version.needs} <= held
    assert len(own_tags(words)) <= 3 + 2


def test_who_opened_a_version_reads_on_when_its_tag_is_gone(words, first, few):
    path = follow(words, 0)
    index = open_index(words.refresh(), builds.INDEX)
    at = words.current_snapshot().snapshot_id
    for number in range(1, 7):
        follow(words, number)
    assert path not in tagged_files(words)
    clean(words, [DECLARED])
    assert index.version.path == path
    builds.assert_answers(index, words, at, refreshes.QUERIES, 4)
    assert index.damage == ()


@pytest.mark.parametrize("log", ["100", "1"])
def test_a_file_goes_when_its_grace_is_over_since_it_was_superseded(words, first, few, log):
    """Its tag is gone for long, whether or not earlier metadata still tells of it."""
    with words.refresh().transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": log})
    paths = [first, *(follow(words, number) for number in range(7))]
    kept = {
        path
        for version in find_versions(words, builds.INDEX).versions[:2]
        for path in (version.path, *version.needs)
    }
    gone = set(paths) - kept
    assert gone - tagged_files(words)
    now = now_ms()
    early = clean(words, [DECLARED], at_ms=now + 23 * HOUR_MS, dry_run=True)
    assert not gone & {removable.location for removable in early.gone}
    report = clean(words, [DECLARED], at_ms=now + 25 * HOUR_MS)
    assert gone <= {removable.location for removable in report.gone}
    assert {removable.kind for removable in report.gone if removable.location in gone} == {
        "superseded version"
    }
    assert all(exists(words, path) for path in kept)
    refreshes.assert_right(words.refresh(), DECLARED)


def test_grace_begins_when_newer_versions_came_not_when_the_file_was_written(words, first, few):
    """A file of 20 hours ago was among the newest until now."""
    with words.refresh().transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": "1"})
    old = follow(words, 0)
    for number in range(1, 7):
        follow(words, number)
    assert old not in tagged_files(words)
    path = old.removeprefix("file://")
    written = (now_ms() - 20 * HOUR_MS) / 1000
    os.utime(path, (written, written))
    clean(words, [DECLARED], at_ms=now_ms() + 5 * HOUR_MS)
    assert exists(words, old)
    clean(words, [DECLARED], at_ms=now_ms() + 25 * HOUR_MS)
    assert not exists(words, old)


def test_a_users_tag_on_a_covered_snapshot_keeps_the_tag_of_its_version(words, first, few):
    path = follow(words, 0)
    covered = newest(words).coverage.base_snapshot_id
    words.manage_snapshots().create_tag(covered, "year_end").commit()
    for number in range(1, 7):
        follow(words, number)
    version = open_index(words.refresh(), builds.INDEX, ref="year_end").version
    assert version.path == path
    assert {path, *version.needs} <= tagged_files(words)


def test_a_tag_stays_that_others_cleaners_would_miss_before_the_grace_is_over(words, first, few):
    """Spark's removes what is three days old; so nothing older, or kept for longer, is let go."""
    monthly = RetentionOptions(grace="4d")
    declared = DECLARED.model_copy(update={"retention": monthly})
    for number in range(5):
        follow(words, number, declared)
    assert len(own_tags(words)) == 6
    assert superseded_tags(words, builds.INDEX, RETENTION, set(), now_ms())
    late = now_ms() + 2 * DAY_MS + HOUR_MS
    assert superseded_tags(words, builds.INDEX, RETENTION, set(), late) == frozenset()
    follow(words, 5)
    assert len(own_tags(words)) <= 5


def test_versions_of_earlier_releases_say_in_their_files_what_they_need(
    words, first, few, monkeypatch
):
    monkeypatch.setattr(tags, "SPARED_MS", 0)
    for number in range(6):
        follow(words, number)
    assert len(own_tags(words)) == 7
    monkeypatch.setattr(tags, "SPARED_MS", 3 * DAY_MS)
    gone = superseded_tags(words, builds.INDEX, RETENTION, newest(words).needs, now_ms())
    assert gone
    monkeypatch.setattr(tags, "NEEDS", "not-said-then")
    assert tagged_versions(words, builds.INDEX)[0].needs is None
    assert superseded_tags(words, builds.INDEX, RETENTION, newest(words).needs, now_ms()) == gone
    words.io.delete(newest(words).path)
    assert not superseded_tags(words, builds.INDEX, RETENTION, set(), now_ms())


def test_more_versions_keep_their_tags_where_the_declaration_says_so(words, first, few):
    declared = DECLARED.model_copy(update={"retention": RetentionOptions(versions=5)})
    for number in range(9):
        follow(words, number, declared)
    assert len(tagged_versions(words, builds.INDEX)) >= 5
    kept = {version.path for version in find_versions(words, builds.INDEX).versions[:5]}
    clean(words, [declared], at_ms=later())
    assert kept <= tagged_files(words)


def test_a_tag_that_somebody_drops_meanwhile_is_no_hindrance(words, first, few, monkeypatch):
    for number in range(4):
        follow(words, number)
    commit, dropped = commit_index_file.commit, []

    def raced(table, updates, requirements):
        gone = superseded_tags(table, builds.INDEX, RETENTION, newest(words).needs, now_ms())
        if not dropped and gone:
            dropped.append(own_tags(table)[min(gone)])
            words.refresh().manage_snapshots().remove_tag(dropped[0]).commit()
        return commit(table, updates, requirements)

    monkeypatch.setattr(commit_index_file, "commit", raced)
    for number in range(4, 9):
        follow(words, number)
    assert dropped
    refreshes.assert_right(words.refresh(), DECLARED)
