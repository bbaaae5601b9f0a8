"""Metrics of indexes: what is sent, under which names, by which tasks."""

import re
import sys
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.sdk.observability.stats import Stats

from puffin_ann.airflow import metrics
from puffin_ann.declaration import load_declaration
from puffin_ann.errors import DamagedIndexError
from puffin_ann.lifecycle.documents.run import PlanPointer
from tests.support.lifecycle.figures import FIGURES, LINEAGE, LOW
from tests.support.paths import ROOT

PLANNED = {
    "table": "demo.glove.words",
    "plan": "file:///words/metadata/_ann-staging/words/run/plan.json",
}


class Recorder:
    """What Airflow sends metrics by."""

    def __init__(self) -> None:
        self.sent: dict[str, tuple[float, dict[str, str] | None]] = {}

    def gauge(self, stat, value, *, tags=None) -> None:
        self.sent[stat] = (value, tags)

    def value_of(self, name: str) -> float | None:
        return self.sent.get(metrics.metric(name), (None, None))[0]


@pytest.fixture
def sent(monkeypatch) -> Recorder:
    """What is sent, where metrics are on."""
    from airflow.sdk.observability.metrics import stats_utils

    recorder = Recorder()
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    monkeypatch.setattr(
        "puffin_ann.lifecycle.report.figures.figures_of", lambda table, index: FIGURES
    )
    Stats.initialize(factory=lambda: recorder, export_legacy_names=True)
    yield recorder
    monkeypatch.delenv("AIRFLOW__METRICS__STATSD_ON")
    Stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)


@pytest.fixture
def declared(declarations):
    return load_declaration(declarations / "words.yaml")


def test_each_is_sent_with_the_index_as_a_tag_and_as_part_of_its_name(sent, declared):
    metrics.send_state(declared)
    tags = {"index": "words", "table": "demo.glove.words"}
    expected = {name: getattr(FIGURES, name) for name in metrics.OF_AN_INDEX}
    assert sent.sent == {
        **{f"puffin_ann.index.{name}": (value, tags) for name, value in expected.items()},
        **{f"puffin_ann.index.{name}.words": (value, None) for name, value in expected.items()},
    }


def test_what_was_not_measured_is_not_sent(sent):
    metrics.send_figures(FIGURES.model_copy(update={"recall": None, "recall_target": None}))
    assert not [name for name in sent.sent if "recall" in name]
    metrics.send_evaluation(LOW.model_copy(update={"queries": 0}))
    assert sent.value_of("evaluated_recall") is None


def test_where_nobody_is_told_the_table_is_not_looked_at(declared, monkeypatch):
    monkeypatch.setattr(
        "puffin_ann.lifecycle.report.figures.figures_of", lambda *_: pytest.fail("looked")
    )
    metrics.send_state(declared)


def test_an_index_that_cannot_be_read_fails_no_task_for_its_metrics(
    sent, declared, monkeypatch, caplog
):
    def damaged(*_):
        raise DamagedIndexError("no version can be read")

    caplog.set_level("INFO")
    monkeypatch.setattr("puffin_ann.lifecycle.report.figures.figures_of", damaged)
    metrics.send_state(declared)
    assert sent.sent == {}
    assert "no version can be read" in caplog.text


def test_an_airflow_before_the_stats_of_tasks_has_others(monkeypatch):
    before = SimpleNamespace(Stats=Recorder())
    monkeypatch.setitem(sys.modules, "airflow.sdk.observability.stats", None)
    monkeypatch.setitem(sys.modules, "airflow.stats", before)
    metrics.send_figures(FIGURES)
    assert before.Stats.value_of("coverage") == 0.99


def test_airflow_takes_every_name_however_long_that_of_the_index():
    from airflow.sdk._shared.observability.metrics.validators import stat_name_default_handler

    for name in (*metrics.OF_AN_INDEX, *metrics.EVALUATED):
        stat_name_default_handler(f"airflow.{metrics.metric(name)}.{'w' * 63}")


def test_every_metric_is_documented():
    text = (ROOT / "docs" / "airflow.md").read_text().split("### Metrics")[1].split("\n### ")[0]
    named = set(re.findall(r"^\| `puffin_ann\.index\.(\w+)` \|", text, re.M))
    assert named == {*metrics.OF_AN_INDEX, *metrics.EVALUATED}


@pytest.mark.parametrize(
    ("kind", "plans"),
    [
        ("build", "build.plan_build"),
        ("refresh", "refresh.plan_refresh"),
        ("maintain", "refresh.plan_refresh"),
        ("evaluate", "evaluate.plan_evaluation"),
    ],
)
def test_every_run_sends_them_as_it_begins_whatever_becomes_of_it(
    sent, load_dags, called, monkeypatch, kind, plans
):
    def fails(*_, **__):
        raise DamagedIndexError("the run fails")

    monkeypatch.setattr(f"puffin_ann.lifecycle.runs.{plans}", fails)
    dag = load_dags(kind)[f"ann_{kind}_words"]
    context = {"run_id": "run", "params": dag.params.dump()}
    with pytest.raises(Exception, match="the run fails"):
        called(dag.get_task("plan"), context)
    assert sent.value_of("lag_seconds") == FIGURES.lag_seconds


@pytest.mark.parametrize("kind", ["build", "refresh", "maintain"])
def test_a_run_that_published_sends_them_again(sent, load_dags, monkeypatch, kind):
    published = PlanPointer(
        action="none", reason="", table="t", plan="", run_id="run", groups=[]
    )  # any document
    monkeypatch.setattr("puffin_ann.lifecycle.runs.publish.publish", lambda _: published)
    told = (FIGURES, LINEAGE)
    monkeypatch.setattr("puffin_ann.lifecycle.report.lineage.told_of", lambda *_: told)
    task = load_dags(kind)[f"ann_{kind}_words"].get_task("publish")
    context = {
        "ti": SimpleNamespace(xcom_pull=lambda task_ids: PLANNED),
        "outlet_events": OutletEventAccessors(),
    }
    task.execute(context)
    assert sent.value_of("rows") == FIGURES.rows


def test_a_recall_that_is_too_low_is_sent_before_the_run_fails(
    sent, load_dags, called, monkeypatch
):
    monkeypatch.setattr("puffin_ann.lifecycle.runs.evaluate.finish", lambda _: LOW)
    task = load_dags("evaluate")["ann_evaluate_words"].get_task("judge")
    with pytest.raises(AirflowFailException, match="recall_target"):
        called(task, {}, PLANNED)
    assert sent.value_of("evaluated_recall") == 0.5
