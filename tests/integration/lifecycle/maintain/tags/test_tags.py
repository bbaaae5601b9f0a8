"""What befalls a tag of ours: the guard, clean-up, drop, rename, repair, and users' own names."""

import pytest

from puffin_ann import open_index
from puffin_ann.errors import IndexNotFoundError
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lake.metadata.dropped import mark
from puffin_ann.lake.metadata.expiry import Horizon
from puffin_ann.lake.metadata.own_tags import PREFIX, own_tags
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.drop import drop
from puffin_ann.lifecycle.maintain.former_names import find_declarations
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.maintain.rename import rename
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.moments import now_ms
from tests.support.indexes import former_modes
from tests.support.indexes.tagged_versions import indexes_in, later, main, published, tagged_files
from tests.support.lake import table_events
from tests.support.lifecycle import builds


def test_it_outlives_an_expiry_of_all_but_the_head_without_a_guard(words):
    published(words)
    words.append(builds.rows(range(60, 70)))
    table_events.expire_all_but_head(words)
    assert len(main(words)) >= 1
    table_events.assert_alive(words)
    assert guard(words).actions == ()


def test_the_guard_sets_its_tag_again_when_that_was_dropped(words):
    path = published(words)
    ((held, tag),) = own_tags(words).items()
    words.manage_snapshots().remove_tag(tag).commit()
    (finding,) = [each for each in doctor(words.refresh()).findings if each.kind == "untagged"]
    assert (finding.file, finding.is_problem) == (path, True)
    assert f"its tag {tag} was dropped" in finding.what
    assert guard(words).actions == (f"set tag {tag} again, for {path}",)
    assert "untagged" not in {each.kind for each in doctor(words.refresh()).findings}
    assert own_tags(words.refresh()) == {held: tag}
    assert guard(words).actions == ()
    table_events.expire_all_but_head(words)
    table_events.assert_alive(words)


def test_the_guard_sets_a_dropped_tag_again_whose_registration_is_lost_too(words):
    paths = [published(words, run) for run in ("a", "b")]
    before = own_tags(words)
    for held, tag in before.items():
        words.manage_snapshots().remove_tag(tag).commit()
        table_events.drop_registration(words.refresh(), held)
    guard(words)
    assert (own_tags(words.refresh()), tagged_files(words)) == (before, set(paths))
    assert guard(words).actions == ()
    table_events.expire_all_but_head(words)
    table_events.assert_alive(words)


def test_a_dropped_index_leaves_nothing(words):
    published(words)
    before = {entry.snapshot_id for entry in words.history()}
    drop(words, builds.INDEX, force=True)
    with pytest.raises(IndexNotFoundError):
        open_index(words.refresh(), builds.INDEX)
    clean(words, at_ms=later())
    assert own_tags(words.refresh()) == {}
    assert {snapshot.snapshot_id for snapshot in words.snapshots()} == before
    assert table_events.index_files(words) == set()


def test_a_users_tag_on_the_tagged_snapshot_stays(words):
    published(words)
    (held,) = own_tags(words)
    words.manage_snapshots().create_tag(held, "mine").commit()
    drop(words, builds.INDEX, force=True)
    clean(words, at_ms=later())
    assert {name: ref.snapshot_id for name, ref in words.refresh().refs().items()} == {
        "main": main(words)[-1],
        "mine": held,
    }
    assert words.scan(snapshot_id=held).to_arrow().num_rows == 0


def test_a_table_set_to_a_tagged_snapshot_keeps_it(words):
    published(words)
    (held,) = own_tags(words)
    words.manage_snapshots().set_current_snapshot(held).commit()
    drop(words, builds.INDEX, force=True)
    clean(words, at_ms=later())
    assert words.refresh().current_snapshot().snapshot_id == held


