"""Submit through Apache Livy, a service that starts Spark applications for who asks over HTTP."""

from airflow.sdk import BaseOperator

from puffin_ann.airflow.submit.connections import require_connection
from puffin_ann.airflow.submit.submission import Submission
from puffin_ann.declaration import SparkOptions
from puffin_ann.errors import BadInputError
from puffin_ann.imports.extras import needing

POLL_SECONDS = 5
"""How often Livy is asked for the state of an application."""

DRIVERS = ("spark.yarn.appMasterEnv", "spark.kubernetes.driverEnv")
"""Where Spark has variables of a driver on a cluster; each cluster passes the other's over."""


def make_operator(submission: Submission) -> BaseOperator:
    """Return the operator that submits through Livy."""
    with needing("livy", "to submit stages through Livy"):
        from airflow.providers.apache.livy.operators.livy import LivyOperator
    spark = submission.spark
    variables = {
        f"{prefix}.{name}": value
        for prefix in ("spark.executorEnv", *DRIVERS)
        for name, value in spark.env.items()
    }
    operator: BaseOperator = LivyOperator(
        task_id="submit",
        livy_conn_id=spark.conn_id,
        file=submission.application,
        args=list(submission.arguments),
        # Livy's own names are for one session each, and those that ended keep theirs.
        conf={"spark.app.name": submission.name, **spark.conf, **variables},
        files=list(spark.files),
        py_files=list(spark.py_files),
        archives=list(spark.archives),
        polling_interval=POLL_SECONDS,
    )
    return operator


def check(spark: SparkOptions) -> None:
    """Make sure, before anything is staged, that Livy can be asked, and is known.

    Raises:
        NotInstalledError: its provider is not installed.
        AirflowFailException: the connection is not there.
        BadInputError: the connection is one to Spark.
    """
    with needing("livy", "to submit stages through Livy"):
        import airflow.providers.apache.livy.operators.livy  # noqa: F401
    conn = require_connection(
        spark.conn_id, "--conn-type livy --conn-host HOST --conn-port 8998'; it names Livy"
    )
    if conn.conn_type == "spark":
        raise BadInputError(
            f"connection {spark.conn_id!r} is one to Spark, and stages are submitted by 'livy': "
            "let spark.conn_id of the declaration name a connection of type 'livy'"
        )
