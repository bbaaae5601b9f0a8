"""The operator that runs a stage as a Spark application."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from airflow.sdk import Context

from puffin_ann.airflow.dag_ids import Kind, dag_id_of
from puffin_ann.airflow.exceptions import AirflowException, AirflowFailException
from puffin_ann.airflow.failures import PERMANENT_EXIT_CODES
from puffin_ann.airflow.operators.spark_connection import executor_environment, require_connection
from puffin_ann.declaration import IndexDeclaration
from puffin_ann.extras import needing
from puffin_ann.spark_apps import Stage, application

with needing("airflow", "to submit stages to Spark"):
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

ERROR_LINE = re.compile(r"^error: (.+)$")
"""The last line of an application that failed by an error of ours."""


class StageOperator(SparkSubmitOperator):
    """Submit one of our Spark applications, for the plan of its run.

    It has no templated fields: its configuration and names come from declarations, which are data.
    Airflow would run what is in braces in them, and take "1.10" for a number. What differs from run
    to run is put in when it is executed.

    An application that fails with one of our errors prints it as its last line: the task fails with
    that line, and is not retried where another attempt would fail in the same way.

    Args:
        table: the indexed table.
        kind: what the run does, by which it has its lease; None where it needs no lease.
        group: the group of shards that the application works on, for those that do on one.
        **kwargs: those of `SparkSubmitOperator`.
    """

    template_fields: Sequence[str] = ()

    def __init__(
        self, *, table: str, kind: Kind | None = None, group: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.kind = kind
        self.group = group
        self._error = ""

    def execute(self, context: Context) -> None:
        """Submit the application and wait for its end.

        Raises:
            AirflowFailException: another attempt would find the same.
        """
        require_connection(self._conn_id)
        self.application_args = self.arguments(context)
        try:
            super().execute(context)
        except AirflowException:
            if not self._error:
                raise
            started = getattr(self._hook, "_submit_sp", None)
            is_permanent = started is not None and started.returncode in PERMANENT_EXIT_CODES
            kind = AirflowFailException if is_permanent else AirflowException
            raise kind(self._error) from None

    def arguments(self, context: Context) -> list[str]:
        """Return the arguments of the application."""
        planned = context["ti"].xcom_pull(task_ids="plan")
        given = ["--table", self.table, "--plan", planned["plan"]]
        if self.kind is not None:
            given += ["--owner", owner_of(self.kind, context["run_id"])]
        if self.group is not None:
            given += ["--group", self.group]
        return given

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        process = hook._process_spark_submit_log
        # On this one object: the hook has no other way to see what is printed.
        vars(hook)["_process_spark_submit_log"] = lambda lines: process(self._keeping_error(lines))
        return hook

    def _keeping_error(self, lines: Iterable[str]) -> Iterator[str]:
        """Hand on what spark-submit prints, and keep what our application says of its failure."""
        for line in lines:
            found = ERROR_LINE.match(line.strip())
            if found:
                self._error = found[1]
            yield line


def owner_of(kind: Kind, run_id: str) -> str:
    """Return by what name a DAG run holds its lease; runs of two DAGs may have one run id."""
    return f"{kind}/{run_id}"


def stage_arguments(
    declaration: IndexDeclaration,
    kind: Kind,
    task_id: str,
    stage: Stage,
    *,
    has_lease: bool = True,
) -> dict[str, Any]:
    """Return the arguments of a `StageOperator`.

    Args:
        declaration: the index.
        kind: of the run.
        task_id: of the task.
        stage: which the application runs.
        has_lease: the run has a lease on the index, which the stage keeps alive.
    """
    return {
        "task_id": task_id,
        "application": str(application(stage)),
        "name": f"{dag_id_of(kind, declaration.name)}.{task_id}",
        "conn_id": declaration.spark.conn_id,
        "conf": {**executor_environment(), **declaration.spark.conf},
        "table": declaration.table,
        "kind": kind if has_lease else None,
    }
