"""The local stage: one git-ignored folder that holds the demo's catalog and Airflow's home."""

import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CATALOG = "demo"


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


def create_database(path: Path) -> None:
    """Create a catalog's SQLite database with write-ahead logging, unless it is there.

    A commit then waits for the disk once instead of four times, as lasting as before, and neither
    waits for readers nor keeps them out, of which a scheduler and its tasks are several. It stays
    with the file. Not for network file systems, which lack the memory that processes share.
    """
    if not path.exists():
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA journal_mode=WAL")


def write_catalog(local: Path) -> None:
    """Describe the embedded catalog to PyIceberg: SQLite, with the warehouse beside it."""
    local.mkdir(parents=True, exist_ok=True)
    create_database(local / "catalog.db")
    (local / ".pyiceberg.yaml").write_text(
        f"catalog:\n  {CATALOG}:\n"
        f"    type: sql\n"
        f"    uri: sqlite:///{local / 'catalog.db'}\n"
        f"    warehouse: file://{local / 'warehouse'}\n"
    )
    (local / "warehouse").mkdir(exist_ok=True)
