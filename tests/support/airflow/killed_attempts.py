"""Kills what works on a task of a running Airflow, at a moment of one's choice, by SIGKILL."""

import contextlib
import sqlite3
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from tests.support.airflow.airflow_server import LocalAirflow, wait_until

Kind = Literal["job", "task", "task alone", "worker", "worker alone"]
"""What is killed: a Spark job (or a task that has none); a task with all that it started; a task
whose Spark job lives on; a worker, as when a machine is lost; a worker whose task lives on."""

DONE = ("success", "failed", "skipped", "upstream_failed", "removed")
POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Moment:
    """When to kill: so many seconds after an attempt was seen, or as soon as a file is there."""

    seconds: float = 0.0
    appears: Path | None = None


@dataclass(frozen=True)
class Attempt:
    """An attempt at a task that runs: its process, and the worker that watches over it."""

    task: str
    process: psutil.Process
    worker: psutil.Process

    def is_alive(self) -> bool:
        return is_alive(self.process)

    def jobs(self) -> list[psutil.Process]:
        """What the task started: spark-submit, its JVM, Python workers."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return self.process.children(recursive=True)
        return []

    def wait_for(self, moment: Moment, *, with_job: bool) -> None:
        """Return at the moment, or when the attempt ends; not before its Spark job has begun."""
        began = time.monotonic()
        while self.is_alive():
            if moment.appears is not None:  # which a job stores just before it ends
                is_there = moment.appears.exists()
            else:
                is_there = not with_job or bool(self.jobs())
            if is_there and time.monotonic() - began >= moment.seconds:
                return
            time.sleep(0.01)

    def kill_tasks(self, kind: Kind) -> list[psutil.Process]:
        """Kill, and return what is to live on."""
        jobs = self.jobs()
        if kind == "job" and jobs:
            kill(jobs)
            return []
        if kind in ("job", "task"):
            kill([self.process, *jobs])
            return []
        if kind == "task alone":
            kill([self.process])
            return jobs
        if kind == "worker":
            kill([self.worker, self.process, *jobs])
            return []
        kill([self.worker])
        return [self.process, *jobs]


def is_alive(process: psutil.Process) -> bool:
    """Tell whether a process runs; one that ended but that nobody waited for does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def newest_run(server: LocalAirflow, dag: str) -> str:
    """The id of a DAG's newest run; empty if there is none."""
    asked = "SELECT run_id FROM dag_run WHERE dag_id = ? ORDER BY id DESC LIMIT 1"
    return next((run_id for (run_id,) in _rows(server, asked, dag)), "")


def running(
    server: LocalAirflow,
    dag: str,
    run: str,
    task: str,
    seconds: float,
    killed: Collection[psutil.Process] = (),
) -> Attempt | None:
    """Wait for an attempt at a task, and return it; None if the task ended before it was seen.

    Of a mapped task, an attempt at the first of its instances; none of those killed already.
    """
    asked = (
        "SELECT state, pid FROM task_instance "
        "WHERE dag_id = ? AND run_id = ? AND task_id = ? AND map_index <= 0"
    )
    found: list[Attempt] = []

    def look() -> bool:
        state, pid = next(iter(_rows(server, asked, dag, run, task)), (None, None))
        if state == "running" and pid:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                worker = process.parent()
                watched = worker is not None and "LocalExecutor" in " ".join(worker.cmdline())
                # One that was killed is in the database until somebody misses it.
                if watched and process not in killed and is_alive(process):
                    found.append(Attempt(task, process, worker))
        return bool(found) or state in DONE

    wait_until(look, seconds, every=POLL_SECONDS)
    return found[0] if found else None


def _rows(server: LocalAirflow, asked: str, *given: str) -> list[tuple[Any, ...]]:
    """What Airflow's database says: its API may take longer to answer than a task takes."""
    database = f"file:{server.local}/airflow/airflow.db?mode=ro"
    with contextlib.closing(sqlite3.connect(database, uri=True, timeout=30)) as connection:
        return connection.execute(asked, given).fetchall()
