"""Where Spark is: Airflow's connection to it, its commands, the environment of its executors."""

import os

from airflow.sdk import Connection

from puffin_ann.airflow.exceptions import AirflowFailException, AirflowNotFoundException


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

    Only its location: catalog credentials are never passed as arguments.
    """
    home = os.environ.get("PYICEBERG_HOME")
    return {"spark.executorEnv.PYICEBERG_HOME": home} if home else {}
