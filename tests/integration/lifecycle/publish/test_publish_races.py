"""Two writers that publish at the same moment, over and over."""

from collections.abc import Callable
from threading import Barrier, Thread

import pytest

from puffin_ann.errors import ConflictError
from puffin_ann.lake.commit import commit_index_file
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lifecycle.documents.run import PlanPointer
from puffin_ann.lifecycle.publish.assemble import was_published
from tests.support.lifecycle import builds, publications

pytestmark = pytest.mark.slow

ROUNDS_PER_TABLE = 3


def race(*plans: PlanPointer) -> list[object]:
    """Publish at the same moment; gives what each ended with, a document or an error."""
    start, ends = Barrier(len(plans)), [None] * len(plans)

    def publish(number: int) -> None:
        start.wait()
        try:
            ends[number] = publications.publish(plans[number])
        except Exception as error:
            ends[number] = error

    threads = [Thread(target=publish, args=(number,)) for number in range(len(plans))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends


def rounds(lake, mode: str) -> Callable[[int], tuple[PlanPointer, PlanPointer]]:
    """Build two indexes; gives a function that makes the pair of runs of a round."""
    first = publications.staged(lake, name="first", run_id="a", publish=mode)
    second = publications.staged(lake, name="second", metric="ip", run_id="b", publish=mode)

    def pair(number: int) -> tuple[PlanPointer, PlanPointer]:
        return (
            publications.another_run(first, f"a{number}"),
            publications.another_run(second, f"b{number}"),
        )

    return pair


def assert_both_ended_well(lake, plans, ends) -> None:
    table = lake.load()
    for plan, end in zip(plans, ends, strict=True):
        index = "first" if plan.run_id.startswith("a") else "second"
        if isinstance(end, Exception):
            assert isinstance(end, ConflictError), end
            assert not was_published(table, index, plan.run_id)
        else:
            assert table.io.new_input(end.path).exists()
    assert not all(isinstance(end, Exception) for end in ends), "one comes first"


@pytest.mark.parametrize("catalog", ["rest_lake", "embedded_lake"])
def test_two_writers_of_one_slot_lose_nothing_of_each_other(request, monkeypatch, catalog):
    lake = request.getfixturevalue(catalog)
    monkeypatch.setattr(commit_index_file, "WAIT_SECONDS", 0.01)
    lake.create(builds.rows(range(30)))
    pair = rounds(lake, "statistics")
    for number in range(ROUNDS_PER_TABLE):
        plans = pair(number)
        assert_both_ended_well(lake, plans, race(*plans))
        table = lake.load()
        assert len(table.snapshots()) == 1
        [entry] = table.metadata.statistics
        for name in ("first", "second"):
            builds.assert_answers(
                publications.open_index(table, name),
                table,
                entry.snapshot_id,
                publications.QUERIES,
                4,
            )


@pytest.mark.parametrize("catalog", ["rest_lake", "embedded_lake"])
def test_two_writers_of_tags_both_publish(request, monkeypatch, catalog):
    lake = request.getfixturevalue(catalog)
    monkeypatch.setattr(commit_index_file, "WAIT_SECONDS", 0.01)
    lake.create(builds.rows(range(30)))
    pair = rounds(lake, "tag")
    for number in range(ROUNDS_PER_TABLE):
        ends = race(*pair(number))
        assert not any(isinstance(end, Exception) for end in ends), ends
    table = publications.assert_sound(lake, "first", "second", raced=True)
    assert len(own_tags(table)) == 2 * ROUNDS_PER_TABLE
    assert [entry.snapshot_id for entry in table.history()] == [table.metadata.current_snapshot_id]


def test_one_run_that_publishes_twice_at_once_has_one_tag(rest_lake, monkeypatch):
    monkeypatch.setattr(commit_index_file, "WAIT_SECONDS", 0.01)
    rest_lake.create(builds.rows(range(30)))
    plan = publications.staged(rest_lake, publish="tag")
    ends = race(plan, plan)
    assert not any(isinstance(end, Exception) for end in ends), ends
    table = publications.assert_sound(rest_lake, raced=True)
    assert {end.snapshot_id for end in ends} == own_tags(table).keys()
