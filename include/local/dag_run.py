"""The DAG run of the demo: it ends when the demo does, and leaves no lease to the next one.

A task that is interrupted fails, and Airflow goes on to its next attempt. So `airflow dags test`
has a session of its own, which no Ctrl-C reaches, and is ended as a whole. What is killed gives no
lease back: the demo does, at once if it can, else when it is run again, as after a power failure.
"""

import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

END_SECONDS = 3.0
"""How long processes may take to end before they are killed.

Spark ends. Airflow cancels what a task has submitted, and goes on to the task's next attempt.
"""

POLL_SECONDS = 0.05

RUN = re.compile(r"\[DAG TEST\] running task <TaskInstance: \S+ (\S+) ")
"""Airflow chooses a run's id, whatever date it is given, and tells it before each task."""


@contextmanager
def one_at_a_time(path: Path) -> Iterator[TextIO]:
    """Keep another demo out; give the file that has the DAG run which was begun and not ended."""
    with path.open("a+") as record:
        try:
            fcntl.flock(record, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(
                f"another `make demo` is at work, or Airflow of one that was killed: {path} is "
                "locked; wait until it ends, or end it"
            )
        yield record


@contextmanager
def working_on(
    record: TextIO, command: Sequence[str], variables: Mapping[str, str]
) -> Iterator[Iterator[str]]:
    """Carry out a DAG run by a command that does not outlive the body; give the lines of its log.

    Args:
        record: gets the id of the run as soon as a line tells it, before any task is at work;
            locked as long as the command is there.
        command: prints the log.
        variables: of its environment.

    Raises:
        SystemExit: the command failed.
    """
    process = subprocess.Popen(
        command,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        pass_fds=(record.fileno(),),
    )
    with process:
        try:
            yield _recorded(process.stdout or (), record)
        except BaseException:
            _end(process)
            raise
    if process.returncode:
        sys.exit(f"{' '.join(command)} left with exit code {process.returncode}")


def _recorded(lines: Iterable[str], record: TextIO) -> Iterator[str]:
    """Give the lines of a log, and write down which DAG run they tell of."""
    run_id = ""
    for line in lines:
        if not run_id and (found := RUN.search(line)):
            run_id = found[1]
            record.truncate(0)
            record.write(run_id)
            record.flush()
        yield line


def give_back_leases(record: TextIO, table: str, index: str) -> None:
    """Give back the leases that the recorded run still has, of which no process is left."""
    from puffin_ann.lake.catalog.tables import load_table
    from puffin_ann.lifecycle.runtime.leases import index_lease, table_lease
    from puffin_ann.lifecycle.runtime.run_ids import safe_run_id

    record.seek(0)
    run_id = record.read().strip()
    if not run_id:
        return
    loaded = load_table(table)
    index_lease(loaded, index).release(owner_of(run_id))
    publishing = table_lease(loaded)
    held = publishing.look()
    if held is not None and held.claim.owner.startswith(f"{index}/{safe_run_id(run_id)}"):
        publishing.release(held.claim.owner)
    record.truncate(0)


def owner_of(run_id: str) -> str:
    """Return by what name a run of the build DAG holds the lease on its index."""
    return f"build/{run_id}"


def _end(process: "subprocess.Popen[str]") -> None:
    """End a process and all that it started in its session, and wait until they have ended."""
    with suppress(ProcessLookupError):
        for number in (signal.SIGTERM, signal.SIGKILL):
            os.killpg(process.pid, number)
            until = time.monotonic() + END_SECONDS
            while time.monotonic() < until:
                process.poll()  # one that has ended and is not waited for counts as there
                time.sleep(POLL_SECONDS)
                os.killpg(process.pid, 0)
