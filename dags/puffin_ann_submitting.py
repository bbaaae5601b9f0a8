"""The operator that runs a stage as a Spark application, and where Spark is."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Connection, Context
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
)

from puffin_ann.declaration import IndexDeclaration
from puffin_ann_failing import PERMANENT_EXIT_CODES

SPARK_APPS = Path(__file__).resolve().parents[1] / "spark_apps"
SAID = re.compile(r"^error: (.+)$")
"""The last line of an application that failed by an error of ours."""


class StageOperator(SparkSubmitOperator):
    """Submit one of our Spark applications, for the plan of its run.

    Nothing of it is a template: its configuration and names come from declarations, which are data.
    Airflow would run what stands in braces in them, and take "1.10" for a number. What differs from
    run to run is put in when it is executed.

    An application that failed by an error of ours tells it in its last line: the task fails by that
    line, and for good where another attempt would find the same.

    :param table: The indexed table.
    :param kind: What the run does, by which it has its lease; none where it needs no lease.
    :param group: The group of shards that the application works on, for those that do on one.
    """

    template_fields: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, *, table: str, kind: str | None = None, group: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.kind = kind
        self.group = group
        self._said = ""

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
            if not self._said:
                raise
            started = getattr(self._hook, "_submit_sp", None)
            is_permanent = started is not None and started.returncode in PERMANENT_EXIT_CODES
            kind = AirflowFailException if is_permanent else AirflowException
            raise kind(self._said) from None

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
        hook._process_spark_submit_log = lambda lines: process(self._noting(lines))
        return hook

    def _noting(self, lines: Iterable[str]) -> Iterator[str]:
        """Hand on what spark-submit prints, and keep what our application says of its failure."""
        for line in lines:
            found = SAID.match(line.strip())
            if found:
                self._said = found[1]
            yield line


def owner_of(kind: str, run_id: str) -> str:
    """Return by what name a DAG run holds its lease; runs of two DAGs may have one run id."""
    return f"{kind}/{run_id}"


def require_connection(conn_id: str) -> None:
    """Make sure that Airflow knows the connection that names the Spark master.

    Spark's operator would go to YARN without it, whichever cluster that is.

    Raises:
        AirflowFailException: there is none; says how to add it.
    """
    try:
        Connection.get(conn_id)
    except AirflowNotFoundException:
        raise AirflowFailException(
            f"Airflow has no connection {conn_id!r}, which names the Spark master (spark.conn_id "
            "of the declaration): add it under Admin > Connections, or by 'airflow connections "
            f"add {conn_id} --conn-type spark --conn-host spark://HOST:7077' (local[*] for this "
            "machine alone)"
        ) from None


def require_spark(conn_id: str) -> None:
    """Make sure, before anything is staged, that Spark can be started here, and that it is known.

    Raises:
        SparkNotFoundError: a command is not on PATH.
        AirflowFailException: the connection is not there.
    """
    from puffin_ann.lifecycle.spark import session

    session.require_spark()
    require_connection(conn_id)


def executor_environment() -> dict[str, str]:
    """Return the Spark configuration that lets executors find PyIceberg's configuration.

    Only its location: catalog credentials never stand in arguments.
    """
    home = os.environ.get("PYICEBERG_HOME")
    return {"spark.executorEnv.PYICEBERG_HOME": home} if home else {}


def spark(
    declaration: IndexDeclaration, prefix: str, task_id: str, app: str, kind: str | None
) -> dict[str, Any]:
    """Return the arguments of a `StageOperator`.

    Args:
        declaration: the index.
        prefix: of the DAG's id.
        task_id: of the task.
        app: file name of the application.
        kind: of the run, which names its lease; None where it needs none.
    """
    return {
        "task_id": task_id,
        "application": str(SPARK_APPS / app),
        "name": f"{prefix}{declaration.name}.{task_id}",
        "conn_id": declaration.spark.conn_id,
        "conf": {**executor_environment(), **declaration.spark.conf},
        "table": declaration.table,
        "kind": kind,
    }
