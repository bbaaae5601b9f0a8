"""Staged input that vanishes during a build is made again; the run ends published and right."""

import os
from pathlib import Path

import pytest

from puffin_ann.errors import StagingError
from puffin_ann.lifecycle.build import stages
from puffin_ann.lifecycle.runs import build, publish
from puffin_ann.lifecycle.runtime.runners import InProcess
from tests.support import builds, table_events

STAGES = ("train", "assign", "build", "gate", "publish")


def folder(plan) -> Path:
    return Path(plan["plan"].rpartition("/")[0].removeprefix("file://"))


def remove(plan, wanted=lambda name: True) -> int:
    """Remove staged objects, all but what is hidden, as orphan removal does."""
    found = [one for one in folder(plan).iterdir() if one.name[0] not in "_." and wanted(one.name)]
    for one in found:
        os.remove(one)
    return len(found)


def run_stage(plan, stage: str) -> None:
    runner, where = InProcess(), (plan["table"], plan["plan"])
    if stage == "build":
        for group in plan["groups"]:
            stages.build_group(runner, *where, group)
    elif stage == "publish":
        publish.publish(*where)
    else:
        getattr(stages, stage)(runner, *where)


@pytest.mark.parametrize("before", STAGES)
def test_everything_vanishes_before_a_stage(words, before):
    plan = build.plan_build(builds.declaration(), run_id="run")
    for stage in STAGES:
        if stage == before:
            assert remove(plan)
        run_stage(plan, stage)
    table_events.assert_alive(words)


@pytest.mark.parametrize(
    "kind", ["train", "assign", "segment", "shard", "candidate", "group", "gate"]
)
def test_one_kind_of_object_vanishes_before_every_stage(words, kind):
    plan = build.plan_build(builds.declaration(), run_id="run")
    for stage in STAGES:
        remove(plan, lambda name: name.startswith(kind))
        run_stage(plan, stage)
    table_events.assert_alive(words)


def test_a_plan_is_never_made_again_from_another_state_of_the_table(words):
    plan = build.plan_build(builds.declaration(), run_id="run")
    run_stage(plan, "train")
    words.append(builds.rows(range(60, 90)))
    remove(plan, lambda name: name == "plan.json")
    again = build.plan_build(builds.declaration(), run_id="run")
    assert again == plan
    for stage in STAGES[1:]:
        run_stage(plan, stage)
    table_events.assert_alive(words)


def test_an_error_of_another_kind_is_told_as_it_is(words, monkeypatch):
    plan = build.plan_build(builds.declaration(), run_id="run")
    run_stage(plan, "train")
    calls = []

    def broken(*_, **__):
        calls.append(True)
        raise StagingError("disk full")

    monkeypatch.setattr("puffin_ann.lifecycle.build.assign.run_task", broken)
    with pytest.raises(StagingError, match="disk full"):
        run_stage(plan, "assign")
    assert len(calls) == 1


def test_a_run_whose_plan_is_gone_with_its_copy_says_so(words):
    plan = build.plan_build(builds.declaration(), run_id="run")
    remove(plan)
    os.remove(folder(plan) / "_plan.json")
    with pytest.raises(StagingError, match=r"plan\.json"):
        run_stage(plan, "train")
