"""Airflow's connections to what runs Spark: is it there, and which master does it name."""

from dataclasses import dataclass
from typing import Any

from airflow.sdk import Connection

from puffin_ann.airflow.exceptions import AirflowFailException, AirflowNotFoundException
from puffin_ann.declaration import SparkOptions


def require_connection(conn_id: str, example: str) -> Connection:
    """Return a connection.

    Spark's operator would go to YARN without it, whichever cluster that is.

    Args:
        conn_id: its id.
        example: the options of Airflow's command that adds one like it, and what it names.

    Raises:
        AirflowFailException: there is none; says how to add it.
    """
    try:
        found: Connection = Connection.get(conn_id)
    except AirflowNotFoundException:
        raise AirflowFailException(
            f"Airflow has no connection {conn_id!r} (spark.conn_id of the declaration): add it "
            f"under Admin > Connections, or by 'airflow connections add {conn_id} {example}"
        ) from None
    return found


@dataclass(frozen=True)
class Master:
    """Where Spark is.

    Attributes:
        url: of the master, such as `spark://host:7077`.
        deploy_mode: declared, or else the connection's; None where neither says.
        extra: of the connection.
    """

    url: str
    deploy_mode: str | None
    extra: dict[str, Any]

    @property
    def has_driver_elsewhere(self) -> bool:
        """The driver runs on the cluster, not beside the task."""
        return self.deploy_mode == "cluster"

    @property
    def is_yarn(self) -> bool:
        """A cluster of Hadoop."""
        return "yarn" in self.url

    @property
    def is_kubernetes(self) -> bool:
        """A cluster of Kubernetes."""
        return "k8s" in self.url


def spark_master(spark: SparkOptions) -> Master:
    """Return the master that a connection names, read as Airflow's Spark provider does.

    Raises:
        AirflowFailException: there is no such connection.
    """
    conn = require_connection(
        spark.conn_id,
        "--conn-type spark --conn-host spark://HOST:7077' (local[*] for this machine alone); it "
        "names the Spark master",
    )
    host = conn.host or ""
    is_whole = conn.conn_type == "spark" and host and ("://" in host or not conn.port)
    url = host if is_whole else f"{conn.conn_type}://{host}"
    extra = conn.extra_dejson
    return Master(url, spark.deploy_mode or extra.get("deploy-mode"), extra)
