"""A clean-up without any grace spares builds that go on, and one that came too late says so."""

import os
import threading
import time
from pathlib import Path

import pytest

from puffin_ann.errors import StagingError
from puffin_ann.lifecycle.build import stages
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.runs import build, publish
from puffin_ann.lifecycle.runtime import heartbeat
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.moments import now_ms
from tests.support.lake import table_events
from tests.support.lifecycle import builds


def folder(plan) -> Path:
    return Path(plan.plan.rpartition("/")[0].removeprefix("file://"))


def test_a_clean_up_without_grace_between_any_two_stages_harms_no_build(words):
    plan = build.plan_build(builds.declaration(), run_id="run")
    run = RunRef.planned(plan)
    works = [(stages.train,), (stages.assign,)]
    works += [*((stages.build_group, group) for group in plan.groups), (stages.gate,)]
    for stage, *group in works:
        report = clean(words, grace="0s")
        assert report.gone == ()
        assert [orphan.kind for orphan in report.waiting] == ["staging"]
        stage(InProcess(), run, *group)
    clean(words, grace="0s")
    publish.publish(run)
    table_events.assert_alive(words)


def test_a_file_that_is_about_to_be_published_is_spared(words, monkeypatch):
    from puffin_ann.lifecycle.publish import assemble

    commit = assemble.commit_index_file
    plan = build.plan_build(builds.declaration(), run_id="run")
    builds.run_stages(plan)

    def cleaned_before(*arguments, **options):
        assert clean(words, grace="0s").gone == ()
        return commit(*arguments, **options)

    monkeypatch.setattr(assemble, "commit_index_file", cleaned_before)
    publish.publish(RunRef.planned(plan))
    table_events.assert_alive(words)


def test_what_a_failed_run_left_goes_after_a_quarter_of_an_hour(words):
    plan = build.plan_build(builds.declaration(), run_id="run")
    at = now_ms() + heartbeat.ALIVE_MS
    assert clean(words, grace="0s", at_ms=at - 60_000).gone == ()
    assert [orphan.kind for orphan in clean(words, grace="0s", at_ms=at + 1000).gone] == ["staging"]
    assert not folder(plan).exists()


def test_a_stage_that_works_for_hours_on_one_thing_stays_alive(words, monkeypatch):
    monkeypatch.setattr(heartbeat, "EVERY_SECONDS", 0.01)
    plan = build.plan_build(builds.declaration(), run_id="run")
    hours_ago = time.time() - 5 * 3600
    for name in os.listdir(folder(plan)):
        os.utime(folder(plan) / name, (hours_ago, hours_ago))
    seen = []

    def slow(*arguments):
        sign = folder(plan) / heartbeat.SIGN
        while not sign.exists():
            time.sleep(0.01)
        seen.append(clean(words, grace="0s").gone)
        raise KeyboardInterrupt

    monkeypatch.setattr(stages.training, "sample_tasks", slow)
    with pytest.raises(KeyboardInterrupt):
        stages.train(InProcess(), RunRef.planned(plan))
    assert seen == [()]
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith("heartbeat ")
    ], "it goes on touching"


def test_a_run_whose_staging_was_cleared_says_who_may_have_done_it_and_what_to_do(words):
    plan = build.plan_build(builds.declaration(), run_id="run")
    clean(words, at_ms=now_ms() + 25 * table_events.HOUR_MS)
    with pytest.raises(StagingError) as caught:
        stages.train(InProcess(), RunRef.planned(plan))
    said = str(caught.value)
    for expected in (
        "run run",
        "puffin-ann clean",
        "retention.grace",
        f"puffin-ann build {builds.INDEX} --force",
    ):
        assert expected in said
