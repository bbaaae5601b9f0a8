"""The operator that hands over to the build DAG of an index."""

from typing import Any, ClassVar

from airflow.providers.standard.operators.trigger_dagrun import DagIsPaused, TriggerDagRunOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException


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
