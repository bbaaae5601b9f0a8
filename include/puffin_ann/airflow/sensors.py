"""Sensors for DAGs of your own.

DAG files import this module, so it imports no more than Airflow.
"""

from abc import abstractmethod
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, Context

from puffin_ann.airflow.exceptions import AirflowException, AirflowFailException
from puffin_ann.declaration import folder_beside, read_declarations

if TYPE_CHECKING:
    from puffin_ann.airflow.triggers.index import IndexTrigger


class IndexSensor(BaseSensorOperator):
    """Wait for something about a declared index; a subclass says for what.

    Args:
        index: name of the declared index.
        folder: of the declarations, as seen from the DAG file, as in `index_dags`.
        deferrable: wait in the triggerer, without a worker's slot.
        **kwargs: those of every sensor, such as `timeout` and `poke_interval`.
    """

    template_fields = ("index",)

    def __init__(
        self,
        *,
        index: str,
        folder: str | Path | None = None,
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.index = index
        self.folder = folder
        self.deferrable = deferrable

    def asked(self) -> dict[str, Any]:
        """Return which index a trigger is to look at, with what is declared beside the DAG file."""
        dag = self.get_dag()
        beside = folder_beside(Path(dag.fileloc), self.folder) if dag is not None else None
        if beside is None:
            return {"index": self.index}
        found = read_declarations(beside).require(self.index)
        # Without Spark's configuration: nothing is submitted, and Airflow's database keeps this.
        declared = found.model_dump(mode="json", exclude={"spark"})
        return {"index": self.index, "declaration": declared}

    @abstractmethod
    def trigger(self) -> "IndexTrigger":
        """Return the trigger that waits for it, and that knows how to look."""

    def poke(self, context: Context) -> bool:
        """Look at the table once."""
        from puffin_ann.errors import BadInputError, NotFoundError, PuffinAnnError

        try:
            is_over, reason = self.trigger().look()
        except (BadInputError, NotFoundError) as error:
            raise AirflowFailException(str(error)) from None
        except PuffinAnnError as error:
            # Its message tells all; the frames of the client that noticed would hide it.
            raise AirflowException(str(error)) from None
        self.log.info("%s", reason)
        return is_over

    def execute(self, context: Context) -> Any:
        """Wait in the triggerer, unless there is nothing to wait for."""
        if not self.deferrable:
            return super().execute(context)
        if self.poke(context):
            return None
        self.defer(
            trigger=self.trigger(),
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


class IcebergIndexStaleSensor(IndexSensor):
    """Wait until an index has fallen behind its table, by its own declaration.

    It has when it covers less than `refresh.min_coverage` of the live rows, or when the oldest
    change that it does not cover is older than `refresh.max_lag`. For people on a clock, who do not
    want a refresh with every change: declare `refresh: {watch: false}`, and then::

        with DAG("follow_words_at_night", schedule="0 22 * * *", catchup=False):
            stale = IcebergIndexStaleSensor(task_id="stale", index="words", timeout=8 * 3600)
            go = TriggerDagRunOperator(
                task_id="go", trigger_dag_id="ann_refresh_words", conf={"force": True}
            )
            stale >> go

    Forced, since the refresh lets fewer changes than `refresh.min_rows` wait otherwise.

    Args:
        index: name of the declared index.
        deferrable: wait in the triggerer, without a worker's slot.
        **kwargs: those of every sensor, such as `timeout` and `poke_interval`.
    """

    def trigger(self) -> "IndexTrigger":
        """Return the trigger that waits until the index is stale."""
        from puffin_ann.airflow.triggers.index import IndexStaleTrigger

        return IndexStaleTrigger(**self.asked(), poll_interval=self.poke_interval)


class IcebergIndexTombstoneSensor(IndexSensor):
    """Wait until so many rows of a shard are deleted that it should be rebuilt.

    That is when the next run of `ann_maintain_<index>` would rebuild shards because more than
    `rebuild.tombstone_ratio` of their rows are deleted: tombstones, and rows deleted since, which
    count from when a refresh would publish them. For people who do not want to wait for the
    maintenance window::

        with DAG("rebuild_words", schedule="@continuous", max_active_runs=1, catchup=False):
            due = IcebergIndexTombstoneSensor(task_id="due", index="words")
            go = TriggerDagRunOperator(
                task_id="go",
                trigger_dag_id="ann_maintain_words",
                wait_for_completion=True,
                deferrable=True,
            )
            due >> go

    Without waiting for the end, its next run would find the same shards still due.

    Args:
        index: name of the declared index.
        ratio: share of a shard's rows, such as 0.1, taken for `rebuild.tombstone_ratio`.
            `ann_maintain_<index>` goes by what is declared: a lower one here is good for a warning.
        deferrable: wait in the triggerer, without a worker's slot.
        **kwargs: those of every sensor, such as `timeout` and `poke_interval`.
    """

    def __init__(self, *, ratio: float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if ratio is not None and not 0 <= ratio < 1:
            raise ValueError(f"ratio={ratio}: expected 0 to less than 1")
        self.ratio = ratio

    def trigger(self) -> "IndexTrigger":
        """Return the trigger that waits until shards are due."""
        from puffin_ann.airflow.triggers.index import IndexTombstoneTrigger

        return IndexTombstoneTrigger(
            **self.asked(), poll_interval=self.poke_interval, ratio=self.ratio
        )
