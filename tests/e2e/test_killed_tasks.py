"""A running Airflow whose tasks, workers and Spark jobs are killed publishes every change once."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import crashes
import numpy as np
import psutil
import pytest
from conftest import SAMPLE, free_port
from servers import LocalAirflow, wait_until
from strikes import Kind, Moment, is_alive, newest_run, running
from watched import SECONDS, Watched, words

from puffin_ann import open_index
from puffin_ann.lifecycle.run import safe_run_id

pytestmark = pytest.mark.long

INDEX, DAG = "first", "ann_refresh_first"
ROWS, MORE, GONE = 1500, 30, 5
K, SEED = 5, 7
FEWEST = 5
"""Of the tasks of a run, how many have to be hit."""

VARIABLES = {
    # A worker that was killed is missed after some seconds, not minutes.
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "1",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
}
POLICY = """
from datetime import timedelta

def task_policy(task):
    task.retry_delay = timedelta(seconds=1)
    if task.task_id == "lease":
        task.poke_interval = 1
"""
"""What the people who run an Airflow may have it do with every task."""

ENDS = {
    "plan": "plan.json",
    "read_changes": "changes.json",
    "apply_changes": "applied-000.json",
    "publish": "publish.json",
}
"""By task, what it stores at its end: there the next stage may begin."""

STAGES = {
    "lease": False,
    "plan": False,
    "choose": False,
    "read_changes": True,
    "deal_groups": False,
    "apply_changes": True,
    "publish": False,
    "report": False,
    "release": False,
}
"""The tasks of a refresh, in order, and which of them submit to Spark."""

CHANGE = """
import sys
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
sample, first, rows, gone = sys.argv[1], *map(int, sys.argv[2:])
with load_catalog("demo").load_table("glove.watched").transaction() as transaction:
    transaction.delete(f"id < {gone}")
    transaction.append(pq.read_table(sample).slice(first, rows))
"""
CLEAN = """
from puffin_ann.declaration import load_declarations
from puffin_ann.lifecycle.clean import clean
from puffin_ann.settings import settings
declared = load_declarations(settings().declarations_dir)
clean("demo.glove.watched", declared, grace="0s", at_ms=10**15)
"""

OVERTAKE = """
import sys, time
from pathlib import Path
from puffin_ann.declaration import load_declarations
from puffin_ann.lifecycle import leases
from puffin_ann.lifecycle.refresh import refresh_in_process
from puffin_ann.settings import settings
(declared,) = load_declarations(settings().declarations_dir)
with leases.publishing(declared.table, f"{declared.name}/early", "overtake"):
    while not Path(sys.argv[1]).exists():
        time.sleep(0.1)
    print(refresh_in_process(declared, run_id="early", force=True))
