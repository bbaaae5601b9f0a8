"""The daemon of Spark's Python workers is begun before Spark, and takes over or gives way."""

import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from puffin_ann.lifecycle.spark import daemon_prestart
from puffin_ann.lifecycle.spark.daemon_prestart import PLACE, daemon_ahead
from puffin_ann.lifecycle.spark.session import DAEMON, DAEMON_MODULE
from tests.support.paths import ROOT

LOCAL = {"spark.master": "local[2]", DAEMON_MODULE: DAEMON}
NAME = f"spark.executorEnv.{PLACE}"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    """What both processes inherit, as they do of one driver."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "include"))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    monkeypatch.setattr(daemon_prestart, "_begun", [])


def daemon_of_spark(place: str, **changed: str) -> subprocess.Popen:
    """Start the daemon as Spark's JVM does."""
    set_by_spark = {
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "SPARK_BUFFER_SIZE": "65536",
        "PYTHON_WORKER_FACTORY_SECRET": "secret",
    }
    return subprocess.Popen(
        [sys.executable, "-m", DAEMON, "pyspark.worker"],
        env={**os.environ, **set_by_spark, PLACE: place, **changed},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def port_of(daemon: subprocess.Popen) -> int:
    (port,) = struct.unpack("!i", daemon.stdout.read(4))
    return port


def a_worker_of(port: int) -> int:
    """Have a worker forked; returns its parent: the process that serves."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        (worker,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
        status = Path(f"/proc/{worker}/status").read_text()
    (parent,) = (line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))
    return int(parent)


def test_the_process_that_was_ahead_serves_and_ends_when_spark_does():
    with daemon_ahead(LOCAL) as added:
        place = added[NAME]
    (ahead,) = daemon_prestart._begun
    daemon = daemon_of_spark(place)
    assert a_worker_of(port_of(daemon)) == ahead.pid
    assert not Path(place).parent.exists()
    daemon.stdin.close()
    ahead.wait(30)
    assert daemon.wait(30) == 0
    assert daemon.stdout.read() == b""


def test_it_ends_when_spark_terminates_the_daemon_that_it_started():
    with daemon_ahead(LOCAL) as added:
        daemon = daemon_of_spark(added[NAME])
    (ahead,) = daemon_prestart._begun
    port_of(daemon)
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(30) == 0
    ahead.wait(30)
    daemon.communicate()


def test_a_daemon_in_other_surroundings_serves_itself():
    with daemon_ahead(LOCAL) as added:
        daemon = daemon_of_spark(added[NAME], OMP_NUM_THREADS="4")
    (ahead,) = daemon_prestart._begun
    assert a_worker_of(port_of(daemon)) == daemon.pid
    assert ahead.wait(30) == 0
    daemon.communicate()


def test_a_daemon_that_finds_nobody_ahead_serves_itself(tmp_path):
    daemon = daemon_of_spark(str(tmp_path / "nobody"))
    assert a_worker_of(port_of(daemon)) == daemon.pid
    daemon.communicate()


def test_it_ends_with_the_driver_if_no_task_ever_came():
    with daemon_ahead(LOCAL) as added:
        pass
    (ahead,) = daemon_prestart._begun
    ahead.stdin.close()  # as the driver's end does
    assert ahead.wait(30) == 0
    assert not Path(added[NAME]).parent.exists()


def test_it_ends_with_a_session_that_could_not_be_started():
    def start() -> None:
        with daemon_ahead(LOCAL) as added:
            places.append(added[NAME])
            raise RuntimeError("no JVM")

    places: list[str] = []
    with pytest.raises(RuntimeError, match="no JVM"):
        start()
    (ahead,) = daemon_prestart._begun
    assert ahead.returncode == -signal.SIGTERM
    assert not Path(places[0]).parent.exists()


@pytest.mark.parametrize(
    "conf",
    [
        {**LOCAL, "spark.master": "spark://host:7077"},
        {**LOCAL, "spark.master": "local-cluster[2,1,1024]"},
        {**LOCAL, DAEMON_MODULE: "mine.daemon"},
        {"spark.master": "local[2]"},
    ],
)
def test_nothing_is_begun_for_workers_elsewhere_or_of_another_daemon(conf):
    with daemon_ahead(conf) as added:
        assert added == {}
    assert daemon_prestart._begun == []


def test_a_session_starts_without_it_where_it_cannot_be_begun(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    with daemon_ahead(LOCAL) as added:
        assert added == {}


@pytest.mark.long
def test_processes_that_have_ended_are_not_kept():
    for _ in range(2):
        with daemon_ahead(LOCAL):
            pass
        daemon_prestart._begun[0].stdin.close()
        daemon_prestart._begun[0].wait(30)
    assert len(daemon_prestart._begun) == 1
