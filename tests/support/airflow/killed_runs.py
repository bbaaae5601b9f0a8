"""A table whose index a running Airflow refreshes and maintains, by tasks that are killed."""

import math
import operator
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import psutil
import pyarrow.parquet as pq

from puffin_ann import open_index
from puffin_ann.lifecycle.runtime.run_ids import safe_run_id
from puffin_ann.search.version.versions import require_versions
from tests.support.airflow.airflow_server import LocalAirflow, wait_until
from tests.support.airflow.killed_attempts import Kind, Moment, newest_run, running
from tests.support.airflow.watched_table import SECONDS, WatchedTable, words
from tests.support.paths import SAMPLE

INDEX = "first"
ROWS, MORE, GONE = 1500, 30, 5
MERGED = 90
"""Rows that come besides before a maintenance: with those of the delta, enough for a merge."""

DEAD_SHARE = 0.3
"""Of a shard's rows, those that are deleted before a maintenance, which rebuilds it then."""

K, SEED = 5, 7
RECALL = 0.8
"""As declared, of graphs that rows were merged into."""

RunKind = Literal["refresh", "maintain"]
When = Literal["first", "random", "last"]
"""The moment that a stage begins, one within it, and the moment that its outcome is stored."""

STAGES: dict[RunKind, tuple[str, ...]] = {
    "refresh": (
        "lease",
        "plan",
        "choose",
        "read_changes",
        "deal_groups",
        "apply_changes",
        "publish",
        "report",
        "release",
    ),
    "maintain": (
        "lease",
        "guard",
        "plan",
        "choose",
        "read_changes",
        "deal_groups",
        "apply_changes",
        "publish",
        "report",
        "clean",
        "release",
    ),
}
"""By kind of run, its tasks, in order."""

SUBMITTED = ("read_changes", "apply_changes")
"""Tasks that submit a job to Spark."""

ENDS = {
    "plan": "plan.json",
    "read_changes": "changes.json",
    "apply_changes": "applied-000.json",
    "publish": "publish.json",
}
"""By task, what it stores at its end: there the next stage may begin."""

WEIGHTY = ("read_changes", "apply_changes", "publish")
"""The tasks that each way to kill meets at every moment in turn: what they do takes longest."""

Kills = dict[str, tuple[tuple[Kind, When], ...]]
"""By task, how its attempts are killed, one after the other."""

CHANGE = """
import json, sys
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import In
sample, first, rows, gone = sys.argv[1], *map(int, sys.argv[2:4]), json.loads(sys.argv[4])
with load_catalog("demo").load_table("glove.watched").transaction() as transaction:
    if gone:
        transaction.delete(In("id", gone))
    transaction.append(pq.read_table(sample).slice(first, rows))
"""


