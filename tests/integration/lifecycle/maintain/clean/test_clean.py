"""What is superseded goes by retention and grace; what failed runs left goes after the grace."""

import os
import time

import numpy as np
import pytest

from puffin_ann import open_index
from puffin_ann.errors import RecallTooLowError, UnclearCommitError
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lake.store.assemble.compose import Assembly
from puffin_ann.lake.store.leases import Lease
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.maintain import clean as cleaning
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.moments import now_ms
from puffin_ann.search.version.versions import find_versions
from tests.support.lake import table_events
from tests.support.lifecycle import builds

DAY_MS = 24 * table_events.HOUR_MS


def later(hours: float = 25) -> int:
    return now_ms() + int(hours * table_events.HOUR_MS)


def going(report) -> dict[str, str]:
    return {orphan.location: orphan.kind for orphan in report.gone}


def publish_versions(table, count: int, **declared) -> list[str]:
    paths = []
    for number in range(count):
        paths.append(
            table_events.publish(table, f"{declared.get('name', 'run')}-{number}", **declared)
        )
        table.append(builds.rows(range(100 + 5 * number, 105 + 5 * number)))
    return paths


def test_two_versions_stay_and_others_go_a_day_after_they_were_superseded(words):
    first, second, third = publish_versions(words, 3)
    early = clean(words, at_ms=later(23.9))
    assert going(early) == {}
    assert [orphan.location for orphan in early.waiting] == [first]
    report = clean(words, at_ms=later())
    assert going(report) == {first: "superseded version"}
    assert table_events.index_files(words) == {second, third}
    registered = {entry.statistics_path for entry in slots(words.refresh()).values()}
    assert registered == {second, third}
    table_events.assert_alive(words)
    assert going(clean(words, at_ms=later())) == {}


def test_the_day_begins_when_the_version_was_superseded_not_when_it_was_published(words):
    publish_versions(words, 1)
    long_after = later(100)
    assert clean(words, at_ms=long_after).gone == ()
    assert clean(words, at_ms=long_after).waiting == ()


def test_every_retained_snapshot_is_answered_after_clean_up(words):
    publish_versions(words, 4)
    assert len(clean(words, at_ms=later()).gone) == 2
    for snapshot in words.refresh().snapshots():
        index = open_index(words, builds.INDEX, snapshot.snapshot_id)
        builds.assert_answers(index, words, snapshot.snapshot_id, table_events.QUERIES, 4)


def test_the_declared_retention_counts_and_else_that_of_the_build(words):
    declared = builds.declaration(retention={"versions": 1, "grace": "1h"})
    first, second, third = publish_versions(words, 3, retention={"versions": 3, "grace": "2d"})
    assert going(clean(words, at_ms=later(49))) == {}
    report = clean(words, [declared], at_ms=later(1.1), dry_run=True)
    assert set(going(report)) == {first, second}
    assert third in table_events.index_files(words)


@pytest.mark.usefixtures("published_on_main")
def test_what_a_tag_names_stays(words):
    first = table_events.publish(words, "a")
    index_snapshot = words.refresh().current_snapshot()
    words.append(builds.rows(range(60, 65)))
    covered = words.current_snapshot().snapshot_id
    second = table_events.publish(words, "b")
    tags = words.manage_snapshots()
    tags.create_tag(snapshot_id=index_snapshot.snapshot_id, tag_name="index").commit()
    words.refresh().manage_snapshots().create_tag(snapshot_id=covered, tag_name="data").commit()
    publish_versions(words.refresh(), 3, seed=1)
    assert {first, second} <= table_events.index_files(words)
    gone = going(clean(words, at_ms=later()))
    assert len(gone) == 1
    assert {first, second} <= table_events.index_files(words)
    words.refresh().manage_snapshots().remove_tag("index").commit()
    assert set(going(clean(words, at_ms=later()))) == {first}


