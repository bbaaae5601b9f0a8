"""Dropping an index: it is gone at once, everything else stays, and its files go by clean-up."""

import json

import numpy as np
import pytest
from pyiceberg.table.statistics import BlobMetadata

from puffin_ann.declaration import parse_declaration
from puffin_ann.errors import BadInputError, IndexNotFoundError, LeaseHeldError
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lake.metadata.dropped import PREFIX, find_dropped
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.maintain import drop as retire
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.drop import drop
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.runs import build, publish
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.lifecycle.runs.maintain import maintain
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.moments import now_ms
from puffin_ann.puffin.writer import PuffinWriter
from puffin_ann.search.open_index import open_index
from puffin_ann.search.version.index_files import open_puffin
from puffin_ann.search.version.versions import all_index_names, find_versions
from tests.support.lake import table_events
from tests.support.lifecycle import builds

OTHER = "other_index"
DAY_MS = 86_400_000


def other(**changes):
    data = {**builds.declaration(**changes).model_dump(mode="json"), "name": OTHER}
    return parse_declaration(data, source="test")


def files(table):
    return {entry.statistics_path for entry in table.refresh().metadata.statistics}


def is_there(table, path: str) -> bool:
    return table.io.new_input(path).exists()


@pytest.fixture
def one(words):
    builds.build(builds.declaration(), "run")
    return words.refresh()


@pytest.fixture
def two(one):
    builds.build(other(), "run")
    return one.refresh()


def test_the_last_index_is_deregistered_and_not_found_any_more(one):
    before = files(one)
    report = drop(one, builds.INDEX)
    assert files(one) == set()
    assert set(report.deregistered) == before
    assert report.file == ""
    assert report.versions == ("run",)
    assert all_index_names(one.refresh()) == []
    with pytest.raises(IndexNotFoundError):
        open_index(one, builds.INDEX)


def test_what_is_declared_no_more_is_never_dropped_by_itself(two):
    two.append(builds.rows(range(60, 63)))
    declared = other(refresh={"min_rows": 1})
    for at_ms in (None, 10**15):
        maintain([declared], run_id="window", runner=InProcess())
        clean(two.refresh(), [declared], at_ms=at_ms)
        assert all_index_names(two.refresh()) == [OTHER, builds.INDEX]
        assert open_index(two, OTHER).coverage == 1.0
        table_events.assert_alive(two, OTHER, builds.INDEX)


@pytest.mark.usefixtures("published_by_statistics")
def test_others_are_carried_along_and_answer_as_before(two):
    query = np.array(builds.rows([3]).column("embedding").to_pylist(), np.float32)
    before = open_index(two, OTHER).search(query, k=5)
    report = drop(two, builds.INDEX)
    two.refresh()
    assert report.others == (OTHER,)
    assert all_index_names(two) == [OTHER]
    with open_puffin(two.io, report.file) as reader:
        assert {blob.properties["index"] for blob in reader.metadata.blobs} == {OTHER}
    after = open_index(two, OTHER).search(query, k=5)
    assert after.equals(before)


@pytest.mark.usefixtures("published_by_statistics")
def test_an_index_is_gone_from_older_files_that_still_hold_it(two):
    older = two.current_snapshot().snapshot_id
    two.append(builds.rows([60]))
    builds.build(other(), "later")
    two.refresh()
    drop(two, builds.INDEX)
    two.refresh()
    assert find_versions(two, builds.INDEX).versions == ()
    assert any(holds(two, path, builds.INDEX) for path in files(two))
    with pytest.raises(IndexNotFoundError):
        open_index(two, builds.INDEX, snapshot_id=older)


def holds(table, path: str, index: str) -> bool:
    with open_puffin(table.io, path) as reader:
        return any(blob.properties.get("index") == index for blob in reader.metadata.blobs)


@pytest.mark.usefixtures("published_by_statistics")
def test_what_was_dropped_is_not_carried_along_by_later_publications(two):
    drop(two, builds.INDEX)
    two.refresh().append(builds.rows(range(70, 80)))
    builds.build(other(), "later")
    two.refresh()
    newest = find_versions(two, OTHER).versions[0]
    assert not holds(two, newest.path, builds.INDEX)


