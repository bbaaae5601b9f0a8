"""Sensors for DAGs of your own.

Every Airflow process imports this file, so it imports no more than Airflow.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowFailException


class IcebergIndexStaleSensor(BaseSensorOperator):
    """Wait until an index has fallen behind its table, by its own declaration.

    It has when it covers less than `refresh.min_coverage` of the live rows, or when the oldest
    change that it does not cover is older than `refresh.max_lag`. For people on a clock, who do not
    want a refresh with every change: declare `refresh: {watch: false}`, and then::

        with DAG("follow_words_at_night", schedule="0 22 * * *", catchup=False):
            stale = IcebergIndexStaleSensor(task_id="stale", index="words", timeout=8 * 3600)
            stale >> TriggerDagRunOperator(task_id="go", trigger_dag_id="ann_refresh_words")

    :param index: Name of the declared index.
    :param deferrable: Wait in the triggerer, without a worker's slot.
    """

    template_fields = ("index",)

    def __init__(self, *, index: str, deferrable: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.index = index
        self.deferrable = deferrable

    def poke(self, context: Context) -> bool:
        """Look at the table once."""
        from puffin_ann.errors import BadInputError, NotFoundError
        from puffin_ann.lifecycle.stale import staleness_of

        try:
            found = staleness_of(self.index)
        except (BadInputError, NotFoundError) as error:
            raise AirflowFailException(str(error)) from None
        self.log.info("%s", found.reason)
        return found.is_stale

    def execute(self, context: Context) -> Any:
        """Wait in the triggerer, unless there is nothing to wait for."""
        if not self.deferrable:
            return super().execute(context)
        if self.poke(context):
            return None
        from puffin_ann_triggers import IndexStaleTrigger

        self.defer(
            trigger=IndexStaleTrigger(index=self.index, poll_interval=self.poke_interval),
            method_name="resume",
            timeout=timedelta(seconds=self.timeout),
        )

    def resume(self, context: Context, event: dict[str, str]) -> None:
        """Say why the wait is over.

        Raises:
            AirflowFailException: the index is not declared any more, or its table is gone.
        """
        if "error" in event:
            raise AirflowFailException(event["error"])
        self.log.info("%s", event["reason"])
