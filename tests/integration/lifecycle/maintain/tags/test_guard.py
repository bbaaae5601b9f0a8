"""The guard keeps an index that no tag holds registered, and leaves others' statistics alone."""

import pytest

from puffin_ann.errors import ConflictError, IndexNotFoundError
from puffin_ann.lake.commit.commit_index_file import commit_index_file
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.maintain import guard as guarding
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.versions.inventory import take_inventory
from puffin_ann.search.version.versions import RETAINED_LIMIT, find_versions, newest_version
from tests.support.lake import table_events
from tests.support.lifecycle import builds

pytestmark = pytest.mark.usefixtures("published_by_statistics")


def head(table) -> int:
    return table.refresh().current_snapshot().snapshot_id


def test_a_published_index_needs_no_guard(words):
    table_events.publish(words, "a")
    before = words.metadata_location
    assert guard(words).actions == ()
    assert words.refresh().metadata_location == before


def test_an_index_survives_the_expiry_of_the_snapshot_that_it_covers(words):
    path = table_events.publish(words, "a")
    words.append(builds.rows(range(60, 70)))
    (action,) = guard(words).actions
    assert f"registered {path} under snapshot {head(words)}" in action
    table_events.expire_all_but_head(words)
    assert len(words.snapshots()) == 1
    table_events.assert_alive(words)


def test_without_the_guard_that_expiry_would_lose_the_index(words):
    table_events.publish(words, "a")
    words.append(builds.rows(range(60, 70)))
    table_events.expire_all_but_head(words)
    with pytest.raises(IndexNotFoundError):
        table_events.assert_alive(words)
    assert guard(words).actions == ()


def test_an_index_whose_registration_was_replaced_is_published_again(words):
    path = table_events.publish(words, "a")
    before = builds.snapshot_ids(words)
    theirs = table_events.analyse(words)
    (action,) = guard(words).actions
    assert "the head's statistics entry belongs to another writer" in action
    assert builds.snapshot_ids(words.refresh()) == before
    mine = slots(words)[head(words)]
    assert mine.statistics_path not in (path, theirs)
    # What Spark's optimizer reads for the head is there still.
    assert [blob.properties["ndv"] for blob in mine.blob_metadata] == ["42"]
    table_events.assert_alive(words)
    table_events.expire_all_but_head(words)
    table_events.assert_alive(words)
    assert guard(words).actions == ()


def test_an_index_is_found_behind_any_number_of_others_statistics(words):
    """Engines write some with every append; their files say so, and are not looked into."""
    table_events.publish(words, "a")
    for number in range(RETAINED_LIMIT + 2):
        words.append(builds.rows([100 + number]))
        table_events.analyse(words)
    assert find_versions(words, builds.INDEX).versions
    assert newest_version(words, builds.INDEX) is not None
    table_events.assert_alive(words)


def test_a_dropped_registration_comes_back(words):
    path = table_events.publish(words, "a")
    table_events.drop_registration(words, head(words))
    with pytest.raises(IndexNotFoundError):
        table_events.assert_alive(words)
    guard(words)
    assert slots(words.refresh())[head(words)].statistics_path == path
    table_events.assert_alive(words)


def test_an_index_that_only_earlier_metadata_names_comes_back(words):
    path = table_events.publish(words, "a")
    base = head(words)
    words.append(builds.rows(range(60, 70)))
    table_events.drop_registration(words, base)
    words.maintenance.expire_snapshots().by_ids([base]).commit()
    guard(words)
    assert slots(words.refresh())[head(words)].statistics_path == path
    table_events.assert_alive(words)


