"""What names a run: made of a table, or of the location of a plan that was staged before."""

import json
import pickle

import pytest

from puffin_ann.errors import StagingError
from puffin_ann.lifecycle.documents.run_ref import RunRef

FOLDER = "s3://bucket/demo/words/metadata/_ann-staging"
PLAN = f"{FOLDER}/words_index/build-1/plan.json"


def test_a_plans_location_names_index_and_run():
    run = RunRef.at("demo.glove.words", PLAN)
    assert run == RunRef("demo.glove.words", "words_index", "build-1", FOLDER)
    assert (run.plan, run.folder) == (PLAN, PLAN.removesuffix("/plan.json"))


def test_a_plan_that_lies_in_another_folder_than_one_would_now_is_found_there():
    former = PLAN.replace("_ann-staging", "ann-staging")
    assert RunRef.at("demo.glove.words", former).plan == former


def test_what_the_tasks_after_the_plan_are_told_names_the_same_run():
    run = RunRef.at("demo.glove.words", PLAN)
    told = json.loads(json.dumps(run.as_json()))
    assert told == {"table": "demo.glove.words", "plan": PLAN, "run_id": "build-1"}
    assert RunRef.at(told["table"], told["plan"]) == run


@pytest.mark.parametrize(
    "location",
    [
        "",
        "plan.json",
        f"{FOLDER}/plan.json",
        f"{FOLDER}/words_index/plan.json",
        f"{FOLDER}/words_index/build-1/train.json",
        f"{FOLDER}/words_index/build-1/more/plan.json",
        "s3://bucket/demo/words/data/words_index/build-1/plan.json",
    ],
)
def test_a_location_where_no_plan_is_staged_is_refused_by_name(location):
    with pytest.raises(StagingError, match="not the location of a staged plan"):
        RunRef.at("demo.glove.words", location)


def test_it_is_small_enough_for_every_task_of_a_run():
    assert len(pickle.dumps(RunRef.at("demo.glove.words", PLAN))) < 400
