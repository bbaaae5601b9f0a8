"""Stages of a build that are done twice, broken off, or handed what is not theirs."""

import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from puffin_ann.errors import (
    StagingError,
)
from puffin_ann.lifecycle.build import stages
from puffin_ann.lifecycle.documents.run import BuildPlan, PlanPointer
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.runs import build, publish
from puffin_ann.lifecycle.runtime import progress
from puffin_ann.lifecycle.runtime.progress import Meter
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.lifecycle.runtime.workspace import Workspace
from tests.support.lifecycle import builds
from tests.support.lifecycle.publications import runs_published


def test_every_stage_can_be_run_twice_and_publishes_once(words):
    plan = build.plan_build(builds.declaration(), run_id="run")
    assert build.plan_build(builds.declaration(), run_id="run") == plan
    builds.run_stages(plan)
    builds.run_stages(plan)
    first = publish.publish(RunRef.planned(plan))
    assert publish.publish(RunRef.planned(plan)) == first
    publish.report(plan)
    publish.report(plan)
    assert runs_published(words) == ["run"]


@pytest.fixture
def meters(monkeypatch) -> dict[str, Meter]:
    """By what they count, the meters of all that is dealt out to tasks."""
    found: dict[str, Meter] = {}

    @contextmanager
    def metering(what, *arguments):
        with progress.metering(what, *arguments) as meter:
            yield meter
        found[what] = meter

    monkeypatch.setattr("puffin_ann.lifecycle.runtime.run_each.metering", metering)
    return found


def test_stages_know_how_much_there_is_to_do_and_when_it_is_done(words, meters):
    plan = build.plan_build(builds.declaration(), run_id="run")
    builds.run_stages(plan)
    rows = sum(file.rows for file in _plan_of(plan).files)
    for what in ("sample", "assign rows", "build shard"):
        meter = meters[what]
        assert sum(meter.size.rows) == rows
        assert sum(meter.size.bytes) == 4 * _plan_of(plan).dimension * rows
        assert meter.line(10).startswith(f"{what}: 100% done after 10 s")


def test_an_engine_says_how_far_a_shard_is(words, meters):
    builds.run_stages(build.plan_build(builds.declaration(algorithm="vamana"), run_id="run"))
    shares = meters["build shard"].shares
    assert set(shares) == {0, 1}
    assert all(0 < share < 1 for share in shares.values()), "it is still to be staged"


def _plan_of(plan: PlanPointer) -> BuildPlan:
    return Workspace.open(RunRef.planned(plan)).build_plan


def test_a_publish_task_that_died_after_the_commit_finds_what_it_published(words):
    plan = build.plan_build(builds.declaration(), run_id="run")
    builds.run_stages(plan)
    first = publish.publish(RunRef.planned(plan))
    folder = words.location().removeprefix("file://") + "/metadata"
    staged = plan.plan.removeprefix("file://").rpartition("/")[0]
    os.remove(f"{staged}/publish.json")  # the commit landed, the document was never written
    again = publish.publish(RunRef.planned(plan))
    assert (again.snapshot_id, again.path) == (first.snapshot_id, first.path)
    files = [name for name in os.listdir(folder) if name.endswith(".puffin")]
    assert len(files) == 1


def test_a_plan_that_is_not_there_or_not_one_is_named(words):
    with pytest.raises(StagingError, match="not the location of a staged plan"):
        RunRef.at("test.demo.words", "/etc/passwd")
    gone = f"{words.location()}/metadata/_ann-staging/{builds.INDEX}/gone/plan.json"
    with pytest.raises(StagingError, match="gone"):
        stages.train(InProcess(), RunRef.at("test.demo.words", gone))


def test_a_staged_file_that_was_changed_is_noticed(words):
    plan = build.plan_build(builds.declaration(), run_id="run")
    run = RunRef.planned(plan)
    stages.train(InProcess(), run)
    stages.assign(InProcess(), run)
    folder = Path(plan.plan.removeprefix("file://")).parent
    segment = next(folder.glob("segment-*"))
    data = bytearray(segment.read_bytes())
    data[5] ^= 1
    segment.write_bytes(bytes(data))
    first = plan.groups[0]  # its shard's block begins the segment
    with pytest.raises(StagingError, match="checksum differs"):
        stages.build_group(InProcess(), run, first)
