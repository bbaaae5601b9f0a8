"""The tasks that refresh an index, shared by the DAGs that make it follow and that maintain it."""

from typing import Any

from airflow.sdk import Context, get_current_context, task

from puffin_ann.airflow.dag_ids import Kind
from puffin_ann.airflow.failures import fail_plainly
from puffin_ann.airflow.forms import force_form, values_of
from puffin_ann.airflow.metrics import send_state
from puffin_ann.airflow.operators.publish import PublishOperator
from puffin_ann.airflow.operators.submit_stage import StageOperator, stage_arguments
from puffin_ann.airflow.operators.trigger_build import TriggerBuildOperator, another_run
from puffin_ann.airflow.state.tell import say_why, tell_state
from puffin_ann.airflow.submit.backends import Backend
from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import TooFewRowsError
from puffin_ann.wording import counted

NEXT = {"none": "report", "refresh": "read_changes", "build": "build_anew"}
"""By what was decided, the task that comes next."""


def refresh_tasks(
    declaration: IndexDeclaration, backend: Backend, kind: Kind, *, maintenance: bool
) -> tuple[Any, Any]:
    """Add the tasks of a refresh to the DAG in whose context this is called.

    Args:
        declaration: the index.
        backend: what its stages are submitted by.
        kind: of the run, which names its lease and what it stages.
        maintenance: merge and rebuild what is due.

    Returns:
        The first task and the last.
    """

    @task
    @fail_plainly()
    def plan() -> dict[str, Any]:
        """Decide what is due, from which snapshot; a retry finds the plan of its own run."""
        from puffin_ann.lifecycle.documents.run_ref import RunRef
        from puffin_ann.lifecycle.runs import build as run
        from puffin_ann.lifecycle.runs import publish, refresh

        context = get_current_context()
        force = bool(values_of(context, force_form(declaration)).get("force", False))
        backend.check(declaration.spark)
        send_state(declaration)
        try:
            planned = refresh.plan_refresh(
                declaration,
                run_id=f"{kind}-{context['run_id']}",
                maintenance=maintenance,
                force=force,
            )
        except TooFewRowsError as error:
            planned = run.nothing(declaration, str(error))
        print(planned.decision or planned.reason)
        asks = ""
        if planned.action != "none":
            asks = _why_ask(declaration, maintenance=maintenance, force=force)
        if planned.action == "build" or asks:  # by the build DAG, which plans for itself
            publish.clear_staging(RunRef.planned(planned))
            if asks:
                print(f"masks and deltas are all that is done without approval: {asks}")
                planned = refresh.plan_refresh(
                    declaration,
                    run_id=f"{kind}-{context['run_id']}",
                    force=force,
                    postpones=True,
                ).model_copy(update={"asks": asks})
                print(planned.decision)
        say_why(context, planned.decision or planned.reason)
        return planned.model_dump()

    @task.branch
    def choose(planned: dict[str, Any]) -> list[str]:
        """Go on with a refresh, hand over to the build DAG, or end the run.

        Where what is due has to be approved, a build is asked for beside what needs no approval.
        """
        return [NEXT[planned["action"]], *([NEXT["build"]] if planned.get("asks") else [])]

    @task
    def deal_groups() -> list[str]:
        """Return the groups of touched shards."""
        groups = get_current_context()["ti"].xcom_pull(task_ids="plan")["groups"]
        print(f"touched: {counted(len(groups), 'group')} of shards")
        return list(groups)

    @task(trigger_rule="none_failed")
    @fail_plainly()
    def report(planned: dict[str, Any]) -> None:
        """Log the state of the table's indexes; clear what the run staged.

        Of a run that was superseded nothing is kept, and another one is asked for, to plan again.
        """
        _report(planned, get_current_context())
        tell_state(declaration)

    planned: Any = plan()  # when the tasks run it is what `plan` returned
    branch = choose(planned)
    read = StageOperator(
        **stage_arguments(declaration, backend, kind, "read_changes", "read_changes")
    )
    groups = deal_groups()
    apply = StageOperator.partial(
        **stage_arguments(declaration, backend, kind, "apply_changes", "apply_group")
    ).expand(group=groups)
    # A build due for other reasons than changes of the table would find nothing to do. After
    # changes it must not be forced: of two that were asked for, the second has nothing to do.
    build = TriggerBuildOperator(
        task_id="build_anew",
        index=declaration.name,
        kind=kind,
        force=maintenance,
        may_ask=declaration.build.approve_above is not None,
    )
    # Groups of shards may be none: then nothing but what is live has changed.
    published = PublishOperator(
        task_id="publish", declaration=declaration, trigger_rule="none_failed_min_one_success"
    )
    reported = report(planned)
    branch >> [read, build, reported]
    read >> groups >> apply >> published
    read >> published >> reported
    return planned, reported


def _why_ask(declaration: IndexDeclaration, *, maintenance: bool, force: bool) -> str:
    """Say why the build, merge or rebuild that is due has to be approved; empty if it has not."""
    if declaration.build.approve_above is None:
        return ""
    from puffin_ann.lifecycle.runs.expect_build import expect_due

    return expect_due(declaration, maintenance=maintenance, force=force).asks


def _report(planned: dict[str, Any], context: Context) -> None:
    from puffin_ann.lifecycle.documents.run import PlanPointer
    from puffin_ann.lifecycle.documents.run_ref import RunRef
    from puffin_ann.lifecycle.runs import publish

    pointer = PlanPointer.model_validate(planned)
    print(pointer.reason)
    is_superseded = pointer.plan and not context["ti"].xcom_pull(task_ids="publish")
    if is_superseded:
        publish.clear_staging(RunRef.planned(pointer))
    print(publish.report(pointer))
    if is_superseded:
        raise another_run(context)
