"""A run whose staging vanishes fails, and is planned anew when it is started again."""

import os
from pathlib import Path

import pytest

from puffin_ann import open_index
from puffin_ann.errors import StagingError, StagingGoneError
from puffin_ann.lifecycle.build import stages
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.refresh import stages as refresh_stages
from puffin_ann.lifecycle.runs import build, publish
from puffin_ann.lifecycle.runs.evaluate import plan_evaluation
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.lifecycle.runtime.runners import InProcess
from tests.support.lake import table_events
from tests.support.lifecycle import builds

STAGES = ("train", "assign", "build", "gate", "publish")


def folder(plan) -> Path:
    return Path(plan.plan.rpartition("/")[0].removeprefix("file://"))


def remove(plan, beginning: str = "") -> None:
    for file in list(folder(plan).iterdir()):
        if file.name.startswith(beginning):
            file.unlink()


def run_stage(plan, stage: str) -> None:
    runner, run = InProcess(), RunRef.planned(plan)
    if stage == "build":
        for group in plan.groups:
            stages.build_group(runner, run, group)
    elif stage == "publish":
        publish.publish(run)
    else:
        getattr(stages, stage)(runner, run)


def planned(run_id: str = "run"):
    return build.plan_build(builds.declaration(), run_id=run_id)


@pytest.mark.parametrize("before", STAGES)
def test_everything_vanishes_before_a_stage(words, before):
    plan = planned()
    for stage in STAGES[: STAGES.index(before)]:
        run_stage(plan, stage)
    remove(plan)
    with pytest.raises(StagingGoneError, match=r"plan of run run .* is gone"):
        run_stage(plan, before)

    again = planned()

    for stage in STAGES:
        run_stage(again, stage)
    table_events.assert_alive(words)


@pytest.mark.parametrize(
    ("kind", "before"),
    [
        ("train", "assign"),
        ("assign", "build"),
        ("segment", "build"),
        ("group", "gate"),
        ("shard", "gate"),
        ("shard", "publish"),
        ("staged-index", "publish"),
        ("gate", "publish"),
        ("plan", "assign"),
    ],
)
def test_one_kind_of_object_vanishes_before_a_stage_that_needs_it(words, kind, before):
    plan = planned()
    for stage in STAGES[: STAGES.index(before)]:
        run_stage(plan, stage)
    remove(plan, kind)
    for _ in range(2):  # tried again as it is, it says the same
        with pytest.raises(StagingGoneError, match="again"):
            run_stage(plan, before)

    again = planned()

    assert (plan.run_id, again.run_id) == ("run", "run-2")
    assert planned() == again
    for stage in STAGES:
        run_stage(again, stage)
    table_events.assert_alive(words)


def test_outcomes_without_their_plan_are_not_used_by_a_plan_of_another_state_of_the_table(words):
    plan = planned()
    run_stage(plan, "train")
    words.append(builds.rows(range(60, 90)))
    remove(plan, "plan.json")
    again = planned()
    assert again.run_id == "run-2"
    for stage in STAGES:
        run_stage(again, stage)
    assert open_index(words.refresh(), builds.INDEX).view.rows_to_scan == 0
    table_events.assert_alive(words)


def test_an_error_of_another_kind_is_told_as_it_is_and_the_run_goes_on(words, monkeypatch):
    plan = planned()
    run_stage(plan, "train")

    def broken(*_, **__):
        raise StagingError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr("puffin_ann.lifecycle.build.assign.run_task", broken)
        with pytest.raises(StagingError, match=r"^disk full$"):
            run_stage(plan, "assign")
    assert planned() == plan
    for stage in STAGES[1:]:
        run_stage(plan, stage)
    table_events.assert_alive(words)


def test_an_evaluation_whose_staging_was_lost_is_planned_anew(words):
    builds.build(builds.declaration(), "first")
    lost = plan_evaluation(builds.declaration(), run_id="measured")
    (folder(lost) / "plan.json").rename(folder(lost) / "evaluation.json")
    assert plan_evaluation(builds.declaration(), run_id="measured").run_id == "measured-2"


def test_a_refresh_within_one_process_plans_anew_by_itself(words, monkeypatch):
    builds.build(builds.declaration(), "first")
    words.refresh().append(builds.rows(range(60, 70)))
    read, removed = refresh_stages.read_changes, []

    def read_and_lost(runner, run):
        found = read(runner, run)
        if not removed:
            for file in Path(run.folder.removeprefix("file://")).glob("*.json"):
                if file.name != "plan.json":
                    removed.append(file.name)
                    os.remove(file)
        return found

    monkeypatch.setattr(refresh_stages, "read_changes", read_and_lost)

    done = refresh_in_process(builds.declaration(), run_id="refresh", force=True)

    assert removed
    assert done["run_id"] == "refresh-2"
    assert open_index(words.refresh(), builds.INDEX).view.rows_to_scan == 0
    table_events.assert_alive(words)
