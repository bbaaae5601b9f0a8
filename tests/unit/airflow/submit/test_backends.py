"""What an installation registers: its own operators, by the names that declarations choose."""

import json
import runpy
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from airflow.sdk import BaseOperator
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from airflow.serialization.serialized_objects import DagSerialization
from airflow.triggers.base import BaseTrigger
from pyiceberg.catalog import load_catalog

from puffin_ann.airflow import Submission
from puffin_ann.airflow.operators import submit_stage
from puffin_ann.airflow.submit.backends import Backend, known_backends
from puffin_ann.declaration import folder
from puffin_ann.errors import BadInputError, PuffinAnnError, StoreUnavailableError
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.runs.last_words import leave_last_words
from tests.support.airflow.task_instance import task_instance

DAG_FILE = """
from puffin_ann.airflow import index_dags
from airflow.sdk import BaseOperator

class Elsewhere(BaseOperator):
    template_fields = ("arguments",)
    done = []

    def __init__(self, submission, **kwargs):
        super().__init__(task_id="elsewhere", **kwargs)
        self.submission, self.arguments = submission, submission.arguments

    def execute(self, context):
        self.done.append(self.submission)

    def on_kill(self):
        self.done.append("killed")

def elsewhere(submission):
    return Elsewhere(submission=submission)

dags = index_dags(folder="indexes", submit={"elsewhere": elsewhere})
globals().update(dags)
"""
DECLARED = """
table: demo.glove.words
column: embedding
shards: 4
spark: {submit: elsewhere, conf: {spark.a: "{{ b }}"}, env: {HOME: /h}}
"""
SECRET = """
table: demo.glove.words
column: embedding
shards: 4
spark:
  submit: elsewhere
  conf: {spark.a.token: S3cret-conf}
  env: {DB_PASSWORD: S3cret-env}
  files: ["https://u:S3cret-file@host/f"]
  applications: https://u:S3cret-apps@host/apps
"""
SECRETS = {
    *("S3cret-conf", "S3cret-env", "https://u:S3cret-file@host/f"),
    "https://u:S3cret-apps@host/apps",
}


@pytest.fixture
def installed(tmp_path, declarations, monkeypatch):
    """What a DAG file has that registers an operator, which one of two declarations names."""
    monkeypatch.setattr(folder, "_named", {})
    (declarations / "words.yaml").write_text(DECLARED)
    (declarations / "others.yaml").write_text(DECLARED.replace("elsewhere", "nowhere"))
    (declarations / "secret.yaml").write_text(SECRET)
    file = tmp_path / "vectors.py"
    file.write_text(DAG_FILE)
    return runpy.run_path(str(file))


@pytest.fixture
def context():
    ti = task_instance("s3://b/{{ plan }}")
    return {"ti": ti, "run_id": "manual__1", "params": {}}


@pytest.mark.parametrize("task_id", ["train", "build_shards"])
def test_a_registered_operator_gets_what_is_declared_and_the_arguments_of_the_run(
    installed, context, task_id
):
    dag = installed["ann_build_words"]
    task = dag.get_task(task_id)
    if task_id == "build_shards":
        task = task.unmap({"group": "001"})
    task.render_template_fields(context, jinja_env=dag.get_template_env())
    task.execute(context)
    (given,) = installed["Elsewhere"].done
    assert isinstance(given, Submission)
    assert given.name == f"ann_build_words.{task_id}"
    assert Path(given.application).is_file()
    assert given.arguments[:4] == ("--table", "demo.glove.words", "--plan", "s3://b/{{ plan }}")
    assert ("--group" in given.arguments) == (task_id == "build_shards")
    assert given.spark.as_conf() == {"spark.a": "{{ b }}", "spark.executorEnv.HOME": "/h"}
    task.on_kill()
    assert installed["Elsewhere"].done[-1] == "killed"


@pytest.mark.parametrize(("prints_here", "followed"), [(None, True), (False, True), (True, False)])
def test_a_task_follows_an_application_whose_prints_it_does_not_see(
    installed, context, monkeypatch, prints_here, followed
):
    seen = []

    @contextmanager
    def following(table, plan, attempt, tell):
        seen.append((table, plan, attempt))
        yield

    monkeypatch.setattr("puffin_ann.lifecycle.runs.told_progress.following_progress", following)
    if prints_here is not None:
        installed["Elsewhere"].prints_here = prints_here
    installed["ann_build_words"].get_task("train").execute(context)
    arguments = installed["Elsewhere"].done[-1].arguments
    attempt = arguments[arguments.index("--attempt") + 1]
    assert seen == ([("demo.glove.words", "s3://b/{{ plan }}", attempt)] if followed else [])


