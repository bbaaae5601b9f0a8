"""A demo that is interrupted or killed is in nobody's way, its own next run least of all."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from dag_run import give_back_leases, one_at_a_time, owner_of, working_on
from demo import Shown
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.airflow.operators.submit_stage import owner_of as owner_in_dags
from puffin_ann.lake.store.leases import Lease
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.lifecycle.runtime.run_ids import safe_run_id

RUN = "manual__2026-01-02T03:04:05.678901+00:00"
LOG = f"[DAG TEST] running task <TaskInstance: ann_build_words.lease {RUN} [SCHEDULED]> [dag]"
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: None)  # as Airflow does while a task is at work
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(sys.argv[1], flush=True)
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def record(tmp_path):
    with one_at_a_time(tmp_path / "demo.run") as record:
        yield record


def test_an_interrupt_ends_the_command_and_what_it_started(record, monkeypatch):
    monkeypatch.setattr("dag_run.END_SECONDS", 0.5)
    command, pids = [sys.executable, "-c", STUBBORN, LOG], []

    def interrupted():
        with working_on(record, command, os.environ) as lines:
            next(lines)
            pids.append(int(next(lines)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    until = time.monotonic() + 30
    while is_at_work(pids[0]):
        assert time.monotonic() < until
        time.sleep(0.05)
    record.seek(0)
    assert record.read() == RUN


def is_at_work(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_command_that_fails_is_told(record):
    command = [sys.executable, "-c", "import sys; sys.exit(3)"]
    with pytest.raises(SystemExit, match="exit code 3"), working_on(record, command, {}) as lines:
        assert list(lines) == []


def test_a_second_demo_is_refused_until_what_the_first_started_has_ended(tmp_path):
    path = tmp_path / "demo.run"
    with one_at_a_time(path) as record:
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[record.fileno()]
        )
    with pytest.raises(SystemExit, match="another `make demo`"), one_at_a_time(path):
        pass
    child.communicate(b"\n")
    with one_at_a_time(path):
        pass


@pytest.fixture
def held(tmp_path, monkeypatch):
    """The leases on an index and on its table, by name, which nobody holds yet."""
    io = PyArrowFileIO()
    found = SimpleNamespace(
        index=Lease(io, str(tmp_path / "index"), "the index"),
        table=Lease(io, str(tmp_path / "table"), "the table"),
    )
    monkeypatch.setattr("puffin_ann.lake.catalog.tables.load_table", lambda name: name)
    monkeypatch.setattr(leases, "index_lease", lambda table, index: found.index)
    monkeypatch.setattr(leases, "table_lease", lambda table: found.table)
    return found


def write(record, run_id: str) -> None:
    record.write(run_id)
    record.flush()


def test_the_leases_of_a_run_that_died_are_given_back(record, held):
    held.index.acquire(owner_of(RUN), "build", 900)
    held.table.acquire(f"words/{safe_run_id(RUN)}", "publish words", 900)
    write(record, RUN)
    give_back_leases(record, "demo.words", "words")
    assert held.index.look().released
    assert held.table.look().released
    record.seek(0)
    assert record.read() == ""


@pytest.mark.parametrize("recorded", [RUN, ""])
def test_leases_of_other_runs_stay(record, held, recorded):
    held.index.acquire(owner_of("of make up"), "build", 900)
    held.table.acquire("words/of-make-up", "publish words", 900)
    write(record, recorded)
    give_back_leases(record, "demo.words", "words")
    assert not held.index.look().released
    assert not held.table.look().released


def test_the_demo_calls_the_holder_of_a_lease_as_the_build_dag_does():
    assert owner_of(RUN) == owner_in_dags("build", RUN)


def test_what_is_waited_for_is_shown_once(capsys):
    shown = Shown()
    waits = "[info] index 'words' of demo.words is being worked on by build (run x) since noon; "
    for _ in range(3):
        shown.take(f"2026 {waits}waiting for it [airflow.task] loc=x\n")
        shown.take("2026 [info] updated new_state=up_for_reschedule\n")
        shown.take("2026 [info] [DAG TEST] end task task_id=lease map_index=-1 [dag]\n")
    told = " ".join(capsys.readouterr().out.split())
    assert told.count("is being worked on by build (run x) since noon; waiting for it") == 1
    assert "no sign of life for 15 minutes" in told
    assert "reschedule" not in told
