"""Stages that go through Livy: to a stand-in that takes, plays, fails and cancels them."""

import json
import sys
from types import SimpleNamespace

import pytest
from airflow.providers.apache.livy.operators import livy as operators
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from puffin_ann.airflow.submit import livy as backend
from puffin_ann.declaration import SparkOptions
from puffin_ann.errors import BadInputError, NotInstalledError
from tests.support.airflow.task_instance import task_instance
from tests.support.servers.livy_server import Livy, livy_server

DECLARED = """
spark:
  submit: livy
  conn_id: livy_words
  conf: {spark.executor.memory: 2g}
  env: {PYICEBERG_HOME: /etc/iceberg}
  files: ["hdfs:///log4j2.properties"]
  archives: ["hdfs:///puffin-ann.tar.gz#environment"]
  applications: hdfs:///apps
"""


def while_it_sleeps(monkeypatch, act) -> None:
    """Act in place of the operator's pauses, and of nobody else's: other threads sleep, too."""
    monkeypatch.setattr(operators, "time", SimpleNamespace(sleep=lambda _: act()))


@pytest.fixture
def livy(monkeypatch) -> Livy:
    with livy_server() as served:
        conn = {"conn_type": "livy", "host": "127.0.0.1", "port": served.port}
        monkeypatch.setenv("AIRFLOW_CONN_LIVY_WORDS", json.dumps(conn))
        yield served


@pytest.fixture
def stage(livy, declarations, load_dags, monkeypatch):
    """The train stage of an index that is declared to go through Livy, asked without pause."""
    monkeypatch.delenv("PYICEBERG_HOME", raising=False)
    while_it_sleeps(monkeypatch, lambda: None)
    with (declarations / "words.yaml").open("a") as out:
        out.write(DECLARED)
    return load_dags()["ann_build_words"].get_task("train")


@pytest.fixture
def context():
    ti = task_instance("s3://b/plan.json")
    return {"ti": ti, "run_id": "manual__1", "params": {}}


def test_a_stage_is_submitted_with_all_that_is_declared_and_ends_when_it_does(stage, livy, context):
    stage.execute(context)
    assert livy.batches == {
        1: {
            "file": "hdfs:///apps/train.py",
            "args": [
                *("--table", "demo.glove.words", "--plan", "s3://b/plan.json"),
                *("--attempt", "train.-1.2", "--owner", "build/manual__1"),
            ],
            "conf": {
                "spark.app.name": "ann_build_words.train",
                "spark.executor.memory": "2g",
                "spark.executorEnv.PYICEBERG_HOME": "/etc/iceberg",
                "spark.yarn.appMasterEnv.PYICEBERG_HOME": "/etc/iceberg",
                "spark.kubernetes.driverEnv.PYICEBERG_HOME": "/etc/iceberg",
            },
            "files": ["hdfs:///log4j2.properties"],
            "archives": ["hdfs:///puffin-ann.tar.gz#environment"],
        }
    }
    assert livy.states == ["success"]  # it was asked until the end


def test_what_livy_logged_is_in_the_log_of_the_task(stage, livy, context, capsys):
    livy.log = ["INFO begun", "1000 rows assigned"]
    stage.execute(context)
    assert "1000 rows assigned" in capsys.readouterr().out


@pytest.mark.parametrize("state", ["dead", "error", "killed"])
def test_a_stage_that_fails_fails_its_task_with_the_log(stage, livy, context, capsys, state):
    livy.states, livy.log = ["running", state], ["error: the catalog is silent"]
    with pytest.raises(AirflowException, match="did not succeed"):
        stage.execute(context)
    assert "the catalog is silent" in capsys.readouterr().out


def test_a_batch_that_livy_does_not_take_fails_the_task_with_its_words(stage, livy, context):
    livy.refusal = "requirement failed: Local path /apps cannot be added to user sessions."
    with pytest.raises(AirflowException, match="cannot be added to user sessions"):
        stage.execute(context)


def test_a_killed_task_cancels_its_batch(stage, livy, context, monkeypatch):
    livy.states = ["running"]
    while_it_sleeps(monkeypatch, stage.on_kill)  # as a signal would
    with pytest.raises(AirflowException):
        stage.execute(context)
    assert livy.deleted == [1]


def test_a_plan_fails_where_the_provider_is_missing_and_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "airflow.providers.apache.livy.operators.livy", None)
    with pytest.raises(NotInstalledError, match=r"puffin-ann\[livy\]"):
        backend.check(SparkOptions(submit="livy"))


def test_a_plan_fails_where_the_connection_is_missing_or_one_to_spark(declarations):
    with pytest.raises(AirflowFailException, match="'livy_absent'"):
        backend.check(SparkOptions(submit="livy", conn_id="livy_absent"))
    with pytest.raises(BadInputError, match="one to Spark"):
        backend.check(SparkOptions(submit="livy", conn_id="spark_default"))
