"""A publication that was given up for lost lands in a slot that others have filled meanwhile."""

import pytest

from puffin_ann.errors import UnclearCommitError
from puffin_ann.lake.commit import commit_index_file
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.runs.doctor import doctor
from tests.support.lake.spark_procedures import expire
from tests.support.lifecycle import builds, publications

pytestmark = pytest.mark.slow

THETA = "apache-datasketches-theta-v1"
ANALYSE = "CALL {c}.system.compute_table_stats(table => '{n}', columns => array('id'))"


@pytest.fixture
def late(rest_lake, proxied_lake, catalog_proxy, monkeypatch):
    """Publish by a request that the catalog gets only when the function given back is called."""

    def give_up(mode: str, **declared):
        monkeypatch.setattr(commit_index_file, "WAIT_SECONDS", 0.001)
        plan = publications.staged(proxied_lake, publish=mode, **declared)
        catalog_proxy.faults = [catalog_proxy.hold] * 20
        with pytest.raises(UnclearCommitError):
            publications.publish(plan)
        catalog_proxy.faults = []
        request = catalog_proxy.held[0]

        def land():
            status, _, _ = request.send()
            assert status == 200, "the catalog had no reason to refuse it"

        return land

    return give_up


def kinds(lake) -> list[str]:
    return [
        finding.kind for finding in doctor(lake.named(), quick=True).findings if finding.is_problem
    ]


def listed(table, snapshot_id: int) -> list[str]:
    return [blob.type for blob in slots(table.refresh())[snapshot_id].blob_metadata]


def assert_answers(lake) -> None:
    index = publications.open_index(lake.load(), builds.INDEX)
    builds.assert_answers_are(index, lake.rows(), publications.QUERIES, 4)


@pytest.mark.parametrize(
    "moved",
    [
        True,
        pytest.param(False, marks=pytest.mark.long),
    ],
)
def test_statistics_of_others_are_told_and_carried_along_once_made_again(rest_lake, late, moved):
    lake = rest_lake
    table = lake.create(builds.rows(range(40)))
    base = table.current_snapshot().snapshot_id
    land = late("statistics")
    lake.sql(ANALYSE)
    theirs = slots(table.refresh())[base].statistics_path
    land()
    ours = slots(table.refresh())[base].statistics_path
    assert ours != theirs
    assert listed(table, base) == []
    if moved:
        table.append(builds.rows(range(40, 50)))
    (told,) = [
        finding
        for finding in doctor(lake.named(), quick=True).findings
        if finding.kind == "displaced"
    ]
    assert told.file == theirs
    assert told.is_problem == (not moved), "of another state of the table nobody reads them"

    guard(lake.load())
    assert ("displaced" in kinds(lake)) == (not moved)
    lake.sql(ANALYSE)
    guard(lake.load())
    assert "displaced" not in kinds(lake)
    head = table.refresh().current_snapshot().snapshot_id
    assert THETA in listed(table, head)
    assert lake.distinct_counts()["id"] == (50 if moved else 40)
    assert guard(lake.load()).actions == ()
    assert_answers(lake)
    expire(lake)
    assert_answers(lake)


@pytest.mark.long
def test_an_index_of_a_v3_table_that_a_late_landing_threw_out_is_found_and_published_with_it(
    rest_lake, late, monkeypatch
):
    """Both are registered under the one data snapshot; the later one has not seen the earlier.

    The store tells the time in seconds, and all of it happens within one.
    """
    monkeypatch.setattr("puffin_ann.lifecycle.versions.inventory._published_ms", lambda *_: 1000)
    lake = rest_lake
    table = lake.create_by_spark(builds.rows(range(40)))
    base = table.current_snapshot().snapshot_id
    land = late("statistics", name="second", metric="ip")
    builds.build(builds.declaration(table=lake.named(), publish="statistics"), "run")
    first = slots(table.refresh())[base].statistics_path
    land()
    assert slots(table.refresh())[base].statistics_path != first
    problems = doctor(lake.named(), quick=True).findings
    assert [
        (problem.kind, problem.indexes, problem.file) for problem in problems if problem.is_problem
    ] == [("dropped", (builds.INDEX,), first)]
    guard(lake.load())
    assert kinds(lake) == []
    assert guard(lake.load()).actions == ()
    for name in (builds.INDEX, "second"):
        index = publications.open_index(lake.load(), name)
        builds.assert_answers_are(index, lake.rows(), publications.QUERIES, 4)
    assert len(lake.load().snapshots()) == 1