@pytest.mark.parametrize("fixture", ["one", "two"])
def test_the_guard_and_the_doctor_do_not_miss_what_was_dropped(fixture, request):
    table = request.getfixturevalue(fixture)
    drop(table, builds.INDEX)
    before = files(table)
    assert guard(table).lost == ()
    assert files(table) == before
    found = doctor(table, [other()] if fixture == "two" else [])
    assert [finding for finding in found.findings if finding.is_problem] == []


@pytest.mark.usefixtures("published_by_statistics")
def test_a_table_that_moves_meanwhile_keeps_what_came_and_loses_the_index(two, monkeypatch):
    publish_again = retire.republish

    def late(*arguments, **options):
        monkeypatch.setattr(retire, "republish", publish_again)
        two.append(builds.rows(range(90, 95)))
        return publish_again(*arguments, **options)

    monkeypatch.setattr(retire, "republish", late)
    drop(two, builds.INDEX)
    two.refresh()
    assert all_index_names(two) == [OTHER]
    assert len(builds.live(two)[0]) == 65
    assert len({name for name in files(two) if not is_there(two, name)}) == 0


@pytest.mark.parametrize("gone", [builds.INDEX, OTHER])
@pytest.mark.usefixtures("published_by_statistics")
def test_an_older_version_under_the_head_is_carried_along_but_for_what_goes(one, gone):
    base = one.current_snapshot().snapshot_id
    one.append(builds.rows(range(60, 70)))
    builds.build(builds.declaration(), "newer")
    builds.build(other(), "run")
    one.refresh().manage_snapshots().set_current_snapshot(snapshot_id=base).commit()
    older = slots(one.refresh())[base].statistics_path
    stays = OTHER if gone == builds.INDEX else builds.INDEX

    report = drop(one, gone)

    assert one.refresh().current_snapshot().snapshot_id == base
    assert slots(one)[base].statistics_path == report.file != older
    assert all_index_names(one) == [stays]
    with pytest.raises(IndexNotFoundError):
        open_index(one, gone)
    assert guard(one).actions == ()
    table_events.assert_alive(one, stays)
    assert open_index(one, stays).coverage == 1.0
    table_events.expire_all_but_head(one)
    table_events.assert_alive(one, stays)


def test_an_index_that_a_run_is_at_work_on_is_not_dropped(one):
    with leases.writing(one, builds.INDEX, "build/7", "build it"):
        with pytest.raises(LeaseHeldError, match="build/7"):
            drop(one, builds.INDEX)
        assert drop(one, builds.INDEX, dry_run=True).versions == ("run",)
    drop(one, builds.INDEX)


def test_a_run_that_was_planned_before_publishes_after_a_drop_as_another_version(two):
    plan = build.plan_build(builds.declaration(), run_id="late", overrides={"force": True})
    builds.run_stages(plan)
    drop(two, builds.INDEX)
    publish.publish(RunRef.planned(plan))
    two.refresh()
    assert all_index_names(two) == sorted([OTHER, builds.INDEX])
    assert [version.run_id for version in find_versions(two, builds.INDEX).versions] == ["late"]


def test_files_go_when_their_grace_is_over_and_not_before(one):
    (path,) = files(one)
    now = now_ms() + 1000  # all that the build left is older
    drop(one, builds.INDEX, at_ms=now)
    waiting = clean(one, at_ms=now + DAY_MS - 2000)
    assert path in {left.location for left in waiting.waiting}
    assert is_there(one, path)
    gone = clean(one, at_ms=now + DAY_MS + 1000)
    assert [left.why for left in gone.gone if left.location == path] == [
        f"index '{builds.INDEX}' was dropped"
    ]
    assert not is_there(one, path)
    assert doctor(one, []).findings == ()


def test_an_index_built_again_under_its_name_is_there_again(one):
    drop(one, builds.INDEX)
    plan = builds.build(builds.declaration(), "run")
    assert plan.action == "build"
    assert plan.run_id == "run-2"
    (version,) = find_versions(one.refresh(), builds.INDEX).versions
    assert version.run_id == "run-2"
    assert guard(one).lost == ()
    drop(one, builds.INDEX)
    assert find_dropped(one.refresh())[builds.INDEX].versions == {"run", "run-2"}
    assert all_index_names(one) == []


