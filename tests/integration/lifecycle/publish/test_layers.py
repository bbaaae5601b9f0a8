"""Versions that name blobs of earlier files: what they cost, what they need, what becomes of it."""

import re
from contextlib import nullcontext

import pytest

from puffin_ann import open_index
from puffin_ann.blobs.version import partitions as partitions_blob
from puffin_ann.declaration import RetentionOptions
from puffin_ann.errors import ConflictError, DamagedIndexError, LeaseHeldError
from puffin_ann.lake.catalog.tables import load_table, name_of
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lake.store.listing import canonical
from puffin_ann.lake.store.objects import object_exists
from puffin_ann.lifecycle.maintain import clean as cleaning
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.drop import drop
from puffin_ann.lifecycle.maintain.gather import gather
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.publish import assemble, layers
from puffin_ann.lifecycle.retention.tags import named_since
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.lifecycle.versions.index_state import bytes_of
from puffin_ann.search.version import versions
from puffin_ann.search.version.versions import all_index_names, find_versions
from puffin_ann.settings import settings
from tests.support.falsified import damage
from tests.support.indexes.tagged_versions import later, published, tagged_files
from tests.support.lake import table_events
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds, refreshes

pytestmark = pytest.mark.usefixtures("layered")

DECLARED = refreshes.declared(publish="tag", refresh={"delta_ratio": 1.0})


@pytest.fixture
def first(words):
    """The file of a whole build."""
    return published(words, algorithm="exact", recall_target=0.5)


def appended(table, number, rows=5, declared=DECLARED):
    start = 1000 + 100 * number
    table.append(builds.rows(range(start, start + rows)))
    return refreshes.refresh(table, declared, f"refresh-{number}")


def deleted(table, number):
    file = next(iter(table.scan().plan_files())).file
    delete_positions(table, {file.file_path: [number]})
    table.refresh()
    return refreshes.refresh(table, DECLARED, f"delete-{number}")


def newest(table):
    return find_versions(table.refresh(), builds.INDEX).versions[0]


def exists(table, path):
    return object_exists(table.io, path)


def test_a_refresh_writes_what_changed_and_names_the_rest(words, first):
    done = appended(words, 0)
    version = newest(words)
    assert version.needs == {first}
    assert done["bytes_copied"] == 0
    assert done["bytes_written"] < bytes_of(words, version)
    assert {blob.shard for blob in version.directory.blobs} >= {0, 1}
    assert partitions_blob.TYPE not in {blob.type for blob in version.directory.blobs}
    assert doctor(words, [DECLARED]).findings == ()
    assert guard(words).actions == ()


def test_what_is_deleted_costs_tombstones_alone(words, first):
    before = bytes_of(words, newest(words))
    done = deleted(words, 3)
    assert done["bytes_copied"] == 0
    version = newest(words)
    assert version.needs == {first}
    assert done["bytes_written"] < before
    again = deleted(words, 4)
    assert again["rows_gone"] == 1
    assert first in newest(words).needs
    refreshes.assert_right(words, DECLARED)


def test_no_version_names_more_files_than_it_may(words, first, monkeypatch):
    monkeypatch.setattr(layers, "MOST_FILES", 2)
    for number in range(8):
        deleted(words, number)
        appended(words, number, rows=1 + number % 2)
        assert len(newest(words).needs) <= 2
    assert first in newest(words).needs  # the largest


def test_a_file_of_which_little_is_needed_is_left(words, first, monkeypatch):
    monkeypatch.setattr(layers, "SMALL", 0)
    monkeypatch.setattr(layers, "LEAST_NEEDED", 1.0)
    done = appended(words, 0)
    assert newest(words).needs == frozenset()
    assert done["bytes_copied"] > 0


def test_a_small_index_is_one_file(words, first, monkeypatch):
    monkeypatch.setenv("PUFFIN_ANN_WHOLE_FILE_BYTES", str(1 << 20))
    settings.cache_clear()
    appended(words, 0)
    assert newest(words).directory is None


