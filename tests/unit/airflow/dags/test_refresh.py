"""The DAGs that follow tables, maintain indexes and measure them: when they run, in what order."""

import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk import DAG
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    DagRunTriggerException,
    ParamValidationError,
)
from airflow.sdk.execution_time.context import OutletEventAccessors

from puffin_ann import lifecycle
from puffin_ann.airflow.operators.submit_stage import StageOperator
from puffin_ann.errors import (
    ConflictError,
    IndexNotFoundError,
    LeaseHeldError,
    TableNotFoundError,
    TooFewRowsError,
)
from puffin_ann.lifecycle.documents.run import PlanPointer, PublishedVersion
from puffin_ann.lifecycle.documents.run_ref import RunRef
from tests.support.airflow.task_instance import task_instance
from tests.support.lifecycle.figures import FIGURES, LINEAGE, LOW

PLAN = "file:///words/metadata/_ann-staging/words/run/plan.json"
KINDS = ("build", "refresh", "maintain", "evaluate")


@pytest.fixture
def refresh(load_dags) -> DAG:
    return load_dags("refresh")["ann_refresh_words"]


def pointer(action: str, plan: str) -> PlanPointer:
    return PlanPointer(action=action, reason="why", table="t", plan=plan, run_id="run", groups=[])


def in_dag(*, is_paused: bool) -> SimpleNamespace:
    """A task instance that is told of every DAG whether it is paused."""
    return SimpleNamespace(get_dag=lambda dag_id: SimpleNamespace(is_paused=is_paused))


def order(dag: DAG, *names: str) -> bool:
    """Tell whether each task comes before the next."""
    return all(
        later in dag.get_task(earlier).get_flat_relative_ids(upstream=False)
        for earlier, later in pairwise(names)
    )


def set_and_validate(dag: DAG, name: str, value: object) -> None:
    """Do as Airflow does with what a person set in the trigger form."""
    dag.params[name] = value
    dag.params.validate()


class TestEveryDag:
    @pytest.fixture(params=KINDS)
    def dag(self, request, load_dags) -> DAG:
        return load_dags(request.param)[f"ann_{request.param}_words"]

    def test_runs_never_overlap_nor_catch_up_and_tasks_are_tried_again(self, dag):
        assert (dag.max_active_runs, dag.catchup) == (1, False)
        assert all(task.retries >= 1 for task in dag.tasks if task.task_id != "judge")

    def test_its_applications_are_there(self, dag):
        for task in dag.tasks:
            given = getattr(task, "partial_kwargs", None) or vars(task)
            if "application" in given:
                assert Path(given["application"]).is_file()

    def test_a_second_declaration_makes_a_second_dag_and_a_broken_one_none(
        self, dag, declarations, load_dags
    ):
        text = (declarations / "words.yaml").read_text()
        (declarations / "names.yml").write_text(text)
        (declarations / "broken.yml").write_text("shards: 0")
        kind = dag.dag_id.split("_")[1]
        found = set(load_dags(kind)) - {"ann_build_broken"}
        assert found == {f"ann_{kind}_words", f"ann_{kind}_names"}