def test_a_declared_index_is_dropped_only_by_force(one):
    before = one.metadata_location
    with pytest.raises(BadInputError, match="is declared"):
        drop(one, builds.INDEX, [builds.declaration()])
    assert one.refresh().metadata_location == before
    drop(one, builds.INDEX, [builds.declaration()], force=True)
    assert all_index_names(one.refresh()) == []


@pytest.mark.parametrize("fixture", ["one", "two"])
def test_a_dry_run_changes_nothing_and_says_what_would_be_done(fixture, request):
    table = request.getfixturevalue(fixture)
    before = table.metadata_location
    report = drop(table, builds.INDEX, dry_run=True)
    assert table.refresh().metadata_location == before
    assert report.actions
    assert all(action.startswith("would ") for action in report.actions)


def test_what_is_not_there_cannot_be_dropped(one):
    with pytest.raises(IndexNotFoundError, match=f"no index named 'x'; it has: {builds.INDEX}"):
        drop(one, "x")
    drop(one, builds.INDEX)
    with pytest.raises(IndexNotFoundError, match="was dropped before"):
        drop(one, builds.INDEX)


def test_statistics_of_others_stay_when_the_last_index_goes(words):
    snapshot = words.current_snapshot()
    path = f"{words.location()}/metadata/theirs.puffin"
    with words.io.new_output(path).create() as stream, PuffinWriter(stream) as writer:
        writer.add(
            "apache-datasketches-theta-v1",
            b"a sketch",
            fields=[1],
            snapshot_id=snapshot.snapshot_id,
            sequence_number=snapshot.sequence_number,
            properties={"ndv": "60"},
        )
        finished = writer.finish({})
    register(words, path, finished)
    builds.build(builds.declaration(publish="statistics"), "run")
    words.refresh()
    assert path not in files(words)
    report = drop(words, builds.INDEX)
    words.refresh()
    assert files(words) == {report.file}
    assert all_index_names(words) == []
    listed = [blob for entry in words.metadata.statistics for blob in entry.blob_metadata]
    assert {(blob.type, blob.properties["ndv"]) for blob in listed} == {
        ("apache-datasketches-theta-v1", "60")
    }
    assert doctor(words, []).problems_left == 0


def register(table, path: str, finished) -> None:
    from pyiceberg.table.statistics import StatisticsFile

    (blob,) = finished.metadata.blobs
    entry = StatisticsFile.model_validate(
        {
            "snapshot-id": table.current_snapshot().snapshot_id,
            "statistics-path": path,
            "file-size-in-bytes": finished.length,
            "file-footer-size-in-bytes": finished.footer_size,
            "blob-metadata": [
                BlobMetadata.model_validate(
                    {
                        "type": blob.type,
                        "snapshot-id": blob.snapshot_id,
                        "sequence-number": blob.sequence_number,
                        "fields": list(blob.fields),
                        "properties": dict(blob.properties),
                    }
                )
            ],
        }
    )
    with table.update_statistics() as update:
        update.set_statistics(entry)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"versions": 3}', "null"])
def test_a_mark_that_cannot_be_read_drops_nothing(one, text):
    with one.transaction() as transaction:
        transaction.set_properties({PREFIX + builds.INDEX: text})
    assert all_index_names(one.refresh()) == [builds.INDEX]


def test_the_mark_says_when_and_which(one):
    drop(one, builds.INDEX, at_ms=1234)
    value = json.loads(one.refresh().properties[PREFIX + builds.INDEX])
    assert value == {"versions": ["run"], "sequence-number": 2, "at-ms": 1234}


@pytest.mark.parametrize("name", ["../../../../tmp/evil", "[/red]", "a\nb", "words ", ""])
def test_what_no_index_can_be_called_is_refused(words, name):
    for dry_run in (True, False):
        with pytest.raises(BadInputError, match="no name of an index"):
            drop(words, name, dry_run=dry_run)
