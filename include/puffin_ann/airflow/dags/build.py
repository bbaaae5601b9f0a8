"""The build DAG of an index, and its trigger form."""

from typing import Any

from airflow.sdk import DAG, Context, Param, get_current_context, task

from puffin_ann.airflow.dag_ids import EXPECT, Kind
from puffin_ann.airflow.dags.lease_tasks import lease_tasks
from puffin_ann.airflow.dags.settings import Installation
from puffin_ann.airflow.failures import fail_plainly
from puffin_ann.airflow.forms import bounds_of, checkbox, schema_of, values_of
from puffin_ann.airflow.metrics import send_state
from puffin_ann.airflow.operators.approve_build import ApproveBuildOperator
from puffin_ann.airflow.operators.publish import PublishOperator
from puffin_ann.airflow.operators.submit_stage import StageOperator, stage_arguments
from puffin_ann.airflow.operators.trigger_build import another_run
from puffin_ann.airflow.state.tell import say_why, tell_state
from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import TooFewRowsError
from puffin_ann.spark_apps import Stage
from puffin_ann.wording import counted

KIND: Kind = "build"
FIELDS = ("shards", "partitions_per_shard", "recall_target")
"""Fields of the declaration that the trigger form offers, beside the algorithm's parameters."""


def build_form(declaration: IndexDeclaration) -> dict[str, Param]:
    """Return the trigger form: the declared values, and the bounds the declaration has for them."""
    fields = schema_of(IndexDeclaration)
    offered = {name: (fields[name], getattr(declaration, name)) for name in FIELDS}
    parameters = declaration.parameters
    for name, schema in schema_of(type(parameters)).items():
        offered[name] = (schema, getattr(parameters, name))
    params = {name: Param(value, **bounds_of(schema)) for name, (schema, value) in offered.items()}
    params["force"] = checkbox("Build even if the published version is up to date.")
    return params


def build_dag(declaration: IndexDeclaration, installation: Installation) -> DAG:
    """Return the build DAG of one index."""
    backend = installation.backend_of(declaration)

    def submitted(task_id: str, stage: Stage) -> dict[str, Any]:
        return stage_arguments(declaration, backend, KIND, task_id, stage)

    with DAG(
        description=f"Build vector index {declaration.name} of {declaration.table}",
        doc_md=f"""
Builds the vector index **{declaration.name}** over `{declaration.table}.{declaration.column}`
and publishes it into the table as a Puffin file.

A run ends at once where the published version already covers the table; `force` builds anyway.
Values in the trigger form count for that run only: the declaration is what the next run takes.
A run whose recall is under the target publishes nothing. A run waits for other runs on the index.
Where the declaration says so (`build.approve_above`), a costly one waits for approval before that.
""",
        schedule=declaration.schedule,
        **installation.dag_arguments(KIND, declaration),
    ) as dag:

        @task
        @fail_plainly()
        def plan() -> dict[str, Any]:
            """Decide what is built, from which snapshot; a retry finds the plan of its own run."""
            from puffin_ann.lifecycle.runs import build as run

            context = get_current_context()
            given = values_of(context, build_form(declaration))
            backend.check(declaration.spark)
            send_state(declaration)
            grown = _why_ask_again(declaration, given, context)
            if grown:
                planned = run.nothing(declaration, f"{grown}: another run asks again")
                say_why(context, planned.reason)
                return planned.model_copy(update={"asks": grown}).model_dump()
            try:
                planned = run.plan_build(declaration, run_id=context["run_id"], overrides=given)
            except TooFewRowsError as error:
                planned = run.nothing(declaration, str(error))
            say_why(context, planned.reason)
            return planned.model_dump()

        @task.short_circuit(ignore_downstream_trigger_rules=False)
        def deal_groups(planned: dict[str, Any]) -> list[str]:
            """Return the groups of shards that are built; none ends the run at `report`."""
            groups = counted(len(planned["groups"]), "group")
            print(f"{planned['reason']}: {groups} of shards to build")
            return list(planned["groups"])

        @task(trigger_rule="none_failed")
        @fail_plainly()
        def report(planned: dict[str, Any]) -> None:
            """Log the state of the table's indexes; clear what the run staged."""
            from puffin_ann.lifecycle.documents.run import PlanPointer
            from puffin_ann.lifecycle.runs import publish

            print(planned["reason"])
            print(publish.report(PlanPointer.model_validate(planned)))
            tell_state(declaration)
            if planned.get("asks"):
                raise another_run(get_current_context())

        lease, release = lease_tasks(declaration, KIND)
        planned: Any = plan()  # when the tasks run it is what `plan` returned
        groups = deal_groups(planned)
        train = StageOperator(**submitted("train", "train"))
        assign = StageOperator(**submitted("assign", "assign"))
        build = StageOperator.partial(**submitted("build_shards", "build_group")).expand(
            group=groups
        )
        gate = StageOperator(**submitted("gate", "gate"))
        published = PublishOperator(task_id="publish", declaration=declaration)
        reported = report(planned)
        lease >> planned >> groups >> train >> assign >> build >> gate >> published
        published >> reported >> release
        if declaration.build.approve_above is not None:
            _expect_cost(declaration) >> ApproveBuildOperator(declaration=declaration) >> lease
    return dag


def _expect_cost(declaration: IndexDeclaration) -> Any:
    """Return the task that tells what a build would cost, before it is asked for and planned."""

    @task(task_id=EXPECT)
    @fail_plainly()
    def expect_cost() -> dict[str, Any]:
        """Tell what this build would cost, and whether a person is asked first."""
        from puffin_ann.lifecycle.runs.expect_build import expect_build

        given = values_of(get_current_context(), build_form(declaration))
        expected = expect_build(declaration, overrides=given)
        print(expected.asks or f"nobody is asked: {expected.reason}")
        return expected.model_dump()

    return expect_cost()


def _why_ask_again(declaration: IndexDeclaration, given: dict[str, Any], context: Context) -> str:
    """Say what has grown too much since a person was asked; empty if nothing has."""
    if declaration.build.approve_above is None:
        return ""
    from puffin_ann.lifecycle.policy.approval import BuildCost, why_ask_again
    from puffin_ann.lifecycle.runs.expect_build import expect_build

    now = expect_build(declaration, overrides=given).cost
    approved = context["ti"].xcom_pull(task_ids=EXPECT)["cost"]
    if now is None:
        return ""
    # What did not have to be done when it was asked, and now has, was never approved.
    before = BuildCost(rows=0, bytes=0, seconds=0.0)
    if approved is not None:
        before = BuildCost.model_validate(approved)
    return why_ask_again(now, before, declaration.build.approve_above)
