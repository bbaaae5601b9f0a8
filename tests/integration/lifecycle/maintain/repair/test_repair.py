"""Damaged files: an intact version takes their place, or the command that builds one is told."""

import os

import pytest

from puffin_ann import open_index
from puffin_ann.errors import PuffinFormatError, StoreUnavailableError
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lifecycle.maintain import repair
from puffin_ann.lifecycle.maintain.examination import damage
from puffin_ann.lifecycle.publish import carried_blobs
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from tests.support.falsified.damage import corrupt, damaged, forget_cache, publish, report
from tests.support.lake import table_events
from tests.support.lifecycle import builds

DECLARED = [builds.declaration(), builds.declaration(name="second", metric="ip")]


def names(table) -> set[str]:
    return {entry.statistics_path.removeprefix("file://") for entry in slots(table).values()}


def assert_mended(table, path: str, *indexes: str) -> None:
    """The damaged file is gone; nothing is wrong any more; answers are right and tell nothing."""
    forget_cache()
    assert not os.path.exists(path)
    assert path not in names(table.refresh())
    found = doctor(table, DECLARED)
    assert [finding for finding in found.findings if finding.kind not in ("stale", "unbuilt")] == []
    assert doctor(table, DECLARED, fix=True).actions == ()
    table_events.assert_alive(table, *indexes)
    for name in indexes or (builds.INDEX,):
        assert report(open_index(table, name).search(table_events.QUERIES, 3))["damaged"] == []


@pytest.fixture
def two_versions(words):
    older = publish(words, "a")
    words.append(builds.rows(range(60, 62)))
    return words, older, publish(words, "b")


@pytest.mark.parametrize("kind", ["graph", "rows"])
def test_a_damaged_shard_is_made_again_whatever_older_versions_have(two_versions, kind):
    table, _, newer = two_versions
    corrupt(newer, kind, shard=1)
    assert damaged(doctor(table, DECLARED, quick=True)) == []
    for finding in damaged(doctor(table, DECLARED)):
        assert "--fix' makes shard 1 again of" in finding.remedy
    fixed = doctor(table, DECLARED, fix=True)
    assert all(finding.repaired for finding in damaged(fixed))
    assert fixed.problems_left == 0
    assert any(f"removed damaged file file://{newer}" in action for action in fixed.actions)
    assert_mended(table, newer)
    assert open_index(table, builds.INDEX).coverage == 1.0


@pytest.mark.parametrize("kind", ["coverage", "routing"])
@pytest.mark.parametrize("quick", [False, True])
def test_the_older_version_takes_the_place_of_a_damaged_one(two_versions, kind, quick):
    table, _, newer = two_versions
    corrupt(newer, kind)
    found = doctor(table, DECLARED, quick=quick)
    for finding in damaged(found):
        assert finding.file.endswith(newer)
        assert "--fix" in finding.remedy
    assert damaged(found)
    fixed = doctor(table, DECLARED, fix=True, quick=quick)
    assert all(finding.repaired for finding in damaged(fixed))
    assert fixed.problems_left == 0
    assert any(f"removed damaged file file://{newer}" in action for action in fixed.actions)
    assert_mended(table, newer)
    assert open_index(table, builds.INDEX).view.rows_to_scan == 2
    # What was put in its place is behind the table, so that the next run builds.
    assert builds.build(builds.declaration(), "c").action == "build"
    assert open_index(table.refresh(), builds.INDEX).coverage == 1.0


@pytest.mark.usefixtures("published_by_statistics")
def test_the_same_version_in_another_file_loses_nothing(words):
    alone = publish(words, "a")
    both = publish(words, "b", name="second", metric="ip")
    corrupt(both)
    fixed = doctor(words, DECLARED, fix=True)
    assert fixed.problems_left == 0
    assert_mended(words, both, builds.INDEX, "second")
    for name in (builds.INDEX, "second"):
        assert open_index(words, name).coverage == 1.0
    assert os.path.exists(alone)


@pytest.mark.parametrize("step", ["republish", "change_slots"])
@pytest.mark.usefixtures("published_on_main")
def test_rows_that_come_while_a_file_is_mended_are_no_reason_to_fail(
    two_versions, monkeypatch, caplog, step
):
    table, _, newer = two_versions
    corrupt(newer, "coverage")
    original, calls = getattr(repair, step), []

    def overtaken(*arguments, **options):
        calls.append(step)
        if len(calls) == 1:
            table.refresh().append(builds.rows([70]))
        return original(*arguments, **options)

    monkeypatch.setattr(repair, step, overtaken)
    done = doctor(table, DECLARED, fix=True)
    assert done.problems_left == 0
    # What was published before the slots changed is told; a file that lost the head just goes.
    told = [
        action.split()[0] for action in done.actions if action.startswith(("removed", "published"))
    ]
    assert done.actions[-1].endswith("had no tag"), "and the guard goes on"
    del told[-1]
    assert told == (["removed"] if step == "republish" else ["published", "removed"])
    assert "retrying (attempt 1)" in caplog.text
    assert_mended(table, newer)


