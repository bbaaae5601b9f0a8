"""A run whose machine went down, and left a torn plan, is planned again."""

import json
from pathlib import Path

import pytest

from puffin_ann.errors import StagingGoneError
from puffin_ann.lifecycle.build import stages
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.runs.build import plan_build
from puffin_ann.lifecycle.runs.evaluate import plan_evaluation
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.search.open_index import open_index
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds

torn = pytest.mark.parametrize("left", [b"", bytes(300), b'{"kind": "refre'])


def leave(table, run_id: str, plan: bytes) -> Path:
    """Leave a torn plan, and the outcome of a stage, in a run's folder."""
    folder = Path(RunRef.on(table, builds.INDEX, run_id).folder.removeprefix("file://"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_bytes(plan)
    (folder / "changes.json").write_text(json.dumps({"gone": [], "of": "another plan"}))
    (folder / "train.json").write_text(json.dumps({"of": "another plan"}))
    return folder


@torn
def test_a_build_is_planned_again(words, left):
    leave(words, "run", left)

    plan = builds.build(builds.declaration(), "run")

    assert (plan.action, plan.run_id) == ("build", "run")
    assert open_index(words.refresh(), builds.INDEX).view.rows_to_scan == 0


def test_a_refresh_is_planned_again(words):
    builds.build(builds.declaration(), "first")
    words.refresh()
    file = next(iter(words.scan().plan_files())).file.file_path
    delete_positions(words, {file: [0, 1]})
    leave(words, "refresh", b'{"kind": "refre')

    done = refresh_in_process(builds.declaration(), run_id="refresh", force=True)

    assert (done["action"], done["run_id"]) == ("refresh", "refresh")
    view = open_index(words.refresh(), builds.INDEX).view
    assert (view.rows_masked, view.rows_to_scan) == (0, 0)


def test_an_evaluation_is_planned_again(words):
    builds.build(builds.declaration(), "first")
    folder = leave(words, "measured", b"")

    planned = plan_evaluation(builds.declaration(), run_id="measured")

    assert planned.run_id == "measured"
    assert not (folder / "train.json").exists()


def test_a_stage_of_a_torn_plan_says_to_start_the_run_again(words):
    plan = plan_build(builds.declaration(), run_id="run")
    leave(words, "run", b"")
    with pytest.raises(StagingGoneError, match="Start it again"):
        stages.train(InProcess(), RunRef.planned(plan))

    again = builds.build(builds.declaration(), "run")

    assert again.run_id == "run-2"