def test_a_file_of_a_commit_that_never_landed_is_not_registered(words, monkeypatch):
    plan = builds.run.plan_build(builds.declaration(), run_id="killed")
    builds.run_stages(plan)

    def die(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("puffin_ann.lifecycle.publish.assemble.commit_index_file", die)
    with pytest.raises(KeyboardInterrupt):
        builds.publish.publish(RunRef.planned(plan))
    assert len(table_events.index_files(words)) == 1
    assert guard(words).actions == ()


def test_a_missing_file_is_deregistered_and_the_version_before_it_lives(words):
    first = table_events.publish(words, "a")
    words.append(builds.rows(range(60, 70)))
    second = table_events.publish(words, "b")
    words.io.delete(second)
    report = guard(words)
    assert report.lost == ()
    paths = {entry.statistics_path for entry in slots(words.refresh()).values()}
    assert paths == {first}
    assert slots(words)[head(words)].statistics_path == first
    table_events.assert_alive(words)


def test_indexes_left_in_several_files_are_brought_together(words):
    first = table_events.publish(words, "a", name="first")
    table_events.drop_registration(words, head(words))
    words.append(builds.rows(range(60, 70)))
    table_events.publish(words, "b", name="second", metric="ip")  # cannot carry what nothing names
    with pytest.raises(IndexNotFoundError):
        table_events.assert_alive(words, "first")
    guard(words)
    table_events.assert_alive(words, "first", "second")
    assert table_events.newest(words) != first
    table_events.expire_all_but_head(words)
    table_events.assert_alive(words, "first", "second")


def test_after_a_rollback_the_version_of_then_holds_the_head(words):
    first = table_events.publish(words, "a")
    at = head(words)
    words.append(builds.rows(range(60, 70)))
    table_events.publish(words, "b")
    words.manage_snapshots().set_current_snapshot(snapshot_id=at).commit()
    assert guard(words).actions == ()
    table_events.expire_all_but_head(words)
    assert slots(words)[at].statistics_path == first
    table_events.assert_alive(words)


def test_an_older_version_under_the_head_is_carried_along(words):
    """One file has to hold what stood there, and the rest."""
    older = table_events.publish(words, "a")
    base = head(words)
    words.append(builds.rows(range(60, 70)))
    newer = table_events.publish(words, "b")
    both = table_events.publish(words, "c", name="second")
    words.manage_snapshots().set_current_snapshot(snapshot_id=base).commit()
    assert slots(words.refresh())[base].statistics_path == older
    (action,) = guard(words).actions
    assert "does not hold all indexes" in action
    assert guard(words).actions == ()
    assert head(words) == base
    held = take_inventory(words).ours_in(base).holds
    assert {(hold.index, hold.base_snapshot_id) for hold in held if hold.index == builds.INDEX} == {
        (builds.INDEX, base)
    }
    assert {hold.index for hold in held} == {builds.INDEX, "second"}
    assert {newer, both} & {entry.statistics_path for entry in slots(words).values()}
    table_events.assert_alive(words, builds.INDEX, "second")
    table_events.expire_all_but_head(words)
    table_events.assert_alive(words, builds.INDEX, "second")


def test_an_older_version_that_is_kept_gets_a_place_that_is_not_newer(words):
    first = table_events.publish(words, "a")
    at = head(words)
    words.append(builds.rows(range(60, 65)))
    between = head(words)
    words.append(builds.rows(range(65, 70)))
    second = table_events.publish(words, "b")
    table_events.drop_registration(words, at)
    guard(words)
    entries = slots(words.refresh())
    assert entries[at].statistics_path == first
    assert between not in entries
    assert table_events.newest(words) == second


def test_a_version_that_a_tag_names_is_registered_under_the_tag_again(words):
    first = table_events.publish(words, "a")
    at = head(words)
    words.manage_snapshots().create_tag(snapshot_id=at, tag_name="release").commit()
    for number in range(3):
        words.refresh().append(builds.rows(range(60 + 5 * number, 65 + 5 * number)))
        table_events.publish(words, f"b{number}")
    table_events.drop_registration(words, at)
    guard(words)
    assert slots(words.refresh())[at].statistics_path == first
    assert guard(words).actions == ()


def test_an_older_version_is_placed_at_once_where_a_branch_holds_it(words):
    """Found by the soak: it was placed under a snapshot that expires, and there the next time."""
    first = table_events.publish(words, "a")
    base = head(words)
    words.manage_snapshots().create_branch(snapshot_id=base, branch_name="kept").commit()
    words.append(builds.rows(range(60, 65)))
    table_events.publish(words, "b")
    table_events.drop_registration(words, base)
    guard(words)
    assert slots(words.refresh())[base].statistics_path == first
    assert guard(words).actions == ()


def test_statistics_that_come_in_while_the_guard_looks_stay(words, monkeypatch):
    table_events.publish(words, "a")
    words.append(builds.rows(range(60, 70)))
    at, theirs = head(words), []
    change = guarding.change_slots

    def overtaken(table, *arguments, **options):
        if not theirs:
            theirs.append(table_events.analyse(words.catalog.load_table(words.name()), at))
        return change(table, *arguments, **options)

    monkeypatch.setattr(guarding, "change_slots", overtaken)
    guard(words)
    assert [blob.properties["ndv"] for blob in slots(words.refresh())[at].blob_metadata] == ["42"]
    table_events.expire_all_but_head(words)
    table_events.assert_alive(words)


def test_a_head_that_moves_while_everything_is_published_again_is_found(words, monkeypatch):
    table_events.publish(words, "a")
    table_events.analyse(words)
    moved = []

    def overtaken(table, request):
        if not moved:
            moved.append(True)
            words.catalog.load_table(words.name()).append(builds.rows(range(60, 70)))
        return commit_index_file(table, request)

    monkeypatch.setattr("puffin_ann.lifecycle.publish.republish.commit_index_file", overtaken)
    guard(words)
    table_events.assert_alive(words)
    registered = {entry.statistics_path for entry in slots(words.refresh()).values()}
    assert table_events.index_files(words) <= registered  # the refused attempt's file is gone


def test_a_table_that_never_rests_is_given_up_on(words, monkeypatch):
    table_events.publish(words, "a")
    words.append(builds.rows(range(60, 70)))

    def busy(*_, **__):
        raise ConflictError("again")

    monkeypatch.setattr(guarding, "change_slots", busy)
    with pytest.raises(ConflictError):
        guard(words)


def test_older_versions_find_their_places_in_the_same_run_of_the_guard_that_publishes_again(words):
    """Found by the soak: it took a second run until nothing was left to do."""
    table_events.publish(words, "a", name="first", metric="ip")
    newest = words.refresh().snapshots()
    table_events.analyse(words, newest[-2].snapshot_id)
    table_events.publish(words, "b", name="second")
    newest = words.refresh().snapshots()
    table_events.analyse(words, newest[-1].snapshot_id)
    words.overwrite(builds.rows(range(100, 120)))
    table_events.publish(words, "c", name="first", metric="ip")
    assert guard(words).actions != ()
    assert guard(words.refresh()).actions == ()
    table_events.assert_alive(words, "first", "second")