"""
"""Publishes without the index's lease, which it may do who took its holder for dead; whoever wants
to publish the plan that stands at the place it is told has to wait until it has done so."""


class Struck:
    """A table whose index is refreshed by tasks that are killed.

    Attributes:
        watched: the table, its index, and the Airflow.
        rows: words of the sample that were added, from the first one on.
        gone: of these, how many were deleted, from the first one on.
        seconds: what a task takes that nobody kills.
        outlived: processes that were to live on without their task or worker.
    """

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.rows, self.gone = ROWS, 0
        self.random = random.Random(SEED)
        self.seconds: dict[str, float] = {}
        self.outlived: list[psutil.Process] = []

    @property
    def server(self) -> LocalAirflow:
        return self.watched.server

    @property
    def metadata(self) -> Path:
        return self.server.local / "warehouse" / "glove" / "watched" / "metadata"

    def change(self) -> str:
        """Add rows and delete some, by another process; return the run that this starts."""
        before = newest_run(self.server, DAG)
        self.gone += GONE
        given = (str(SAMPLE), *map(str, (self.rows, MORE, self.gone)))
        command = [sys.executable, "-c", CHANGE, *given]
        # Waited for later: the run begins before this has ended.
        self.changing = subprocess.Popen(command, env=self.watched.variables)
        self.rows += MORE
        wait_until(lambda: newest_run(self.server, DAG) != before, SECONDS, every=0.02)
        return newest_run(self.server, DAG)

    def end(self, run_id: str) -> None:
        """Wait for the end of a run, and see that the index has followed the table."""

        def state() -> str:
            return next(
                one["state"] for one in self.server.runs(DAG) if one["dag_run_id"] == run_id
            )

        assert self.changing.wait(SECONDS) == 0
        wait_until(lambda: state() in ("success", "failed"), SECONDS, every=0.5)
        tried = {one["task_id"]: one["try_number"] for one in self.server.tasks(DAG, run_id)}
        assert state() == "success", tried
        wait_until(self.watched.quiet, SECONDS)
        assert self.watched.covers()
        assert self.watched.status(INDEX).vectors == self.rows - self.gone
        first = self.rows - MORE
        assert self.watched.nearest(INDEX, first, MORE) == words(first, MORE)

    def staged(self, run_id: str, task: str) -> Path:
        """The document that a task of a run stores at its end."""
        run = safe_run_id(f"refresh-{run_id}")
        return self.metadata / "ann-staging" / INDEX / run / ENDS[task]

    def moment(self, task: str, number: int, run_id: str) -> Moment:
        """The first moment of a stage, its last one, and one at random, in turn."""
        if number % 3 == 0:
            return Moment()
        if number % 3 == 1 and task in ENDS:
            return Moment(appears=self.staged(run_id, task))
        return Moment(self.random.uniform(0.0, 0.8 * self.seconds[task]))

    def strike(self, run_id: str, task: str, kind: Kind, number: int) -> bool:
        """Kill an attempt at a task; False if it had ended before."""
        attempt = running(self.server, DAG, run_id, task, SECONDS)
        if attempt is None:
            return False
        attempt.wait_for(self.moment(task, number, run_id), with_job=STAGES[task])
        was_there = attempt.is_alive()
        self.outlived += attempt.strike(kind)
        return was_there

    def search(self) -> None:
        """Hold a search of one snapshot to brute force on that snapshot."""
        table = self.watched.table
        snapshot = table.current_snapshot().snapshot_id
        rows = table.scan(snapshot_id=snapshot).to_arrow().sort_by("id")
        vectors = np.array(rows.column("embedding").to_pylist(), dtype=np.float64)
        queries = vectors[[3, 700, -1]] + np.random.default_rng(SEED).normal(0, 0.1, (3, 100))
        vectors /= np.linalg.norm(vectors, axis=1)[:, None]
        nearest = np.argsort(-queries @ vectors.T, axis=1)[:, :K]
        index = open_index(table, INDEX, snapshot)
        given = queries.astype(np.float32)
        found = index.search(given, K, columns=["id"], exhaustive=True)
        expected = rows.column("id").to_numpy()[nearest]
        np.testing.assert_array_equal(found.column("id").to_numpy().reshape(3, K), expected)
        assert len(index.search(given, K)) == 3 * K
        time.sleep(0.5)  # the processor is for those that are killed


@pytest.fixture(scope="module")
def struck(tmp_path_factory) -> Iterator[Struck]:
    """One run that nobody kills has ended."""
    server = LocalAirflow(tmp_path_factory.mktemp("struck"), free_port())
    server.variables |= VARIABLES
    made = Struck(Watched.made(server, tmp_path_factory.mktemp("indexes"), INDEX, rows=ROWS))
    policies = server.local / "airflow" / "config"
    policies.mkdir(parents=True)
    (policies / "airflow_local_settings.py").write_text(POLICY)
    try:
        server.up()
        wait_until(lambda: made.watched.states("refresh", INDEX), SECONDS)
        wait_until(made.watched.quiet, SECONDS)
        run_id = made.change()
        made.end(run_id)
        for one in server.tasks(DAG, run_id):
            assert one["try_number"] <= 1
            made.seconds[one["task_id"]] = one["duration"] or 0.0
        yield made
    finally:
        server.command("down")


@pytest.mark.parametrize(("number", "kind"), list(enumerate(get_args(Kind))))
def test_a_refresh_of_which_every_task_is_killed_publishes_once(struck, number, kind):
    before = struck.watched.published()
    with crashes.searching(struck.search) as searches:
        run_id = struck.change()
        hit = [
            task
            for place, task in enumerate(STAGES)
            if struck.strike(run_id, task, kind, number + place)
        ]
        struck.end(run_id)
    assert struck.watched.published() - before == 1
    assert searches[0] > 1
    tried = {one["task_id"]: one["try_number"] for one in struck.server.tasks(DAG, run_id)}
    again = [task for task in hit if tried[task] > 1]
    # Short ones may end before they are seen; one may have said that it is done when it is killed.
    assert len(again) >= FEWEST, f"killed were {hit}, tried again {again}"


def test_a_refresh_that_is_overtaken_is_followed_by_another_that_plans_anew(struck):
    before = struck.watched.published()
    run_id = struck.change()
    struck.watched.program("-c", OVERTAKE, str(struck.staged(run_id, "plan")))
    wait_until(lambda: struck.server.runs(DAG)[-1]["dag_run_id"] == f"again__{run_id}", SECONDS)
    for one in (run_id, f"again__{run_id}"):
        struck.end(one)
    assert struck.watched.published() - before == 1, "the other run had nothing left to do"
    assert not struck.staged(run_id, "plan").exists()


def test_what_outlived_its_task_ends_and_clean_up_leaves_nothing(struck):
    wait_until(lambda: not any(map(is_alive, struck.outlived)), SECONDS)
    assert struck.watched.held_by(INDEX) == ""
    struck.watched.program("-c", CLEAN)
    staged = [one.name for one in struck.metadata.glob("ann-staging/**/*") if one.is_file()]
    assert [name for name in staged if not name.startswith("_lease-")] == []
    registered = {one.statistics_path for one in struck.watched.table.metadata.statistics}
    assert {f"file://{path}" for path in struck.metadata.glob("ann-*.puffin")} == registered
    assert struck.watched.covers()