class TestRunsThatWrite:
    @pytest.fixture(params=["build", "refresh", "maintain"])
    def dag(self, request, load_dags) -> DAG:
        return load_dags(request.param)[f"ann_{request.param}_words"]

    def test_it_has_the_lease_from_before_it_is_planned_to_its_end_however_it_ends(self, dag):
        lease, release = dag.get_task("lease"), dag.get_task("release")
        assert lease.is_setup
        assert release.is_teardown
        assert order(dag, "lease", "plan", "publish", "report", "release")
        assert release.trigger_rule == "all_done_setup_success"
        assert lease.task_id in release.upstream_task_ids

    def test_waiting_for_the_lease_takes_no_slot(self, dag):
        assert dag.get_task("lease").reschedule

    def test_runs_of_one_id_in_two_dags_hold_it_by_different_names(self, load_dags, monkeypatch):
        owners = set()
        monkeypatch.setattr(
            "puffin_ann.lifecycle.runtime.leases.begin",
            lambda table, index, owner, purpose: owners.add(owner),
        )
        for kind in ("build", "refresh", "maintain"):
            dag = load_dags(kind)[f"ann_{kind}_words"]
            assert dag.get_task("lease").poke({"run_id": "scheduled__1"}) is True
        assert len(owners) == 3

    def test_it_waits_while_another_run_is_at_work(self, dag, monkeypatch):
        def held(*_):
            raise LeaseHeldError("index 'words' is being worked on by build (run a)")

        monkeypatch.setattr("puffin_ann.lifecycle.runtime.leases.begin", held)
        assert dag.get_task("lease").poke({"run_id": "run"}) is False

    def test_it_does_not_wait_for_a_table_that_is_not_there(self, dag, monkeypatch):
        def absent(*_):
            raise TableNotFoundError("no table")

        monkeypatch.setattr("puffin_ann.lifecycle.runtime.leases.begin", absent)
        with pytest.raises(AirflowFailException, match="no table"):
            dag.get_task("lease").poke({"run_id": "run"})

    def test_spark_keeps_the_lease_alive_under_the_name_it_was_taken_by(self, dag):
        kind = dag.dag_id.split("_")[1]
        planned = task_instance(PLAN)
        stages = [task for task in dag.tasks if isinstance(task, StageOperator)]
        assert stages
        for task in stages:
            arguments = task.arguments({"ti": planned, "run_id": "manual__1"})
            assert arguments[arguments.index("--owner") + 1] == f"{kind}/manual__1"


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_of_the_library_says_where_every_task_begins(load_dags, kind):
    named = {
        name
        for line in re.findall(r"(?m)^    ([a-z_]+(?:, [a-z_]+)*)  ", lifecycle.__doc__ or "")
        for name in line.split(", ")
    }
    (dag,) = load_dags(kind).values()
    assert {task.task_id for task in dag.tasks} <= named


