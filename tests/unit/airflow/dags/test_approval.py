"""Builds that a person has to approve: what waits, what goes on, and what is asked how often."""

from types import SimpleNamespace

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import DagRunTriggerException

from puffin_ann.lifecycle.documents.run import PlanPointer
from puffin_ann.lifecycle.policy.approval import BuildCost
from puffin_ann.lifecycle.runs.expect_build import ExpectedBuild

PLAN = "file:///words/metadata/_ann-staging/words/run/plan.json"
COST = BuildCost(rows=100, bytes=0, seconds=10.0)
ABOVE = "100 rows, above build.approve_above.rows 50"
ASKED = ExpectedBuild(reason="it drifted", cost=COST, asks=ABOVE)


@pytest.fixture
def dags(declarations, load_dags) -> dict[str, DAG]:
    with (declarations / "words.yaml").open("a") as out:
        out.write("build: {approve_above: {rows: 50}, approval_expires: 2d}\n")
    kinds = ("build", "refresh", "maintain")
    return {kind: load_dags(kind)[f"ann_{kind}_words"] for kind in kinds}


def pulling(**xcoms: object) -> SimpleNamespace:
    return SimpleNamespace(xcom_pull=lambda task_ids: xcoms[task_ids], xcom_push=lambda **_: None)


def test_without_a_bound_nobody_is_asked(load_dags):
    assert not load_dags()["ann_build_words"].has_task("approve")


def test_approval_comes_before_the_lease_and_needs_no_slot_while_it_waits(dags):
    approve = dags["build"].get_task("approve")
    assert approve.upstream_task_ids == {"expect_cost"}
    assert approve.downstream_task_ids == {"lease"}
    assert dags["build"].get_task("expect_cost").upstream_task_ids == set()
    assert approve.response_timeout.days == 2
    assert approve.defaults == ["Reject"]  # what happens when nobody answers
    assert approve.template_fields == ()
    for kind in ("refresh", "maintain"):
        assert not dags[kind].has_task("approve")


def test_a_cheap_build_is_not_asked_about(dags):
    cheap = ExpectedBuild(reason="a build was asked for", cost=COST).model_dump()
    assert dags["build"].get_task("approve").execute({"ti": pulling(expect_cost=cheap)}) is None


def test_who_is_asked_is_told_why_and_what_it_costs(dags, monkeypatch):
    approve = dags["build"].get_task("approve")
    asked = {}
    monkeypatch.setattr(
        "airflow.providers.standard.operators.hitl.HITLOperator.execute",
        lambda self, _: asked.update(subject=self.subject, body=self.body),
    )
    approve.execute({"ti": pulling(expect_cost=ASKED.model_dump())})
    assert asked["subject"] == "Build vector index words of demo.glove.words?"
    for said in ("why: it drifted", "build 100 rows", ABOVE):
        assert said in asked["body"]


@pytest.mark.parametrize(("rows", "asks"), [(100, False), (120, False), (121, True)])
def test_after_approval_a_run_plans_again_and_asks_again_if_the_cost_grew_by_more_than_a_fifth(
    dags, called, monkeypatch, rows, asks
):
    grown = ASKED.model_copy(update={"cost": COST.model_copy(update={"rows": rows})})
    monkeypatch.setattr(
        "puffin_ann.lifecycle.runs.expect_build.expect_build", lambda *_, **__: grown
    )
    made = PlanPointer(action="build", reason="r", table="t", plan=PLAN, run_id="r", groups=["0"])
    monkeypatch.setattr("puffin_ann.lifecycle.runs.build.plan_build", lambda *_, **__: made)
    monkeypatch.setattr("puffin_ann.lifecycle.runs.publish.report", lambda *_: "the state")
    monkeypatch.setattr("puffin_ann.airflow.state.tell.tell_state", lambda *_: None)
    context = {
        "ti": pulling(expect_cost=ASKED.model_dump()),
        "run_id": "run",
        "params": {},
        "dag_run": SimpleNamespace(dag_id="ann_build_words", run_id="run"),
    }
    build = dags["build"]
    planned = called(build.get_task("plan"), context)
    assert (planned["action"], bool(planned["asks"])) == (
        ("none", True) if asks else ("build", False)
    )
    if asks:
        with pytest.raises(DagRunTriggerException) as again:
            called(build.get_task("report"), context, planned)
        assert again.value.trigger_dag_id == "ann_build_words"


@pytest.mark.parametrize("kind", ["refresh", "maintain"])
@pytest.mark.parametrize("due", ["build", "refresh"])  # that merges or rebuilds, if it is one
def test_a_refresh_goes_on_without_what_is_costly_and_asks_for_a_build_beside(
    dags, called, monkeypatch, kind, due
):
    calls = []

    def plan(_, **given):
        calls.append(given)
        action = "refresh" if given.get("postpones") else due
        return PlanPointer(action=action, reason="r", table="t", plan=PLAN, run_id="r", groups=[])

    monkeypatch.setattr("puffin_ann.lifecycle.runs.refresh.plan_refresh", plan)
    monkeypatch.setattr("puffin_ann.lifecycle.runs.expect_build.expect_due", lambda *_, **__: ASKED)
    cleared = []
    monkeypatch.setattr("puffin_ann.lifecycle.runs.publish.clear_staging", cleared.append)
    dag = dags[kind]
    planned = called(dag.get_task("plan"), {"run_id": "run", "params": {}})
    assert (planned["action"], planned["asks"]) == ("refresh", ABOVE)
    assert [given.get("postpones", False) for given in calls] == [False, True]
    assert len(cleared) == 1
    assert dag.get_task("choose").python_callable(planned) == ["read_changes", "build_anew"]


@pytest.mark.parametrize("there", [0, 1])
def test_one_run_is_asked_for_however_many_refreshes_come_meanwhile(dags, there):
    task = dags["refresh"].get_task("build_anew")
    ti = SimpleNamespace(
        xcom_pull=lambda task_ids: {"asks": ABOVE}, get_dr_count=lambda *_, **__: there
    )
    context = {"run_id": "run", "ti": ti}
    if there:
        assert task.execute(context) is None
        return
    with pytest.raises(DagRunTriggerException) as asked:
        task.execute(context)
    assert asked.value.conf == {"force": True}