def test_a_users_tag_on_a_snapshot_of_main_is_not_ours(words):
    published(words)
    at = main(words)[-1]
    words.manage_snapshots().create_tag(at, f"{PREFIX}year_end").commit()
    drop(words, builds.INDEX, force=True)
    clean(words, at_ms=later())
    assert words.refresh().refs().keys() == {"main", f"{PREFIX}year_end"}
    assert words.scan().to_arrow().num_rows == 60


def test_the_guard_registers_again_what_a_tag_holds_and_frees_a_tag_that_holds_nothing(words):
    path = published(words)
    (held,) = own_tags(words)
    table_events.drop_registration(words, held)
    (action,) = guard(words).actions
    assert f"registered {path} under snapshot {held}" in action
    assert tagged_files(words) == {path}
    table_events.drop_registration(words, held)
    words.io.delete(path)
    ((_, tag),) = own_tags(words).items()
    assert guard(words).actions == (f"removed tag {tag}: {path} is gone",)
    assert own_tags(words.refresh()) == {}
    assert words.snapshot_by_id(held) is None


def test_the_guard_says_of_a_dropped_file_that_it_is_there_and_of_no_use(words):
    path = published(words)
    ((held, tag),) = own_tags(words).items()
    marks = mark(words, builds.INDEX, ["a"], now_ms())
    words.transaction().set_properties(marks).commit_transaction()
    table_events.drop_registration(words, held)
    (action,) = guard(words).actions
    assert action == f"removed tag {tag}: {path} holds only what was dropped"
    assert own_tags(words.refresh()) == {}
    assert table_events.index_files(words) == {path}


def test_dry_runs_name_the_tags_that_go_and_exactly_those_go(words):
    paths = []
    for run in "abc":
        paths.append(published(words, run))
        words.append(builds.rows(range(ord(run), ord(run) + 3)))
    by_path = {slots(words)[held].statistics_path: tag for held, tag in own_tags(words).items()}
    (superseded,) = clean(words, at_ms=later(), dry_run=True).gone
    assert (superseded.location, superseded.tags) == (paths[0], (by_path[paths[0]],))
    assert superseded.reason == f"{superseded.why}; with tag {by_path[paths[0]]}"
    planned = drop(words, builds.INDEX, dry_run=True)
    assert set(planned.tags) == set(by_path.values())
    assert all(any(tag in action for action in planned.actions) for tag in by_path.values())
    assert len(own_tags(words.refresh())) == 3
    assert clean(words, at_ms=later()).gone[0] == superseded
    assert set(own_tags(words.refresh()).values()) == {by_path[path] for path in paths[1:]}
    done = drop(words, builds.INDEX)
    assert set(done.tags) == {by_path[path] for path in paths[1:]}
    assert own_tags(words.refresh()) == {}


@pytest.mark.parametrize("former", [True, False])
def test_a_version_of_another_mode_lives_on_beside_its_successors_and_goes_as_they_do(
    words, former
):
    with pytest.MonkeyPatch.context() as patch:
        if former:
            former_modes.published_on_main(patch)
        old = table_events.publish(words, "old", publish="auto" if former else "statistics")
    words.append(builds.rows(range(60, 70)))
    base = main(words)[-1]
    first = published(words, "first")
    assert guard(words).actions == ()
    soon = Horizon(now_ms(), older_than_ms=now_ms() + table_events.HOUR_MS, retain_last=1)
    (action,) = guard(words, horizon=soon).actions
    assert f"registered {old} under snapshot {base}: version 2 of the 2 kept" in action
    table_events.expire_all_but_head(words)
    assert guard(words).actions == ()
    assert {old, first} <= table_events.index_files(words)
    table_events.assert_alive(words)
    words.io.delete(first)  # what is older answers then
    table_events.assert_alive(words)
    guard(words)
    second = published(words, "second")
    words.append(builds.rows(range(70, 80)))
    third = published(words, "third")
    assert clean(words, at_ms=later()).failed == ()
    assert table_events.index_files(words) == {second, third}
    assert {entry.statistics_path for entry in slots(words.refresh()).values()} == {second, third}
    assert doctor(words, [builds.declaration()]).problems_left == 0
    assert base in main(words)
    table_events.assert_alive(words)


