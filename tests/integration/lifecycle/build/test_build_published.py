"""What a build publishes: one commit, of rows as they were planned, if its recall is enough."""

from dataclasses import replace

import numpy as np
import pytest

from puffin_ann import open_index
from puffin_ann.errors import (
    RecallTooLowError,
)
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.evaluate import ground_truth
from puffin_ann.lifecycle.report.status import status
from puffin_ann.lifecycle.runs import build, publish
from tests.support.lifecycle import builds

QUERIES = np.random.default_rng(5).normal(size=(6, builds.DIMENSION)).astype(np.float32)


def test_one_commit_publishes_summary_and_registration_and_changes_no_branch(words):
    before, log = words.refresh().metadata.refs, len(words.metadata.metadata_log)
    data = words.scan().to_arrow()
    builds.build(builds.declaration(), "run")
    words.refresh()
    ((held, tag),) = own_tags(words).items()
    assert len(words.metadata.metadata_log) == log + 1
    assert {name: ref for name, ref in words.metadata.refs.items() if name != tag} == before
    properties = words.snapshot_by_id(held).summary.additional_properties
    assert properties[f"ann.{builds.INDEX}.run-id"] == "run"
    assert properties[f"ann.{builds.INDEX}.vectors"] == "60"
    assert len([key for key in properties if key.startswith("ann.")]) <= 10
    (registered,) = words.metadata.statistics
    assert registered.snapshot_id == held
    assert registered.statistics_path == properties["statistics-file"]
    assert words.scan().to_arrow().equals(data)


def test_by_statistics_one_commit_registers_it_and_adds_no_snapshot(words):
    before, log = words.refresh().metadata.snapshots, len(words.metadata.metadata_log)
    data = words.scan().to_arrow()
    builds.build(builds.declaration(publish="statistics"), "run")
    words.refresh()
    assert len(words.metadata.metadata_log) == log + 1
    assert words.metadata.snapshots == before
    (registered,) = words.metadata.statistics
    assert registered.snapshot_id == words.current_snapshot().snapshot_id
    assert words.scan().to_arrow().equals(data)


@pytest.mark.usefixtures("published_by_statistics")
def test_indexes_of_one_table_are_carried_along(words):
    builds.build(builds.declaration(name="first"), "a")
    builds.build(builds.declaration(name="second", metric="ip"), "b")
    builds.build(builds.declaration(name="first"), "c", {"force": True})
    words.refresh()
    found = status(words)
    assert [state.index for state in found] == ["first", "second"]
    assert len({state.file for state in found}) == 1
    current = words.current_snapshot().snapshot_id
    for state in found:
        builds.assert_answers(open_index(words, state.index), words, current, QUERIES, 5)


def test_each_index_of_a_table_has_a_file_of_its_own(words):
    builds.build(builds.declaration(name="first"), "a")
    builds.build(builds.declaration(name="second", metric="ip"), "b")
    words.refresh()
    (first,) = status(words, "first")
    builds.build(builds.declaration(name="second", metric="ip"), "c", {"force": True})
    found = status(words.refresh())
    assert [state.index for state in found] == ["first", "second"]
    assert found[0].file == first.file != found[1].file
    current = words.current_snapshot().snapshot_id
    for state in found:
        builds.assert_answers(open_index(words, state.index), words, current, QUERIES, 5)


def test_rows_written_during_the_build_are_searched_and_the_base_stays_what_was_indexed(words):
    plan = build.plan_build(builds.declaration(), run_id="run")
    base = words.refresh().current_snapshot().snapshot_id
    words.append(builds.rows(range(60, 70)))
    builds.run_stages(plan)
    publish.publish(RunRef.planned(plan))
    words.refresh()
    (found,) = status(words)
    assert (found.base_snapshot_id, found.vectors, found.rows_to_scan) == (base, 60, 10)
    index = open_index(words, builds.INDEX)
    builds.assert_answers(index, words, words.current_snapshot().snapshot_id, QUERIES, 70)


def test_an_overwrite_during_the_build_leaves_no_deleted_row_to_be_found(words):
    plan = build.plan_build(builds.declaration(), run_id="run")
    builds.run_stages(plan)
    words.refresh().overwrite(builds.rows(range(100, 120)))
    publish.publish(RunRef.planned(plan))
    words.refresh()
    index = open_index(words, builds.INDEX)
    assert index.coverage == 0.0
    builds.assert_answers(index, words, words.current_snapshot().snapshot_id, QUERIES, 20)


def test_a_recall_under_the_target_publishes_nothing(words, monkeypatch):
    before = builds.snapshot_ids(words)
    plan = build.plan_build(builds.declaration(recall_target=1.0), run_id="run")
    honest = ground_truth.of_rows

    def nearer_than_any_row(*arguments, **options):
        answers = honest(*arguments, **options)
        return replace(answers, distances=answers.distances / 2)

    monkeypatch.setattr(ground_truth, "of_rows", nearer_than_any_row)
    with pytest.raises(RecallTooLowError, match=r"recall@5 is 0\.0.*target of 1\.0"):
        builds.run_stages(plan)
    with pytest.raises(RecallTooLowError):
        publish.publish(RunRef.planned(plan))
    assert builds.snapshot_ids(words) == before


def test_a_run_of_a_table_that_was_dropped_is_not_gone_on_with(words):
    first = build.plan_build(builds.declaration(), run_id="run")
    builds.run_stages(first)
    catalog, location = words.catalog, words.location()
    catalog.drop_table(words.name())
    again = catalog.create_table(words.name(), schema=builds.rows([]).schema, location=location)
    again.append(builds.rows(range(100, 140)))
    second = builds.build(builds.declaration(), "run")
    assert (first.run_id, second.run_id) == ("run", "run-2")
    index = open_index(again.refresh(), builds.INDEX)
    assert index.view.coverage == 1.0
    builds.assert_answers_are(
        index, builds.live(again), np.ones((1, builds.DIMENSION), np.float32), 5
    )