class TestRefresh:
    def test_the_tasks_stand_in_the_order_of_the_stages(self, refresh):
        assert order(refresh, "plan", "choose", "read_changes", "deal_groups", "apply_changes")
        assert order(refresh, "apply_changes", "publish", "report")
        assert refresh.get_task("publish").trigger_rule == "none_failed_min_one_success"

    def test_groups_of_touched_shards_are_the_mapped_tasks(self, refresh, called):
        mapped = {task.task_id for task in refresh.tasks if isinstance(task, MappedOperator)}
        assert mapped == {"apply_changes"}
        planned = {"table": "t", "plan": PLAN, "groups": ["000", "001"]}
        ti = SimpleNamespace(xcom_pull=lambda task_ids: {"plan": planned}[task_ids])
        assert called(refresh.get_task("deal_groups"), {"ti": ti}) == ["000", "001"]

    @pytest.mark.parametrize(
        ("action", "task"),
        [("none", "report"), ("refresh", "read_changes"), ("build", "build_anew")],
    )
    def test_what_is_decided_chooses_what_comes_next(self, refresh, action, task):
        chosen = refresh.get_task("choose").python_callable({"action": action})
        assert chosen == [task]
        assert task in refresh.get_task("choose").downstream_task_ids

    def test_publishing_does_not_depend_on_the_plan_alone(self, refresh):
        """It would run where the branch passes it by."""
        assert refresh.get_task("publish").upstream_task_ids == {"read_changes", "apply_changes"}

    @pytest.fixture(params=["refresh", "maintain"])
    def published(self, request, load_dags, monkeypatch):
        """A function that runs the task `publish` while publishing does something."""
        dag = load_dags(request.param)[f"ann_{request.param}_words"]
        ti = SimpleNamespace(xcom_pull=lambda task_ids: {"table": "t", "plan": PLAN})
        context = {"ti": ti, "outlet_events": OutletEventAccessors()}
        told = (FIGURES, LINEAGE)
        monkeypatch.setattr("puffin_ann.lifecycle.report.lineage.told_of", lambda *_: told)

        def published(does):
            monkeypatch.setattr("puffin_ann.lifecycle.runs.publish.publish", does)
            return dag.get_task("publish").execute(context)

        return published

    def test_a_table_that_others_keep_changing_is_tried_again_with_the_same_plan(self, published):
        def busy(*_):
            raise ConflictError("the head moved")

        with pytest.raises(AirflowException, match="the head moved") as failed:
            published(busy)
        assert not isinstance(failed.value, AirflowFailException)
        done = PublishedVersion(
            snapshot_id=1,
            path="p",
            bytes_written=2,
            bytes_copied=3,
            rows_added=4,
            rows_gone=5,
            seconds=0.1,
        )
        assert published(lambda run: done) == done.model_dump()

    @pytest.fixture(params=["refresh", "maintain"])
    def reported(self, request, load_dags, called, monkeypatch):
        """A function that runs the task `report`; what is discarded is in its `discarded`."""
        dag = load_dags(request.param)[f"ann_{request.param}_words"]
        monkeypatch.setattr("puffin_ann.lifecycle.runs.publish.report", lambda *_: "the state")

        def reported(plan, published):
            context = {
                "ti": SimpleNamespace(xcom_pull=lambda task_ids: published),
                "dag_run": SimpleNamespace(dag_id=dag.dag_id, run_id="manual__1"),
                "params": {"force": True},
            }
            called(dag.get_task("report"), context, pointer("refresh", plan).model_dump())

        reported.dag, reported.discarded = dag, []
        monkeypatch.setattr(
            "puffin_ann.lifecycle.runs.publish.clear_staging", reported.discarded.append
        )
        return reported

    @pytest.mark.parametrize(("plan", "published"), [(PLAN, {"snapshot_id": 1}), ("", None)])
    def test_a_run_that_published_or_had_nothing_to_asks_for_no_other(
        self, reported, plan, published
    ):
        reported(plan, published)
        assert reported.discarded == []

    def test_a_run_that_was_overtaken_clears_up_and_asks_for_another_one_once(
        self, reported, capsys
    ):
        with pytest.raises(DagRunTriggerException) as asked:
            reported(PLAN, None)
        assert reported.discarded == [RunRef.at("t", PLAN)]
        assert "the state" in capsys.readouterr().out
        assert asked.value.trigger_dag_id == reported.dag.dag_id
        assert asked.value.dag_run_id == "again__manual__1"
        assert asked.value.skip_when_already_exists
        assert asked.value.conf == {"force": True}

    def test_building_anew_is_asked_for_once_a_run(self, refresh, load_dags):
        build = refresh.get_task("build_anew")
        assert build.trigger_dag_id in load_dags("build")
        with pytest.raises(DagRunTriggerException) as asked:
            build.execute({"run_id": "manual__1", "ti": in_dag(is_paused=False)})
        assert asked.value.trigger_dag_id == "ann_build_words"
        assert asked.value.dag_run_id == "refresh__manual__1"
        assert asked.value.skip_when_already_exists
        assert asked.value.conf == {"force": False}

    def test_a_build_whose_dag_is_paused_is_not_left_waiting_without_a_word(self, refresh):
        paused = {"run_id": "manual__1", "ti": in_dag(is_paused=True)}
        with pytest.raises(AirflowFailException, match=r"airflow dags unpause ann_build_words"):
            refresh.get_task("build_anew").execute(paused)

    def test_an_airflow_that_tells_no_task_which_dags_are_paused_gets_the_run(self, refresh):
        before = {"run_id": "manual__1", "ti": SimpleNamespace()}  # as Airflow 3.1 has it
        with pytest.raises(DagRunTriggerException):
            refresh.get_task("build_anew").execute(before)

    def test_a_table_without_rows_ends_the_run_with_the_reason_and_fails_nothing(
        self, refresh, called, monkeypatch, capsys
    ):
        def empty(*_, **__):
            raise TooFewRowsError("table demo.glove.words is empty")

        monkeypatch.setattr("puffin_ann.lifecycle.runs.refresh.plan_refresh", empty)
        told = {}
        ti = SimpleNamespace(xcom_push=lambda key, value: told.update({key: value}))
        context = {"run_id": "run", "params": {"force": False}, "ti": ti}
        planned = called(refresh.get_task("plan"), context)
        assert told == {"reason": "table demo.glove.words is empty"}
        assert refresh.get_task("choose").python_callable(planned) == ["report"]
        assert "is empty" in capsys.readouterr().out

    def test_nobody_watches_where_that_is_declared(self, declarations, load_dags):
        with (declarations / "words.yaml").open("a") as out:
            out.write("refresh: {watch: false}\n")
        assert load_dags("refresh")["ann_refresh_words"].schedule is None

    def test_the_form_refuses_what_is_no_choice(self, refresh):
        with pytest.raises(ParamValidationError, match="force"):
            set_and_validate(refresh, "force", "perhaps")