def test_a_name_that_nobody_registered_is_told_by_a_dag_that_fails(installed):
    dags = installed["dags"]
    assert {"ann_build_words", "ann_refresh_words", "ann_build_others"} <= set(dags)
    assert "ann_refresh_others" not in dags
    said = dags["ann_build_others"].doc_md
    assert "'nowhere'" in said
    assert "elsewhere, livy, spark_submit" in said


def test_a_stored_dag_names_what_submits_and_keeps_the_settings_to_itself(installed):
    stored = json.dumps(DagSerialization.to_dict(installed["ann_build_words"]))
    assert '"backend": "elsewhere"' in stored
    assert "spark.a" not in stored
    assert " at 0x" not in stored  # or it would differ with each parse
    for kind in ("build", "refresh", "maintain", "evaluate"):
        stored = json.dumps(DagSerialization.to_dict(installed[f"ann_{kind}_secret"]))
        assert "S3cret" not in stored


def test_airflow_hides_declared_secrets_in_whatever_a_stage_logs(installed, context, monkeypatch):
    hidden = []
    monkeypatch.setattr(submit_stage, "mask_secret", hidden.append)
    done = installed["Elsewhere"].done
    monkeypatch.setattr(installed["Elsewhere"], "execute", lambda *_: done.append({*hidden}))
    installed["ann_build_secret"].get_task("train").execute(context)
    assert done == [SECRETS]


class Waiting(BaseOperator):
    """An operator that waits in the triggerer."""

    def __init__(self, *, submission: Submission, **kwargs) -> None:
        super().__init__(task_id="waiting", **kwargs)
        self.submission = submission

    def execute(self, context):
        assert ExecutorSafeguard.tracker.get() is self  # Airflow takes it for the task itself
        self.defer(trigger=Never(), method_name="came_back")

    def came_back(self, context, event):
        context["came_back"] = (event, self.submission.arguments)


def waiting(submission: Submission) -> Waiting:
    return Waiting(submission=submission)


class Never(BaseTrigger):
    def serialize(self):
        return "never", {}

    async def run(self):
        yield


def test_an_operator_may_wait_in_the_triggerer(load_dags, declarations, context):
    task = load_dags()["ann_build_words"].get_task("train")
    task.backend = Backend("waiting", waiting, lambda _: None)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context)
    task.resume_execution(deferred.value.method_name, {"event": "e"}, context)
    event, arguments = context["came_back"]
    assert event == "e"
    assert "s3://b/{{ plan }}" in arguments


def test_what_is_registered_comes_before_what_this_package_has():
    assert known_backends({"livy": waiting})["livy"].make is waiting
    assert known_backends({})["livy"].make is not waiting
    with pytest.raises(BadInputError, match="'a-b'"):
        known_backends({"a-b": waiting})


class Failing(BaseOperator):
    """An operator of a service that tells no more than that an application failed."""

    def __init__(
        self, *, submission: Submission, error: PuffinAnnError | None, says: str, **kwargs
    ) -> None:
        super().__init__(task_id="failing", **kwargs)
        self.submission = submission
        self.error, self.says = error, says

    def execute(self, context):
        given = dict(pairwise(self.submission.arguments))
        if self.error is not None:
            leave_last_words(given["--table"], given["--plan"], given["--attempt"], self.error)
        raise RuntimeError(self.says)


@pytest.fixture
def failing(known_catalogs, load_dags, tmp_path):
    """Execute a stage, on a cluster, that fails by an error of ours, or of others."""
    known_catalogs(
        "demo", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}"
    )
    catalog = load_catalog("demo")
    catalog.create_namespace("glove")
    table = catalog.create_table("glove.words", schema=pa.schema([("id", pa.int64())]))
    task = load_dags()["ann_build_words"].get_task("train")

    def run(
        error: PuffinAnnError | None, says: str = "application_1 ended with final status: FAILED"
    ) -> None:
        make = partial(Failing, error=error, says=says)
        task.backend = Backend("failing", lambda given: make(submission=given), lambda _: None)
        plan = RunRef.on(table, "words", "run").plan
        task.execute({"ti": task_instance(plan), "run_id": "manual__1"})

    return run


def test_what_another_attempt_would_find_again_fails_for_good_wherever_the_driver_is(failing):
    with pytest.raises(AirflowFailException, match=r"^3 vectors are null$"):
        failing(BadInputError("3 vectors are null"))


def test_anything_else_that_an_application_says_is_tried_again(failing):
    with pytest.raises(AirflowException, match=r"^the store is silent$") as failed:
        failing(StoreUnavailableError("the store is silent"))
    assert not isinstance(failed.value, AirflowFailException)


def test_what_a_service_says_is_told_without_its_secrets(failing):
    with pytest.raises(AirflowException, match=r"^RuntimeError: mysql://\*\*\*@db is gone$"):
        failing(None, says="mysql://svc:S3cretPw@db is gone")


def test_where_it_says_nothing_the_service_is_heard(failing):
    with pytest.raises(RuntimeError, match="final status: FAILED"):
        failing(None)
