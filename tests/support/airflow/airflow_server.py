"""A local Airflow with all its parts, as `make up` starts it, and what tests ask of it."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path

from tests.support.paths import ROOT

SERVER = ROOT / "include" / "local" / "server.py"
START_SECONDS = 600
INTERNAL_ERROR = 500
ANSWER_SECONDS = 120
"""On a machine that has too much to do, which tests should survive."""


@dataclass
class LocalAirflow:
    """A local Airflow of this test session, and what its `up` printed."""

    local: Path
    port: int
    printed: str = ""
    token: str = field(default="", repr=False)
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self, name: str, **variables: str) -> subprocess.CompletedProcess[str]:
        given = {"PUFFIN_ANN_LOCAL": str(self.local), "PORT": str(self.port), **self.variables}
        given |= variables
        return subprocess.run(
            [sys.executable, str(SERVER), name],
            env={**os.environ, **given},
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )

    def up(self) -> None:
        """Start it, or find that it runs, and log in."""
        deadline = time.monotonic() + START_SECONDS
        while (done := self.command("up")).returncode and "not healthy" in done.stderr:
            assert time.monotonic() < deadline, done.stderr
        assert done.returncode == 0, done.stdout + done.stderr
        self.printed = done.stdout
        self.log_in()

    def log_in(self) -> None:
        user, password = self.printed.split("log in as:")[1].split()[:2]
        status, answer = self.request("POST", "/auth/token", username=user, password=password)
        assert status == 201, answer
        self.token = answer["access_token"]

    def request(self, method: str, path: str, **body: object) -> tuple[int, dict]:
        request = urllib.request.Request(
            self.address + path,
            method=method,
            data=json.dumps(body).encode() if body else None,
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def page(self, path: str) -> tuple[int, str, Message]:
        """Get a page as a browser does, which shows its login as a cookie."""
        headers = {"Cookie": f"_token={self.token}"} if self.token else {}
        request = urllib.request.Request(self.address + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                return answer.status, answer.read().decode(), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), error.headers

    def trigger(self, dag: str, **values: object) -> tuple[int, dict]:
        """Ask for a run, as a person does: once more where Airflow's SQLite was locked."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            path = f"/api/v2/dags/{dag}/dagRuns"
            answer = self.request("POST", path, logical_date=None, conf=values)
            if answer[0] != INTERNAL_ERROR or time.monotonic() > deadline:
                return answer
            time.sleep(1)

    def load_also(self, folder: Path) -> None:
        """Have it load DAGs of a folder, besides ours; it must not run yet."""
        kind = "airflow.dag_processing.bundles.local.LocalDagBundle"
        paths = {"dags-folder": {}, "own": {"path": str(folder)}}
        bundles = [{"name": name, "classpath": kind, "kwargs": at} for name, at in paths.items()]
        self.variables["AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"] = json.dumps(bundles)

    def runs(self, dag: str) -> list[dict]:
        """The runs of a DAG, the oldest first; none where there is no such DAG yet."""
        _, answer = self.request("GET", f"/api/v2/dags/{dag}/dagRuns?order_by=id&limit=100")
        return answer.get("dag_runs", [])

    def tasks(self, dag: str, run_id: str) -> list[dict]:
        """The newest attempts of the tasks of a run."""
        path = f"/api/v2/dags/{dag}/dagRuns/{run_id}/taskInstances?limit=100"
        _, answer = self.request("GET", urllib.parse.quote(path, safe="/?=&"))
        return answer.get("task_instances", [])


def wait_until(condition: Callable[[], object], seconds: float = 60, every: float = 0.25) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(every)