def test_files_stay_as_long_as_a_version_that_stays_needs_them(words, first):
    paths = [first]
    for number in range(4):
        appended(words, number, rows=2)
        paths.append(newest(words).path)
    report = clean(words, [DECLARED], at_ms=later())
    stay = {stays.location: stays.why for stays in report.needed}
    assert stay[first] == "; ".join(
        f"{path} needs it, with {which}" for path, which in last_two(words)
    )
    gone = {removable.location for removable in report.gone}
    kept = find_versions(words.refresh(), builds.INDEX).versions[:2]
    needed = {path for version in kept for path in {version.path, *version.needs}}
    assert stay.keys() == needed - {version.path for version in kept}
    assert gone & set(paths) == set(paths) - needed
    assert tagged_files(words) == needed
    assert all(exists(words, path) for path in needed)
    refreshes.assert_right(words, DECLARED)
    assert doctor(words, [DECLARED]).findings == ()


def last_two(table) -> list[tuple[str, str]]:
    """The files of the two newest versions, each with its name."""
    return [
        (version.path, f"version {version.run_id!r} of index {builds.INDEX!r}")
        for version in find_versions(table.refresh(), builds.INDEX).versions[:2]
    ]


def test_versions_go_only_while_nobody_publishes(words, first, monkeypatch):
    """A version that is about to be published may name their files."""
    for number in range(4):
        appended(words, number, rows=2)
    before = tagged_files(words)
    monkeypatch.setattr(leases, "PATIENCE_SECONDS", 0.0)
    with leases.publishing(words, "another", "publish"):
        assert clean(words, [DECLARED], at_ms=later(), dry_run=True).gone
        with pytest.raises(LeaseHeldError):
            clean(words, [DECLARED], at_ms=later())
        assert tagged_files(words) == before
        assert clean(words, [DECLARED], at_ms=later(), owner="another").gone
    assert tagged_files(words) < before


def test_nothing_goes_where_a_version_was_published_since_the_look(words, first, monkeypatch):
    """As when the lease of a clean-up that was held up has ended."""
    for number in range(4):
        appended(words, number, rows=2)
    before, deregister = tagged_files(words), cleaning._deregister

    def late(*arguments):
        published(words, "late", algorithm="exact", recall_target=0.5)
        return deregister(*arguments)

    monkeypatch.setattr(cleaning, "_deregister", late)
    monkeypatch.setattr(leases, "publishing", lambda *_, **__: nullcontext())
    with pytest.raises(ConflictError, match="was set meanwhile"):
        clean(words, [DECLARED], at_ms=later())
    assert tagged_files(words) > before
    assert all(exists(words, path) for path in tagged_files(words))
    refreshes.assert_right(words, DECLARED)


def test_what_a_version_names_that_was_published_while_slots_were_cleared_stays(
    words, first, monkeypatch
):
    for number in range(4):
        appended(words, number, rows=2)
    (path,) = {removable.location for removable in clean(words, at_ms=later(), dry_run=True).gone}
    monkeypatch.setattr(cleaning, "named_since", lambda *_: frozenset({canonical(path)}))
    assert clean(words, [DECLARED], at_ms=later()).gone == ()
    assert exists(words, path)


def test_the_files_that_newer_versions_name_are_known(words, first):
    before = load_table(name_of(words))
    assert named_since(before, before) == frozenset()
    appended(words, 0, rows=2)
    assert named_since(before, words.refresh()) == {canonical(first)}


def test_a_file_that_is_only_needed_is_no_version_any_more(words, first):
    """The second version is one of two layers; it goes, and its file stays for its delta."""
    appended(words, 0, rows=8)
    second = newest(words)
    builds.build(builds.declaration(publish="tag"), "again", {"force": True})
    assert second.needs == {first}
    with words.refresh().update_statistics() as update:
        update.remove_statistics(
            next(slot for slot, e in slots(words).items() if e.statistics_path == first)
        )
    found = find_versions(words.refresh(), builds.INDEX).versions
    assert second.path not in {version.path for version in found}


def test_a_version_is_not_published_on_a_file_that_no_tag_holds(words, first, monkeypatch):
    commit, calls = assemble._commit, []

    def cleaned_first(table, plan, version, assembled, *how):
        if not calls:
            calls.append(assembled.named)
            tag = next(name for name in own_tags(words.refresh()).values())
            words.manage_snapshots().remove_tag(tag).commit()
        return commit(table, plan, version, assembled, *how)

    monkeypatch.setattr(assemble, "_commit", cleaned_first)
    done = appended(words, 0)
    assert calls == [frozenset({first})]
    # It had to be copied: no expiry takes it any more.
    assert newest(words).directory is None
    assert done["bytes_copied"] > 0