@pytest.mark.usefixtures("published_by_statistics")
def test_a_file_goes_when_newer_ones_hold_all_it_holds(words):
    alone = table_events.publish(words, "a", name="first")
    both = table_events.publish(words, "b", name="second", metric="ip")
    report = clean(words, at_ms=later())
    assert set(going(report)) == {alone}
    (one,) = report.gone
    assert both in one.why
    table_events.assert_alive(words, "first", "second")


def test_a_dry_run_lists_exactly_what_then_goes(words):
    publish_versions(words, 3)
    left_by_a_killed_run(words)
    told = clean(words, at_ms=later(), dry_run=True)
    files = table_events.index_files(words)
    assert told.dry_run
    assert {orphan.kind for orphan in told.gone} == {
        "superseded version",
        "unpublished file",
        "staging",
    }
    assert all(orphan.why for orphan in told.gone)
    assert table_events.index_files(words) == files
    assert going(clean(words, at_ms=later())) == going(told)


def left_by_a_killed_run(table, run: str = "killed") -> None:
    """Staging and a finished file, but no commit."""
    plan = builds.run.plan_build(builds.declaration(), run_id=run, overrides={"force": True})
    builds.run_stages(plan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("puffin_ann.lifecycle.publish.assemble.commit_index_file", _die)
        with pytest.raises(KeyboardInterrupt):
            builds.publish.publish(RunRef.planned(plan))
    table.refresh()


def _die(*_, **__):
    raise KeyboardInterrupt


def everything(table) -> set[str]:
    """All files but leases, whose numbers go on."""
    root = table.location().removeprefix("file://")
    return {
        os.path.join(folder, name)
        for folder, _, names in os.walk(root)
        for name in names
        if not name.startswith("_lease-")
    }


def test_a_killed_run_leaves_nothing_behind(words):
    before = everything(words)
    left_by_a_killed_run(words)
    assert everything(words) > before
    assert going(clean(words, at_ms=later(23))) == {}
    kinds = set(going(clean(words, at_ms=later())).values())
    assert kinds == {"unpublished file", "staging", "record"}
    assert everything(words) == before


def test_a_sign_of_life_that_was_cut_off_goes_though_the_index_is_published(words, monkeypatch):
    table_events.publish(words, "run-1")
    before = everything(words)
    place = Lease(words.io, leases.index_folder(words, builds.INDEX), "an index")
    place.acquire("run-2", "refresh", 60)
    with monkeypatch.context() as patched:
        for name in ("os.replace", "pathlib.Path.unlink"):  # killed: nothing is tidied up
            patched.setattr(name, _die)
        with pytest.raises(KeyboardInterrupt):
            place.acquire("run-2", "refresh", 60)
    (left,) = everything(words) - before
    assert "/._lease-" in left
    assert going(clean(words, at_ms=later(23))) == {}
    assert going(clean(words, at_ms=later())) == {f"file://{left}": "record"}
    assert everything(words) == before


def test_a_run_that_the_gate_refused_leaves_nothing_behind(words, monkeypatch):
    before = everything(words)
    plan = builds.run.plan_build(builds.declaration(), run_id="refused")

    def too_low(*_):
        raise RecallTooLowError("too low")

    monkeypatch.setattr("puffin_ann.lifecycle.build.stages.require_passed", too_low)
    with pytest.raises(RecallTooLowError):
        builds.run_stages(plan)
    (one,) = clean(words, at_ms=later()).gone
    assert one.kind == "staging"
    assert everything(words) == before


def test_a_run_that_goes_on_keeps_its_staging(words):
    plan = builds.run.plan_build(builds.declaration(), run_id="slow")
    staging = plan.plan.rpartition("/")[0].removeprefix("file://")
    yesterday = time.time() - 26 * 3600
    for name in os.listdir(staging):
        os.utime(f"{staging}/{name}", (yesterday, yesterday))
    assert len(clean(words, dry_run=True).gone) == 1
    builds.run_stages(plan)  # it writes on
    assert clean(words).gone == ()
    builds.publish.publish(RunRef.planned(plan))
    table_events.assert_alive(words)


def test_a_commit_without_an_answer_leaves_nothing_once_it_is_clear_that_it_never_lands(
    words, monkeypatch
):
    monkeypatch.setattr("puffin_ann.lake.commit.commit_index_file.WAIT_SECONDS", 0.0)
    before = everything(words)
    plan = builds.run.plan_build(builds.declaration(), run_id="unclear")
    builds.run_stages(plan)
    with monkeypatch.context() as patch:
        patch.setattr(type(words.catalog), "commit_table", _no_answer)
        with pytest.raises(UnclearCommitError):
            builds.publish.publish(RunRef.planned(plan))
    kinds = {orphan.kind for orphan in clean(words, at_ms=later()).gone}
    assert kinds == {"unpublished file", "manifest list", "staging", "record"}
    assert everything(words) == before


def _no_answer(*_, **__):
    raise ConnectionError("timed out")


def test_a_file_that_a_late_commit_registers_during_clean_up_stays(words, monkeypatch):
    left_by_a_killed_run(words, "late")
    (path,) = table_events.index_files(words)
    run = RunRef.on(words, builds.INDEX, "late")
    remove = cleaning._remove

    def late(*arguments):
        builds.publish.publish(run)
        return remove(*arguments)

    make = Assembly.make

    def make_it_there(assembly, report):
        """As on S3, where the name is the same at each attempt."""
        os.replace(make(assembly, report).removeprefix("file://"), path.removeprefix("file://"))
        return path

    monkeypatch.setattr(Assembly, "make", make_it_there)
    monkeypatch.setattr(cleaning, "_remove", late)
    report = clean(words, at_ms=later())
    assert path not in going(report)
    table_events.assert_alive(words)


def test_a_file_that_cannot_be_read_now_is_no_reason_to_delete_another(words):
    first, second, third = publish_versions(words, 3)
    with open(third.removeprefix("file://"), "r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"XXXX")
    assert going(clean(words, at_ms=later())) == {}
    assert table_events.index_files(words) == {first, second, third}


def test_a_registration_lost_before_the_guard_ran_is_no_orphan(words):
    path = table_events.publish(words, "a")
    for slot in tuple(slots(words.refresh())):
        table_events.drop_registration(words, slot)
    report = clean(words, at_ms=later(1000))
    assert path not in going(report)
    assert table_events.index_files(words) == {path}


def test_a_foreign_file_is_never_touched(words):
    publish_versions(words, 3)
    theirs = table_events.analyse(words)
    stray = f"{words.location()}/metadata/ann-notes.txt"
    with words.io.new_output(stray).create() as out:
        out.write(b"mine")
    clean(words, at_ms=later())
    assert words.io.new_input(theirs).exists()
    assert words.io.new_input(stray).exists()
    assert theirs in {entry.statistics_path for entry in slots(words.refresh()).values()}


def test_an_answer_that_is_lost_deletes_nothing(words, monkeypatch):
    paths = publish_versions(words, 3)
    with monkeypatch.context() as patch:
        patch.setattr(type(words.catalog), "commit_table", _no_answer)
        with pytest.raises(UnclearCommitError):
            clean(words, at_ms=later())
    assert table_events.index_files(words) == set(paths)
    assert set(going(clean(words, at_ms=later()))) == {paths[0]}


def test_indexes_of_random_histories_keep_their_newest_versions(words):
    """Whatever order two indexes are published in, each keeps two versions, and no file more."""
    order = np.random.default_rng(5).integers(0, 2, size=7)
    for number, which in enumerate(order):
        words.append(builds.rows(range(200 + number, 201 + number)))
        table_events.publish(words, f"r{number}", name=("first", "second")[which])
    clean(words, at_ms=later())
    for name in ("first", "second"):
        runs = {
            version.routing.properties["run-id"] for version in find_versions(words, name).versions
        }
        mine = [
            f"r{number}" for number in range(7) if order[number] == ("first", "second").index(name)
        ]
        assert set(mine[-2:]) <= runs
    table_events.assert_alive(words, "first", "second")
    assert len(table_events.index_files(words)) <= 4