class KilledRuns:
    """A table whose index is refreshed and maintained by tasks that are killed.

    Attributes:
        watched: the table, its index, and the Airflow.
        rows: words of the sample that were added, from the first one on.
        gone: the ids of those that were deleted.
        seconds: by kind of run and task, what it takes until its outcome is stored.
        attempts: the processes of those that were killed.
        outlived: processes that were to live on without their task or worker.
    """

    def __init__(self, watched: WatchedTable) -> None:
        self.watched = watched
        self.rows, self.gone = ROWS, set[int]()
        self.random = random.Random(SEED)
        self.seconds: dict[tuple[RunKind, str], float] = {}
        self.attempts: set[psutil.Process] = set()
        self.outlived: list[psutil.Process] = []

    @property
    def server(self) -> LocalAirflow:
        return self.watched.server

    @property
    def metadata(self) -> Path:
        return self.server.local / "warehouse" / "glove" / "watched" / "metadata"

    def changing(self, rows: int, gone: set[int]) -> subprocess.Popen[bytes]:
        """Let another process add rows and delete some."""
        given = (str(SAMPLE), str(self.rows), str(rows), str(sorted(gone)))
        self.rows += rows
        self.gone |= gone
        return subprocess.Popen([sys.executable, "-c", CHANGE, *given], env=self.watched.variables)

    def begin(self, kind: RunKind) -> str:
        """Change the table, and have a run of this kind begin; return its id."""
        return self._refresh() if kind == "refresh" else self._maintenance()

    def _refresh(self) -> str:
        """Add rows and delete some, which starts a run."""
        before = newest_run(self.server, dag_of("refresh"))
        self.change = self.changing(MORE, set(range(len(self.gone), len(self.gone) + GONE)))
        wait_until(
            lambda: newest_run(self.server, dag_of("refresh")) != before, SECONDS, every=0.02
        )
        return newest_run(self.server, dag_of("refresh"))

    def _maintenance(self) -> str:
        """Trigger a run as a person does, when a merge and a rebuild are due."""
        self.change = self.changing(MERGED, set())
        assert self.change.wait(SECONDS) == 0
        code, run = self.server.trigger(dag_of("maintain"))
        assert code == 200, run
        return run["dag_run_id"]

    def wear(self) -> int:
        """Give the index a delta, and a shard of many tombstones; return which shard it is.

        The one that holds more: so shards stay of about the same size.
        """
        version = require_versions(self.watched.table, INDEX)[0]
        graphs = [shard for shard in version.routing.shards if shard.kind == "graph"]
        largest = max(graphs, key=lambda shard: shard.rows - shard.tombstones)
        rows = pq.read_table(SAMPLE).slice(0, self.rows).column("embedding")
        vectors = np.array(rows.to_pylist())
        vectors /= np.linalg.norm(vectors, axis=1)[:, None]
        cells = version.cells(self.watched.table.io)
        apart = np.linalg.norm(vectors[:, None] - cells.centroids, axis=2)
        partition = apart.argmin(axis=1)
        held = np.flatnonzero(cells.shards[partition] == largest.shard_id)
        alive = [number for number in held.tolist() if number not in self.gone]
        gone = self.random.sample(alive, int(DEAD_SHARE * len(alive)))
        assert self.changing(MORE, set(gone)).wait(SECONDS) == 0
        self.watched.told("refresh", INDEX, "--force")
        now = self.watched.status(INDEX)
        assert now.deltas > 0
        assert now.tombstone_ratio > 0.2
        return largest.shard_id

    def end(self, kind: RunKind, run_id: str) -> None:
        """Wait for the end of a run, and see that the index has followed the table."""
        dag = dag_of(kind)

        def state() -> str:
            return next(
                run["state"] for run in self.server.runs(dag) if run["dag_run_id"] == run_id
            )

        assert self.change.wait(SECONDS) == 0
        wait_until(lambda: state() in ("success", "failed"), SECONDS, every=0.5)
        assert state() == "success", self.tried(kind, run_id)
        wait_until(self.watched.quiet, SECONDS)
        assert self.watched.covers()
        assert self.watched.status(INDEX).vectors == self.rows - len(self.gone)
        first = self.rows - MORE
        came = words(first, MORE)
        assert self.watched.nearest(INDEX, first, MORE, exhaustive=True) == came
        found = map(operator.eq, self.watched.nearest(INDEX, first, MORE), came)
        assert sum(found) >= RECALL * MORE

    def tried(self, kind: RunKind, run_id: str) -> dict[str, int]:
        """How often each task of a run was tried; of mapped ones, the one tried most."""
        tries: dict[str, int] = {}
        for task in self.server.tasks(dag_of(kind), run_id):
            tries[task["task_id"]] = max(task["try_number"], tries.get(task["task_id"], 0))
        return tries

    def staged(self, kind: RunKind, run_id: str, task: str) -> Path:
        """The document that a task of a run stores at its end."""
        run = safe_run_id(f"{kind}-{run_id}")
        return self.metadata / "_ann-staging" / INDEX / run / ENDS[task]

    def time(self, kind: RunKind, run_id: str) -> None:
        """Watch a run that nobody kills, for what its tasks take."""
        for task in STAGES[kind]:
            attempt = running(self.server, dag_of(kind), run_id, task, SECONDS)
            began = time.monotonic()
            if attempt is not None:
                end = self.staged(kind, run_id, task) if task in ENDS else None
                moment = Moment(appears=end) if end else Moment(math.inf)
                attempt.wait_for(moment, with_job=task in SUBMITTED)
            self.seconds[kind, task] = time.monotonic() - began

    def kill_tasks(self, run: tuple[RunKind, str], task: str, kill: Kind, when: When) -> bool:
        """Kill an attempt at a task of a run; False if it had ended before, or stored its end."""
        kind, run_id = run
        attempt = running(self.server, dag_of(kind), run_id, task, SECONDS, self.attempts)
        if attempt is None:
            return False
        self.attempts.add(attempt.process)
        end = self.staged(kind, run_id, task) if task in ENDS else None
        had_ended = end is not None and end.exists()
        began = time.monotonic()
        attempt.wait_for(self._moment(kind, task, when, end), with_job=task in SUBMITTED)
        if when == "last":  # others than the first start faster
            took = time.monotonic() - began
            self.seconds[kind, task] = min(took, self.seconds[kind, task])
        was_there = attempt.is_alive() and not had_ended
        self.outlived += attempt.kill_tasks(kill)
        return was_there

    def _moment(self, kind: RunKind, task: str, when: When, end: Path | None) -> Moment:
        if when == "random":
            return Moment(self.random.uniform(0.0, 0.6 * self.seconds[kind, task]))
        return Moment(appears=end if when == "last" else None)

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


def dag_of(kind: RunKind) -> str:
    return f"ann_{kind}_{INDEX}"


def in_turn(kind: RunKind, kill: Kind, number: int) -> Kills:
    """Kill one attempt at each task, at a moment that changes from task to task."""
    whens = get_args(When)
    found: Kills = {}
    for place, task in enumerate(STAGES[kind]):
        when = whens[(number + place) % len(whens)]
        found[task] = ((kill, "random" if when == "last" and task not in ENDS else when),)
    return found


def at_every_moment(*kills: Kind) -> tuple[tuple[Kind, When], ...]:
    """Kill three attempts at a task, in ways that change."""
    return tuple((kills[place % len(kills)], when) for place, when in enumerate(get_args(When)))
