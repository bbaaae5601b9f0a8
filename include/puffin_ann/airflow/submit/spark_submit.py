"""Submit by the command `spark-submit`, through Airflow's operator for it."""

import inspect
from functools import partial
from importlib import import_module
from typing import Any

from airflow.sdk import Context

from puffin_ann.airflow.exceptions import AirflowException
from puffin_ann.airflow.failures import stage_failure
from puffin_ann.airflow.submit.connections import Master, spark_master
from puffin_ann.airflow.submit.spark_output import SparkOutput, file_of
from puffin_ann.airflow.submit.submission import Submission
from puffin_ann.declaration import SparkOptions
from puffin_ann.errors import BadInputError, NotInstalledError
from puffin_ann.imports.extras import needing

with needing("airflow", "to submit stages to Spark"):
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

RESOURCE_MANAGER = "yarn_resourcemanager_webapp_address"
"""Where a connection has the address by which an application on YARN can be followed."""


class SubmitOperator(SparkSubmitOperator):
    """Submit one of our Spark applications, and fail as it does.

    An application that fails with one of our errors prints it as its last line: the task fails with
    that line, and is not retried where another attempt would fail in the same way.

    Args:
        prints_here: the driver runs here, not on the cluster, so that what it prints is seen.
        **kwargs: those of `SparkSubmitOperator`.
    """

    def __init__(self, *, prints_here: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.prints_here = prints_here
        self._output: SparkOutput | None = None

    def execute(self, context: Context) -> None:
        """Submit the application and wait for its end.

        Raises:
            AirflowFailException: another attempt would find the same.
        """
        output = self._output = SparkOutput(lambda: file_of(context))
        try:
            super().execute(context)
        except BaseException as error:
            output.tell_last()
            if not output.error or not isinstance(error, AirflowException):
                raise
            started = getattr(self._hook, "_submit_sp", None)
            code = None if started is None else started.returncode
            raise stage_failure(output.error, code) from None

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        process, output = hook._process_spark_submit_log, self._output
        if output is not None:
            # On this one object: the hook has no other way to see what is printed.
            vars(hook)["_process_spark_submit_log"] = partial(output.take, hook, process)
        return hook


def make_operator(submission: Submission) -> SubmitOperator:
    """Return the operator that submits by `spark-submit`."""
    spark = submission.spark
    variables = {f"spark.executorEnv.{name}": value for name, value in spark.env.items()}
    master = spark_master(spark)
    return SubmitOperator(
        task_id="submit",
        prints_here=not master.has_driver_elsewhere,
        application=submission.application,
        application_args=list(submission.arguments),
        name=submission.name,
        conn_id=spark.conn_id,
        deploy_mode=spark.deploy_mode,
        conf={**spark.conf, **variables},
        env_vars=spark.env or None,
        files=",".join(spark.files) or None,
        py_files=",".join(spark.py_files) or None,
        archives=",".join(spark.archives) or None,
        **_following(master),
    )


def _following(master: Master) -> dict[str, Any]:
    """Return how an application is followed whose driver runs on YARN.

    Newer providers ask YARN, by an address that the connection has, and refuse to start without one
    unless they are told to wait for the command. Older ones always wait for the command.
    """
    if not (master.is_yarn and master.has_driver_elsewhere):
        return {}
    known = inspect.signature(SparkSubmitOperator).parameters
    if RESOURCE_MANAGER in master.extra and "yarn_track_via_rm_api" in known:
        return {"yarn_track_via_rm_api": True}
    name = next((name for name in ("durable", "reconnect_on_retry") if name in known), None)
    return {} if name is None else {name: False}


def check(spark: SparkOptions) -> None:
    """Make sure, before anything is staged, that Spark can be started here, and that it is known.

    Raises:
        SparkNotFoundError: a command is not on PATH.
        AirflowFailException: the connection is not there.
        BadInputError: Spark runs no Python application in this way.
        NotInstalledError: a package is missing that this master needs.
    """
    from puffin_ann.lifecycle.spark import session

    session.require_spark()
    master = spark_master(spark)
    if master.has_driver_elsewhere and master.url.startswith(("spark:", "local")):
        raise BadInputError(
            f"connection {spark.conn_id!r} names {master.url}, where Spark runs no Python "
            "application with deploy mode 'cluster': set 'client' (spark.deploy_mode of the "
            "declaration, or the connection's)"
        )
    if master.is_kubernetes:
        try:
            import_module("airflow.providers.cncf.kubernetes.kube_client")
        except ModuleNotFoundError:
            raise NotInstalledError(
                f"connection {spark.conn_id!r} names {master.url}, and Airflow's provider for "
                "Kubernetes is not installed: pip install apache-airflow-providers-cncf-kubernetes"
            ) from None
