"""Runs that tasks ask for: of the build DAG of an index, and one more of their own DAG."""

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context

from puffin_ann.airflow.dag_ids import Kind, dag_id_of
from puffin_ann.airflow.exceptions import AirflowFailException, DagRunTriggerException
from puffin_ann.imports.extras import needing

with needing("airflow", "to trigger builds"):
    from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator


class TriggerBuildOperator(TriggerDagRunOperator):
    """Trigger the build DAG of an index; fail rather than leave a run in the queue of a paused one.

    The run is named after this one, so that another attempt at this task triggers no second build.
    One that has to be approved is asked for once: not while another run of the build DAG is queued
    or waits. It is forced, since this run may publish what else is due.
    Nothing of it is a template.

    Args:
        index: name of the index.
        kind: what this run does.
        force: build even if the published version is up to date.
        may_ask: work on this index may have to be approved, as the task `plan` tells.
        **kwargs: those of every operator.
    """

    template_fields: Sequence[str] = ()

    def __init__(
        self, *, index: str, kind: Kind, force: bool, may_ask: bool, **kwargs: Any
    ) -> None:
        super().__init__(
            trigger_dag_id=dag_id_of("build", index),
            conf={"force": force},
            skip_when_already_exists=True,
            openlineage_inject_parent_info=False,
            **kwargs,
        )
        self.kind = kind
        self.may_ask = may_ask

    def execute(self, context: Context) -> None:
        """Ask for the build.

        Raises:
            AirflowFailException: its DAG is paused.
        """
        self.trigger_run_id = f"{self.kind}__{context['run_id']}"
        dag = self.trigger_dag_id
        ask = getattr(context["ti"], "get_dag", None)  # before 3.2, Airflow tells no task
        if ask is not None and ask(dag).is_paused:
            raise AirflowFailException(
                f"the index has to be built, and DAG {dag} is paused, so that its run would wait "
                f"for ever: unpause it, by 'airflow dags unpause {dag}' or by its switch in the "
                "UI, then clear this task or wait for the next run"
            )
        if self.may_ask and context["ti"].xcom_pull(task_ids="plan").get("asks"):
            if context["ti"].get_dr_count(dag, states=["queued", "running"]):
                self.log.info("a run of %s is there already, at work or waiting for approval", dag)
                return
            self.conf = {"force": True}
        super().execute(context)


def another_run(context: Context) -> DagRunTriggerException:
    """Return what makes Airflow start this DAG again, with what was set in the trigger form.

    A plan that was superseded is of no use, however often its task is tried again. The other
    run waits for the end of this one.
    """
    dag_run = context["dag_run"]
    return DagRunTriggerException(
        trigger_dag_id=dag_run.dag_id,
        # Named after this run, so that another attempt at this task starts no second one.
        dag_run_id=f"again__{dag_run.run_id}",
        skip_when_already_exists=True,
        conf=dict(context["params"]),
        logical_date=None,
        reset_dag_run=False,
        wait_for_completion=False,
        allowed_states=[],
        failed_states=[],
        poke_interval=0,
        deferrable=False,
    )
