"""How Airflow runs tasks: as we have it, as a DAG file says, and as a declaration does."""

import json
import runpy
from datetime import timedelta

import pytest
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.serialization.serialized_objects import DagSerialization

from puffin_ann.airflow.failures import log_failure
from puffin_ann.declaration import folder

DAG_FILE = """
from datetime import timedelta

from airflow.sdk import AsyncCallback, DeadlineAlert, DeadlineReference
from puffin_ann.airflow import index_dags

def failed(context): pass
def retried(context): pass
async def late(**context): pass

dags = index_dags(
    folder="indexes",
    default_args={
        "pool": "ann", "queue": "large", "retries": 5, "owner": "search",
        "on_failure_callback": failed, "on_retry_callback": [retried],
        "execution_timeout": timedelta(hours=1),
    },
    tags=["team-a"],
    on_failure_callback=failed,
    on_success_callback=[failed],
    deadline=DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT, interval=timedelta(hours=2),
        callback=AsyncCallback("test_settings.late"),
    ),
)
globals().update(dags)
"""
DECLARED = """
airflow:
  pool: words
  priority_weight: 7
  retries: 1
  retry_delay: 2m
  timeout: 6h
  tags: [gold]
"""
KINDS = ("build", "refresh", "maintain", "evaluate")
AT_ONCE = {"judge"}
"""Tasks that find the same whenever they are tried."""


@pytest.fixture
def installed(tmp_path, declarations, monkeypatch):
    """What a DAG file has that says how its DAGs are run; two declarations, of which one does."""
    monkeypatch.setattr(folder, "_named", {})
    text = (declarations / "words.yaml").read_text()
    (declarations / "others.yaml").write_text(text + DECLARED)
    file = tmp_path / "vectors.py"
    file.write_text(DAG_FILE)
    return runpy.run_path(str(file))


def said(task, name: str):
    if isinstance(task, MappedOperator):
        return task.partial_kwargs.get(name)
    return getattr(task, name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dag_file_says_how_all_tasks_are_run(installed, kind):
    dag = installed[f"ann_{kind}_words"]
    for task in dag.tasks:
        assert (said(task, "pool"), said(task, "queue")) == ("ann", "large")
        assert said(task, "owner") == "search"
        assert said(task, "execution_timeout") == timedelta(hours=1)
        assert said(task, "retry_delay") == timedelta(seconds=30)
        assert said(task, "retries") == (0 if task.task_id in AT_ONCE else 5)
    assert dag.tags == {"puffin-ann", kind, "demo.glove.words", "team-a"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_declaration_comes_before_the_dag_file(installed, kind):
    dag = installed[f"ann_{kind}_others"]
    for task in dag.tasks:
        assert (said(task, "pool"), said(task, "queue")) == ("words", "large")
        assert said(task, "priority_weight") == 7
        assert said(task, "execution_timeout") == timedelta(hours=6)
        assert said(task, "retry_delay") == timedelta(minutes=2)
        assert not said(task, "retry_exponential_backoff")
        assert said(task, "retries") == (0 if task.task_id in AT_ONCE else 1)
    assert dag.tags == {"puffin-ann", kind, "demo.glove.words", "team-a", "gold"}


def test_callbacks_come_after_the_line_that_ends_the_log(installed):
    task = installed["ann_build_words"].get_task("train")
    assert task.on_failure_callback == [log_failure, installed["failed"]]
    assert task.on_retry_callback == [log_failure, installed["retried"]]


@pytest.mark.parametrize("kind", KINDS)
def test_runs_have_callbacks_and_a_deadline(installed, kind):
    dag = installed[f"ann_{kind}_words"]
    assert dag.has_on_failure_callback
    assert dag.has_on_success_callback
    (deadline,) = dag.deadline
    assert deadline.interval == timedelta(hours=2)
    stored = json.loads(json.dumps(DagSerialization.to_dict(dag)))
    assert DagSerialization.from_dict(stored).deadline


def test_without_any_of_it_tasks_are_run_as_before(load_dags):
    dag = load_dags()["ann_build_words"]
    task = dag.get_task("train")
    assert (task.retries, task.retry_delay) == (4, timedelta(seconds=30))
    assert task.retry_exponential_backoff
    assert task.on_failure_callback == [log_failure]
    assert (task.pool, task.queue, task.execution_timeout) == ("default_pool", "default", None)
    assert dag.deadline is None
    assert not dag.has_on_failure_callback
