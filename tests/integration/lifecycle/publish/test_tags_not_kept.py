"""A catalog that takes tags and does not keep them: `auto` publishes by `statistics` at once."""

import pytest
from pyiceberg.exceptions import BadRequestError
from pyiceberg.table.update import SetSnapshotRefUpdate

from puffin_ann.errors import TagNotKeptError
from puffin_ann.lake.commit import attempt as attempts
from puffin_ann.lake.commit import commit_index_file, statistics_slots
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lifecycle.runs.doctor import doctor
from tests.support.indexes.tagged_versions import indexes_in, published
from tests.support.lake import table_events
from tests.support.lifecycle import builds


@pytest.fixture
def forgetful(words, monkeypatch):
    """The table in a catalog that takes tags and does not keep them."""
    updates_of = attempts.TaggedSnapshot.updates.fget

    def without_tag(self):
        return tuple(
            update for update in updates_of(self) if not isinstance(update, SetSnapshotRefUpdate)
        )

    monkeypatch.setattr(attempts.TaggedSnapshot, "updates", property(without_tag))
    return words


def test_a_catalog_that_forgets_tags_is_told_and_nothing_is_published(forgetful):
    words, before = forgetful, builds.snapshot_ids(forgetful)
    with pytest.raises(TagNotKeptError, match=r"does not keep it.*'publish: auto' goes without"):
        published(words)
    assert slots(words.refresh()) == {}
    assert builds.snapshot_ids(words) == before
    assert table_events.index_files(words) == set()


def test_auto_publishes_by_statistics_at_once_where_tags_are_forgotten(forgetful, caplog):
    words, before = forgetful, builds.snapshot_ids(forgetful)
    with caplog.at_level("INFO", "puffin_ann"):
        path = table_events.publish(words, "a")
        other = table_events.publish(words, "b", name="other")
    assert "does not keep it" in caplog.text
    assert "publish: by statistics" in caplog.text
    assert builds.snapshot_ids(words) == before
    assert {key: entry.statistics_path for key, entry in slots(words).items()} == {
        before[-1]: other
    }
    assert table_events.index_files(words) == {path, other}, "those refused are gone"
    assert indexes_in(words, other) == {builds.INDEX, "other"}
    table_events.assert_alive(words, builds.INDEX, "other")
    assert (
        doctor(words, [builds.declaration(), builds.declaration(name="other")]).problems_left == 0
    )


@pytest.fixture
def refusing(words, monkeypatch):
    """The table in a catalog that takes no tags at all."""
    commit = commit_index_file.commit

    def refused(table, updates, requirements):
        if any(isinstance(update, SetSnapshotRefUpdate) for update in updates):
            raise BadRequestError("tags are not supported")
        return commit(table, updates, requirements)

    monkeypatch.setattr(commit_index_file, "commit", refused)
    return words


def test_auto_publishes_by_statistics_at_once_where_tags_are_refused(refusing, caplog):
    words, before = refusing, builds.snapshot_ids(refusing)
    path = table_events.publish(words, "a")
    assert "tags are not supported" in caplog.text
    assert slots(words).keys() == {before[-1]}
    assert table_events.index_files(words) == {path}
    table_events.assert_alive(words)
    with pytest.raises(TagNotKeptError, match="tags are not supported"):
        published(words, "b")


def test_what_a_catalog_kept_of_a_forgotten_tag_is_no_publication(forgetful, monkeypatch):
    """It keeps the snapshot even where it was told to remove it."""
    monkeypatch.setattr(statistics_slots, "removal_of", lambda *_: ())
    words, before = forgetful, builds.snapshot_ids(forgetful)
    path = table_events.publish(words, "a")
    assert len(builds.snapshot_ids(words)) == len(before) + 1
    assert slots(words).keys() == {before[-1]}
    assert table_events.index_files(words) == {path}
    table_events.assert_alive(words)


def test_data_that_comes_while_a_forgotten_tag_is_found_out_stays(forgetful, monkeypatch):
    words, late = forgetful, iter([range(60, 70), range(70, 80)])
    change = commit_index_file.change_slots

    def overtaken(*arguments, **options):
        for rows in late:
            words.catalog.load_table(words.name()).append(builds.rows(rows))
            break
        return change(*arguments, **options)

    monkeypatch.setattr(commit_index_file, "change_slots", overtaken)
    table_events.publish(words, "a")
    assert words.scan().to_arrow().num_rows == 80
    assert len(slots(words)) == 1
    table_events.assert_alive(words)