def test_an_older_version_that_is_damaged_just_goes(two_versions):
    table, older, newer = two_versions
    before = table.history()
    corrupt(older)
    assert doctor(table, DECLARED, fix=True).problems_left == 0
    assert_mended(table, older)
    assert table.refresh().history() == before
    assert names(table) == {newer}


def test_without_an_intact_version_the_command_is_told_and_then_repairs(words):
    path = publish(words, "a")
    corrupt(path, "coverage")
    fixed = doctor(words, DECLARED, fix=True)
    (finding,) = damaged(fixed)
    assert not finding.repaired
    assert f"'puffin-ann build {builds.INDEX} --force'" in finding.remedy
    assert os.path.exists(path)
    publish(words, "b")
    assert doctor(words, DECLARED, fix=True).problems_left == 0
    assert_mended(words, path)


@pytest.mark.parametrize("command", ["build", "refresh"])
def test_a_place_is_taken_from_a_file_of_ours_that_nobody_can_read(words, command):
    """In mode `statistics` there is but one place, and no other version to put there."""
    path = publish(words, "a", publish="statistics")
    os.truncate(path, os.path.getsize(path) - 1)
    forget_cache()
    if command == "build":
        publish(words, "b", publish="statistics")
    else:
        done = refresh_in_process(builds.declaration(publish="statistics"), run_id="b", force=True)
        assert "no readable version of the index is published" in done["reason"]
    assert path not in names(words.refresh())
    table_events.assert_alive(words)
    assert doctor(words, DECLARED, fix=True).problems_left == 0


def test_a_file_of_ours_that_reads_well_the_second_time_keeps_its_blobs(words, monkeypatch):
    publish(words, "a", publish="statistics")
    real, calls = carried_blobs.open_pinned, []

    def garbled(*arguments):
        calls.append(True)
        if len(calls) == 1:
            raise PuffinFormatError("garbled on its way")
        return real(*arguments)

    monkeypatch.setattr(carried_blobs, "open_pinned", garbled)
    publish(words, "b", name="second", metric="ip", publish="statistics")
    assert len(calls) > 1
    table_events.assert_alive(words, builds.INDEX, "second")


@pytest.mark.usefixtures("published_by_statistics")
def test_what_is_whole_in_a_damaged_file_is_not_lost(words):
    """The only file of the second index holds the damaged first one, too."""
    publish(words, "a")
    words.append(builds.rows(range(60, 62)))
    publish(words, "b")
    both = publish(words, "c", name="second", metric="ip")
    corrupt(both, shard=1)
    assert doctor(words, DECLARED, fix=True).problems_left == 0
    assert_mended(words, both, builds.INDEX, "second")
    assert open_index(words, "second").coverage == 1.0


@pytest.mark.usefixtures("published_by_statistics")
def test_statistics_of_others_in_a_damaged_file_stay_visible(words):
    publish(words, "a")
    words.append(builds.rows(range(60, 62)))
    table_events.analyse(words)
    newer = publish(words, "b")
    corrupt(newer)
    doctor(words, DECLARED, fix=True)
    assert_mended(words, newer)
    head = slots(words)[words.current_snapshot().snapshot_id]
    assert [blob.properties["ndv"] for blob in head.blob_metadata] == ["42"]


@pytest.mark.parametrize("cut", [-1, 40])
def test_a_file_cut_short_is_replaced(two_versions, cut):
    table, _, newer = two_versions
    os.truncate(newer, cut if cut > 0 else os.path.getsize(newer) - 1)
    assert doctor(table, DECLARED, fix=True, quick=True).problems_left == 0
    assert_mended(table, newer)


def test_a_file_that_reads_well_the_second_time_stays(two_versions, monkeypatch):
    table, _, newer = two_versions
    real = damage.damage_of
    calls = []

    def garbled(table, file, *arguments):
        calls.append(True)
        if len(calls) == 1:
            return [damage.Damage(file, builds.INDEX, "checksum")]
        return real(table, file, *arguments)

    monkeypatch.setattr(damage, "damage_of", garbled)
    fixed = doctor(table, DECLARED, fix=True)
    assert damaged(fixed)[0].repaired is False
    assert os.path.exists(newer)


def test_a_store_that_does_not_answer_costs_no_file(two_versions, monkeypatch):
    table, older, newer = two_versions

    def unreachable(*_):
        raise StoreUnavailableError("timed out")

    monkeypatch.setattr(damage, "damage_of", unreachable)
    with pytest.raises(StoreUnavailableError):
        doctor(table, DECLARED, fix=True)
    assert os.path.exists(newer)
    assert os.path.exists(older)