def test_the_guard_sets_a_dropped_tag_again_of_a_file_that_is_needed(words, first):
    appended(words, 0)
    appended(words, 1)
    tag = next(
        name
        for slot, name in own_tags(words).items()
        if slots(words)[slot].statistics_path == first
    )
    words.manage_snapshots().remove_tag(tag).commit()
    assert guard(words.refresh(), [DECLARED]).actions == (f"set tag {tag} again, for {first}",)
    table_events.expire_all_but_head(words)
    refreshes.assert_right(words.refresh(), DECLARED)


def test_the_guard_copies_only_what_no_tag_holds(words, first):
    """The newest version lost its tag, with the snapshot; its file is there."""
    appended(words, 0)
    path, tags = newest(words).path, own_tags(words)
    (lost,) = [slot for slot, each in slots(words).items() if each.statistics_path == path]
    words.manage_snapshots().remove_tag(tags[lost]).commit()
    words.maintenance.expire_snapshots().by_id(lost).commit()
    (finding,) = [
        each for each in doctor(words.refresh(), [DECLARED]).findings if each.kind == "untagged"
    ]
    size = words.io.new_input(path).open().seek(0, 2)
    (told,) = re.findall(r"copies ([0-9,]+) bytes of it that no tag of ours holds", finding.remedy)
    assert 0 < int(told.replace(",", "")) < size
    (action,) = guard(words.refresh(), [DECLARED]).actions
    assert "had no tag" in action
    assert newest(words).needs == {first}
    assert newest(words).length < 2 * size
    assert guard(words.refresh(), [DECLARED]).actions == ()
    refreshes.assert_right(words.refresh(), DECLARED)


def test_many_versions_of_one_index_hide_no_other(words, first, monkeypatch):
    monkeypatch.setattr(versions, "RETAINED_LIMIT", 2)
    other = published(words, "other", name="other")
    for number in range(4):
        appended(words, number)
    assert open_index(words.refresh(), "other").version.path == other
    assert find_versions(words, builds.INDEX).others == ("other",)
    assert len(find_versions(words, builds.INDEX).versions) == 2
    assert all_index_names(words) == ["other", builds.INDEX]


def test_a_needed_file_that_no_metadata_names_is_registered_again_and_not_removed(words, first):
    appended(words, 0)
    (slot,) = [slot for slot, entry in slots(words).items() if entry.statistics_path == first]
    with words.transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": "1"})
    words.manage_snapshots().remove_tag(own_tags(words.refresh())[slot]).commit()
    words.maintenance.expire_snapshots().by_id(slot).commit()
    for number in range(3):
        with words.refresh().transaction() as change:
            change.set_properties({"a": str(number)})
    clean(words.refresh(), [DECLARED], at_ms=later(), grace="0s")
    assert exists(words, first)
    refreshes.assert_right(words, DECLARED)
    (action,) = guard(words.refresh(), [DECLARED]).actions
    assert f"registered {first} under snapshot" in action
    assert guard(words.refresh(), [DECLARED]).actions == ()
    assert doctor(words.refresh(), [DECLARED]).problems_left == 0


def test_what_a_file_that_is_only_needed_lost_is_no_damage(words, first, monkeypatch):
    """Version 3 stays for its delta; version 2, which it named for another, goes."""
    declared = DECLARED.model_copy(update={"retention": RetentionOptions(versions=1, grace="0s")})
    paths = [first]
    for number, rows in enumerate((4, 40, 41)):
        appended(words, number, rows=rows)
        paths.append(newest(words).path)
    clean(words, [declared], at_ms=later())
    for path in set(paths) - newest(words).needs - {newest(words).path}:
        assert not exists(words, path)
    assert find_versions(words.refresh(), builds.INDEX).problems == ()
    report = doctor(words.refresh(), [declared])
    assert (report.problems_left, damage.damaged(report)) == (0, [])
    assert refreshes.refresh(words, declared)["action"] == "none"


