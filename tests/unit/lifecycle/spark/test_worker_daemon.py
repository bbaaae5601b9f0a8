"""How Spark's Python workers are started: by our daemon, ahead of the first task."""

import os
import struct
import subprocess
import sys
from threading import Event, Timer

import pytest

from puffin_ann.lifecycle.spark import worker_imports
from puffin_ann.lifecycle.spark.session import (
    DAEMON,
    DAEMON_MODULE,
    WARM_UP,
    stop,
    warm_up,
    worker_conf,
)
from tests.support.paths import ROOT


def test_workers_are_forked_from_our_daemon_unless_the_user_has_it_otherwise():
    assert worker_conf({"spark.master": "local[2]"}) == {DAEMON_MODULE: DAEMON}
    assert worker_conf({DAEMON_MODULE: "mine.daemon"}) == {}
    assert worker_conf({"spark.submit.pyFiles": ""}) == {DAEMON_MODULE: DAEMON}
    # The library may be one of them, and Spark's daemon does not see those.
    assert worker_conf({"spark.submit.pyFiles": "s3://bucket/puffin_ann.zip"}) == {}


def test_the_daemon_tells_its_port_and_nothing_else_and_ends_with_spark():
    daemon = subprocess.Popen(
        [sys.executable, "-m", DAEMON, "pyspark.worker"],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "include"),
            "PYICEBERG_CATALOG__DEMO__URI": "sqlite:///nowhere.db",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    (port,) = struct.unpack("!i", daemon.stdout.read(4))
    assert 1024 <= port < 65536
    rest, _ = daemon.communicate(timeout=60)
    assert rest == b""


def test_the_daemon_imports_no_pandas_until_a_data_frame_is_asked_for():
    pytest.importorskip("pandas")
    program = (
        "import sys\n"
        "from puffin_ann.lifecycle.spark import worker_imports\n"
        "worker_imports._import()\n"
        "import pyspark.worker\n"
        "import pyarrow as pa\n"
        "column = pa.table({'a': pa.array([1, 2])})\n"
        "print('pandas' in sys.modules, column.to_pandas().shape)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT / "include")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split(maxsplit=1) == ["False", "(2, 1)\n"]


@pytest.mark.parametrize(
    ("configured", "found"),
    [
        ({"URI": "sqlite:///here.db"}, {"sql"}),
        ({"URI": "https://host/catalog"}, {"rest"}),
        ({"URI": "postgresql://host/db", "TYPE": "SQL"}, {"sql"}),
        ({"WAREHOUSE": "s3://bucket"}, set()),
    ],
)
def test_the_daemon_imports_the_clients_of_the_catalogs_configured(
    monkeypatch, tmp_path, configured, found
):
    for name in [name for name in os.environ if name.startswith("PYICEBERG_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name, value in configured.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__DEMO__{name}", value)
    assert worker_imports._catalog_types() == found


def test_workers_are_asked_for_on_every_core_and_a_failure_is_left_to_the_first_task():
    asked = []

    class Context:
        defaultParallelism = 3

        def setJobGroup(self, *_):
            pass

        def parallelize(self, items, parts):
            asked.append((list(items), parts))
            raise RuntimeError("stopped meanwhile")

    warm_up(Context()).join(10)
    assert asked == [([0, 1, 2], 3)]


class Session:
    """A session whose workers take as long to start as the test wants."""

    defaultParallelism = 1

    def __init__(self):
        self.sparkContext = self
        self.let_on, self.begun, self.seen = Event(), Event(), []

    def setJobGroup(self, group, _):
        self.seen.append(f"group {group}")

    def parallelize(self, *_):
        return self

    def foreach(self, _):
        self.begun.set()
        assert self.let_on.wait(10)
        self.seen.append("warm")

    def cancelJobGroup(self, group):
        self.seen.append(f"cancel {group}")
        self.let_on.set()

    def stop(self):
        self.seen.append("stop")


def test_a_session_is_stopped_once_its_workers_have_been_started():
    session = Session()
    warming = warm_up(session)
    assert session.begun.wait(10)
    Timer(0.05, session.let_on.set).start()
    stop(session, warming)
    assert session.seen == [f"group {WARM_UP}", "warm", "stop"]


def test_workers_that_do_not_come_hold_up_the_end_of_a_session_no_longer_than_patience():
    session = Session()
    warming = warm_up(session)
    assert session.begun.wait(10)
    stop(session, warming, patience=0.01)
    assert session.seen == [f"group {WARM_UP}", f"cancel {WARM_UP}", "warm", "stop"]


def test_a_session_that_was_not_warmed_up_is_stopped_at_once():
    session = Session()
    stop(session, None)
    assert session.seen == ["stop"]
