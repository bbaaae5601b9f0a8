"""API server, scheduler and worker that share no disk, as in docker-compose.yaml."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator

import pytest
from airflow_api import ENDED, Airflow

from tests.support.airflow.airflow_parts import AirflowApart, environment_of
from tests.support.paths import SAMPLE

pytestmark = pytest.mark.long

INDEX, ROWS, MORE = "apart", 1500, 40
COLLECT, REFRESH = "ann_collect_vector_indexes", f"ann_refresh_{INDEX}"
DECLARED = """
table: demo.apart.words
column: embedding
key: word
shards: 2
recall_target: 0.8
refresh: {watch: false, min_rows: 10}
maintain: {schedule: null}
evaluate: {schedule: null}
"""
MAKE = """
import sys
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from puffin_ann.declaration import load_declaration
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.settings import settings
path, rows, more, index = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
words = pq.read_table(path)
catalog = load_catalog("demo")
catalog.create_namespace("apart")
table = catalog.create_table("apart.words", schema=words.schema)
table.append(words.slice(0, rows))
declared = load_declaration(settings().declarations_dir[0] / f"{index}.yaml")
refresh_in_process(declared, run_id="first")
table.refresh()
table.append(words.slice(rows, more))
"""


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> Iterator[AirflowApart]:
    made = AirflowApart(tmp_path_factory.mktemp("apart"))
    try:
        made.make()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def table(parts) -> None:
    """A table with an index, which knows nothing of the rows that came last."""
    (parts.declarations / f"{INDEX}.yaml").write_text(DECLARED)
    made = subprocess.run(
        [sys.executable, "-c", MAKE, str(SAMPLE), str(ROWS), str(MORE), INDEX],
        env=parts.variables("worker"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr


@pytest.fixture(scope="module")
def airflow(parts, table) -> Airflow:
    started = parts.start()
    parts.wait(lambda: {COLLECT, REFRESH} <= started.dags(), "the DAGs are read")
    return started


def run(parts: AirflowApart, airflow: Airflow, dag: str) -> str:
    asked = airflow.trigger(dag)
    parts.wait(lambda: airflow.states(dag)[asked] in ENDED, f"{dag} has run")
    assert airflow.states(dag)[asked] == "success", airflow.tasks(dag, asked)
    return asked


def test_the_page_tells_what_a_worker_found_and_has_its_log_without_a_shared_disk(parts, airflow):
    asked = run(parts, airflow, COLLECT)
    (told,) = airflow.indexes()
    assert (told["index"], told["table"]) == (INDEX, "demo.apart.words")
    assert told["figures"]["rows"] == ROWS
    assert told["figures"]["coverage"] == pytest.approx(ROWS / (ROWS + MORE))
    assert told["found_ms"] == told["looked_ms"] > 0
    said = f"{INDEX} on demo.apart.words: found"
    parts.wait(lambda: said in airflow.log(COLLECT, asked, "collect"), "the log is sent")


def test_a_refresh_by_spark_in_the_worker_is_what_the_page_tells_next(parts, airflow):
    run(parts, airflow, REFRESH)
    (told,) = airflow.indexes()
    assert (told["state"], told["figures"]["rows"]) == ("fresh", ROWS + MORE)
    assert told["last_run"]["dag_id"] == REFRESH
    assert told["last_run"]["state"] == "success"


def test_the_worker_knows_no_database_and_the_api_server_no_table(parts, airflow):
    worker = environment_of(parts.processes["worker"])
    server = environment_of(parts.processes["api-server"])
    assert str(parts.folder / "airflow.db") not in "".join(worker.values())
    with sqlite3.connect(parts.home("worker") / "airflow.db") as own:  # Airflow makes an empty one
        assert own.execute("SELECT name FROM sqlite_master").fetchall() == []
    assert str(parts.lake) not in "".join(server.values())
    assert worker["AIRFLOW_HOME"] != server["AIRFLOW_HOME"]
    asked = next(iter(airflow.states(COLLECT)))
    for part in ("worker", "api-server"):  # it ran in the one, which sent its log to the other
        logs = parts.home(part) / "logs"
        assert list(logs.rglob(f"run_id={asked}/task_id=collect/attempt=1.log")), part
