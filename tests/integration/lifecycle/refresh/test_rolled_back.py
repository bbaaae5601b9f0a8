"""A table that was rolled back: what is published after that is the newest, wherever it stands."""

import numpy as np
import pytest

from puffin_ann import open_index
from puffin_ann.lake.metadata.registered import find_registered, publication_number
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.report.history import history
from puffin_ann.lifecycle.report.status import status
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from tests.support.lifecycle import builds
from tests.support.lifecycle.refreshes import assert_right, declared, newest, refresh, roll_back

TABLE = "test.demo.words"
FAR_MS = 4_000_000_000_000
"""Long after any time of grace."""


def metric_of_answers(table):
    """Return by which metric the head is searched, held to brute force."""
    assert_right(table, None)
    return open_index(table, builds.INDEX).version.routing.metric


def before_its_index(table):
    """Roll back to the snapshot whose rows the newest version covers, and which has an own one."""
    roll_back(table, newest(table).coverage.base_snapshot_id)


def assert_nothing_is_left_to_do(table, declaration):
    before = table.refresh().metadata_location
    for maintenance in (False, True, False):
        done = refresh_in_process(
            declaration, run_id="unchanged", maintenance=maintenance, force=True
        )
        assert (done["action"], "nothing changed since" in done["reason"]) == ("none", True)
    assert table.refresh().metadata_location == before


@pytest.mark.parametrize("publish", ["statistics", "tag", "auto"])
def test_another_metric_is_built_once_and_searched_by(build, publish):
    table = build(declared(metric="cosine"))
    before_its_index(table)
    other = declared(metric="l2", publish=publish, retention={"versions": 1})
    done = refresh(table, other, "other")
    assert (done["action"], "metric 'cosine' → 'l2'" in done["reason"]) == ("build", True)
    assert metric_of_answers(table) == "l2"
    (now,) = status(table, builds.INDEX)
    assert now.metric == "l2"
    assert_nothing_is_left_to_do(table, other)
    assert [entry.record.run_id for entry in history(TABLE, builds.INDEX).entries] == [
        "other",
        "build",
    ]
    for keep in (lambda: guard(TABLE, [other]), lambda: clean(TABLE, [other], at_ms=FAR_MS)):
        keep()
        assert metric_of_answers(table.refresh()) == "l2"
        assert_nothing_is_left_to_do(table, other)


@pytest.mark.parametrize("publish", ["statistics", "tag"])
def test_what_is_due_is_done_once(build, publish):
    table = build(declared("vamana", refresh={"delta_ratio": 1.0}))
    table.append(builds.rows(range(60, 80)))
    refresh(table, declared("vamana", refresh={"delta_ratio": 1.0}), "append")
    before_its_index(table)
    merging = declared("vamana", refresh={"delta_ratio": 0.05}, publish=publish)
    assert "the next change or maintenance merges" in refresh(table, merging, "look")["reason"]
    assert refresh(table, merging, "merge", maintenance=True)["action"] == "refresh"
    assert [shard.kind for shard in newest(table).routing.shards] == ["graph", "graph"]
    assert_nothing_is_left_to_do(table, merging)


def test_an_older_version_of_another_metric_does_not_answer_however_few_rows_it_lacks(build):
    table = build(declared(metric="cosine"))
    first = newest(table).coverage.base_snapshot_id
    table.append(builds.rows(range(60, 70)))
    other = declared(metric="l2")
    assert refresh(table, other, "other")["action"] == "build"
    roll_back(table, first)
    index = open_index(table, builds.INDEX)
    assert (index.version.routing.metric, index.view.rows_masked) == ("l2", 10)
    builds.assert_answers_are(index, builds.live(table), np.eye(builds.DIMENSION)[:3], 5)
    done = refresh_in_process(other, run_id="early")
    assert (done["action"], "min_rows" in done["reason"]) == ("none", True)
    assert refresh(table, other, "late")["action"] == "refresh"
    assert_nothing_is_left_to_do(table, other)


def test_a_declaration_that_goes_back_with_its_table_is_built_again(build):
    before = declared(metric="cosine")
    table = build(before)
    first = newest(table).coverage.base_snapshot_id
    table.append(builds.rows(range(60, 70)))
    refresh(table, declared(metric="l2"), "other")
    roll_back(table, first)
    assert refresh(table, before, "back")["action"] == "build"
    assert metric_of_answers(table) == "cosine"
    assert_nothing_is_left_to_do(table, before)


def test_each_publication_has_a_number_above_those_before(build):
    table = build(declared())
    for number in range(3):
        table.append(builds.rows(range(60 + number, 61 + number)))
        refresh(table, declared(), f"append-{number}")
    numbers = [publication_number(entry.path) for entry in find_registered(table)]
    assert numbers == sorted(set(numbers), reverse=True)
    assert numbers[0] == 4


def test_numbers_go_on_where_registrations_were_lost(build):
    table = build(declared(publish="statistics"))
    for number in range(2):
        table.append(builds.rows(range(60 + number, 61 + number)))
        refresh(table, declared(publish="statistics"), f"append-{number}")
    for entry in tuple(table.metadata.statistics):
        with table.update_statistics() as update:
            update.remove_statistics(entry.snapshot_id)
    other = declared(metric="l2", publish="statistics")
    assert refresh(table.refresh(), other, "anew")["action"] == "build"
    guard(TABLE, [other])
    assert metric_of_answers(table.refresh()) == "l2"
    assert_nothing_is_left_to_do(table, other)
