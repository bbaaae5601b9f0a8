"""The tasks that refresh an index, shared by the DAGs that make it follow and that maintain it."""

from typing import Any, ClassVar

from airflow.providers.standard.operators.trigger_dagrun import DagIsPaused, TriggerDagRunOperator
from airflow.sdk import Context, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, DagRunTriggerException

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import TooFewRowsError
from puffin_ann_failing import plainly
from puffin_ann_forms import force_form, values_of
from puffin_ann_submitting import StageOperator, require_spark, spark

NEXT = {"none": "report", "refresh": "read_changes", "build": "build_anew"}
"""By what was decided, the task that comes next."""


class HandOver(TriggerDagRunOperator):
    """Trigger the build DAG of an index; fail rather than leave a run in the queue of a paused one.

    The run is named after this one, so that another attempt at this task triggers no second build.
    Nothing of it is a template.

    :param index: Name of the index.
    :param kind: What this run does.
    :param force: Build even if the published version is up to date.
    """

    template_fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *, index: str, kind: str, force: bool, **kwargs: Any) -> None:
        super().__init__(
            trigger_dag_id=f"ann_build_{index}",
            conf={"force": force},
            skip_when_already_exists=True,
            fail_when_dag_is_paused=True,
            openlineage_inject_parent_info=False,
            **kwargs,
        )
        self.kind = kind

    def execute(self, context: Context) -> None:
        """Ask for the build.

        Raises:
            AirflowFailException: its DAG is paused.
        """
        self.trigger_run_id = f"{self.kind}__{context['run_id']}"
        try:
            super().execute(context)
        except DagIsPaused:
            dag = self.trigger_dag_id
            raise AirflowFailException(
                f"the index has to be built, and DAG {dag} is paused, so that its run would wait "
                f"for ever: unpause it, by 'airflow dags unpause {dag}' or by its switch in the "
                "UI, then clear this task or wait for the next run"
            ) from None


def another_run(context: Context) -> DagRunTriggerException:
    """Return what makes Airflow start this DAG again, with what was set in the trigger form.

    A plan that was superseded is good for nothing, however often its task is tried again. The other
    run waits for the end of this one.
    """
    dag_run = context["dag_run"]
    return DagRunTriggerException(
        trigger_dag_id=dag_run.dag_id,
        # Named after this run, so that another attempt at this task starts no second one.
        dag_run_id=f"again__{dag_run.run_id}",
        skip_when_already_exists=True,
        conf=dict(context["params"]),
        reset_dag_run=False,
        wait_for_completion=False,
        allowed_states=[],
        failed_states=[],
        poke_interval=0,
        deferrable=False,
    )


def refresh_tasks(
    declaration: IndexDeclaration, prefix: str, kind: str, *, maintenance: bool
) -> tuple[Any, Any]:
    """Add the tasks of a refresh to the DAG in whose context this is called.

    Args:
        declaration: the index.
        prefix: of the DAG's id.
        kind: of the run, which names its lease and what it stages.
        maintenance: merge and rebuild what is due.

    Returns:
        The first task and the last.
    """

    @task
    @plainly()
    def plan() -> dict[str, Any]:
        """Decide what is due, from which snapshot; a retry finds the plan of its own run."""
        from puffin_ann.lifecycle.runs import build as run
        from puffin_ann.lifecycle.runs import publish, refresh

        context = get_current_context()
        given = values_of(context, force_form(declaration))
        require_spark(declaration.spark.conn_id)
        try:
            planned = refresh.plan_refresh(
                declaration,
                run_id=f"{kind}-{context['run_id']}",
                maintenance=maintenance,
                force=bool(given.get("force", False)),
            )
        except TooFewRowsError as error:
            planned = run.nothing(declaration, str(error))
        print(planned["reason"])
        print(planned["decision"])
        if planned["action"] == "build":  # by its own DAG, which plans for itself
            publish.discard(planned["table"], planned["plan"])
        return planned

    @task.branch
    def choose(planned: dict[str, Any]) -> str:
        """Go on with a refresh, hand over to the build DAG, or end the run."""
        return NEXT[planned["action"]]

    @task
    def deal_groups() -> list[str]:
        """Return the groups of touched shards."""
        return list(get_current_context()["ti"].xcom_pull(task_ids="plan")["groups"])

    # Not an argument: with the plan as upstream it would run where the branch passes it by.
    @task(trigger_rule="none_failed_min_one_success")
    @plainly()
    def publish() -> dict[str, Any]:
        """Assemble the Puffin file and publish it in one commit, at most once a run.

        Where somebody else has published the index meanwhile, another run is asked for.
        """
        from puffin_ann.errors import SupersededError
        from puffin_ann.lifecycle.runs import publish

        context = get_current_context()
        planned = context["ti"].xcom_pull(task_ids="plan")
        try:
            return publish.publish(planned["table"], planned["plan"])
        except SupersededError as error:
            print(error)
            raise another_run(context) from None

    @task(trigger_rule="none_failed")
    @plainly()
    def report(planned: dict[str, Any]) -> None:
        """Log the state of the table's indexes; clear what the run staged."""
        from puffin_ann.lifecycle.runs import publish

        print(planned["reason"])
        if planned["plan"] and not get_current_context()["ti"].xcom_pull(task_ids="publish"):
            publish.discard(
                planned["table"], planned["plan"]
            )  # superseded: another run plans again
        print(publish.report(planned["table"], planned["plan"]))

    planned = plan()
    branch = choose(planned)
    read = StageOperator(**spark(declaration, prefix, "read_changes", "read_changes.py", kind))
    groups = deal_groups()
    apply = StageOperator.partial(
        **spark(declaration, prefix, "apply_changes", "apply_group.py", kind)
    ).expand(group=groups)
    # A build due for other reasons than changes of the table would find nothing to do. After
    # changes it must not be forced: of two that were asked for, the second has nothing to do.
    build = HandOver(task_id="build_anew", index=declaration.name, kind=kind, force=maintenance)
    published, reported = publish(), report(planned)
    branch >> [read, build, reported]
    read >> groups >> apply >> published
    read >> published >> reported
    return planned, reported