def test_what_is_damaged_is_not_gathered(words, first):
    appended(words, 0)
    damage.corrupt(first.removeprefix("file://"), "graph")
    with pytest.raises(DamagedIndexError):
        gather(words, builds.INDEX)
    assert newest(words).needs == {first}


def test_an_index_goes_over_to_one_file_where_it_is_not_published_by_tag(words, first):
    appended(words, 0)
    assert newest(words).needs
    done = appended(words, 1, declared=DECLARED.model_copy(update={"publish": "statistics"}))
    assert newest(words).directory is None
    assert done["bytes_copied"] > 0
    assert guard(words).actions == ()
    done = appended(words, 2)
    assert newest(words).directory is None, "what no tag holds is copied"
    appended(words, 3)
    assert newest(words).needs


def test_an_index_is_gathered_in_one_file_and_goes_on_from_there(words, first):
    appended(words, 0)
    before = newest(words)
    report = gather(words, builds.INDEX)
    assert report.files == 2
    version = newest(words)
    assert (version.path, version.needs) == (report.file, frozenset())
    assert version.run_id == before.run_id
    refreshes.assert_right(words, DECLARED)
    assert gather(words, builds.INDEX).files == 1
    assert newest(words).path == report.file
    appended(words, 1)
    assert newest(words).needs == {report.file}
    clean(words, [DECLARED], at_ms=later())
    assert not exists(words, before.path)
    refreshes.assert_right(words, DECLARED)
    assert doctor(words, [DECLARED]).findings == ()


def test_an_index_published_otherwise_is_gathered_under_a_tag(words):
    table_events.publish(words, "a", publish="statistics")
    path = gather(words, builds.INDEX).file
    assert tagged_files(words) == {path} == {newest(words).path}
    refreshes.assert_right(words, DECLARED)


def test_a_dropped_index_leaves_none_of_its_files(words, first):
    for number in range(3):
        appended(words, number)
    paths = tagged_files(words)
    drop(words, builds.INDEX, [DECLARED], force=True)
    clean(words, [], at_ms=later(), grace="0s")
    assert own_tags(words.refresh()) == {}
    assert not any(exists(words, path) for path in paths)


@pytest.mark.parametrize("kind", ["graph", "rows"])
@pytest.mark.parametrize("shard", [0, 1])
def test_rows_of_a_damaged_shard_are_compared_in_the_table(words, first, kind, shard):
    appended(words, 0)
    damage.corrupt(first.removeprefix("file://"), kind, shard)
    damage.forget_cache()
    index = open_index(words.refresh(), builds.INDEX)
    held = next(s.rows for s in index.version.routing.shards if s.shard_id == shard)
    assert_answered_right(words, index)
    assert index.coverage == pytest.approx(1 - held / len(builds.live(words)[0]))
    (told, *_) = damage.report(index.search(refreshes.QUERIES, 3))["damaged"]
    assert f"shard {shard}" in told
    assert damage.damaged(doctor(words, [DECLARED]))


def test_rows_are_compared_in_the_table_where_the_file_of_their_shard_is_gone(words, first):
    for number in range(3):
        deltas = {shard.shard_id for shard in newest(words).routing.shards} - {0, 1}
        appended(words, number, rows=9 - 4 * number)
        if number and deltas & {shard.shard_id for shard in newest(words).routing.shards}:
            break
    (gone,) = newest(words).needs - {first}
    words.io.delete(gone)
    damage.forget_cache()
    index = open_index(words.refresh(), builds.INDEX)
    assert_answered_right(words, index)
    assert index.coverage < 1.0
    assert f"{gone} is gone" in damage.report(index.search(refreshes.QUERIES, 3))["damaged"][-1]
    assert open_index(words.refresh(), builds.INDEX).version.path == newest(words).path


def assert_answered_right(table, index):
    head = table.current_snapshot().snapshot_id
    for k in (3, len(builds.live(table)[0]) + 2):
        builds.assert_answers_are(index, builds.live(table, head), refreshes.QUERIES, k)
    builds.assert_within(index, builds.live(table), refreshes.QUERIES, (0.2,))
