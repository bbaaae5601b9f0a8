"""The local stage: one git-ignored folder that holds the demo's catalog and Airflow's home."""

import json
import os
import sys
from pathlib import Path

from puffin_ann.lake.catalog.embedded import create_embedded

ROOT = Path(__file__).resolve().parents[2]
CATALOG = "demo"
# Spark's JVMs live for seconds here: what the second compiler would gain comes after their end.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def environment(local: Path) -> dict[str, str]:
    """Return the environment of every process of a local Airflow whose state lies in `local`.

    Tasks, spark-submit and Python workers inherit it; it is all the wiring there is.
    """
    airflow = local / "airflow"
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYICEBERG_HOME": str(local),
        "PUFFIN_ANN_CACHE_DIR": os.environ.get("PUFFIN_ANN_CACHE_DIR", str(local / "cache")),
        "AIRFLOW_HOME": str(airflow),
        "AIRFLOW_CONN_SPARK_DEFAULT": os.environ.get(
            "AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"})
        ),
        "SPARK_SUBMIT_OPTS": os.environ.get("SPARK_SUBMIT_OPTS", QUICK_JVM),
        # A build that the demo ran stays paused else, and with it what a refresh asks for.
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": "4",  # SQLite allows one writer at a time
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{airflow / 'airflow.db'}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(airflow / "logs"),
    }


def write_catalog(local: Path) -> None:
    """Make the demo's catalog, whose tables lie beside it."""
    create_embedded(local, CATALOG)
