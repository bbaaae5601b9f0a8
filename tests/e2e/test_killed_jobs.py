"""Spark jobs of a refresh that are killed, and one that lives on when its task was killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lifecycle.report.status import status
from tests.support.airflow.airflow_stage import Stage
from tests.support.lifecycle.publications import runs_published
from tests.support.paths import ROOT, SAMPLE

INDEX, ROWS, MORE, RUN = "killed", 1500, 50, "refresh-1"
SPARK_SUBMIT = [
    "spark-submit",
    "--master",
    "local[1]",
    "--driver-memory",
    "1g",
    "--conf",
    "spark.ui.enabled=false",
]
DECLARATION = """
table: demo.glove.killed
column: embedding
key: word
algorithm: vamana
parameters: {R: 16, L: 32}
shards: 1
partitions_per_shard: 4
recall_target: 0.8
refresh: {min_rows: 10}
"""
PROGRAM = """
import json, sys
from puffin_ann.declaration import load_declarations
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.runs import in_process, publish, refresh
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.settings import settings
found = load_declarations(*settings().declarations_dir)
declared = next(declaration for declaration in found if declaration.name == "killed")
if sys.argv[1] == "build":
    done = in_process.refresh_in_process(declared, run_id="build-1")
elif sys.argv[1] == "plan":
    leases.begin(declared.table, declared.name, sys.argv[2], "refresh")
    done = refresh.plan_refresh(declared, run_id=sys.argv[2]).model_dump()
else:
    run = RunRef.at(declared.table, sys.argv[2])
    done = publish.publish(run).model_dump()
    publish.clear_staging(run)
    leases.end(declared.table, declared.name, sys.argv[3])
print(json.dumps(done))
"""


def program(stage: Stage, *arguments: str) -> dict:
    done = stage.run(sys.executable, "-c", PROGRAM, *arguments)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def submit(stage: Stage, app: str, plan: dict, *more: str) -> subprocess.Popen:
    """Start a Spark application as Airflow's operator does: a JVM that starts our Python."""
    given = ["--table", plan["table"], "--plan", plan["plan"], "--owner", RUN, *more]
    return subprocess.Popen(
        [*SPARK_SUBMIT, str(ROOT / "spark_apps" / app), *given],
        env=stage.variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def ended(job: subprocess.Popen) -> int:
    job.communicate(timeout=300)
    return job.returncode


@pytest.fixture
def changed(stage: Stage) -> Table:
    """A table with an index that some rows are missing from."""
    data = pq.read_table(SAMPLE)
    catalog = stage.catalog()
    catalog.create_namespace_if_not_exists("glove")
    table = catalog.create_table("glove.killed", schema=data.schema)
    table.append(data.slice(0, ROWS))
    stage.declare(INDEX, DECLARATION)
    program(stage, "build")
    table.refresh().append(data.slice(ROWS, MORE))
    table.refresh().delete(f"id < {MORE}")
    return table


@pytest.mark.long
def test_jobs_killed_and_jobs_that_outlive_their_task_publish_once(stage, changed):
    plan = program(stage, "plan", RUN)
    assert plan["action"] == "refresh"
    folder = Path(plan["plan"].removeprefix("file://")).parent

    # Killed as soon as it has begun to stage something, with its JVM and its workers.
    killed, before = submit(stage, "read_changes.py", plan), set(folder.iterdir())
    deadline = time.monotonic() + 300
    while set(folder.iterdir()) == before and killed.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    assert ended(killed) != 0

    # Its task was killed and tried again: two jobs do the same, at the same time.
    jobs = [submit(stage, "read_changes.py", plan) for _ in range(2)]
    assert [ended(job) for job in jobs] == [0, 0]
    (group,) = plan["groups"]
    jobs = [submit(stage, "apply_group.py", plan, "--group", group) for _ in range(2)]
    assert [ended(job) for job in jobs] == [0, 0]

    first = program(stage, "publish", plan["plan"], RUN)
    table = stage.catalog().load_table("glove.killed")
    assert len(runs_published(table, INDEX)) == len(own_tags(table)) == 2
    assert first["snapshot_id"] in own_tags(table)
    (now,) = status(table, INDEX)
    assert (now.rows_to_scan, now.rows_masked, now.vectors) == (0, 0, ROWS)
    metadata = stage.folder / "warehouse" / "glove" / "killed" / "metadata"
    assert [path for path in metadata.rglob("_ann-staging/*/*/*") if path.is_file()] == []
