"""The events of an index's Asset: which tasks emit them, what they tell, and who runs on them."""

import re
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.context import (
    OutletEventAccessors,
    TriggeringAssetEventsAccessor,
)
from airflow.sdk.execution_time.task_runner import _serialize_outlet_events

from puffin_ann.airflow import index_asset
from puffin_ann.errors import RecallTooLowError, SupersededError
from puffin_ann.lifecycle.documents.run import PublishedVersion
from tests.support.lifecycle.figures import FIGURES, LINEAGE
from tests.support.paths import ROOT
from tests.unit.airflow.conftest import execute

KINDS = ("build", "refresh", "maintain", "evaluate")
PUBLISHING = ("build", "refresh", "maintain")
TABLE = "demo.glove.words"
PLANNED = {
    "table": TABLE,
    "plan": "file:///words/metadata/_ann-staging/words/run/plan.json",
}
PUBLISHED = PublishedVersion(
    snapshot_id=12,
    path="p",
    bytes_written=2,
    bytes_copied=3,
    rows_added=4,
    rows_gone=5,
    seconds=0.1,
)


@pytest.fixture(params=PUBLISHING)
def publish(request, load_dags, monkeypatch):
    """A function that runs the task `publish` of a DAG; returns the events that it would emit."""
    task = load_dags(request.param)[f"ann_{request.param}_words"].get_task("publish")
    events = OutletEventAccessors()
    ti = SimpleNamespace(xcom_pull=lambda task_ids: PLANNED)
    context = {"ti": ti, "outlet_events": events, "params": {}}
    told = (FIGURES, LINEAGE)
    monkeypatch.setattr("puffin_ann.lifecycle.report.lineage.told_of", lambda *_: told)

    def publish(does) -> list[dict[str, object]]:
        monkeypatch.setattr("puffin_ann.lifecycle.runs.publish.publish", does)
        task.execute(context)
        return list(_serialize_outlet_events(events))

    return publish


def test_the_task_that_publishes_tells_what_it_published(publish):
    (event,) = publish(lambda _: PUBLISHED)
    assert event["dest_asset_key"] == {
        "name": "demo.glove.words/words",
        "uri": "puffin-ann://demo/glove/words/words",
    }
    assert event["extra"] == {
        "index": "words",
        "table": TABLE,
        "run_id": "run",
        "snapshot_id": 12,
        "base_snapshot_id": 11,
        "rows": 20_000,
        "recall": 0.97,
        "recall_target": 0.95,
        "coverage": 0.99,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_no_task_but_that_has_events(load_dags, kind):
    """Airflow emits one for each outlet of a task that succeeds, whatever the task did."""
    (dag,) = load_dags(kind).values()
    outlets = {task.task_id: task.outlets for task in dag.tasks if task.outlets}
    expected = {"publish": [index_asset(TABLE, "words")]} if kind in PUBLISHING else {}
    assert outlets == expected


def test_a_task_that_publishes_nothing_does_not_succeed(publish):
    def refused(_):
        raise RecallTooLowError("recall@10 is 0.5; nothing was published")

    with pytest.raises(AirflowFailException):
        publish(refused)


@pytest.mark.parametrize("kind", ["refresh", "maintain"])
def test_of_a_run_that_was_overtaken_the_task_is_skipped(load_dags, monkeypatch, kind):
    def overtaken(_):
        raise SupersededError("published anew")

    monkeypatch.setattr("puffin_ann.lifecycle.runs.publish.publish", overtaken)
    task = load_dags(kind)[f"ann_{kind}_words"].get_task("publish")
    with pytest.raises(AirflowSkipException, match="published anew"):
        task.execute({"ti": SimpleNamespace(xcom_pull=lambda task_ids: PLANNED)})


def test_the_asset_of_an_index_is_no_tables(load_dags):
    (dag,) = load_dags("refresh").values()
    assert dag.schedule[0] != index_asset(TABLE, "words")


@pytest.mark.parametrize("name", ["u:p@host", "{{7*7}}", "a#b", "a?b=c", "a%zz", "a/b", "[::"])
def test_no_name_of_a_table_is_read_as_part_of_an_address(name):
    found = index_asset(f"demo.{name}.words", "words")
    assert found.uri.startswith("puffin-ann://demo/")
    assert found.uri.count("/") == 5
    assert found.uri != index_asset(f"demo.{name}s.words", "words").uri


def test_the_dag_that_the_documents_show_runs_on_it_and_finds_what_is_told(tmp_path, capsys):
    text = (ROOT / "docs" / "airflow.md").read_text()
    shown = re.search(r"<!-- example: runs when .*? -->\n```python\n(.*?)```", text, re.S)[1]
    (tmp_path / "following.py").write_text(shown)
    module = execute(tmp_path / "following.py")
    dag = module.after_words_are_refreshed()
    assert dag.schedule == [index_asset("demo.glove.words", "glove_words")]
    told = {"index": "glove_words", "recall": 0.97, "snapshot_id": 13, "base_snapshot_id": 12}
    event = SimpleNamespace(extra=told, asset=module.WORDS, source_aliases=[])
    events = TriggeringAssetEventsAccessor.build([event])
    dag.get_task("use").python_callable(triggering_asset_events=events)
    assert capsys.readouterr().out == "glove_words: recall 0.97, snapshot 12\n"