class TestMaintain:
    @pytest.fixture
    def dag(self, load_dags) -> DAG:
        return load_dags("maintain")["ann_maintain_words"]

    def test_it_guards_first_and_cleans_last(self, dag):
        assert order(dag, "lease", "guard", "plan", "report", "clean", "release")
        assert order(dag, "build_anew", "clean")

    def test_a_build_that_is_due_then_is_forced(self, dag):
        assert dag.get_task("build_anew").conf == {"force": True}

    def test_its_window_is_the_declared_one(self, dag, declarations, load_dags):
        assert dag.schedule == "@daily"
        with (declarations / "words.yaml").open("a") as out:
            out.write("maintain: {schedule: '0 3 * * 0'}\n")
        assert load_dags("maintain")["ann_maintain_words"].schedule == "0 3 * * 0"


class TestEvaluate:
    @pytest.fixture
    def dag(self, load_dags) -> DAG:
        return load_dags("evaluate")["ann_evaluate_words"]

    def test_it_needs_no_lease_since_it_writes_nothing(self, dag):
        assert {task.task_id for task in dag.tasks} == {"plan", "measure", "judge"}
        assert order(dag, "plan", "measure", "judge")

    def test_a_recall_that_is_too_low_fails_the_run_and_is_not_measured_again(
        self, dag, monkeypatch
    ):
        monkeypatch.setattr("puffin_ann.lifecycle.runs.evaluate.finish", lambda _: LOW)
        assert dag.get_task("judge").retries == 0
        with pytest.raises(AirflowFailException, match=r"recall@10 is 0.5000.* build it again"):
            dag.get_task("judge").python_callable({"table": "t", "plan": PLAN})

    def test_an_index_that_is_not_built_yet_is_skipped_with_the_reason(
        self, dag, called, monkeypatch
    ):
        def unbuilt(*_, **__):
            raise IndexNotFoundError("no version to be measured; build it first")

        monkeypatch.setattr("puffin_ann.lifecycle.runs.evaluate.plan_evaluation", unbuilt)
        with pytest.raises(AirflowSkipException, match="build it first"):
            called(dag.get_task("plan"), {"run_id": "run", "params": {"queries": 200}})

    @pytest.mark.parametrize("queries", [9, 10_001, "many"])
    def test_the_form_has_the_bounds_of_the_declaration(self, dag, queries):
        assert dag.params.dump() == {"queries": 200}
        with pytest.raises(ParamValidationError, match="queries"):
            set_and_validate(dag, "queries", queries)


@pytest.mark.parametrize("kind", ["refresh", "maintain", "evaluate"])
def test_values_that_the_form_does_not_have_are_refused_by_name(load_dags, called, kind):
    dag = load_dags(kind)[f"ann_{kind}_words"]
    context = {"run_id": "run", "params": {**dag.params.dump(), "shrads": 3}}
    with pytest.raises(AirflowFailException, match=r"'shrads'.*it has: (force|queries)"):
        called(dag.get_task("plan"), context)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_connection_to_spark_fails_the_plan_before_anything_is_staged(
    load_dags, called, monkeypatch, kind
):
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    for planning in ("build.plan_build", "refresh.plan_refresh", "evaluate.plan_evaluation"):
        monkeypatch.setattr(
            f"puffin_ann.lifecycle.runs.{planning}", lambda *_, **__: pytest.fail("read")
        )
    dag = load_dags(kind)[f"ann_{kind}_words"]
    with pytest.raises(AirflowFailException, match=r"'spark_default'.*connections add"):
        called(dag.get_task("plan"), {"run_id": "run", "params": dag.params.dump()})


def test_a_refresh_that_becomes_a_build_leaves_no_plan_behind(refresh, called, monkeypatch):
    discarded = []
    planned = pointer("build", PLAN)
    context = {"run_id": "run", "params": {"force": True}}
    asked = SimpleNamespace(options={})

    def plan_refresh(_, **options):
        asked.options = options
        return planned

    monkeypatch.setattr("puffin_ann.lifecycle.runs.refresh.plan_refresh", plan_refresh)
    monkeypatch.setattr("puffin_ann.lifecycle.runs.publish.clear_staging", discarded.append)
    assert called(refresh.get_task("plan"), context) == planned.model_dump()
    assert discarded == [RunRef.at("t", PLAN)]
    assert asked.options == {"run_id": "refresh-run", "maintenance": False, "force": True}
