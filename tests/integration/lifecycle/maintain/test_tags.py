"""What befalls a tag of ours: the guard, clean-up, drop, rename, repair, and users' own names."""

import pytest

from puffin_ann import open_index
from puffin_ann.errors import (
    IndexNotFoundError,
)
from puffin_ann.lake.metadata.own_tags import PREFIX, own_tags
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.doctor import doctor
from puffin_ann.lifecycle.maintain.drop import drop
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.maintain.rename import find_declarations, rename
from tests.support import builds, table_events
from tests.support.tagged_versions import indexes_in, later, main, published, tagged_files


def test_it_outlives_an_expiry_of_all_but_the_head_without_a_guard(words):
    published(words)
    words.append(builds.rows(range(60, 70)))
    table_events.expire_all_but_head(words)
    assert len(main(words)) >= 1
    table_events.assert_alive(words)
    assert guard(words).actions == ()


def test_the_guard_registers_it_under_the_head_when_its_tag_was_dropped(words):
    path = published(words)
    ((_, tag),) = own_tags(words).items()
    words.manage_snapshots().remove_tag(tag).commit()
    (action,) = guard(words).actions
    assert f"registered {path} under snapshot {main(words)[-1]}" in action
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


def test_a_users_tag_on_an_index_snapshot_is_not_ours(words):
    table_events.publish(words, "a")
    at = words.current_snapshot().snapshot_id
    words.manage_snapshots().create_tag(at, f"{PREFIX}year_end").commit()
    table_events.expire_all_but_head(words)
    assert words.snapshot_by_id(at).parent_snapshot_id is None
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
    guard(words)
    assert own_tags(words.refresh()) == {}
    assert words.snapshot_by_id(held) is None


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


def test_a_damaged_file_gives_way_to_the_version_before(words):
    first = published(words)
    words.append(builds.rows(range(60, 70)))
    second = published(words, "b")
    with words.io.new_input(second).open() as stream:
        data = bytearray(stream.read())
    data[200] ^= 0xFF
    with words.io.new_output(second).create(overwrite=True) as out:
        out.write(bytes(data))
    before = main(words)
    declared = builds.declaration(publish="tag")
    assert any(found.kind == "damaged" for found in doctor(words, [declared]).findings)
    doctor(words, [declared], fix=True)
    assert tagged_files(words) == {first}
    assert main(words) == before
    table_events.assert_alive(words)


def test_a_users_tag_keeps_the_version_that_covers_its_snapshot(words):
    path = published(words)
    words.manage_snapshots().create_tag(main(words)[-1], "year_end").commit()
    for number in range(3):
        words.append(builds.rows(range(100 + 9 * number, 109 + 9 * number)))
        published(words, f"later-{number}")
    clean(words, at_ms=later())
    assert path in tagged_files(words)
