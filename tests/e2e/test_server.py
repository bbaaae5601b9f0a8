"""`make up` and `make down`, on a folder and a port of their own."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVER = ROOT / "include" / "local" / "server.py"
DAG = "ann_build_glove_words"


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
            timeout=200,
            check=False,
        )

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
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def page(self, path: str) -> tuple[int, str, Message]:
        """Get a page as a browser does, which shows its login as a cookie."""
        headers = {"Cookie": f"_token={self.token}"} if self.token else {}
        request = urllib.request.Request(self.address + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode(), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), error.headers

    def trigger(self, **values: object) -> tuple[int, dict]:
        return self.request("POST", f"/api/v2/dags/{DAG}/dagRuns", logical_date=None, conf=values)


@pytest.fixture(scope="module")
def airflow(tmp_path_factory) -> Iterator[LocalAirflow]:
    server = LocalAirflow(tmp_path_factory.mktemp("server"), free_port())
    # Nothing is to run by itself here, so that what a person asks for is all there is.
    declarations = tmp_path_factory.mktemp("indexes")
    declared = (ROOT / "include" / "indexes" / "glove_words.yaml").read_text()
    by_hand = "refresh: {watch: false}\nmaintain: {schedule: null}\nevaluate: {schedule: null}\n"
    (declarations / "glove_words.yaml").write_text(declared + by_hand)
    server.variables["PUFFIN_ANN_DECLARATIONS_DIR"] = str(declarations)
    try:
        done = server.command("up")
        assert done.returncode == 0, done.stdout + done.stderr
        server.printed = done.stdout
        server.log_in()
        wait_until(lambda: server.request("GET", f"/api/v2/dags/{DAG}")[0] == 200)
        yield server
    finally:
        server.command("down")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(condition, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(0.25)


def processes_of(airflow: LocalAirflow) -> list[psutil.Process]:
    """Return the processes whose state lies in the folder, found by what they have open."""
    found = []
    for process in psutil.process_iter():
        try:
            files = [file.path for file in process.open_files()]
            home = process.environ().get("AIRFLOW_HOME", "")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if any(path.startswith(str(airflow.local)) for path in [*files, home]):
            found.append(process)
    return found


def test_up_prints_the_address_and_the_login(airflow):
    assert airflow.address in airflow.printed
    assert airflow.token
    assert "make down" in airflow.printed


def test_every_part_is_healthy(airflow):
    status, health = airflow.request("GET", "/api/v2/monitor/health")
    assert status == 200
    assert {one["status"] for one in health.values()} == {"healthy"}


def test_nothing_listens_beyond_loopback(airflow):
    listening = {
        connection.laddr.ip
        for process in processes_of(airflow)
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_who_has_not_logged_in_sees_nothing(airflow):
    stranger = LocalAirflow(airflow.local, airflow.port)
    assert stranger.request("GET", "/api/v2/dags")[0] == 401
    stranger.token = "x.y.z"
    assert stranger.request("GET", "/api/v2/dags")[0] in (401, 403)


def test_the_dags_are_there_without_an_import_error(airflow):
    assert airflow.request("GET", "/api/v2/importErrors")[1]["total_entries"] == 0
    _, dags = airflow.request("GET", "/api/v2/dags")
    listed = {dag["dag_id"]: dag for dag in dags["dags"]}
    assert DAG in listed
    assert listed[DAG]["is_paused"] is False


def test_the_form_shows_what_is_declared_with_its_bounds(airflow):
    _, details = airflow.request("GET", f"/api/v2/dags/{DAG}/details")
    shards = details["params"]["shards"]
    assert shards["value"] == 2
    assert (shards["schema"]["minimum"], shards["schema"]["maximum"]) == (1, 10_000)


@pytest.mark.parametrize(
    ("name", "value"),
    [("shards", 0), ("recall_target", 2), ("R", "many"), ("alpha", 0.5), ("force", "yes")],
)
def test_a_bad_value_in_the_form_is_refused_by_name_and_runs_nothing(airflow, name, value):
    status, answer = airflow.trigger(**{name: value})
    assert 400 <= status < 500
    assert name in json.dumps(answer)
    assert airflow.request("GET", f"/api/v2/dags/{DAG}/dagRuns")[1]["total_entries"] == 0


def test_the_page_of_indexes_is_for_those_who_logged_in(airflow):
    stranger = LocalAirflow(airflow.local, airflow.port)
    for token in ("", "x.y.z"):
        stranger.token = token
        status, text, _ = stranger.page("/puffin-ann/")
        assert status in (401, 403)
        assert "glove" not in text


def test_the_page_of_indexes_shows_those_declared_and_loads_nothing(airflow):
    status, text, headers = airflow.page("/puffin-ann/")
    assert status == 200
    assert "glove_words" in text
    assert DAG in text
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'self'" in headers["Content-Security-Policy"]


def test_the_page_of_indexes_stands_in_the_navigation(airflow):
    _, answer = airflow.request("GET", "/api/v2/plugins")
    views = [view for plugin in answer["plugins"] for view in plugin["external_views"]]
    (view,) = [view for view in views if view["name"] == "Vector indexes"]
    assert airflow.page("/" + view["href"].lstrip("/"))[0] == 200
    assert airflow.request("GET", "/api/v2/plugins/importErrors")[1]["total_entries"] == 0


def test_a_second_up_starts_nothing_and_says_the_same(airflow):
    before = {process.pid for process in processes_of(airflow)}
    again = airflow.command("up", PORT=str(free_port()))
    assert again.returncode == 0, again.stderr
    assert again.stdout == airflow.printed
    assert {process.pid for process in processes_of(airflow)} <= before


def test_a_port_that_is_taken_is_refused_by_number(airflow, tmp_path):
    other = LocalAirflow(tmp_path, airflow.port)
    refused = other.command("up")
    assert refused.returncode != 0
    assert str(airflow.port) in refused.stderr
    assert "PORT=" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert other.command("down").stdout == "Airflow is not running\n"


@pytest.mark.parametrize("port", ["0", "http", "-1", "65536", ""])
def test_a_port_that_is_no_port_is_refused(tmp_path, port):
    refused = LocalAirflow(tmp_path, 0).command("up", PORT=port)
    assert refused.returncode != 0
    assert "PORT=" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_down_stops_every_process_even_those_that_lost_their_parent(airflow):
    family = processes_of(airflow)
    assert len(family) > 4
    scheduler = max(family, key=lambda one: len(one.children()))
    scheduler.kill()
    done = airflow.command("down")
    assert done.returncode == 0, done.stderr
    assert processes_of(airflow) == []
    assert [one for one in family if one.is_running() and one.status() != "zombie"] == []
    assert airflow.command("down").stdout == "Airflow is not running\n"