def test_a_file_of_two_indexes_keeps_the_one_that_is_to_have_no_tag(words):
    """The other one went over to tags; what they shared is registered under the head."""
    table_events.publish(words, "a", publish="statistics")
    both = table_events.publish(words, "b", name="other", publish="statistics")
    words.append(builds.rows(range(60, 70)))
    for run in "cd":
        published(words, run)
    (action,) = guard(words).actions
    assert f"registered {both} under snapshot {main(words)[-1]}" in action
    table_events.expire_all_but_head(words)
    clean(words, at_ms=later())
    table_events.assert_alive(words, builds.INDEX, "other")
    assert both in table_events.index_files(words)
    report = drop(words, builds.INDEX)
    assert (report.others, len(report.tags)) == (("other",), 2)
    table_events.assert_alive(words, "other")
    with pytest.raises(IndexNotFoundError):
        open_index(words, builds.INDEX)


def test_an_index_that_was_dropped_and_published_again_and_lost_is_known_by_the_log(words):
    published(words)
    drop(words, builds.INDEX)
    published(words, "b")
    ((held, tag),) = own_tags(words).items()
    words.manage_snapshots().remove_tag(tag).commit()
    table_events.expire_all_but_head(words)
    assert words.snapshot_by_id(held) is None
    kinds = {finding.kind for finding in doctor(words, [builds.declaration()]).findings}
    assert "lost" in kinds


def test_dropping_one_index_leaves_the_file_of_another_alone(words):
    published(words)
    other = published(words, "b", name="other")
    before = main(words)
    report = drop(words, builds.INDEX, force=True)
    assert (report.others, report.snapshot_id) == (("other",), None)
    assert tagged_files(words) == {other}
    assert main(words) == before
    builds.assert_answers(open_index(words, "other"), words, before[-1], table_events.QUERIES, 4)


def test_a_renamed_index_is_under_a_tag_again(words, declare):
    published(words)
    other = published(words, "b", name="other")
    before = main(words)
    renamed = declare("better", publish="tag")
    report = rename(builds.INDEX, renamed, find_declarations())
    assert indexes_in(words, report.file) == {"better"}
    assert tagged_files(words) >= {other, report.file}
    assert main(words) == before
    builds.assert_answers(open_index(words, "better"), words, before[-1], table_events.QUERIES, 4)
    clean(words, [renamed], at_ms=later())
    assert tagged_files(words) == {other, report.file}


def test_a_damaged_file_gives_way_to_one_whose_shards_are_whole(words):
    first = published(words)
    words.append(builds.rows(range(60, 70)))
    second = published(words, "b")
    with words.io.new_input(second).open() as stream:
        data = bytearray(stream.read())
    data[128] ^= 0xFF  # in section `head` of the first blob
    with words.io.new_output(second).create(overwrite=True) as out:
        out.write(bytes(data))
    before = main(words)
    declared = builds.declaration(publish="tag")
    assert any(found.kind == "damaged" for found in doctor(words, [declared]).findings)
    doctor(words, [declared], fix=True)
    (repaired,) = tagged_files(words) - {first}
    assert repaired != second
    assert main(words) == before
    table_events.assert_alive(words)
    assert open_index(words, builds.INDEX).coverage == 1.0


def test_a_users_tag_keeps_the_version_that_covers_its_snapshot(words):
    path = published(words)
    words.manage_snapshots().create_tag(main(words)[-1], "year_end").commit()
    for number in range(3):
        words.append(builds.rows(range(100 + 9 * number, 109 + 9 * number)))
        published(words, f"later-{number}")
    clean(words, at_ms=later())
    assert path in tagged_files(words)
